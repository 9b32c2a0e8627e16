"""What follows from a record: speedups, accuracy, predictions, health, and verdicts on claims.

In: a run as it was recorded. Out: results with intervals, each absent value with its reason. Open ``comparison`` first, which
makes all results of a run, then ``verdict``. Statistics that know no run stand in ``stats``.
"""
