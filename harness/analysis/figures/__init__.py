"""Figures of the arms of a cell, each a Quantity with its interval.

In: tallies of an arm and of NTP. Out: quantities by the names of harness.scenario.metrics. Open ``arms`` first, which holds the
table of figures; each function of it carries the decorator of its row.
"""

from harness.analysis.figures import arm_figures, request_figures

__all__ = ["arm_figures", "request_figures"]
