"""Reads the prompts of a dataset with the library `datasets` (extra [eval]); it never runs a dataset's own code.

The library guesses the type of a column from all its values: one blank makes 2 to 2.0, and 007 is 7. No output
would match. So columns of CSV are read as text, and a JSON file is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.config_file import read_text
from harness.errors import MissingExtraError, ScenarioError, first_mistake
from harness.workloads.prompts import Prompt, cluster_of, json_values, last_match
from harness.workloads.spec import FORMATS, DatasetChoice, fields_of


@cache
def dataset_prompts(choice: DatasetChoice, count: int, cluster: str | None = None) -> tuple[Prompt, ...]:
    """The first ``count`` rows as prompts, in the dataset's order. ``cluster``: the field that says which are related.

    Raises:
        MissingExtraError: `datasets` is not installed.
        ScenarioError: the dataset cannot be read, has too few rows, or a row lacks what a template or ``cluster`` names.
    """
    rows = read_rows(choice)
    if len(rows) < count:
        raise ScenarioError(f"{choice.words}: {count} prompts are asked for, but it has {len(rows)} rows; ask for at most that")
    return tuple(_prompt(choice, index, rows[index], cluster) for index in range(count))


def dataset_pairs(choice: DatasetChoice, count: int | None) -> list[tuple[str, str]]:
    """Prompts with their answers, of the first ``count`` rows or all, for training.

    Raises:
        MissingExtraError, ScenarioError: as dataset_prompts; or there is no answer.
    """
    prompts = dataset_prompts(choice, len(read_rows(choice)) if count is None else count)
    return [(one.prompt, one.answer) for one in prompts if one.answer is not None]


def read_rows(choice: DatasetChoice) -> Any:
    """The split, as `datasets` gives it or as a JSON file has it: len() rows, each a mapping from field to value.

    Raises:
        MissingExtraError, ScenarioError: as dataset_prompts.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError(f"prompts from a dataset need {error.name}; pip install 'sbd-bench[eval]'") from error
    datasets.disable_progress_bars()  # else they are drawn into ours
    path = Path(choice.path)
    try:
        if path.is_file() and FORMATS[path.suffix] == "json":
            written = read_text(path, "dataset").removeprefix("\ufeff")
            return [{**row} for _, row in json_values(path, written, number=str)]  # with the digits as written
        if path.is_file():
            read = partial(datasets.load_dataset, FORMATS[path.suffix], data_files={choice.split: choice.path})
        else:
            read = partial(datasets.load_dataset, choice.path if path.is_dir() else _snapshot(choice), choice.name)
        found = read(split=choice.split)
        if found.builder_name == "csv":
            text = datasets.Features(dict.fromkeys(found.column_names, datasets.Value("string")))
            found = read(split=choice.split, features=text, keep_default_na=False, na_values=[""])
        return found
    except (OSError, ValueError, TypeError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ScenarioError(f"{choice.words}: cannot read the dataset: {reason}; mend path, name or split") from error


def _snapshot(choice: DatasetChoice) -> str:
    """The folder of the pinned commit in the hub's cache; fetched from the hub if it is missing."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    fetch = partial(snapshot_download, choice.path, repo_type="dataset", revision=choice.revision)
    try:
        return str(fetch(local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    try:
        return str(fetch())
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ScenarioError(
            f"{choice.words}: commit {choice.revision} is not in the Hugging Face cache and could not be fetched: {reason}; "
            f"where there is a network: hf download --repo-type dataset --revision {choice.revision} {choice.path}"
        ) from error


def _prompt(choice: DatasetChoice, index: int, row: Mapping[str, object], cluster: str | None) -> Prompt:
    where = f"{choice.words}, row {index}"
    answer = None if choice.answer is None else _filled_in(choice.answer, row, f"{where}: answer")
    if answer is not None and choice.answer_pattern is not None:
        found = last_match(choice.answer_pattern, answer)
        if found is None:
            raise ScenarioError(f"{where}: answer_pattern {choice.answer_pattern!r} matches nothing in {answer!r}; mend it")
        answer = found
    prompt = _filled_in(choice.prompt, row, f"{where}: prompt")
    label = cluster_of(row, cluster, where)
    try:
        return Prompt(prompt=prompt, answer=answer, check=choice.check, pattern=choice.output_pattern, cluster=label)
    except ValidationError as error:
        raise ScenarioError(f"{where}: {first_mistake(error, 'the prompt')}") from error


def _filled_in(template: str, row: Mapping[str, object], where: str) -> str:
    """The template with the row's values. A whole number that others of its column made a float is whole again."""
    for name in fields_of(template):
        if not isinstance(row.get(name), str | int | float):
            there = ", ".join(name for name, value in row.items() if isinstance(value, str | int | float))
            what = f"is {type(row[name]).__name__}, not text or a number" if name in row else "is not there"
            raise ScenarioError(f"{where}: the field {name!r} {what}; fields of this row: {there}")
    whole = {name: int(one) for name, one in row.items() if isinstance(one, float) and one % 1 == 0 and abs(one) < 2**53}
    return template.format_map({**row, **whole})
