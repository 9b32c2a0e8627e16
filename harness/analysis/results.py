"""The values of a comparison: frozen, ready for JSON, to be shown or gated on. harness.analysis.answer computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from harness.analysis.figures.arm_metrics import Factors, Paired, PassParts
from harness.analysis.figures.predictions import Prediction
from harness.analysis.figures.request_figures import RequestCounts
from harness.analysis.judge.judgement import Judgements
from harness.analysis.tally.pass_values import PassCurve, PassWidth, Roof
from harness.analysis.tally.served import ServedCounts
from harness.analysis.tally.traffic import CounterScale
from harness.analysis.trust.health import PartHealth, Voids
from harness.analysis.trust.integrity import Integrity
from harness.frozen import frozen
from harness.record.identity import Mix
from harness.record.schema import RunHeader
from harness.stats.quantity import Quantity, absent

COMPARISON_VERSION = 11
"""Version of the formulas and of the JSON form; a cached comparison of another version is to be derived again."""

HighlightBasis = Literal["shown", "observed", "none", "replayed", "ungraded"]
BaselineState = Literal["kept_up", "slow", "not_shown", "different_tokens", "unchecked"]
OWN = ("wall_speedup", "wall_speedup_totals", "identical_to_ntp", "accuracy_difference")
"""Figures that are fields of ArmResult."""


@frozen
class Simultaneous:
    """The figures of an arm picked from ``picked_from`` arms on the decodes that judge it, each at ``confidence``.

    1 - 5 % / picked_from (Bonferroni): all intervals of all these arms hold together with 95 %, whichever arm is picked.
    ``figures``: by the names that claims use, and ``accuracy_difference``.
    """

    picked_from: int
    confidence: float
    figures: dict[str, Quantity]


@frozen
class ArmResult:
    """One arm in one cell. Totals run over all its samples but the warm-up.

    ``paired`` holds the spread, the lengths and the number of processes of ``wall_speedup`` and ``wall_speedup_totals``.
    ``modelled_bandwidth_bytes_per_s`` covers the decode's forwards. ``measured_bandwidth_bytes_per_s`` is the device counter's
    rate over prefill and decode together. ``measured_over_modelled`` is its bytes ÷ those modelled for that window. ``nfe`` and
    ``passes`` are the target's; ``draft_passes`` are those of draft models, which feed ``draft_query_tokens``. ``lossless``:
    what the output equals by construction, None for nothing. ``identical_to_ntp``: the share of prompts with exactly NTP's
    output in this run, which rounding can keep below 1. ``figures``: the other figures that claims name
    (harness.analysis.figures.arm_figures). ``first_token_s``: median time until a row's first token is final.
    ``decode_time_estimated``: why decode time is partly estimated, None where all of it was measured. ``voids``: number of its
    timed samples without times, by rule; dropping samples of one side alone moves a speedup. ``lost_times``: why
    the interval of the wall speedup, and of that over the passes saved, holds lost decodes at their worst, and why no other
    figure of decodes by the clock has one; ``lost_requests``: why none of whole requests has.
    ``prompts_for_5_percent``: prompts (batches at batch > 1) that give the wall speedup an interval of 5 %, at this spread.
    ``simultaneous``: of a highlighted arm that was picked from several; verdicts on a claim that names no arm use it.
    ``at``: a figure of verdicts at another level, by its name; it stands apart from the JSON form.
    ``final_tokens_histogram``: active row-passes by the number of tokens they made final. ``served``: what
    the server that decoded it counted; None for an arm that this program decoded. Counts of passes are None where an imported
    run does not tell them. ``requests``: those that have times of their own; under a load each counts as a sample.
    """

    label: str
    method: str
    block_size: int | None
    gamma: float | None
    temperature: float
    solver: str | None
    replayed: Mapping[str, object] | None
    is_ntp: bool
    case_ids: tuple[str, ...]
    samples: int
    prompts: int
    unpaired: int
    decode_tokens: int
    nfe: int | None
    passes: int | None
    nfe_speedup: Quantity
    query_tokens_per_pass: Quantity
    wall_speedup: Quantity
    prompts_for_5_percent: int | None
    wall_speedup_totals: Quantity
    paired: Paired
    factors: Factors | None
    decode_s: Quantity
    forward_s: Quantity
    pass_parts: PassParts
    tokens_per_s: Quantity
    latency_s: Quantity
    correct: float | None
    accuracy: Quantity
    accuracy_difference: Quantity
    baseline_difference: Quantity | None
    modelled_bandwidth_bytes_per_s: Quantity
    ceiling_share: Quantity
    measured_bandwidth_bytes_per_s: Quantity
    measured_over_modelled: Quantity
    predictions: tuple[Prediction, ...]
    final_tokens_histogram: tuple[int, ...]
    figures: dict[str, Quantity]
    draft_passes: int | None
    draft_query_tokens: int | None
    lossless: str | None
    identical_to_ntp: Quantity
    first_token_s: Quantity
    decode_time_estimated: str | None
    voids: Voids
    lost_times: str | None = None
    lost_requests: str | None = None
    simultaneous: Simultaneous | None = None
    served: ServedCounts | None = None
    requests: RequestCounts | None
    at: Callable[[str, float], Quantity] | None = field(default=None, compare=False, repr=False)

    @property
    def request_speedup(self) -> Quantity:
        """Ratio of whole-request time per output token, prompt included, NTP ÷ arm: geometric mean over prompts."""
        return self.figures.get("request_speedup", absent("NTP is what the other arms are compared with"))

    @property
    def passes_saved(self) -> Quantity:
        """The NFE speedup as a mean over prompts, the estimator of headlines; the ratio of totals where there is none."""
        mean = self.figures.get("nfe_speedup", self.nfe_speedup)
        return self.nfe_speedup if mean.value is None else mean

    @property
    def query_tokens_per_token(self) -> float | None:
        """Tokens fed to the target for each final one, waiting rows included."""
        fed = self.query_tokens_per_pass.value
        known = fed is not None and self.passes is not None and self.decode_tokens
        return (fed or 0.0) * (self.passes or 0) / self.decode_tokens if known else None


@frozen
class GenerateMode:
    """One mode of transformers' generate(), or an engine of others (``is_engine``), and the speed of the NTP arm over it.

    ``ntp_speed``: decode time per token, paired. ``agreed``: the mean share of an engine's answer up to its first difference
    from NTP's, which rounding alone can make; None where no answer is common.
    """

    label: str
    ntp_speed: Quantity
    is_engine: bool
    agreed: float | None


@frozen
class TokenCheck:
    """Whether NTP wrote what generate() wrote, row by row, in every mode.

    ``rows`` pairs of outputs, ``same`` of them equal; ``agreed``: the mean share of an output up to its first difference.
    ``mode_*``: the same for pairs of modes, which shows the effect of rounding; None where one mode ran alone.
    """

    different: bool
    rows: int
    same: int
    agreed: float
    mode_rows: int
    mode_same: int
    mode_agreed: float | None
    words: str


@frozen
class CeilingCheck:
    """The NTP arm's share of the memory read rate at batch 1; a low share means that a faster engine may exist.

    ``share``: its modelled bandwidth ÷ the read rate in its ``method``. ``words``: a remark for speedups, empty where NTP is
    near enough or nothing is known.
    """

    state: Literal["near", "far", "in_cache", "unknown"]
    share: Quantity
    words: str = ""


FAR = 0.6
"""Share of the read ceiling below which the speedup over such an NTP is marked where it stands first."""


@frozen
class BaselineCheck:
    """Whether the NTP arm is as fast as the ``best`` (fastest) mode and writes the same; ``reason`` says why it is unchecked.

    *kept_up*: shown to be as fast, with the same tokens. *slow*: shown to be slower. *not_shown*: neither. *different_tokens*:
    the work differs, so times are not comparable. *unchecked*: nothing was compared. ``part``: where it was compared, if that
    is another part of the run with the same engine and batch size.
    """

    state: BaselineState
    modes: tuple[GenerateMode, ...]
    best: str | None = None
    reason: str | None = None
    tokens: TokenCheck | None = None
    ceiling: CeilingCheck | None = None
    part: str | None = None

    @property
    def has_engines(self) -> bool:
        """Whether an engine of others was timed."""
        return any(mode.is_engine and mode.ntp_speed.value is not None for mode in self.modes)

    @property
    def far_from_ceiling(self) -> str | None:
        """NTP's share of the read ceiling in words, where it is below FAR and no engine of others was timed."""
        if self.ceiling is None or self.ceiling.state != "far" or self.has_engines or (self.ceiling.share.value or 0) >= FAR:
            return None
        return self.ceiling.words

    @property
    def best_speed(self) -> Quantity | None:
        """The speed of NTP over the fastest mode."""
        return next((mode.ntp_speed for mode in self.modes if mode.label == self.best), None)


