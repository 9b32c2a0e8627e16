"""PLACEHOLDER harness/engine/training"""
