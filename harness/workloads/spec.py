"""What a part decodes, as a scenario says it: built-in tasks, instructions, a file of prompts, a Hugging Face dataset, or
random tokens.

Nothing is loaded here. A dataset of the hub is pinned by its commit when the scenario is read, and files on this machine by
their digest. So no run continues with other prompts.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from harness.config_file import Count, StrictModel, Text, Younger, distinct, folder_of
from harness.errors import ScenarioError
from harness.models.digests import file_digest
from harness.models.pretrained import here_or_on_hub, hub_cache
from harness.workloads.instructions.draw import MOST_PROMPTS, Split, domains_of
from harness.workloads.prompts import Check, Pattern, read_prompts
from harness.workloads.tasks import TASKS

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
"""Suffixes of a single file, and their names in `datasets`."""
_COMMIT = re.compile(r"^[0-9a-f]{40}$")


def fields_of(template: str) -> tuple[str, ...]:
    """The fields that a template names, in order.

    Raises:
        ValueError: braces that do not match, or anything in them but a field's name.
    """
    try:
        parsed = [(name, spec, convert) for _, name, spec, convert in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ValueError(f"{template!r}: {error}; write {{field}}, and {{{{ or }}}} for a brace that is meant") from error
    for name, spec, convert in parsed:
        if not name.isidentifier() or spec or convert:
            raise ValueError(f"{template!r}: {{{name}}} is not the name of a field; write {{field}}, and {{{{ for a brace")
    return tuple(name for name, _, _ in parsed)


def _as_meant(wanted: str | None, file: str, digest: str) -> str:
    """The digest, if it is the one that is wanted, or none is."""
    if wanted not in {None, digest}:
        raise ValueError(f"got {wanted}, but {file} has {digest}; these are other prompts than meant, or remove the key")
    return digest


def _with_fields(template: str) -> str:
    if not fields_of(template):
        raise ValueError(f"{template!r} names no field, so every row would give the same; write for example {{question}}")
    return template


Template = Annotated[Text, AfterValidator(_with_fields)]


class DatasetChoice(StrictModel):
    """A dataset of the hub, or local files, and how its rows become prompts and answers."""

    path: Text
    """Id of a dataset on the hub, a folder, or a file (JSONL, JSON, CSV, parquet), from the scenario's folder."""
    name: Text | None = None
    """Its configuration on the hub."""
    split: Text = "test"
    """Its split."""
    revision: Annotated[str | None, Field(validate_default=True)] = None
    """Commit on the hub; filled in from the cache on this machine. None for local files."""
    data_sha256: Annotated[str | None, Field(validate_default=True)] = None
    """SHA-256 of local files; filled in, and a given one must agree."""
    prompt: Template
    """Text of a prompt, in which {field} stands for a field of the row."""
    answer: Template | None = None
    """Text of the right answer, with {field} as above. Left out: nothing is scored."""
    answer_pattern: Pattern | None = None
    """Regular expression for the part of the answer that counts, its last match: GSM8K has it after ####."""
    output_pattern: Pattern | None = None
    """Regular expression for the part of the output that is compared with it, its last match."""
    check: Check | None = None
    """How an answer is checked. Left out: exact where there is an answer."""

    @field_validator("path")
    @classmethod
    def _found(cls, path: str, info: ValidationInfo) -> str:
        base = folder_of(info)
        if base is None:
            return path
        found = here_or_on_hub(path, base, lambda local: local.is_dir() or (local.is_file() and local.suffix in FORMATS))
        if found is None:
            raise ValueError(
                f"no dataset at {path!r}: give a dataset's id on the hub such as openai/gsm8k, a folder, or a file ending in "
                + ", ".join(FORMATS)
            )
        return found

    @field_validator("revision")
    @classmethod
    def _pinned(cls, revision: str | None, info: ValidationInfo) -> str | None:
        """The commit of a branch or tag in the hub's cache on this machine; the hub is not asked."""
        path = info.data.get("path")
        if path is None or folder_of(info) is None:
            return revision
        if Path(path).is_absolute():
            if revision is not None:
                raise ValueError(f"{path} is on this machine; its digest pins it, remove the revision")
            return None
        if revision is not None and _COMMIT.match(revision):
            return revision
        _, commit = hub_cache("datasets", path, revision or "main")
        if commit is None:
            raise ValueError(
                f"got {revision!r}, and {path} is not in the Hugging Face cache of this machine, so nothing says which commit "
                f"is meant; give the commit (40 hexadecimal digits), or first: hf download --repo-type dataset {path}"
            )
        return commit

    @field_validator("data_sha256")
    @classmethod
    def _same_files(cls, wanted: str | None, info: ValidationInfo) -> str | None:
        path = info.data.get("path")
        if path is None or folder_of(info) is None or not Path(path).is_absolute():
            return wanted
        return _as_meant(wanted, path, digest_of(Path(path)))

    @model_validator(mode="after")
    def _something_to_check(self) -> DatasetChoice:
        if self.answer is None:
            idle = [key for key in ("answer_pattern", "output_pattern", "check") if getattr(self, key) not in {None, "none"}]
            if idle:
                raise ValueError(f"{idle[0]} needs an answer to check; add one, for example answer: '{{answer}}', or remove it")
        return self

    @property
    def words(self) -> str:
        """Path, configuration and split, for messages."""
        return ", ".join(one for one in (self.path, self.name, self.split) if one is not None)