@frozen
class Cell:
    """All arms that share part, task and batch size. ``task`` is None in the summary over several tasks.

    ``rung_reasons`` says why a rung of ceilings (by PRICES) has no prediction here. Bytes and predictions are those of one of
    ``tensor_parallel`` processes that share the model. Widths, curves and roofs: summaries only. ``imported``: what limits
    the figures of an imported run, in words; such a run may know neither model size, dtype, device nor attention. ``load``: how
    requests reached the servers, in words, with ``batch_size`` in flight at most; None where all of a batch went at once.
    ``remarks``: what is odd about the prompts of its part. ``population``: what its prompts stand for, in words, such as
    ``over these 3 tasks``; empty for unrelated prompts of one task.
    """

    part: str
    task: str | None
    tasks: tuple[str, ...]
    batch_size: int
    is_summary: bool
    model: str
    params: int | None
    dtype: str | None
    device: str | None
    attention: str | None
    session: str
    execution: str
    timed: bool
    baseline_part: str | None
    arms: tuple[ArmResult, ...]
    counter_scale: CounterScale
    baseline_check: BaselineCheck
    rung_reasons: dict[str, str]
    tensor_parallel: int
    load: str | None
    closed_loop: bool
    pass_widths: tuple[PassWidth, ...] = ()
    curves: tuple[PassCurve, ...] = ()
    roofs: tuple[Roof, ...] = ()
    imported: tuple[str, ...]
    remarks: tuple[str, ...]
    population: str = ""

    @property
    def names(self) -> dict[str, str]:
        """Part, batch size and, unless over several, task, as text."""
        return {"part": self.part, "batch_size": str(self.batch_size)} | ({"task": self.task} if self.task is not None else {})

    def arm(self, label: str | None) -> ArmResult | None:
        """The arm of this label, where it has one."""
        return next((arm for arm in self.arms if arm.label == label), None)

    @property
    def size_words(self) -> str:
        """``batch 4``, or the load: ``4 in flight``."""
        return self.load or f"batch {self.batch_size}"

    @property
    def best_ntp_tokens_per_s(self) -> float | None:
        """Of NTP by the fastest engine, ours among them, at our rate here; None where no engine of others was timed."""
        greedy = (arm.tokens_per_s.value for arm in self.arms if arm.is_ntp and not arm.temperature)
        check, own = self.baseline_check, next(greedy, None)
        speed = check.best_speed.value if check.has_engines and check.best_speed else None
        return own / min(1.0, speed) if own and speed else None

    @property
    def unit_of_times(self) -> str:
        """The unit of counting times: batches at batch sizes above 1, else prompts; under a load each request has its own."""
        return "prompts" if self.batch_size == 1 or self.load else f"batches of {self.batch_size}"

    def void_words(self, arm: ArmResult) -> str:
        """``NTP: 1 of 40 void (rule: 1); SBD k=16: …``: voids of the arm and of its NTP; empty without any."""
        return "; ".join(f"{one.label}: {one.voids.words}" for one in self.sides(arm) if one.voids.void)

    def sides(self, arm: ArmResult) -> list[ArmResult]:
        """The arm and its NTP."""
        return [one for one in self.arms if one.is_ntp or one.label == arm.label]


