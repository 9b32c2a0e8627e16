"""PLACEHOLDER harness/runner/cluster"""
