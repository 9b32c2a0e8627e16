"""PLACEHOLDER harness/workloads"""