@frozen
class Highlight:
    """The highlighted arm of one part and batch size, and the basis of the choice. ``label`` None: no arm.

    ``basis``: *shown* where the interval of the accuracy difference begins above ``-margin``, at a simultaneous 95 % level over
    ``picked_from`` contenders. *observed*: only the observed difference is within it. *none*: no arm is. *replayed* or
    *ungraded*: no accuracy exists. ``asked``: it was named before the first sample: by the scenario's claims, or because all
    other arms are its rivals.
    """

    part: str
    batch_size: int
    label: str | None
    basis: HighlightBasis
    margin: float
    pairs: int
    pairs_needed: int
    reason: str | None
    picked_from: int
    asked: bool = False


@frozen
class Comparison:
    """Everything that is derived from one run. ``mixes``: parts whose processes were not measured with the same.

    ``answers``: the highlight of every part and batch size, or the arm that the scenario's claims name there. What was claimed
    and judged stands apart from the JSON form: ``judgements``, and ``unread``: why the record's own claims could not be read.
    ``looks``: how many times smaller the error of the last planned look is than that of all of them; 1.0 without any.
    """

    run_id: str
    cells: tuple[Cell, ...]
    highlights: tuple[Highlight, ...]
    answers: tuple[Highlight, ...]
    outcomes: tuple[dict[str, str], ...]
    health: tuple[PartHealth, ...] = ()
    integrity: Integrity = field(default_factory=Integrity)
    mixes: tuple[Mix, ...] = ()
    looks: float = 1.0
    version: int = field(default=COMPARISON_VERSION)
    judgements: Judgements = field(default=Judgements(title="", runs=(), judgements=()), compare=False)
    unread: str | None = field(default=None, compare=False)

    def summary(self, part: str, batch_size: int) -> Cell:
        """The cell over all tasks of one part and batch size.

        Raises:
            KeyError: the comparison has no such cell.
        """
        for cell in self.cells:
            if cell.is_summary and (cell.part, cell.batch_size) == (part, batch_size):
                return cell
        raise KeyError((part, batch_size))


