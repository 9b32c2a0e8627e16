"""PLACEHOLDER harness/regression/history"""
