"""The figures of runs over time, in SQLite or PostgreSQL, and where they changed.

In: runs. Out: series with their steps and slopes. Open ``store`` first, then ``trend``.
"""