def has_contender(place: Cell | Highlight, header: RunHeader) -> bool:
    """Whether an arm besides NTP was planned there, with samples or without; NTP alone answers nothing."""
    cases = [case for case in header.cases if (case.part, case.batch_size) == (place.part, place.batch_size)]
    return any(case.arm.method != "ntp" and not case.is_check for case in cases)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON values, with its ``version``; absent values are null beside their reason."""
    data: dict[str, Any] = _plain(comparison)
    for cell, cell_data in zip(comparison.cells, data["cells"], strict=True):
        for arm, arm_data in zip(cell.arms, cell_data["arms"], strict=True):
            if arm.factors is not None:
                arm_data["factors"]["product"] = arm.factors.product
    return data


def _plain(value: Any) -> Any:
    """As dataclasses.asdict, without copying the leaves: a large run has millions."""
    kind: Any = type(value)
    if kind in LEAVES:
        return value
    names = field_names(kind)
    if names:
        return {name: one if type(one := getattr(value, name)) in LEAVES else _plain(one) for name in names}
    if kind is dict:
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if kind in (tuple, list) else value


LEAVES = frozenset((float, int, str, bool, type(None)))


@cache
def field_names(kind: Any) -> tuple[str, ...]:
    """Of a dataclass, those that make it equal to another; none of anything else."""
    return tuple(one.name for one in fields(kind) if one.compare) if is_dataclass(kind) and isinstance(kind, type) else ()
