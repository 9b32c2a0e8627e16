"""Accuracy of an arm prompt by prompt, its paired difference to NTP or to another part's NTP, and identity with NTP's output.

A prompt decoded several times counts once, with the mean over its repeats. Related prompts count as fewer.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterator

from harness.analysis.tally.tally import Decodes, Key, PromptKey, Written, tasks_sampled
from harness.stats.quantity import CONFIDENCE, Quantity, absent, effective_pairs, exact, paired_lower_bound, wilson_interval

MARGIN = 0.01
"""One percentage point: the loss of accuracy that the claim must stay within (fixed before any run)."""

REPLAYED = "replayed acceptance: what it writes is not the model's answer"
Grades = dict[PromptKey, float]
"""(task, prompt id) -> share of its repeats that were correct."""
Clusters = dict[PromptKey, tuple[str, str]]
"""(task, prompt id) -> (task, cluster label); unrelated prompts are not in it."""


def grades(tallies: Decodes) -> Grades:
    """Share of correct repeats of every graded prompt."""
    gathered: dict[PromptKey, list[bool]] = {}
    for one in _written(tallies):
        if one.row.correct is not None:
            gathered.setdefault(one.prompt, []).append(one.row.correct)
    return {prompt: sum(marks) / len(marks) for prompt, marks in gathered.items()}


def clusters(tallies: Decodes) -> Clusters:
    """The cluster label of every prompt that the record assigns to related ones; its task, where tasks are a sample."""
    if tasks_sampled(tallies):
        return {one.prompt: ("", tally.key[0]) for tally in tallies for one in tally.answers}
    return {one.prompt: (one.prompt[0], one.row.cluster) for one in _written(tallies) if one.row.cluster is not None}


def _written(tallies: Decodes) -> Iterator[Written]:
    return (one for tally in tallies for one in tally.answers)


def gains(arm: Grades, reference: Grades, related: Clusters) -> tuple[list[float], list[Hashable]]:
    """Gain of the arm on every prompt graded for both, and the cluster of each prompt (itself, where it has no relatives)."""
    common = [prompt for prompt in arm if prompt in reference]
    belongs_to: list[Hashable] = [("cluster", related[one]) if one in related else one for one in common]
    return [arm[one] - reference[one] for one in common], belongs_to


CANNOT_TELL = "so the check cannot tell"
RARE = 0.1
"""More than this share of the prompts is neither almost none nor almost all: what is missing then is prompts."""


def untold(right: float, wrong: float, n: int, margin: float = MARGIN) -> str | None:
    """Why grades of ``n`` prompts cannot tell a loss of ``margin`` from none; None where they can.

    A loss is a prompt that NTP gets ``right`` and an arm gets ``wrong``. Where one of the two is so rare that the lower
    end of its share does not exceed the margin, these prompts could not have shown such a loss, whatever an arm wrote. So
    they show no equality either: (almost) nothing, or everything, may pass the check. A loss that is shown is not void by this.

    Args:
        wrong: prompts that any arm of the cell, NTP included, gets wrong: then the check is known to fail.

    Source: ICH E10, Choice of Control Group in Clinical Trials (2000), 1.5: assay sensitivity of non-inferiority trials.
    """
    rarer = min(right, wrong) / n if n else 1.0
    if rarer > RARE or (paired_lower_bound([rarer] * n).low or 0.0) > margin:
        return None
    beside = f", and no arm is wrong in more than {wrong:g}" if wrong < right else ""
    return f"NTP is right in {right:g} of {n}{beside}, {CANNOT_TELL} a loss of {100 * margin:g} in 100 from none"


def accuracy(graded: Grades, tallies: Decodes, replayed: bool) -> Quantity:
    """Share of correct prompts with its Wilson interval."""
    if replayed:
        return absent(REPLAYED)
    if not graded:
        reasons = (one.row.ungraded_reason for one in _written(tallies))
        return absent(next(filter(None, reasons), "no answer to check against"))
    return wilson_interval(sum(graded.values()), len(graded))


def difference(
    arm: Grades, reference: Grades, related: Clusters, why_none: str, wrong: int, confidence: float = CONFIDENCE
) -> Quantity:
    """Accuracy of the arm less that of the reference over the prompts both were graded on, with the lower end of its interval.

    ``wrong``: as in ``untold``.
    """
    common, belongs_to = gains(arm, reference, related)
    why = untold(sum(reference.values()), wrong, len(reference)) if common else why_none
    return absent(why) if why else paired_lower_bound(common, confidence, belongs_to)


Outputs = dict[tuple[Key, PromptKey], list[int]]
"""(key of the decode, (task, prompt id)) -> output ids."""


def outputs(tallies: Decodes) -> Outputs:
    """Output ids of every prompt in every decode; unknown ones are left out, so that nothing equals them."""
    found = ((tally.key, one.prompt, one.row.output_ids) for tally in tallies for one in tally.answers)
    return {(key, prompt): ids for key, prompt, ids in found if ids is not None}


def identical_outputs(of_ntp: Outputs, arm: Outputs, why_none: str, confidence: float = CONFIDENCE) -> Quantity:
    """Share of prompts whose every decode equals NTP's of the same repeat and process, with its Wilson interval. Prompts that
    only one of the two decoded, or whose ids are unknown, are left out; so is an equal token that the prompt's pass gave alone.
    """
    same: dict[PromptKey, bool] = {}
    for (key, prompt), output in arm.items():
        expected = of_ntp.get((key, prompt))
        if expected is not None and (len(output) > 1 or output != expected):
            same[prompt] = same.get(prompt, True) and output == expected
    return wilson_interval(sum(same.values()), len(same), confidence) if same else absent(why_none)


def accuracy_figures(
    arm: Grades, ntp: Grades, related: Clusters, why_none: str, wrong: int, confidence: float = CONFIDENCE
) -> dict[str, Quantity]:
    """Accuracy lost to NTP in percentage points, prompt by prompt, and its standard deviation over prompts.

    The ends of the loss are those of two lower bounds, of the gain and of the loss. ``n`` of the deviation counts the unrelated
    prompts that carry the same information. ``wrong``: as in ``untold``.
    """
    alone, why = len(arm.keys() ^ ntp.keys()), why_none if not arm or not ntp else None
    if alone and not why:
        why = f"{alone} prompts were graded for NTP alone or for this arm alone: what is left out of one side flatters it"
    if why := why or untold(sum(ntp.values()), wrong, len(ntp)):
        return dict.fromkeys(("accuracy_loss_points", "accuracy_loss_sd_points"), absent(why))
    gained, belongs_to = gains(arm, ntp, related)
    gain, loss = (paired_lower_bound([sign * one for one in gained], confidence, belongs_to) for sign in (1, -1))
    found = Quantity(
        value=100 * (loss.value or 0.0),
        low=100 * (loss.low or 0.0),
        high=-100 * (gain.low or 0.0),
        n=gain.n,
        method=gain.method,
        reason=gain.reason,
    )
    sd = absent("one prompt only")
    if len(gained) > 1:
        sd = exact(100 * statistics.stdev(gained), n=effective_pairs(gained, belongs_to))
    return {"accuracy_loss_points": found, "accuracy_loss_sd_points": sd}
