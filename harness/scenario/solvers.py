"""The solvers a scenario can name, with their knobs: the rule that picks the masked slots that become final, and how boldly.

SOLVERS is the registry. The program's own solvers have their rules in functions of the same names in harness.decoding.solvers.
harness.scenario.methods adds those of installed packages.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, Field

from harness.config_file import Counts, Numbers, Shares, Younger, one_or_several
from harness.frozen import frozen
from harness.scenario.method import ArmKeys, ArmSettings, BlockSettings, refuse_many

SlotFigure = Literal["entropy", "confidence", "margin"]


@frozen
class Knob:
    """How boldly a solver accepts. ``bolder``: whether a larger or smaller value accepts more slots.

    ``in_ids``: prefix of its value in a case id. ``most`` is None without an upper bound; ``whole``: whole numbers only.
    """

    symbol: str
    in_ids: str
    unit: str
    least: float = 0
    most: float | None = None
    whole: bool = False
    bolder: Literal["more", "less"]

    @property
    def allowed(self) -> str:
        """Its range, in words."""
        kind = "whole numbers, " if self.whole else ""
        return f"{kind}{self.least:g} or more" if self.most is None else f"{kind}{self.least:g} to {self.most:g}"


KNOBS = {
    "gamma": Knob(symbol="γ", in_ids="g", unit="nats", bolder="more"),
    "tau": Knob(symbol="τ", in_ids="tau", unit="probability", most=1, bolder="less"),
    "factor": Knob(symbol="f", in_ids="f", unit="1", bolder="more"),
    "delta": Knob(symbol="δ", in_ids="d", unit="probability", most=1, bolder="less"),
    "tokens": Knob(symbol="tokens", in_ids="n", unit="tokens per pass", least=1, whole=True, bolder="more"),
    "steps": Knob(symbol="steps", in_ids="s", unit="passes per block", least=1, whole=True, bolder="less"),
}


@frozen
class SolverSpec:
    """One solver. ``sweep``: usual values of each of its knobs, cautious ones first; it is compared by the first knob.

    ``reads``: what it needs of each slot's distribution. ``words``: its name in labels; the default has none. ``rule``: dotted
    name, ``module:function``, of a harness.decoding.solvers.Solver.
    """

    sweep: Mapping[str, tuple[float, ...]]
    reads: tuple[SlotFigure, ...] = ("confidence",)
    words: str
    source: str
    rule: str = ""

    @property
    def knobs(self) -> tuple[str, ...]:
        """Names of its knobs; each of them must be given."""
        return tuple(self.sweep)


DEFAULT_SOLVER = "entropy_bounded"
_EB, _SDLM = "EB-Sampler (arXiv 2505.24857), eq. 18 of 2509.04185", "SDLM (arXiv 2509.24007)"
_FAST_DLLM, _LLADA = "Fast-dLLM (arXiv 2505.22618)", "LLaDA (arXiv 2502.09992)"
_GAMMAS, _TAUS, _PREFIX_TAUS = (0.1, 0.35, 0.6), (0.95, 0.9, 0.8), (0.9, 0.8, 0.6)
_FACTORS = (0.5, 0.75, 1.0)
_OWN = {
    "entropy_bounded": SolverSpec(
        sweep={"gamma": _GAMMAS}, reads=("entropy",), words="", source="Set Block Decoding (arXiv 2509.04185), eq. 8"
    ),
    "entropy_bounded_confidence": SolverSpec(
        sweep={"gamma": _GAMMAS}, reads=("entropy", "confidence"), words="confidence order", source=_EB
    ),
    "entropy_bounded_margin": SolverSpec(
        sweep={"gamma": _GAMMAS}, reads=("entropy", "margin"), words="margin order", source=_EB
    ),
    "threshold": SolverSpec(sweep={"tau": _TAUS}, words="threshold", source=_FAST_DLLM),
    "threshold_strict": SolverSpec(sweep={"tau": _TAUS}, words="strict threshold", source="Fast-dLLM v2 (arXiv 2509.26328)"),
    "factor": SolverSpec(sweep={"factor": _FACTORS}, words="factor", source=f"{_FAST_DLLM}, the rule of its theorem"),
    "factor_fastdllm": SolverSpec(
        sweep={"factor": _FACTORS},
        words="factor as released",
        source="NVlabs/Fast-dLLM f6b35ec, llada/generate.py, get_transfer_index_dynamic",
    ),
    "frechet": SolverSpec(sweep={"delta": (0.3, 0.25, 0.1)}, words="Fréchet", source="Fast-dLLM++ (arXiv 2606.02955)"),
    "longest_prefix": SolverSpec(sweep={"tau": _PREFIX_TAUS}, words="longest prefix", source=f"{_SDLM}, prob_conf"),
    "longest_prefix_entropy": SolverSpec(
        sweep={"tau": _PREFIX_TAUS}, reads=("entropy",), words="longest prefix by entropy", source=f"{_SDLM}, entropy_conf"
    ),
    "top_k": SolverSpec(sweep={"tokens": (2, 4, 8)}, words="top-k", source=_LLADA),
    "uniform": SolverSpec(sweep={"steps": (12, 6, 3)}, words="uniform", source=_LLADA),
    "low_confidence_dynamic": SolverSpec(
        sweep={"tau": _TAUS, "steps": (8,)}, words="dynamic", source="JetAstra/SDAR c2041a8, generate.py"
    ),
}
SOLVERS = {name: replace(spec, rule=f"harness.decoding.solvers:{name}") for name, spec in _OWN.items()}


def _known(name: str) -> str:
    if name not in SOLVERS:
        near = difflib.get_close_matches(name, SOLVERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown solver {name!r}; allowed: {', '.join(SOLVERS)}{hint}")
    return name


SolverName = Annotated[str, AfterValidator(_known), Field(json_schema_extra=lambda schema: schema.update(enum=list(SOLVERS)))]
SolverNames = Annotated[tuple[SolverName, ...], *one_or_several(SolverName)]


class SolverSettings(BlockSettings):
    """Of an arm whose blocks a solver decides, or a replay."""

    solver: str

    @property
    def knobs(self) -> dict[str, float]:
        """The value of each knob of the solver, where acceptance is real."""
        values = cast(dict[str, float], self.values)
        return {name: values[name] for name in SOLVERS[self.solver].knobs}

    @property
    def setting_in_words(self) -> str:
        """The solver and its setting in labels: ``factor f=1``; for the default solver the bound alone, ``γ=0.1``."""
        words = SOLVERS[self.solver].words
        values = " ".join(f"{KNOBS[name].symbol}={value:.12g}" for name, value in self.knobs.items())
        return f"{words} {values}" if words else values

    @property
    def setting_id(self) -> str:
        """The setting as case ids have it, without the solver's name: ``g0.1``, ``tau0.9-s4``."""
        return "-".join(f"{KNOBS[name].in_ids}{value:.12g}" for name, value in self.knobs.items())


