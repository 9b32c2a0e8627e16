"""The mean of figures by prompt and process where some are missing, by the normal equations of a two-way layout."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np


def crossed_mean(found: Mapping[tuple[Hashable, Hashable], float]) -> float:
    """Mean over every prompt and process of prompt + process, fitted to the figures that are there by least squares."""
    prompts = {one: at for at, one in enumerate(dict.fromkeys(prompt for prompt, _ in found))}
    processes = {one: at for at, one in enumerate(dict.fromkeys(process for _, process in found))}
    design = np.zeros((len(found), len(prompts) + len(processes)))
    for row, (prompt, process) in enumerate(found):
        design[row, prompts[prompt]] = design[row, len(prompts) + processes[process]] = 1
    effects = np.linalg.lstsq(design, np.array(list(found.values())), rcond=None)[0]
    fitted = effects[: len(prompts), None] + effects[None, len(prompts) :]
    for (prompt, process), value in found.items():
        fitted[prompts[prompt], processes[process]] = value
    return float(fitted.mean())
