"""Whether sampled decodes with the adapter follow the distribution of the model alone: Pearson's chi-square.

    python -m benchmarks.sampled_real_model [RUN]

RUN: a run of scenarios/real_model_sampled.yaml. What is expected comes from transformers' own forward of the base model in
float32: softmax(logits / temperature) behind every prompt and prefix that was drawn often enough. The first token of an answer is left
out: the prompt's own pass makes it, whatever the method. None of this program's decoding is in what is expected. NTP is held
against it, too: it shows what the test itself makes of right samples.

chi_square, degrees, p_value   of the SBD arm; the statistics of all contexts add up, and so do their degrees of freedom
ntp_p_value                    of NTP
contexts, draws, answers       contexts of at least LEAST_DRAWS draws, tokens drawn behind them, and all answers of the arm
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
LEAST_DRAWS, LEAST_EXPECTED = 25, 5.0
Context = tuple[str, tuple[int, ...]]


def draws(run: Run, method: str) -> dict[Context, Counter[int]]:
    """The tokens drawn behind every prompt and first tokens of its answer."""
    cases = {case.case_id for case in run.header.cases if case.arm["method"] == method}
    found: dict[Context, Counter[int]] = defaultdict(Counter)
    for sample in run.samples:
        for row in sample.rows if sample.case_id in cases else ():
            for at in range(1, len(row.ids)):
                found[row.prompt_id, tuple(row.ids[:at])][row.ids[at]] += 1
    return {context: tokens for context, tokens in found.items() if tokens.total() >= LEAST_DRAWS}


def cells(drawn: Counter[int], chances: torch.Tensor) -> tuple[list[float], list[float]]:
    """(observed, expected) of every token that is expected LEAST_EXPECTED times, and of all others together."""
    n = drawn.total()
    single = [int(token) for token in torch.nonzero(chances * n >= LEAST_EXPECTED).flatten()]
    observed, expected = [float(drawn[token]) for token in single], [float(chances[token]) * n for token in single]
    rest = n - sum(expected)
    if rest >= LEAST_EXPECTED or not single:
        return [*observed, n - sum(observed)], [*expected, rest]
    return [*observed[:-1], n - sum(observed[:-1])], [*expected[:-1], n - sum(expected[:-1])]


def prompts_of(run: Run) -> dict[str, tuple[int, ...]]:
    """The token ids of every prompt."""
    [part] = load_scenario(SCENARIO).parts
    assert not isinstance(part.model, RandomModel)
    tokenizer, [task] = open_tokenizer(part.model), {case.task for case in run.header.cases}
    items = prompt_items(part.workload, task, part.seed, tokenizer, run.header.cases[0].model.vocab)
    return {one.prompt_id: one.ids for one in items}


def fit(model: Any, prompts: Mapping[str, tuple[int, ...]], drawn: Mapping[Context, Counter[int]]) -> tuple[float, int]:
    """(chi-square, degrees of freedom) over all contexts."""
    statistic, degrees = 0.0, 0
    for (prompt, prefix), tokens in drawn.items():
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompts[prompt], *prefix]])).logits[0, -1].double()
        observed, expected = cells(tokens, torch.softmax(logits / TEMPERATURE, dim=-1))
        if len(observed) > 1:
            statistic += float(stats.chisquare(observed, expected).statistic)
            degrees += len(observed) - 1
    return statistic, degrees


def main() -> None:
    """Measure or read, print, write."""
    run = measured_run(SCENARIO)
    model: Any = AutoModelForCausalLM.from_pretrained(found_folder("smollm2-135m"), dtype=torch.float32)
    prompts, drawn = prompts_of(run), draws(run, "self_speculation")
    statistic, degrees = fit(model, prompts, drawn)
    of_ntp = fit(model, prompts, draws(run, "ntp"))
    sampling = {case.case_id for case in run.header.cases if case.arm["method"] == "self_speculation"}
    answers = sum(len(sample.rows) for sample in run.samples if sample.case_id in sampling)
    figures = {
        "chi_square": statistic, "degrees": degrees, "p_value": float(stats.chi2.sf(statistic, degrees)),
        "ntp_p_value": float(stats.chi2.sf(*of_ntp)), "contexts": len(drawn),
        "draws": sum(tokens.total() for tokens in drawn.values()), "answers": answers,
    }  # fmt: skip
    print(figures)
    print(write_results("sampled_real_model", figures, run.header.environment))


if __name__ == "__main__":
    main()
