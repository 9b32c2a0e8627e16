"""PLACEHOLDER harness/record"""
