"""Every cell that is simulated, and who simulates it: those of the first shapes, and those of the shapes of records."""

from __future__ import annotations

from benchmarks.verdict_errors import imported, laboratory, loads, own, shapes
from benchmarks.verdict_errors.drawn import Task

RUN_ONE = laboratory.RUN_ONE | shapes.SHAPES | imported.SHAPES | loads.SHAPES | own.SHAPES
OF_RECORDS = (
    ("named", ("5", "20", "60"), ((40, 5),)),
    ("tasks", ("3x10",), ((30, 5),)),
    ("tasks", ("10x2",), ((20, 5),)),
    ("clusters", ("5x6", "10x3", "10x3_quiet"), ((30, 5),)),
    ("void", ("2", "5", "15"), ((30, 5),)),
    ("failed", ("2", "5", "15"), ((50, 5),)),
    ("imports", ("same", "other", "fresh"), ((50, 3), (50, 5), (50, 10))),
    ("eight", ("independent",), ((30, 5),)),
    ("energy", ("short", "long"), ((50, 5),)),
    ("totals", ("0.2",), ((100, 5),)),
    ("totals", ("0.5",), ((16, 5),)),
    ("own", own.KINDS, ((12, 4), (12, 6), (30, 6), (12, 12))),
    ("looks", own.KINDS, ((12, 12),)),
    ("loads", loads.KINDS, ((48, 3), (48, 6), (200, 3), (200, 6))),
)
"""Kinds, their shapes, and their sizes: prompts (requests) and processes (files, starts)."""


def every_cell() -> dict[Task, bool]:
    """Whether each is of the shapes of records, the long ones first."""
    both = [(one, False) for one in laboratory.tasks()]
    both += [
        (Task(kind=kind, shape=shape, prompts=p, processes=q), True)
        for kind, shapes_of, sizes in OF_RECORDS
        for shape in shapes_of
        for p, q in sizes
    ]
    return dict(sorted(both, key=lambda pair: -pair[0].prompts * pair[0].processes))
