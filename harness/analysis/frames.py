"""A run as pandas frames, for notebooks: recorded samples, rows and passes, and derived arms and predictions.

Column names carry units. An unknown value is missing (NaN, None), with a ``*_reason`` column beside it where a reason exists.
The frames arms and predictions flatten harness.analysis.answer: each quantity gives columns for value, interval, count,
method and reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.analysis.answer import Comparison, Derived
from harness.analysis.results import Cell
from harness.analysis.tally.pass_arrays import ROLES, TraceArrays
from harness.analysis.tally.pass_values import DURING_RUN, rung_of
from harness.analysis.tally.tally import given_tokens
from harness.analysis.trust.health import void_reasons
from harness.record.schema import Run, RunHeader
from harness.record.store import read_on_one_machine
from harness.stats.quantity import Quantity

NUMBERS = ("value", "low", "high")
"""Fields of a quantity that become missing numbers where they are not known."""


def flat(value: Any, leave_out: Sequence[str] = (), before: str = "") -> dict[str, object]:
    """Fields of a frozen value (or entries of a dict), nested ones as ``outer_inner``; a quantity's own value has no suffix
    ``_value``. The columns are the same whether a nested value is present or None.
    """
    named = value if isinstance(value, Mapping) else {field.name: getattr(value, field.name) for field in fields(value)}
    inner = {} if isinstance(value, Mapping) else _optional(type(value))
    found: dict[str, object] = {}
    for name, one in named.items():
        column = f"{before}{name}"
        if name in leave_out:
            continue
        if one is None and name in inner:
            one = Quantity(value=None) if inner[name] is Quantity else {part.name: math.nan for part in fields(inner[name])}
        if isinstance(one, Quantity):
            found |= {column if part == "value" else f"{column}_{part}": known for part, known in flat(one).items()}
        elif is_dataclass(one) or (name in inner and isinstance(one, Mapping)):
            found |= flat(one, before=f"{column}_")
        else:
            missing = one is None and isinstance(value, Quantity) and name in NUMBERS
            found[column] = math.nan if missing else one
    return found


def _optional(kind: type) -> dict[str, type]:
    """The fields of a frozen value that hold another one, or None."""
    allowed = {name: get_args(hint) for name, hint in get_type_hints(kind).items()}
    nested = {name: [one for one in kinds if isinstance(one, type) and is_dataclass(one)] for name, kinds in allowed.items()}
    return {name: found[0] for name, found in nested.items() if found and type(None) in allowed[name]}


PASS_COUNTS = ("query_tokens", "context_tokens", "logit_tokens", "kept_tokens", "decided_tokens", "final_tokens")
SAMPLE_KEY: dict[str, type] = {"process": int, "group": int, "repeat": int, "warmup": bool}
CASE = {name: name for name in ("case_id", "part", "task", "batch_size")} | {"arm": "label"}
CASE |= {name: f"arm.{name}" for name in ("method", "block_size", "gamma", "temperature")}
"""By column of a case, where its header has it."""
CASE_TYPES = {"block_size": "Int64", "gamma": "float", "temperature": "float"}
REPEATED_TEXT = ("case_id", "part", "task", "arm", "method")
"""Few values in many rows: kept as categories."""


class RunFrames:
    """One run as frames, each made on first use. Columns that name a case or an arm mean the same in all of them.

    A batch is one sample because it is timed as one. So ``samples.decode_s`` may be summed, whatever the batch size. ``rows``
    joins it on case_id, process, group, repeat and warmup.
    """

    def __init__(self, run: Run) -> None:
        """``run``: as harness.record.store.read_run gives it."""
        self._run = run

    def __repr__(self) -> str:
        """Which run, and how large."""
        return f"<run {self.header.scenario_name} {self.header.run_id}: {len(self._run.samples)} samples>"

    @property
    def header(self) -> RunHeader:
        """Everything known before the first sample."""
        return self._run.header

    @cached_property
    def comparison(self) -> Comparison:
        """Speedups, accuracies and predictions with their intervals and reasons; takes seconds for a large run."""
        return Derived(self._run).comparison

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row per sample in the order taken; samples of generate() have that method.

        Case: case_id, part, task, batch_size, arm (its label), method, block_size, gamma, temperature. Key: process, group
        (batch of prompts), repeat, warmup, seed, started_at. Counts over the batch: prompts, prompt_tokens, output_tokens,
        decode_tokens (output tokens without those of the prefill). passes are the target's after prefill, nfe the same summed
        over the active rows, draft_passes those of draft models. Times: prefill_s and decode_s (wall), forward_s and sampler_s
        (summed over the decode passes, draft models' too). ``void``: the rules that make the times void, None for a valid
        sample; harness.analysis.answer leaves void times out. load_1min; and one column ``meter_…`` per figure that was
        read.
        """
        samples = self._run.samples
        found = self._keys(range(len(samples)))
        found["seed"] = [sample.seed for sample in samples]
        begun = pd.Series([sample.started_at for sample in samples], dtype=object)
        found["started_at"] = pd.to_datetime(begun, format="ISO8601", utc=True)
        found["prompts"] = [len(sample.rows) for sample in samples]
        for name in ("prompt_tokens", "output_tokens"):
            found[name] = [sum(getattr(row, name) for row in sample.rows) for sample in samples]
        traces = [TraceArrays(sample.packed_passes) if sample.packed_passes else None for sample in samples]
        for name, field in (("passes", "passes"), ("nfe", "row_passes"), ("draft_passes", "draft_passes")):
            found[name] = _counts([None if trace is None else getattr(trace, field) for trace in traces])
        for name in ("forward_s", "sampler_s"):
            found[name] = np.array([None if one is None else one.decode_seconds(name) for one in traces], dtype=float)
        decodes = [trace is not None and trace.decode.any() for trace in traces]
        no_decode = [one.packed_passes is not None and not some for one, some in zip(samples, decodes, strict=True)]
        found.loc[no_decode, ["forward_s", "sampler_s"]] = 0.0  # of no passes, timed or not
        given = [given_tokens(sample, trace) for sample, trace in zip(samples, traces, strict=True)]
        found["decode_tokens"] = found["output_tokens"].to_numpy() - np.array(given, dtype=np.int64)
        for name in ("prefill_s", "decode_s", "load_1min"):
            found[name] = np.array([getattr(sample, name) for sample in samples], dtype=float)
        found["void"] = ["; ".join(rules) or None for rules in void_reasons(self._run)]
        for name in sorted({name for sample in samples for name in sample.meters}):
            found[f"meter_{name}"] = np.array([sample.meters.get(name) for sample in samples], dtype=float)
        return found

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per batch row: the sample's case and key; row (its place in the batch), prompt_id, prompt_tokens,
        output_tokens. Also stop_reason, correct (None with an ungraded_reason) and output_ids. Of a request to a server: sent_s
        (after the first of its sample), first_token_s and last_token_s (after its own sending), NaN elsewhere.
        """
        samples = self._run.samples
        found = self._keys(np.repeat(np.arange(len(samples)), [len(sample.rows) for sample in samples]))
        found["row"] = [place for sample in samples for place in range(len(sample.rows))]
        columns = ("prompt_id", "prompt_tokens", "output_tokens", "stop_reason", "correct", "ungraded_reason", "output_ids")
        for name in columns:
            found[name] = pd.Series([getattr(row, name) for sample in samples for row in sample.rows], dtype=_DTYPES.get(name))
        for name in ("sent_s", "first_token_s", "last_token_s"):
            told = (row.times for sample in samples for row in sample.rows)
            found[name] = np.array([math.nan if times is None else getattr(times, name) for times in told], dtype=float)
        return found

    @cached_property
    def passes(self) -> pd.DataFrame:
        """One row per forward pass, prefill included: the sample's case and key, number (from 0, in its sample), role and
        model. A missing model is the case's own; a draft model is named.

        Summed over the batch's rows: query_tokens, context_tokens, logit_tokens, kept_tokens, decided_tokens, final_tokens;
        active_rows; padded_query_tokens and padded_context_tokens of each row's tensor. forward_s, sampler_s: NaN where they
        were not taken (untimed parts; generate(); sampler_s before record version 3).
        """
        known = [(place, one.packed_passes) for place, one in enumerate(self._run.samples)]
        of_place = {place: TraceArrays(packed) for place, packed in known if packed is not None}
        traces = [*of_place.values()]
        found = self._keys(np.repeat(np.array([*of_place], dtype=np.int64), [trace.count for trace in traces]))
        found["number"] = _joined([np.arange(trace.count) for trace in traces], np.int64)
        roles = [ROLES[code] for code in _joined([trace.role for trace in traces], np.int8)]
        found["role"] = pd.Categorical(roles)
        made_by = [trace.models[code] for trace in traces for code in trace.model.tolist()]
        found["model"] = pd.Categorical(made_by)
        for name in PASS_COUNTS:
            found[name] = _joined([trace.over_rows(name) for trace in traces], np.int64)
        found["active_rows"] = _joined([trace.over_rows("active") for trace in traces], np.int64)
        for name in ("padded_query", "padded_context"):
            found[f"{name}_tokens"] = _joined([trace.per_pass(name) for trace in traces], np.int64)
        for name in ("forward_s", "sampler_s"):
            seconds = [(trace.count, trace.seconds(name)) for trace in traces]
            found[name] = _joined([np.full(count, np.nan) if one is None else one for count, one in seconds], float)
        return found

    @cached_property
    def arms(self) -> pd.DataFrame:
        """One row per arm of every cell (harness.analysis.results.ArmResult): columns that identify the cell, then every value.

        A quantity NAME is four columns or more: NAME, NAME_low and NAME_high (its interval), NAME_n, and in words NAME_method
        and NAME_reason. ``is_summary``: over all tasks of the part; filter by it before adding values up.
        """
        lines = []
        for cell in self.comparison.cells:
            lines += [_cell(cell) | {"arm": arm.label} | flat(arm, leave_out=("predictions", "label")) for arm in cell.arms]
        return pd.DataFrame(lines)

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """One row per arm of every cell and rung of ceilings (shape-calibrated, calibrated, datasheet). ``ex_ante``: from what
        was known before the first sample of the part; the top rung has a second row, calibrated during the run.

        * Predicted: decode_s and wall_speedup, with _low and _high.
        * Measured: measured_decode_s, measured_wall_speedup (geometric mean over prompts).
        * Errors: decode_error and wall_speedup_error are predicted ÷ measured - 1.

        A rung without a prediction has its rung_reason alone.
        """
        lines = []
        for cell in self.comparison.cells:
            for arm in cell.arms:
                known = _cell(cell) | {"arm": arm.label, "method": arm.method, "block_size": arm.block_size, "gamma": arm.gamma}
                known |= flat({"decode_s": arm.decode_s, "wall_speedup": arm.wall_speedup}, before="measured_")
                lines += [known | flat(one) | {"rung_reason": None} for one in arm.predictions]
                lines += [
                    known | {"rung": rung_of(price), "ex_ante": price != DURING_RUN, "rung_reason": why}
                    for price, why in cell.rung_reasons.items()
                ]
        return pd.DataFrame(lines)

    @cached_property
    def _cases(self) -> pd.DataFrame:
        """The identifying columns of each case, in the header's order."""
        lines = map(attrgetter(*CASE.values()), self.header.cases)
        return pd.DataFrame(lines, columns=list(CASE)).astype(CASE_TYPES | dict.fromkeys(REPEATED_TEXT, "category"))

    def _keys(self, which: npt.NDArray[np.int64] | range) -> pd.DataFrame:
        """Case and key of the samples ``which``, one row each."""
        samples, chosen = self._run.samples, np.asarray(which, dtype=np.int64)
        place = {case.case_id: number for number, case in enumerate(self.header.cases)}
        of_sample = np.array([place[sample.case_id] for sample in samples], dtype=np.int64)
        found: pd.DataFrame = self._cases.iloc[of_sample[chosen]].reset_index(drop=True)
        for name, dtype in SAMPLE_KEY.items():
            found[name] = np.array([getattr(sample, name) for sample in samples], dtype=dtype)[chosen]
        return found


