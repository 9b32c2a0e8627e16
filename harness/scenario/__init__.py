"""PLACEHOLDER harness/scenario"""
