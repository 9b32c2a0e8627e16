"""PLACEHOLDER harness/reporting/planner"""
