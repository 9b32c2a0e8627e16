"""PLACEHOLDER harness/capacity"""
