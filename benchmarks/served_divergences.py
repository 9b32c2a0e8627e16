"""Where a served arm parts from NTP on 200 prompts: the classes of the record, checked against float64.

    python -m benchmarks.served_divergences RUN

RUN: of benchmarks/served_divergences.yaml, or another one of one part with servers. The record's classes come from float32;
here the same places are classed once more, in float64. Wrong acceptances are planted: the token after the right one stands in
its place.

prompts, parted                          answers compared, and those that part from NTP's
near_ties, errors, unclassified          classes in the record
same_class_in_float64_pct                of the parted ones
gap_difference_max_nats                  of the two gaps of a place
planted, planted_called_errors           wrong acceptances, and those that are classed as errors
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from benchmarks.results_file import write_results
from harness.engine.engine import open_engine
from harness.engine.loading import open_tokenizer
from harness.models.choice import RandomModel
from harness.record.store import read_run
from harness.runner.divergence import DIVERGENCES, Gaps, Parting, classified, controls, gaps_of, partings
from harness.scenario.plan import make_plan
from harness.scenario.scenario import Scenario
from harness.workloads.loader import prompt_items


def main() -> None:
    """Class again, print the differences, write the figures."""
    run = read_run(Path(sys.argv[1]))
    cases = {case.case_id: case for case in make_plan(Scenario.model_validate(run.header.scenario)).cases}
    [part] = {case.part.name: case.part for case in cases.values()}.values()
    assert not isinstance(part.model, RandomModel)
    tokenizer, vocab = open_tokenizer(part.model), run.header.cases[0].shape.vocab
    prompts = {
        (task, item.prompt_id): item.ids
        for task in dict.fromkeys(case.task for case in cases.values())
        for item in prompt_items(part.workload, task, part.seed, tokenizer, vocab)
    }

    def gaps_in(dtype: str) -> Gaps:
        keys = {"servers": {}, "timed": False, "session": "plain", "execution": "eager", "dtype": dtype}
        return gaps_of(open_engine(part.model_copy(update=keys)))

    counted = [one for one in run.samples if not one.warmup]
    starts = sorted({one.process for one in counted})
    each = [partings([one for one in counted if one.process == start], cases, prompts) for start in starts]
    found, compared = [one for some, _ in each for one in some], sum(count for _, count in each)
    measured = controls(counted, cases, prompts)
    wrong = [
        Parting(case_id="planted", prompt_id=str(number), at=len(context), context=context, ntp=right, other=behind)
        for number, (context, right, behind) in enumerate(measured)
    ]
    again = classified([*found, *wrong], measured, gaps_in("float64"), gaps_in(part.dtype))["found"]
    told = [one for event in run.events(DIVERGENCES, part.name) for one in event["found"]]
    pairs = list(zip(told, again[: len(found)], strict=True))
    assert all(one[key] == other[key] for one, other in pairs for key in ("case_id", "prompt_id", "at"))
    for before, now in pairs:
        exactly = f"float64 {now['class']}, gap {now['gap']}, behind {now['behind']}"
        print(f"{now['prompt_id']} token {now['at']}: {before['class']}, gap {before['gap']}; {exactly}")
    classes = Counter(one["class"] for one in told)
    figures = {
        "prompts": compared,
        "parted": len(found),
        "near_ties": classes["near_tie"],
        "errors": classes["error"],
        "unclassified": classes["unclassified"],
        "same_class_in_float64_pct": 100 * sum(one["class"] == other["class"] for one, other in pairs) / max(1, len(pairs)),
        "gap_difference_max_nats": max(
            (abs(one["gap"] - other["gap"]) for one, other in pairs if one["gap"] is not None), default=0.0
        ),
        "planted": len(wrong),
        "planted_called_errors": sum(one["class"] == "error" for one in again[len(found) :]),
    }
    print(figures)
    print(write_results("served_divergences", figures, run.header.environment))


if __name__ == "__main__":
    main()
