"""Every figure of the benchmark: its unit, how it follows from the rounds, and the bar that it must reach.

A figure has one value a round; what is stored is their geometric mean, with the ends of its 95 % interval as ``…_low`` and
``…_high``. A ratio compares two processes of the same round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

from scipy import stats

ENGINES = ("llama_cpp", "vllm")
"""What NTP is held against; a measurement of one is called by the engine and the model."""
Measured = Mapping[str, float]
"""What one process measured, by key."""


class NotMeasured(Exception):
    """Why a figure is not known."""


def ratio_interval(ratios: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """(geometric mean, low, high) of two or more ratios, by the t distribution on their logarithms."""
    logs = [log(one) for one in ratios]
    half = float(stats.t.ppf((1 + level) / 2, len(logs) - 1)) * statistics.stdev(logs) / sqrt(len(logs))
    middle = statistics.fmean(logs)
    return exp(middle), exp(middle - half), exp(middle + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What was measured: in each round by measurement; and why a measurement has failed, wherever one did."""

    taken: Sequence[Mapping[str, Measured]]
    absent: Mapping[str, str]

    def of(self, name: str, key: str) -> dict[int, float]:
        """The values of a measurement by round.

        Raises:
            NotMeasured: no round has one.
        """
        found = {number: one[name][key] for number, one in enumerate(self.taken) if key in one.get(name, {})}
        if not found:
            raise NotMeasured(self.absent.get(name, f"{name} has measured no {key}"))
        return found

    def ratio(self, above: tuple[str, str], below: tuple[str, str]) -> list[float]:
        """The ratio of two measured values in every round that has both.

        Raises:
            NotMeasured: no round has both.
        """
        one, other = self.of(*above), self.of(*below)
        both = [one[number] / other[number] for number in one if number in other]
        if not both:
            raise NotMeasured(f"no round has both {above[0]} and {below[0]}")
        return both


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: its values by round, the measurements that it needs, and its bar, which it may not have."""

    values: Callable[[Rounds], list[float]]
    needs: tuple[str, ...]
    least: float | None = None
    least_low: float | None = None
    most: float | None = None

    @property
    def bar(self) -> str:
        """In words."""
        bounds = {"at least": self.least, "low end at least": self.least_low, "at most": self.most}
        return ", ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None) or "none"

    def reached(self, value: float, low: float | None) -> bool:
        """Whether a stored value reaches the bar; one round has no low end, and so reaches no bar that asks for it."""
        if self.least_low is not None and (low is None or low < self.least_low):
            return False
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def stored(self, name: str, rounds: Rounds) -> dict[str, float]:
        """Its value by name; with the ends of the interval where several rounds have one.

        Raises:
            NotMeasured: no round has one.
        """
        values = self.values(rounds)
        if len(values) < 2:
            return {name: round(values[0], 4)}
        keys = (name, f"{name}_low", f"{name}_high")
        return {key: round(one, 4) for key, one in zip(keys, ratio_interval(values), strict=True)}


FIGURES: dict[str, Figure] = {}
"""By name."""


def figure(*needs: str, **bar: float) -> Callable[[Callable[[Rounds], list[float]]], Callable[[Rounds], list[float]]]:
    """Enter a function into FIGURES by its name; ``bar``: least, least_low or most."""

    def enter(values: Callable[[Rounds], list[float]]) -> Callable[[Rounds], list[float]]:
        FIGURES[values.__name__] = Figure(values=values, needs=needs, **bar)
        return values

    return enter


def best_engine(rounds: Rounds, model: str) -> str:
    """The measurement of the engine with the highest median tokens/s on a model.

    Raises:
        NotMeasured: no other engine is here.
    """
    medians, reasons = {}, []
    for engine in ENGINES:
        try:
            medians[f"{engine}_{model}"] = statistics.median(rounds.of(f"{engine}_{model}", "tokens_per_s").values())
        except NotMeasured as error:
            reasons.append(f"{engine}: {error}")
    if not medians:
        raise NotMeasured("; ".join(reasons))
    return max(medians, key=lambda name: medians[name])


def _over_best_engine(rounds: Rounds, model: str) -> list[float]:
    return rounds.ratio((f"ours_{model}", "tokens_per_s"), (best_engine(rounds, model), "tokens_per_s"))


def _read_share_pct(rounds: Rounds, ceiling: str) -> list[float]:
    return [100 * one for one in rounds.ratio(("ours_250m", "bytes_per_s"), ("ours_250m", ceiling))]


def _pass_over_llama_cpp(rounds: Rounds, width: int) -> list[float]:
    """How often as fast: their seconds of a pass over ours."""
    key = f"pass_s_{width}"
    return rounds.ratio(("llama_cpp_135m", key), ("ours_135m", key))


@figure("ours_135m", "llama_cpp_135m", "vllm_135m", least=1.05, least_low=1.0)
def ntp_over_best_engine_135m(rounds: Rounds) -> list[float]:
    """Ratio of tokens/s, ours over the best other engine's: SmolLM2-135M in bfloat16, NTP of 64 tokens after 64.

    llama.cpp by llama-bench, which samples nothing, at its best number of threads; without it by llama-server, whose tokens
    a client stamps. vLLM by a client.
    """
    return _over_best_engine(rounds, "135m")


@figure("ours_250m", "llama_cpp_250m", "vllm_250m", least=1.05, least_low=1.0)
def ntp_over_best_engine_250m(rounds: Rounds) -> list[float]:
    """The same of random weights of the 250M shape with SmolLM2's tokenizer, and so 268M of them; bfloat16."""
    return _over_best_engine(rounds, "250m")


