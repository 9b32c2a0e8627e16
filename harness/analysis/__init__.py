"""A recorded run to its answer: trust, tallies, figures, judgements, and the evidence beside them.

In: a run as it was recorded. Out: figures with intervals, each absent value with its reason, and what was claimed, judged. Open
``answer`` first: it is the whole walk. Statistics that know no run are in harness.stats.
"""
