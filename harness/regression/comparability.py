"""Checks that runs are alike enough to compare their figures, names each difference by key, and refuses unlike runs.

The commit of sbd, its times and its counts are expected to differ. All that is held fixed must agree: the machine, the pinned
versions, the scenario, the loaded model, the prompts, the record's format. A fact that only one record has counts as a
difference, unless older records lack it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from pydantic import ValidationError

from harness.errors import UserError
from harness.formatting import one_line
from harness.frozen import frozen
from harness.record.identity import mixes, model_values
from harness.record.same import ABSENT, LATER_FACTS, differing, facts_of, hardware_of, versions_of
from harness.record.schema import Run, RunHeader, Sample
from harness.record.written import WrittenPartKeys, WrittenScenario
from harness.scenario.scenario import NOT_MEASURED, Scenario

Facts = dict[str, object]
GROUPS = ("hardware", "versions", "scenario", "model", "cases", "prompts", "record_version")
MAY_LACK = {f"hardware.{name}" for name in LATER_FACTS}
MOST_NAMED, LONGEST_LINE = 6, 120
"""Differences that a refusal names one by one, and letters of each."""
LONGEST_VALUE = 80
"""Most letters of a value in a refusal; a whole part that only one side has is not written out."""
WORDS = ("name", "question")
"""Keys of a scenario that do not change the measurement, besides those that no sample depends on."""


@frozen
class Unlike:
    """One difference between two runs: ``hardware.cpu_model``, with both values in words."""

    key: str
    base: str
    new: str

    @property
    def group(self) -> str:
        """Its name for ``--allow``: the first word of the key."""
        return self.key.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.key}: {self.base} in BASE, {self.new} in NEW"


def unlike(base: Run, new: Run) -> tuple[Unlike, ...]:
    """Everything that should agree and does not."""
    facts = [
        Unlike(key=key, base=_words(old), new=_words(now))
        for key, old, now in differing(_facts(base), _facts(new))
        if key not in MAY_LACK or None not in (old, now)
    ]
    return (*facts, *_model_files(base, new), *_prompts(base, new))


def refuse_unlike(
    base: Run, others: Sequence[Run], allow: Collection[str] = (), names: Sequence[str] = ()
) -> tuple[Unlike, ...]:
    """The differences that ``allow`` (groups, dotted keys or their beginnings) permits; anything else is refused.

    Raises:
        UserError: two runs are not alike, with every key, both values and what to do; the processes of one are not alike, and
            nobody allowed it; or ``allow`` names an unknown key.
    """
    unknown = [word for word in allow if word.partition(".")[0] not in GROUPS]
    if unknown:
        raise UserError(f"--allow {unknown[0]}: there is no such thing to allow; allowed: {', '.join(GROUPS)}, or a key of one")
    names = names or [f"run {number}" for number in range(1, len(others) + 2)]
    for name, run in zip(names, (base, *others), strict=True):
        for mix in mixes(run):
            if mix.unexplained:
                raise UserError(f"{name}: part {mix.part}: {mix.why_void}; it is no one run, and compared with nothing")
    allowed: list[Unlike] = []
    beginnings = tuple(f"{word}." for word in allow)
    for name, other in zip(names[1:], others, strict=True):
        differences = unlike(base, other)
        refused = [difference for difference in differences if not f"{difference.key}.".startswith(beginnings)]
        if refused:
            raise UserError(*_refusal(names[0], name, refused))
        allowed += differences
    return tuple(dict.fromkeys(allowed))


def shared_prompts(base: Run, new: Run) -> tuple[Run, Run]:
    """The runs with only the decodes whose prompts both have in the same case; cases of one side alone stay as they are."""
    cases = {sample.case_id for sample in base.samples} & {sample.case_id for sample in new.samples}
    batches = set(map(_batch, base.samples)) & set(map(_batch, new.samples))

    def of(run: Run) -> Run:
        kept = [sample for sample in run.samples if sample.case_id not in cases or _batch(sample) in batches]
        return run if len(kept) == len(run.samples) else run.model_copy(update={"samples": kept})

    return of(base), of(new)


def _batch(sample: Sample) -> tuple[str, tuple[str, ...]]:
    return sample.case_id, tuple(row.prompt_id for row in sample.rows)


def work_fingerprint(header: RunHeader) -> str:
    """12 hex digits, equal where the scenario measures the same with as many threads; its name and claims do not count."""
    done = {"scenario": _scenario(header.scenario), "threads": header.environment.get("threads")}
    return hashlib.sha256(json.dumps(done, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:12]


def _facts(run: Run) -> Facts:
    environment, imported = run.header.environment, run.header.imported
    named = {} if imported is None else {"machine": environment.get("machine") or f"not named ({run.header.run_id})"}
    return {
        "hardware": hardware_of(environment) | named,  # imported runs whose machine nobody named are not of one
        "versions": versions_of(environment),
        "scenario": _scenario(run.header.scenario),
        "model": _models(run),
        "cases": {
            case.case_id: "there" if case.width is None else case.width.best.width for case in run.cases if not case.is_check
        },
        "record_version": run.header.record_version,
    }


def _scenario(recorded: WrittenScenario) -> Facts:
    """The scenario with today's defaults filled in, so that a record older than a key agrees with its default.

    Parts are compared by name, a file of prompts by its digest and not by its path.
    """
    try:
        data = cast(WrittenScenario, Scenario.model_validate(recorded).model_dump(mode="json"))
    except ValidationError:
        data = recorded
    parts = {part["name"]: _without_place(part) for part in data.get("parts", [])}
    return {key: value for key, value in data.items() if key not in (*WORDS, *NOT_MEASURED)} | {"parts": parts}


def _without_place(part: WrittenPartKeys) -> WrittenPartKeys:
    workload = part.get("workload") or {}
    if workload.get("prompts_sha256") is None:
        return part
    return {**part, "workload": {key: value for key, value in workload.items() if key != "prompts_file"}}


def _models(run: Run) -> Facts:
    """Per part: the loaded shape, how its forwards ran, and the hub's weights and tokenizer."""
    models: Facts = {}
    for case in run.cases:
        if not case.is_check and case.part not in models:
            engine = facts_of(next(iter(run.events("engine", case.part)), {}), ("model_revision", "tokenizer_sha256"))
            shape = case.model.model_dump(mode="json") if case.model else case.model_source.get("named")
            models[case.part] = {"shape": shape, "execution": case.execution, **engine}
    return models


