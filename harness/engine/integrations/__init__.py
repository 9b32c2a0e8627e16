"""PLACEHOLDER harness/engine/integrations"""
