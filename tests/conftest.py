"""Settings that hold for every test."""

from __future__ import annotations

import os

from hypothesis import settings

# Several workers and a busy machine: one thread each, and no deadline, for a slow example is not a wrong one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("sbd", deadline=None)
settings.load_profile("sbd")
