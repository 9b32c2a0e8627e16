"""Measurements of the harness itself: each script prints a table and writes results/<name>.json. Never a timed assert."""
