"""PLACEHOLDER harness/regression"""
