"""The schema of what a run leaves: raw samples only; everything else is derived on reading.

Numbers and texts are bounded, widely enough for every measurement. A value outside is damage, and is refused on reading.

History of the format (RECORD_VERSION):
    1   first published format
    2   a sample may carry its meters' readings; session entries may be events of other kinds than machine states; a case
        names its model session (before: always the plain one) and its execution (before: always eager)
    3   a timed pass has the time of its sampler
    4   a sample names the fresh process that took it, and so does a session entry (before: always the first)
    5   a pass over a block of masks names the positions that it decided, and a pass may verify and draft at once;
        an event holds the texts of a few tokens
    6   the passes of a sample are packed (harness.record.passes), and a pass names the draft model that made it, if one did;
        the case has its shape; a sample says when it ended and, in a run over several nodes, on which it was taken; a failed
        try of a case is an event; a case names over how many processes its model was split
    7   every line of a sample or an event carries the hash of the line before it, beside these values (harness.record.seal)
    8   a row may have its own times: a request of several that a server answers. A run may be imported from files of other
        benchmarking tools (``Imported``); only then a sample may lack output ids, passes, stop reasons, its seed and
        its begin, and a case its model, dtype, device and attention. A sample of a server that does not tell its passes lacks
        them and says so in ``meter_reasons``. A sample may tell its begin and end by the monotonic clock, and a case what its
        width was chosen from. A part's calibration is an event before its first sample (earlier ones: in the header)

Versions below 6 are not read any more; benchmarks/convert_record.py makes version 6 of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, field_serializer, model_validator

from harness.config_file import Younger
from harness.errors import RecordError
from harness.models import ModelShape
from harness.record.bounds import Device, Dtype, Moment, OpenValues, Reading, Seconds, Seed, TablePlace, Tokens
from harness.record.passes import PackedPasses, read_passes
from harness.record.seal import Seal
from harness.record.trace import PassColumns as PassColumns
from harness.record.written import (
    OPEN,
    Environment,
    Happened,
    WrittenArm,
    WrittenPart,
    WrittenScenario,
    facts,
    happened,
    named_parts,
)

MOST_ROWS = 1 << 16
"""Limit of a batch, and of the processes that share a model."""
OLDEST_READ, RECORD_VERSION = 6, 8
_T = TypeVar("_T")
NO_PASSES = "passes"
"""Of a sample's ``meter_reasons``: why a server's passes are unknown."""
REQUEST_S = "request_s"
"""Of a sample's ``meters``: its whole request, where that is known by itself."""
TOGETHER = "arrived_together"
"""Of an imported sample's ``meters``: harness.record.bounds.arrived_together of its stream."""
UNTOLD = "untold_tokens"
"""Of an imported sample's ``meters``: tokens without a piece of the stream, where each should have one."""
SUPPRESSED_FIRST = "suppressed_first_pct"
"""Of the ``meters`` of a case's first decode: positions where an id that no answer may hold, as the mask, came first."""
REMARK: Final = "remark"
"""The event, and its key, of what is odd about a part's prompts or its head."""
FIRST_TOKENS = "served_first_tokens"
"""Of a served sample's ``meters``: tokens of the first chunks of its answers."""
Pairing = Literal["prompts", "order"]
SampleKey = tuple[str, int, int, bool, int]
"""(case id, group, repeat, warm-up, process)."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, serialize_by_alias=True)


def _read_known(given: Any) -> PackedPasses | None:
    return None if given is None else read_passes(given)


class RowTimes(_Frozen):
    """When one request was answered, by its client. ``sent_s``: after the sample's first; the others: after its own sending.

    ``gaps_s``: between the pieces of its answer, in order; None where only the first and the last one are known.
    """

    sent_s: Seconds
    first_token_s: Seconds
    last_token_s: Seconds
    gaps_s: list[Seconds] | None = None


class RowResult(_Frozen):
    """What one batch row was asked and what it wrote. Tokens: up to and including the stop; no prompt, no padding.

    ``correct`` is None with ``ungraded_reason`` if nothing can be checked (no answer, replayed acceptance).
    ``cluster``: what the prompt shares with related ones (the workload's ``cluster``); written only where it is given.
    ``prompt_digest``: of the part's name and the prompt's token ids, equal where these are. None where they are not known: in
    imported runs, and in records of earlier programs. There every prompt counts by itself.
    ``output_ids`` and ``stop_reason`` are None in imported runs alone, whose header says why.
    ``times``: its own, of a timed request to a server; None: only the sample has times.
    """

    prompt_id: str
    prompt_tokens: Tokens
    output_tokens: Tokens
    output_ids: list[int] | None
    stop_reason: Literal["stop", "length"] | None
    correct: bool | None
    ungraded_reason: str | None = None
    cluster: Annotated[str | None, Younger] = None
    prompt_digest: Annotated[str | None, Younger] = None
    times: Annotated[RowTimes | None, Younger] = None

    @property
    def ids(self) -> list[int]:
        """The output ids. Raises RecordError where an imported run does not tell them."""
        if self.output_ids is None:
            raise RecordError(f"{self.prompt_id}: no output ids are known, because the run was imported; give another run")
        return self.output_ids


class Sample(_Frozen):
    """One timed (or untimed) decode of one batch by one arm. ``decode_s`` is wall time after prefill, synchronised.

    ``process``: which fresh process took it, from 0; every process decodes the same prompts, but for a load.
    ``node``: its node, in a run over a cluster; the session entries of that node describe it. None: here.
    ``started_at``, ``ended_at``: wall clock around prefill and decode (ISO 8601, milliseconds); None in older records.
    ``started_clock_s``, ``ended_clock_s``: the same by its machine's monotonic clock, which nobody sets; None in older records.
    ``meters`` and ``meter_reasons``: the meters' readings over prefill and decode, by figure, and why the others have none;
    units and sources are in the session entry of the part.
    ``passes`` are given and read as PassColumns; held and written as ``packed_passes``.
    ``packed_passes``, ``seed`` and ``started_at`` are None in imported runs alone, whose header says why. So are passes that
    a server does not tell: then ``meter_reasons`` says why, under NO_PASSES.
    """

    case_id: str
    group: TablePlace
    repeat: TablePlace
    process: TablePlace = 0
    warmup: bool
    seed: Seed | None
    rows: list[RowResult]
    packed_passes: Annotated[PackedPasses | None, PlainValidator(_read_known)] = Field(alias="passes")
    prefill_s: Seconds | None
    decode_s: Seconds | None
    started_at: Moment | None
    ended_at: Moment | None = None
    started_clock_s: Annotated[Seconds | None, Younger] = None
    ended_clock_s: Annotated[Seconds | None, Younger] = None
    node: str | None = None
    load_1min: Reading | None
    meters: dict[str, Reading] = {}
    meter_reasons: dict[str, str] = {}

    @property
    def key(self) -> SampleKey:
        """The key that is unique among the samples of a run."""
        return self.case_id, self.group, self.repeat, self.warmup, self.process

    @property
    def passes(self) -> PassColumns:
        """The passes spelt out; over all samples of a large run the packed ones are much cheaper.

        Raises:
            RecordError: they are unknown, in an imported run or to a server.
        """
        if self.packed_passes is None:
            why = self.meter_reasons.get(NO_PASSES, "the run was imported; give a run of sbd's own")
            raise RecordError(f"{self.case_id}: no passes are known: {why}")
        return self.packed_passes.spelt()

    @property
    def moments_s(self) -> tuple[float, float | None]:
        """Begin and end by the wall clock, in seconds since 1970; a begin that is not known is 0."""
        begun, ended = (
            None if at is None else datetime.fromisoformat(at).timestamp() for at in (self.started_at, self.ended_at)
        )
        return begun or 0.0, ended

    @property
    def clock_span_s(self) -> float | None:
        """Seconds between begin and end by the monotonic clock; None in older records."""
        return None if self.started_clock_s is None or self.ended_clock_s is None else self.ended_clock_s - self.started_clock_s

    @property
    def lacks(self) -> tuple[str, ...]:
        """What it lacks without a reason, as only an imported sample may: by the names of ``Imported.lacks``."""
        lacking = {
            "passes": self.packed_passes is None and NO_PASSES not in self.meter_reasons,
            "seed": self.seed is None,
            "started_at": self.started_at is None,
            "output_ids": any(row.output_ids is None for row in self.rows),
            "stop_reason": any(row.stop_reason is None for row in self.rows),
        }
        return tuple(name for name, missing in lacking.items() if missing)

    @model_validator(mode="after")
    def _passes_are_of_these_rows(self) -> Self:
        if self.packed_passes is not None and self.packed_passes.count and self.packed_passes.rows != len(self.rows):
            raise ValueError(f"the passes are of {self.packed_passes.rows} rows, the sample has {len(self.rows)}")
        return self

    @field_serializer("packed_passes")
    def _written(self, packed: PackedPasses | None) -> dict[str, object] | None:
        return None if packed is None else packed.stored()

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """A copy with other values; ``passes`` among them in any form."""
        changes = dict(update or {})
        if "passes" in changes:
            changes["packed_passes"] = _read_known(changes.pop("passes"))
        return super().model_copy(update=changes, deep=deep)


class CaseOutcome(_Frozen):
    """How a case without samples ended: it did not fit, or was refused."""

    case_id: str
    outcome: Literal["does_not_fit", "failed"]
    reason: str


class Event(_Frozen):
    """One line of what happened besides samples: how a case ended, or what a session found."""

    outcome: CaseOutcome | None = None
    session: Annotated[Happened, OPEN, AfterValidator(happened)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.outcome is None and self.session is None:  # millions of such lines would only take memory
            raise ValueError("holds neither an outcome nor a session")
        return self


def _known(value: _T | None, case_id: str) -> _T:
    """The value of a case. Raises RecordError where its run was imported and does not tell it."""
    if value is None:
        raise RecordError(f"{case_id}: its model, dtype or device is not known, because its run was imported")
    return value


class TriedWidth(_Frozen):
    """What a width of an arm cost on ``prompts`` that are not timed. ``query_tokens``: fed to a row in a pass, on average.
    ``pass_s``: decode seconds over the target's passes, so with everything beside them; median over the batches.
    ``tokens_per_pass``: that became final, in all rows.
    """

    width: Tokens
    prompts: Tokens
    query_tokens: Reading
    pass_s: Annotated[Seconds, Field(gt=0)]
    tokens_per_pass: Annotated[Reading, Field(gt=0)]

    @property
    def token_s(self) -> float:
        """Expected seconds of a token."""
        return self.pass_s / self.tokens_per_pass


class WidthChoice(_Frozen):
    """What the width of an arm with ``auto`` was chosen from, before the run's first sample. ``ntp``: one token a pass.
    ``tried``: narrowest first; a wide one that fell behind did not decode all prompts and cannot be chosen.
    ``prompt_digests``: as of RowResult.
    """

    ntp: TriedWidth
    tried: Annotated[list[TriedWidth], Field(min_length=1)]
    prompt_digests: list[str]

    @property
    def best(self) -> TriedWidth:
        """The width with the least expected time of a token that decoded all prompts; the narrower one of equals."""
        return min(self.tried, key=lambda one: (-one.prompts, one.token_s))

    @property
    def gain(self) -> float:
        """How many times faster than NTP it is expected to be."""
        return self.ntp.token_s / self.best.token_s


class CaseHeader(_Frozen):
    """One cell of the plan: one part of the scenario, one arm with one value on every axis, one batch size.

    ``draft_models``: shapes of the models besides ``model`` whose passes are in the samples, by name.
    ``model``, ``dtype``, ``device`` and ``attention`` are None in imported runs alone, whose header says why.
    ``width``: why ``arm`` has the width that it has, where the scenario left it to the machine; written only there.
    """

    case_id: str
    part: str
    arm: WrittenArm
    label: str
    batch_size: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    task: str
    model: ModelShape | None
    model_source: OpenValues
    dtype: Dtype | None
    device: Device | None
    attention: str | None
    session: str = "plain"
    execution: str = "eager"
    timed: bool
    tensor_parallel: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 1
    replayed: OpenValues | None = None
    draft_models: dict[str, ModelShape] = {}
    width: Annotated[WidthChoice | None, Younger] = None

    @property
    def is_check(self) -> bool:
        """Whether this is no arm but generate(), which checks the baseline."""
        return self.arm.is_check

    @property
    def shape(self) -> ModelShape:
        """The model's shape. Raises RecordError as ``_known`` does."""
        return _known(self.model, self.case_id)

    @property
    def known_dtype(self) -> str:
        """The model's dtype. Raises RecordError as ``_known`` does."""
        return _known(self.dtype, self.case_id)

    @property
    def known_device(self) -> str:
        """Where the case ran. Raises RecordError as ``_known`` does."""
        return _known(self.device, self.case_id)


class ImportedFile(_Frozen):
    """One file, which is one process of a case's samples.

    ``requests``: all that were sent; ``failed``: those without an answer, which are no samples. ``duration_s``: of all
    requests together, by the tool. ``printed``: the tool's own figures by our names, taken by the ``rule`` of
    harness.record.imports.measured; ``figures``: the same worked out from the file's requests.
    ``counted``: its counts of drafts, over all requests.
    """

    name: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    case_id: str
    process: TablePlace
    tool_version: str | None
    requests: Annotated[int, Field(ge=1, le=1 << 24)]
    failed: Annotated[int, Field(ge=0, le=1 << 24)]
    duration_s: Seconds | None
    printed: dict[str, Reading]
    figures: dict[str, Reading]
    counted: dict[str, Reading] = {}
    rule: Literal["per_request", "per_token"] = "per_request"


class Imported(_Frozen):
    """The origin of an imported run.

    ``pairing``: whose times are compared, those of the same ``prompts`` by their text or of requests at the same place of
    their files (``order``); None: means over whole files. ``pairing_words`` say why. ``concurrency``: most requests in
    flight; None: unknown or without a limit. ``lacks``: why the files do not tell something, by name: output_ids, passes,
    stop_reason, seed, started_at, grades, model, dtype, device, machine, measured_at.
    """

    tool: str
    format: str
    pairing: Pairing | None
    pairing_words: str
    concurrency: Annotated[int, Field(ge=1, le=1 << 24)] | None
    lacks: dict[str, str]
    files: list[ImportedFile]


MOST_LOOKS = 100
"""Processes of a run that is looked at; levels of more would take long to work out, as those of a smaller error vanish."""


class Looks(_Frozen):
    """The rule by which a run may stop once its claims are decided, written before its first sample.

    It is looked at after each process from ``first`` to ``last``; all looks together are wrong with a probability of ``error``
    on each side of a claim at most (harness.stats.looks). ``at_most_s``: seconds after which no process begins.
    """

    first: Annotated[int, Field(ge=2, le=MOST_LOOKS)]
    last: Annotated[int, Field(ge=2, le=MOST_LOOKS)]
    error: Annotated[float, Field(ge=1e-4, lt=0.5)]
    at_most_s: Seconds | None = None


class RunHeader(_Frozen):
    """Everything about a run that is known before its first sample; ``calibration`` is filled from its events on reading.

    ``imported``: the files of other tools that it was made of; None for a run of this program. ``looks``: None where all of its
    processes are taken.
    """

    record_version: int = RECORD_VERSION
    run_id: str
    scenario_name: str
    question: str
    scenario: Annotated[WrittenScenario, OPEN, AfterValidator(named_parts)]
    scenario_digest: str
    command: str
    created_at: str
    cases: list[CaseHeader]
    hardware: OpenValues | None
    hardware_reason: str | None = None
    calibration: OpenValues | None = None
    environment: Annotated[Environment, OPEN, AfterValidator(facts)]
    imported: Annotated[Imported | None, Younger] = None
    looks: Annotated[Looks | None, Younger] = None

    def written(self, part: str) -> WrittenPart:
        """A part as the recorded scenario has it; empty where the scenario lacks it."""
        parts = self.scenario.get("parts", [])
        return WrittenPart.model_validate(next((one for one in parts if one["name"] == part), {}))

    @model_validator(mode="after")
    def _cases_agree(self) -> Self:
        """Case ids are unique, and a part has one model, dtype and device: prices are made once for all its arms."""
        if twice := [case_id for case_id, count in Counter(case.case_id for case in self.cases).items() if count > 1]:
            raise ValueError(f"two cases have the id {twice[0]!r}")
        of_part: dict[str, CaseHeader] = {}
        for case in self.cases:
            first = of_part.setdefault(case.part, case)
            if (case.model, case.dtype, case.device) != (first.model, first.dtype, first.device):
                raise ValueError(f"part {case.part!r} has cases of different models, dtypes or devices")
            if self.imported is None and None in (case.model, case.dtype, case.device, case.attention):
                raise ValueError(f"case {case.case_id!r} lacks its model, dtype, device or attention; an imported one may")
        return self


class Run(_Frozen):
    """A run as read back from its directory.

    ``sessions`` lists what happened besides samples, each entry under its ``event``: the environment at the start and end of
    each session, and what was found about every part. ``process`` in an entry: whose samples the session took. ``seal``: None
    for a run that was not read from a directory.
    """

    header: RunHeader
    samples: list[Sample]
    outcomes: list[CaseOutcome]
    sessions: list[Annotated[Happened, OPEN]]
    seal: Seal | None = None

    @property
    def cases(self) -> list[CaseHeader]:
        """Those of the header."""
        return self.header.cases

    def of_arms(self) -> Iterator[tuple[CaseHeader, Sample]]:
        """Every sample of an arm with its case; warm-ups and generate() are left out."""
        cases = {case.case_id: case for case in self.cases if not case.is_check}
        return ((cases[one.case_id], one) for one in self.samples if not one.warmup and one.case_id in cases)

    @property
    def unmeasured(self) -> str | None:
        """Why no arm has a sample, with the outcomes of the first cases; None where one has."""
        if next(self.of_arms(), None) is not None:
            return None
        ended = "; ".join(f"{one.case_id}: {one.reason}" for one in self.outcomes[:4])
        return f"nothing was measured: {len(self.outcomes)} of {len(self.cases)} cases failed ({ended})"

    @property
    def unended(self) -> str | None:
        """The first planned process that has not ended since it began last; None where all have, as in an imported run.

        A run over nodes has ended where its end as a whole is marked: units of one process are then under way at once.
        """
        marks = [{**one} for one in self.sessions if one.get("event") in ("start", "end")]
        for part in dict.fromkeys(case.part for case in self.cases if marks):
            for n in range(processes := self.header.written(part).processes):
                about = {"part": part, "process": n, "node": None}  # a mark that lacks one of them is about all
                if [one["event"] for one in marks if about | one == one | about][-1:] != ["end"]:
                    return f"the run has not ended (part {part}, process {n + 1} of {processes})"
        return None

    def events(self, name: str, part: str | None = None) -> list[Happened]:
        """What the sessions recorded under this name of ``part``, or of everything, in order."""
        return [one for one in self.sessions if one.get("event") == name and part in (None, one.get("part"))]
