"""Comparison of two or more runs: whether they may be compared, what changed, and whether a change fails a build.

In: recorded runs, or two revisions that are measured in fresh processes. Out: changes, judgements, an exit code. Open
``changes`` first, then ``gate.judge``; ``history`` keeps the figures of runs over time.
"""
