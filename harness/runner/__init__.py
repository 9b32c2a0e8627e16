"""Walks a plan: takes every missing sample, in fresh processes where a part asks for them, and keeps each.

In: a plan and a run directory. Out: a record on disk. The engine is handed in, so torch is not loaded here. Open ``runner``
first, then ``worker``, which takes the samples of one process, and ``sampling``.
"""
