"""Figures of the arms of a cell, each a Quantity with its interval.

In: tallies of an arm and of NTP. Out: quantities by the names of harness.scenario.metrics. Open ``arm_figures`` first.
"""
