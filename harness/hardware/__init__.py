"""PLACEHOLDER harness/hardware"""