@figure("ours_135m", "llama_cpp_135m", least=1.6)
def pass8_over_llama_cpp(rounds: Rounds) -> list[float]:
    """Ratio of tokens/s of whole passes of 8 tokens after 128, SmolLM2-135M in bfloat16, ours over llama-bench's.

    Ours has the head for every token, llama-bench's for the last one alone.
    """
    return _pass_over_llama_cpp(rounds, 8)


@figure("ours_135m", "llama_cpp_135m", least=1.6)
def pass16_over_llama_cpp(rounds: Rounds) -> list[float]:
    """As pass8_over_llama_cpp, of 16 tokens."""
    return _pass_over_llama_cpp(rounds, 16)


@figure("ours_135m", "llama_cpp_135m", least=1.4)
def pass32_over_llama_cpp(rounds: Rounds) -> list[float]:
    """As pass8_over_llama_cpp, of 32 tokens."""
    return _pass_over_llama_cpp(rounds, 32)


@figure("ours_250m", least=85)
def ntp_read_share_pct_250m(rounds: Rounds) -> list[float]:
    """Percent of the read ceiling that NTP of the 250M shape reaches on all cores.

    Bytes of a pass, all weights and the mean KV, over its seconds with sampler and Python, over the rate of the best reader.
    Readers are the calibration's two kernels and a native loop, over as many bytes, before and after the decodes in the same
    process. Medians on both sides.
    """
    return _read_share_pct(rounds, "ceiling_bytes_per_s")


@figure("ours_250m")
def ntp_read_share_of_fastest_pct_250m(rounds: Rounds) -> list[float]:
    """Percent, as ntp_read_share_pct_250m, of the fastest single run of any reader, as a calibration takes its ceiling."""
    return _read_share_pct(rounds, "fastest_bytes_per_s")


@figure("ours_135m", most=1.8)
def pass12_over_pass1_135m(rounds: Rounds) -> list[float]:
    """Ratio of seconds: a pass of 12 tokens over one of 1 token, after 128, in turns, medians; all logits of both."""
    return rounds.ratio(("ours_135m", "pass_s_12"), ("ours_135m", "pass_s_1"))


@figure("start_135m", most=20)
def first_sample_s_135m(rounds: Rounds) -> list[float]:
    """Seconds from the start of `sbd run` on start_135m.yaml to the end of its first NTP decode, a warm-up.

    Calibration is cached before; the passes that a run measures before its samples are counted.
    """
    return list(rounds.of("start_135m", "first_sample_s").values())


@figure("start_reference", most=8)
def first_sample_s_reference(rounds: Rounds) -> list[float]:
    """The same on start_reference.yaml, the reference model in float32."""
    return list(rounds.of("start_reference", "first_sample_s").values())


@figure("start_135m", most=3)
def next_arm_s_135m(rounds: Rounds) -> list[float]:
    """Seconds from the end of the sample before to the end of an arm's own warm-up, of the slowest further arm.

    In the run of first_sample_s_135m. The warm-up is a whole decode.
    """
    return list(rounds.of("start_135m", "next_arm_s").values())


@figure("ours_135m", most=12)
def rest_share_pct_135m(rounds: Rounds) -> list[float]:
    """Percent of NTP's time after the prompt that is spent outside calls of the native kernels, each timed by itself."""
    return list(rounds.of("ours_135m", "rest_share_pct").values())


@figure("ours_reference", most=40)
def rest_share_pct_reference(rounds: Rounds) -> list[float]:
    """The same of the reference model in float32."""
    return list(rounds.of("ours_reference", "rest_share_pct").values())


def derived(rounds: Rounds, names: Sequence[str]) -> tuple[dict[str, float | None], dict[str, str]]:
    """What is stored of the figures ``names``, and why some are None. The median of every measured value stands behind them."""
    found: dict[str, float | None] = {}
    reasons = {}
    for name in names:
        try:
            found |= FIGURES[name].stored(name, rounds)
        except NotMeasured as error:
            found[name], reasons[name] = None, str(error)
    pairs = dict.fromkeys((name, key) for one in rounds.taken for name, values in one.items() for key in values)
    medians = {f"{name}_{key}": statistics.median(rounds.of(name, key).values()) for name, key in pairs}
    return found | {name: float(f"{value:.6g}") for name, value in medians.items()}, reasons
