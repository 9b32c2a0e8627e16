"""Results of a recorded run: speedups, accuracy, predictions, health, and verdicts on claims.

In: a run as it was recorded. Out: results with intervals, each absent value with its reason. Open ``comparison`` first, which
makes all results of a run, then ``verdict``. ``stats`` holds the statistics that know no run.
"""
