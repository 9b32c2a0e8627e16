"""What an imported run says of its origin: the files of another benchmarking tool, its own figures, and what they lack.

The readers of the files are in harness.record.imports.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.record.bounds import Reading, Seconds, TablePlace

Pairing = Literal["prompts", "order"]
MAY_LACK = (
    "output_ids",
    "passes",
    "stop_reason",
    "seed",
    "started_at",
    "grades",
    "model",
    "dtype",
    "device",
    "machine",
    "measured_at",
)
"""What a file may not tell. Only an imported run may lack it, and says why."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ImportedFile(_Frozen):
    """One file, which is one process of a case's samples.

    ``requests``: all that were sent; ``failed``: those without an answer, which are no samples. ``duration_s``: of all
    requests together, by the tool. ``printed``: the tool's own figures by our names, taken by the ``rule`` of
    harness.record.imports.measured; ``figures``: the same worked out from the file's requests.
    ``counted``: its counts of drafts, over all requests.
    """

    name: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    case_id: str
    process: TablePlace
    tool_version: str | None
    requests: Annotated[int, Field(ge=1, le=1 << 24)]
    failed: Annotated[int, Field(ge=0, le=1 << 24)]
    duration_s: Seconds | None
    printed: dict[str, Reading]
    figures: dict[str, Reading]
    counted: dict[str, Reading] = {}
    rule: Literal["per_request", "per_token"] = "per_request"


class Imported(_Frozen):
    """The origin of an imported run.

    ``pairing``: whose times are compared, those of the same ``prompts`` by their text or of requests at the same place of
    their files (``order``); None: means over whole files. ``pairing_words`` say why. ``concurrency``: most requests in
    flight; None: unknown or without a limit. ``lacks``: by names of MAY_LACK, why the files do not tell it.
    """

    tool: str
    format: str
    pairing: Pairing | None
    pairing_words: str
    concurrency: Annotated[int, Field(ge=1, le=1 << 24)] | None
    lacks: dict[str, str]
    files: list[ImportedFile]