def digest_of(path: Path) -> str:
    """SHA-256 over the names and contents of a file, or of all files below a folder (hidden ones left out)."""
    whole = hashlib.sha256()
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    for file in files:
        name = file.relative_to(path) if path.is_dir() else Path(file.name)
        if not any(part.startswith(".") for part in name.parts):
            whole.update(f"{file_digest(file)}  {name.as_posix()}\n".encode())
    return whole.hexdigest()


SOURCES = ("tasks", "instructions", "prompts_file", "dataset", "synthetic")
"""Keys of a workload that say where its prompts come from."""


class Synthetic(StrictModel):
    """Random prompt tokens of one length; there is nothing to check in what is written."""

    prompt_tokens: Count
    """Tokens of every prompt."""


class Instructions(StrictModel):
    """Generated prompts for a chat model, which nothing checks; each domain is shown as a task."""

    split: Split = "test"
    """`train`; `test`, of the domains that are trained on, with other content; `unseen`, of those that are not."""
    domains: Annotated[tuple[Text, ...], AfterValidator(distinct), Field(validate_default=True)] = ()
    """Domains of the prompts; test prompts may be asked for in every one. Empty: filled in with all of the split."""

    @field_validator("domains")
    @classmethod
    def _of_the_split(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "split" not in info.data:
            return names  # refused already
        all_of_it, allowed = domains_of(info.data["split"])
        unknown = next((name for name in names if name not in allowed), None)
        if unknown is not None:
            raise ValueError(f"got {unknown!r}; domains with {info.data['split']} prompts: {', '.join(allowed)}")
        return names or all_of_it


class Workload(StrictModel):
    """What is decoded: exactly one of tasks, instructions, prompts_file, dataset and synthetic."""

    tasks: tuple[Text, ...] | None = None
    """Built-in tasks by name: word_problems, record_to_json, variable_trace, short_trace."""
    split: Literal["test", "validation"] = "test"
    """Split of the built-in tasks."""
    # Before the file, which is read with it. Added after version 1 of the format, as the dataset below.
    cluster: Annotated[Text | None, Younger] = None
    """Field of a file's line, or of a dataset's row, that says which prompts are related (one document, one table, one domain).
    Intervals of times and of accuracy are then about other documents too. Left out: no prompts are related.
    """
    generalise_over: Annotated[Literal["tasks"] | None, Younger] = None
    """`tasks`: what is said over all tasks, or domains, is about tasks such as these, and each counts as one. Left out: it is
    about these tasks.
    """
    prompts_file: Text | None = None
    """JSONL file of {"prompt", "answer", "check", "pattern"}, from the scenario's folder; or one of conversations in ShareGPT's
    or OpenAI's form, each a prompt up to its last user turn.
    """
    prompts_sha256: str | None = Field(default=None, validate_default=True)
    """SHA-256 of that file; filled in, and a given one must agree."""
    # Added after version 1 of the format: left out where it is None, so that digests of older files do not change.
    dataset: Annotated[DatasetChoice | None, Younger] = None
    """A Hugging Face dataset, or local files as `datasets` reads them."""
    instructions: Annotated[Instructions | None, Younger] = None
    """Generated prompts for a chat model, which nothing checks."""
    synthetic: Synthetic | None = None
    """Random tokens, which nothing checks; the only prompts of random weights."""
    prompts: Count | None = Field(default=None, validate_default=True)
    """Prompts per task or domain. Left out: all of a prompts_file; elsewhere it is required."""
    max_new_tokens: Count
    """Tokens that an answer has at most."""
    chat_template: Literal["auto", True, False] = "auto"
    """Whether a prompt is put into the model's chat template as a user's message. `auto`: where the tokenizer has one, except
    for synthetic prompts; filled in. A prompt that holds the template's own marks stays as it is.
    """
    stop_strings: tuple[Text, ...] = ()
    """Texts that end an answer, beside the model's own end token."""

    @field_validator("tasks")
    @classmethod
    def _known_tasks(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        unknown = [name for name in names if name not in TASKS]
        if unknown:
            message = f"unknown task {unknown[0]!r}; allowed: {', '.join(TASKS)}"
            raise PydanticCustomError("unknown_task", "{message}", {"message": message})
        if not names or len(set(names)) < len(names):
            raise ValueError(f"got {list(names)}; name at least one task, each once: {', '.join(TASKS)}")
        return names

    @field_validator("prompts_file")
    @classmethod
    def _readable_prompts(cls, name: str | None, info: ValidationInfo) -> str | None:
        base = folder_of(info)
        if name is None or base is None:
            return name
        file = (base / name).resolve()
        try:
            read_prompts(file, info.data.get("cluster"))
        except ScenarioError as error:
            raise ValueError(str(error)) from error
        return str(file)

    @field_validator("prompts_sha256")
    @classmethod
    def _pinned_prompts(cls, wanted: str | None, info: ValidationInfo) -> str | None:
        """Fill in the file's digest, which pins the prompts of a run; a given one must agree."""
        file = info.data.get("prompts_file")
        if file is None or folder_of(info) is None:
            return wanted
        return _as_meant(wanted, file, file_digest(Path(file)))

    @field_validator("prompts")
    @classmethod
    def _enough_prompts(cls, wanted: int | None, info: ValidationInfo) -> int | None:
        """Count the file's prompts; runs after prompts_file because fields are checked in order."""
        if wanted is not None and wanted > MOST_PROMPTS and info.data.get("instructions") is not None:
            raise ValueError(
                f"got {wanted}, but a domain has {MOST_PROMPTS} prompts of a split; ask for at most {MOST_PROMPTS}"
            )
        file = info.data.get("prompts_file")
        if file is None or folder_of(info) is None:
            return wanted
        there = len(read_prompts(Path(file), info.data.get("cluster")))
        if wanted is not None and wanted > there:
            raise ValueError(f"got {wanted}, but {file} has {there} prompts; ask for at most {there}")
        return wanted or there

    @model_validator(mode="after")
    def _one_source(self) -> Workload:
        given = [key for key in SOURCES if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(SOURCES)} is needed, got {', '.join(given) or 'none'}")
        if self.cluster is not None and self.prompts_file is None and self.dataset is None:
            raise ValueError("cluster names a field of a prompts_file or a dataset, and there is neither; remove it")
        if self.generalise_over and len(self.task_names) < 2:
            raise ValueError(
                f"generalise_over: tasks takes two tasks or domains at least, and this workload has {len(self.task_names)}: "
                "name more, or remove it; of a prompts_file or a dataset, cluster: FIELD names what is a sample"
            )
        if self.prompts is None:
            raise ValueError("prompts is missing: say how many prompts (per task) to decode, at least 1")
        return self

    @property
    def task_names(self) -> tuple[str, ...]:
        """The built-in tasks, the domains, or one name that stands for the file, the dataset or the synthetic prompts."""
        if self.tasks is not None:
            return self.tasks
        if self.instructions is not None:
            return self.instructions.domains
        path = self.prompts_file if self.dataset is None else self.dataset.path
        return ("synthetic",) if path is None else (re.sub(r"[^\w.-]", "_", Path(path).stem),)

    def can_generate(self, prompts: int) -> bool:
        """Whether so many prompts of a task can be made, for no file or dataset holds them."""
        return self.prompts_file is None and self.dataset is None and (self.instructions is None or prompts <= MOST_PROMPTS)

    def holds(self, prompts: int) -> bool:
        """Whether so many prompts of a task can be made, or are in the prompts_file; of a dataset it is not asked."""
        if self.prompts_file is None:
            return self.can_generate(prompts)
        return prompts <= len(read_prompts(Path(self.prompts_file), self.cluster))

    @property
    def prompt_count(self) -> int:
        """Prompts per task; known once the scenario is loaded."""
        assert self.prompts is not None  # _one_source
        return self.prompts
