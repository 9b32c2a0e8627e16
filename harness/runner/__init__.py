"""PLACEHOLDER harness/runner"""
