"""PLACEHOLDER harness/analysis/stats"""
