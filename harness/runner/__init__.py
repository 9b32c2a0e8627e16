"""Walks a plan: takes every missing sample, in processes of their own where a part asks for it, and keeps all of them.

In: a plan and a run directory. Out: a record on disk. Loads no torch itself: the engine is handed in. Open ``runner`` first,
then ``worker``, which takes the samples of one process.
"""
