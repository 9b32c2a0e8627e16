"""What the runner needs from a machine and from a part's model: protocols that tests can fake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from harness.frozen import frozen
from harness.models import ModelShape
from harness.progress import Progress
from harness.record.decode import Decoded
from harness.record.schema import Sample
from harness.record.written import Environment
from harness.runner.identity import identity_of
from harness.scenario.part import Beside, Part
from harness.scenario.plan import Case
from harness.scenario.scenario import Scenario
from harness.workloads.loader import Tokenizer


class Engine(Protocol):
    """A part's model, ready to decode any of its arms."""

    @property
    def shape(self) -> ModelShape:
        """Of the loaded model."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None where the model has none."""

    @property
    def meters(self) -> dict[str, object] | None:
        """The samples' figures with unit and source, and what cannot be read here; None without meters."""

    def fingerprint(self, part: Part) -> dict[str, object]:
        """What the model runs on here, for the shapes of ``part``, as plain data for the record."""

    def measure_passes(self, block_sizes: Sequence[int], beside: Sequence[tuple[Beside, int]]) -> Sequence[Decoded]:
        """Short decodes of NTP, of these block sizes and of what is measured beside them (Part.measured_beside);
        predictions of other cells start from them.
        """

    def decode(self, case: Case, prompts: Sequence[tuple[int, ...]], seed: int) -> Decoded:
        """Decode one batch."""


@frozen
class Machine:
    """What the runner needs from the machine, handed in so that tests can fake it.

    ``calibrate`` and ``profile`` give plain data for the record, or None; ``calibrate`` is told those that the record has.
    ``free_bytes``: free memory of a part's device before its model is loaded, or None. ``execution``: how a part's forwards run
    here. ``shape``: that of a part's model where only its weights or its hub have it. ``close`` is called at the end of a run.
    ``date`` is told when the run was begun (ISO 8601): prompts that ask for the date get that one.
    ``identity``: what a part is measured with, in this process's environment. ``divergences``: of served samples, where answers
    part from NTP's, and why.
    """

    open_engine: Callable[[Part], Engine]
    calibrate: Callable[[Part, ModelShape, Progress, Sequence[object]], dict[str, object] | None]
    free_bytes: Callable[[Part], int | None]
    profile: Callable[[Scenario], tuple[dict[str, object] | None, str | None]]
    execution: Callable[[Part], str]
    shape: Callable[[Part], ModelShape]
    close: Callable[[], None] = lambda: None
    date: Callable[[str], None] = lambda begun_at: None
    identity: Callable[[Part, Environment], dict[str, object]] = identity_of
    divergences: Callable[[Part, Sequence[Case], Sequence[Sample]], dict[str, object]] = lambda part, cases, samples: {}