def load_run(path: Path | str) -> RunFrames:
    """Read a run directory, of this version or an older one, as pandas frames.

    Args:
        path: a directory that `sbd run` or `sbd publish` wrote, or its run.json.

    Raises:
        RecordError: there is no run, it is damaged, or it was made by a newer version.

    Example:
        >>> import harness
        >>> run = harness.load_run("reports/quickstart")
        >>> run.header.scenario_name
        'quickstart'
        >>> taken = run.samples[~run.samples.warmup & run.samples.void.isna()]
        >>> timed = taken[taken.method.isin(["ntp", "sbd"])].groupby(["arm", "process"], observed=True)
        >>> per_token_s = timed.decode_s.sum() / timed.decode_tokens.sum()
        >>> sorted(run.passes.role.unique())
        ['commit+decide', 'decide', 'draft', 'prefill', 'verify', 'verify+draft']
        >>> ex_ante = run.predictions[(run.predictions.rung == "shape-calibrated") & run.predictions.ex_ante]
        >>> error = ex_ante.set_index("arm").wall_speedup_error   # predicted ÷ measured - 1
    """
    return RunFrames(read_on_one_machine(Path(path)))


_DTYPES = {"prompt_tokens": "int64", "output_tokens": "int64", "correct": "object", "output_ids": "object"}


def _counts(values: Sequence[int | None]) -> npt.NDArray[Any]:
    """Whole numbers; with missing ones, as in an imported run, numbers with NaN."""
    missing = any(value is None for value in values)
    return np.array([math.nan if value is None else value for value in values], dtype=float if missing else np.int64)


def _cell(cell: Cell) -> dict[str, object]:
    """The identifying columns of a cell; ``task`` is None over several."""
    return {name: getattr(cell, name) for name in ("part", "task", "batch_size", "is_summary")}


def _joined(pieces: list[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The pieces of all samples, concatenated."""
    return np.concatenate([np.asarray(piece, dtype=dtype) for piece in pieces]) if pieces else np.zeros(0, dtype=dtype)
