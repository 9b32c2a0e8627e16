"""Whether a change fails a build: counts by equality, times by pairs of fresh processes and an interval.

In: two stored runs, or two commands that each measure a revision. Out: judgements. Open ``judge`` first.
"""
