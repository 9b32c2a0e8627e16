"""PLACEHOLDER harness/analysis"""
