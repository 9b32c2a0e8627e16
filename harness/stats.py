"""A quantity with its interval, and the bounds of shares and of paired differences. Ratios: stats_ratios.

Knows no record, arm or token: it is handed numbers. Degenerate input (one prompt, no variance, nothing at all) is
answered with a value whose interval is None and a reason, or with a bound that needs no variance; never with NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

CONFIDENCE = 0.95
FEW_DIFFERING_PAIRS = 10
FEWEST_PROCESSES = 3
"""With fewer, nothing can be said of how processes differ, and an interval is about these processes only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What the interval of a ratio is made of, in log units: what planning starts from.

    ``prompt``   standard deviation over prompts of the log ratio, each prompt's mean over all processes
    ``process``  standard deviation of what is common to all prompts of one process; None where fewer than three show it
    """

    prompt: float
    process: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A derived value with its interval. What is None has a ``reason``; ``method`` names the formula of the interval.

    ``n`` counts the independent units behind the value (prompts, or groups of prompts at batch > 1), ``processes`` the
    fresh processes that each decoded all of them (None: there are none to speak of). ``spread`` goes with intervals of ratios.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    method: str | None = None
    reason: str | None = None
    processes: int | None = None
    spread: Spread | None = None

    @property
    def these_processes_only(self) -> str | None:
        """The words for an interval that says nothing of other processes; None where it does, or where there are none."""
        if self.processes is None or self.processes >= FEWEST_PROCESSES:
            return None
        return "this process only" if self.processes == 1 else f"these {self.processes} processes only"


def absent(reason: str, n: int = 0) -> Quantity:
    """A quantity that cannot be given, with why."""
    return Quantity(value=None, n=n, reason=reason)


def exact(value: float, n: int = 0) -> Quantity:
    """A counted quantity, or a plain quotient, that has no sampling interval of its own."""
    return Quantity(value=float(value), n=n)


def wilson_interval(successes: float, n: int, confidence: float = CONFIDENCE) -> Quantity:
    """A share with its Wilson score interval. ``successes`` may be fractional (a mean over repeats of one prompt).

    Source: E. B. Wilson, JASA 22 (1927) 209; centre (p + z²/2n) / (1 + z²/n).
    """
    if n == 0:
        return absent("nothing was graded")
    z = float(special.ndtri(0.5 + confidence / 2))
    p = successes / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Quantity(value=p, low=max(0.0, centre - half), high=min(1.0, centre + half), n=n, method="Wilson")


def paired_lower_bound(differences: Sequence[float], confidence: float = CONFIDENCE) -> Quantity:
    """Mean of paired differences in [-1, 1], with a one-sided lower bound (``low``; ``high`` stays None).

    * All equal to c: no variance. A pair that was not seen has probability at most p = 1 - (1 - confidence)^(1/n)
      (the exact form of the rule of three) and costs at most c + 1, so the bound is c - p(c + 1).
    * Fewer than 10 pairs differ: the t bound is not to be trusted. The lower of it and minus the exact
      (Clopper-Pearson) upper bound of the share of losses, which ignores all wins and counts every loss in full.
    * Otherwise mean - t(n-1) · s / √n.
    """
    n = len(differences)
    if n == 0:
        return absent("no pairs to compare")
    data = np.asarray(differences, dtype=float)
    mean = math.fsum(differences) / n
    if float(data.max()) == float(data.min()):
        unseen = 1 - (1 - confidence) ** (1 / n)
        reason = f"all {n} pairs differ by the same amount: exact bound instead of a t bound"
        return Quantity(value=mean, low=mean - unseen * (mean + 1), n=n, method="exact", reason=reason)
    bound = mean - float(special.stdtrit(n - 1, confidence)) * float(data.std(ddof=1)) / math.sqrt(n)
    differing = int(np.count_nonzero(data))
    if differing < FEW_DIFFERING_PAIRS:
        losses = int(np.count_nonzero(data < 0))
        losses_high = 1.0 if losses == n else float(special.betaincinv(losses + 1, n - losses, confidence))
        reason = f"only {differing} of {n} pairs differ: the more careful of the t bound and the exact bound on losses"
        return Quantity(value=mean, low=min(max(-1.0, bound), -losses_high), n=n, method="exact on losses", reason=reason)
    return Quantity(value=mean, low=max(-1.0, bound), n=n, method="t on paired differences")


def pairs_needed(margin: float, confidence: float = CONFIDENCE) -> int:
    """Fewest pairs with which a lower bound can stay above ``-margin``, reached when no pair differs."""
    return math.floor(math.log(1 - confidence) / math.log(1 - margin)) + 1