def _model_files(base: Run, new: Run) -> Iterator[Unlike]:
    """Files of a part's model that differ; older records lack them, and are not refused for it."""
    for part in dict.fromkeys(case.part for case in base.cases):
        files, others = model_values(base, part), model_values(new, part)
        for item in files:
            if files[item] != others.get(item, files[item]):
                yield Unlike(key=f"model.{part}.{item}", base=_words(files[item]), new=_words(others[item]))


def _prompts(base: Run, new: Run) -> Iterator[Unlike]:
    """Cases that both runs sampled with different prompts."""
    lengths_of_new = _lengths(new)
    for case_id, left in _lengths(base).items():
        right = lengths_of_new.get(case_id, {})
        if not right or left == right:
            continue
        longer = sorted(name for name in left.keys() & right.keys() if left[name] != right[name])
        lacking, added = sorted(left.keys() - right.keys()), sorted(right.keys() - left.keys())
        parts = [("without", lacking), ("also", added), ("of other lengths:", longer)]
        words = "; ".join(f"{word} {_some(prompts)}" for word, prompts in parts if prompts)
        yield Unlike(key=f"prompts.{case_id}", base=f"{len(left)} prompts", new=f"{len(right)} prompts ({words})")


def _lengths(run: Run) -> dict[str, dict[str, int]]:
    """Prompt tokens by prompt, by case; warm-ups and generate() left out."""
    lengths: dict[str, dict[str, int]] = {}
    for case, sample in run.of_arms():
        lengths.setdefault(case.case_id, {}).update({row.prompt_id: row.prompt_tokens for row in sample.rows})
    return lengths


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _refusal(base: str, new: str, refused: Sequence[Unlike]) -> list[str]:
    """At most ten lines: what to do, then the differences, the rest of them by group."""
    groups, named = [difference.group for difference in refused], refused[:MOST_NAMED]
    lines = [one_line(f"  {difference}", LONGEST_LINE) for difference in named]
    if rest := Counter(groups[MOST_NAMED:]):
        lines.append("  and " + ", ".join(f"{count} more of {group}" for group, count in rest.items()))
    return [
        "measure both in one place (`sbd gate --base-cmd ... --new-cmd ...` does), or add --allow "
        f"{','.join(dict.fromkeys(groups))} (or single keys)",
        f"these runs are not alike, so a difference between them would not be the code's (BASE {base}, NEW {new}):",
        *lines,
    ]


def _words(value: Any) -> str:
    text = repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
