"""The record of a run: the one link between measurement and analysis.

In: samples, passes and events as they happen. Out: the same values read back, of every version of the format. Every figure of
a run is derived from it on reading. Read ``schema`` first, then ``trace`` for what a pass is.
"""
