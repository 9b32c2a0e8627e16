"""The record of a run: the one link between what measures and what reasons.

In: samples, passes and events as they happen. Out: the same values read back, of every version there was. Everything said about
a run is derived from it on reading. Open ``schema`` first, then ``trace`` for what a pass is.
"""
