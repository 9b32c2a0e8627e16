"""Whether sampled decodes with the adapter follow the distribution of the model alone: Pearson's chi-square.

    python -m benchmarks.sampled_real_model [RUN]

RUN: a run of scenarios/real_model_sampled.yaml. What is expected comes from transformers' own forward of the base model in
float32: softmax(logits / temperature) after the prompt and the answer's own first tokens. None of this program's decoding is
in it. Every drawn token is turned into its place in that distribution, with the likeliest first: the chance of all likelier
ones, and a random share of its own. Right samples are uniform on these places (the randomised probability integral transform;
Smith 1985), so places are counted in BINS equal bins. The first two tokens of an answer are left out: the prompt's pass and
the first decode pass make them, before anything was drafted. NTP is held against it, too: it shows what the test makes of
right samples.

chi_square, degrees, p_value   of the SBD arm
ntp_p_value                    of NTP
draws, answers                 tokens that are tested, and answers, of the SBD arm
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from transformers import AutoModelForCausalLM

from benchmarks.measured_run import measured_run
from benchmarks.results_file import write_results
from harness.engine.loading import open_tokenizer
from harness.models.choice import RandomModel
from harness.models.pretrained import found_folder
from harness.record.schema import Run
from harness.scenario.loading import load_scenario
from harness.workloads.loader import prompt_items

SCENARIO = Path("scenarios/real_model_sampled.yaml")
TEMPERATURE = 0.7
BINS, FIRST_CHECKED = 20, 2


def answers_of(run: Run, method: str) -> dict[str, list[list[int]]]:
    """The answers to every prompt."""
    cases = {case.case_id for case in run.header.cases if case.arm.method == method}
    found: dict[str, list[list[int]]] = defaultdict(list)
    for sample in run.samples:
        for row in sample.rows if sample.case_id in cases else ():
            found[row.prompt_id].append(list(row.ids))
    return found


def prompts_of(run: Run) -> dict[str, tuple[int, ...]]:
    """The token ids of every prompt."""
    [part] = load_scenario(SCENARIO).parts
    assert not isinstance(part.model, RandomModel)
    tokenizer, [task] = open_tokenizer(part.model), {case.task for case in run.header.cases}
    items = prompt_items(part.workload, task, part.seed, tokenizer, run.header.cases[0].shape.vocab)
    return {one.prompt_id: one.ids for one in items}


def places(model: Any, prompt: Sequence[int], answers: Sequence[Sequence[int]], drawn: np.random.Generator) -> list[float]:
    """Of every checked token of ``answers``, its place in the model's own distribution."""
    found: list[float] = []
    with torch.no_grad():
        read = model(input_ids=torch.tensor([list(prompt)])).past_key_values
        for length in sorted({len(answer) for answer in answers if len(answer) > FIRST_CHECKED}):
            ids = torch.tensor([answer for answer in answers if len(answer) == length])
            kept = copy.deepcopy(read)
            kept.batch_repeat_interleave(len(ids))
            logits = model(input_ids=ids, past_key_values=kept).logits.double()
            for at in range(FIRST_CHECKED, length):
                chances = torch.softmax(logits[:, at - 1] / TEMPERATURE, dim=-1)
                own = chances.gather(1, ids[:, at : at + 1])
                likelier = (chances * (chances > own)).sum(dim=1)
                found += (likelier.numpy() + own[:, 0].numpy() * drawn.random(len(ids))).tolist()
    return found


def test(found: Sequence[float]) -> tuple[float, float]:
    """(chi-square, p-value) of places that are to be uniform."""
    counts, _ = np.histogram(found, bins=BINS, range=(0.0, 1.0))
    result = stats.chisquare(counts)
    return float(result.statistic), float(result.pvalue)


def main() -> None:
    """Measure or read, print, write."""
    run = measured_run(SCENARIO)
    model: Any = AutoModelForCausalLM.from_pretrained(found_folder("smollm2-135m"), dtype=torch.float32)
    prompts, drawn = prompts_of(run), np.random.default_rng(0)
    speculated, ntp = answers_of(run, "self_speculation"), answers_of(run, "ntp")
    found, of_ntp = (
        [one for prompt, own in answers.items() for one in places(model, prompts[prompt], own, drawn)]
        for answers in (speculated, ntp)
    )
    (chi_square, p_value), (_, ntp_p_value) = test(found), test(of_ntp)
    figures = {
        "chi_square": chi_square,
        "degrees": BINS - 1,
        "p_value": p_value,
        "ntp_p_value": ntp_p_value,
        "draws": len(found),
        "answers": sum(map(len, speculated.values())),
    }
    print(figures)
    print(write_results("sampled_real_model", figures, run.header.environment))


if __name__ == "__main__":
    main()