class SolverChoice(ArmKeys):
    """The keys by which an arm names its solvers and sets their knobs; solvers listed together take the same knobs."""

    settings: ClassVar[type[ArmSettings]] = SolverSettings
    solver: SolverNames = (DEFAULT_SOLVER,)
    """Rule that picks the masked slots of a pass that become final."""
    gamma: Numbers | None = None
    """γ in nats: bound on the entropy of what one pass accepts; larger accepts more. Of the entropy-bounded solvers."""
    tau: Annotated[Shares | None, Younger] = None
    """τ: confidence that a slot must reach; larger accepts less. Of thresholds, longest prefixes and the dynamic solver."""
    factor: Annotated[Numbers | None, Younger] = None
    """f: n slots are accepted while (n + 1) x (1 - the least confidence among them) is below f; larger accepts more."""
    delta: Annotated[Shares | None, Younger] = None
    """δ: by how much Fréchet's bound on all accepted slots exceeds the last one's chance to be wrong; larger accepts less."""
    tokens: Annotated[Counts | None, Younger] = None
    """Slots that every pass accepts. Of `top_k`."""
    steps: Annotated[Counts | None, Younger] = None
    """Passes that a block is spread over; more accept less a pass. Of `uniform` and `low_confidence_dynamic`."""

    @property
    def given_knobs(self) -> tuple[str, ...]:
        """Names of the knobs that have a value, in the order of KNOBS."""
        return tuple(name for name in KNOBS if getattr(self, name) is not None)

    def check_knobs(self, otherwise: str = ", or replay") -> None:
        """Check the knobs against the solvers; ``otherwise`` is the alternative to giving one.

        Raises:
            ValueError: a knob is missing or belongs to another solver; or the solvers take different knobs.
        """
        wanted = SOLVERS[self.solver[0]].knobs
        if len({SOLVERS[name].knobs for name in self.solver}) > 1:
            listed = ", ".join(f"{name} ({' and '.join(SOLVERS[name].knobs)})" for name in self.solver)
            raise ValueError(f"solver lists {listed}, which take different knobs; give each its own arm")
        for knob in self.given_knobs:
            if knob not in wanted:
                takers = ", ".join(name for name, spec in SOLVERS.items() if knob in spec.knobs)
                raise ValueError(
                    f"{knob} is no knob of {self.solver[0]}, which takes {' and '.join(wanted)}; "
                    f"remove {knob}, or name a solver that takes it: {takers}"
                )
        for knob in wanted:
            if getattr(self, knob) is None:
                raise ValueError(
                    f"{knob} is missing: an arm with real acceptance and solver {self.solver[0]} needs it "
                    f"({KNOBS[knob].allowed}); add {knob}: {list(SOLVERS[self.solver[0]].sweep[knob])}{otherwise}"
                )

    def check_replayed(self, *others: str) -> None:
        """Refuse knobs and solvers where a replay decides. ``others``: further keys that then decide nothing.

        Raises:
            ValueError: a knob or such a key, or a solver other than the default one, is given.
        """
        for key in (*KNOBS, *others):
            if getattr(self, key) is not None:
                raise ValueError(f"{key} decides nothing where acceptance is replayed; remove {key}")
        if self.solver != (DEFAULT_SOLVER,):
            raise ValueError("the solver decides nothing where acceptance is replayed; remove solver")

    def axis(self, name: str, dumped: Any) -> list[dict[str, Any]]:
        """The axis ``settings``: every point of the product of the knobs that have a value; without one, γ alone as None."""
        if name != "settings":
            return super().axis(name, dumped)
        names = self.given_knobs or ("gamma",)
        values = [getattr(self, knob) or (None,) for knob in names]
        refuse_many(prod(map(len, values)), "settings of one solver")
        points = product(*values)
        return [dict(zip(names, point, strict=True)) for point in points]
