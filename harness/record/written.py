"""Arms and parts as a record has them: typed where figures are derived from them, every other key as it was written."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_serializer, model_validator

from harness.record.bounds import finite


class _Written(BaseModel):
    """An object of a record. A key that it lacks, or that holds None, has its default here."""

    model_config = ConfigDict(frozen=True, strict=True)

    values: dict[str, Any]
    """Every key as it is written, those that no program here knows too."""

    @model_validator(mode="before")
    @classmethod
    def _kept(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None} | {"values": given}

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return self.values


class WrittenArm(_Written):
    """An arm with one value on every axis, as a record has it: what figures are derived from has its type, None where the arm
    lacks it. A method that is not installed reads like any other.

    >>> WrittenArm.model_validate({"method": "sbd", "block_size": 16, "mine": 3}).block_size
    16
    """

    values: Annotated[dict[str, Any], AfterValidator(finite)]
    method: str = ""
    """``ntp``, ``sbd``, ...; ``generate`` is what checks the baseline."""
    temperature: Annotated[float, Field(ge=0, le=1e6)] | None = None
    block_size: Annotated[int, Field(ge=1, le=1 << 24)] | None = None
    gamma: Annotated[float, Field(ge=0, le=1e6)] | None = None
    solver: str | None = None
    lossless: str | None = None
    """What its output is identical to, in words."""
    form: str | None = None
    copies: bool | None = None
    least_confidence: float | None = None
    server: str | None = None
    """The server, or the engine beside ours, that decodes it."""
    cache: Literal["dynamic", "static"] | None = None
    """Of generate()."""
    execution: str | None = None
    """Of generate(), or ``served``."""

    @property
    def is_check(self) -> bool:
        """Whether it is no arm but generate(), or an engine of others, which checks the baseline."""
        return self.method == "generate"

    def __or__(self, changes: dict[str, Any]) -> Self:
        """The arm with these values."""
        known = {name: value for name, value in changes.items() if name in type(self).model_fields}
        return self.model_copy(update=known | {"values": self.values | changes})


class WrittenWork(_Written):
    """The workload of a part."""

    prompts: int = 1
    synthetic: dict[str, Any] = {}
    chat_template: Any = None
    """None: in a run of before there was the key."""
    max_new_tokens: int = 0

    @property
    def prompt_tokens(self) -> int | None:
        """Length of synthetic prompts; None for prompts with lengths of their own."""
        return self.synthetic.get("prompt_tokens")


class WrittenPart(_Written):
    """A part of a recorded scenario, as far as a reader needs it; an imported run, or an older one, lacks much."""

    workload: WrittenWork = WrittenWork.model_validate({})
    baseline: str | None = None
    devices: list[str] = []
    threads: int | None = None
    dtype: str | None = None
    seed: int | None = None
    servers: dict[str, Any] = {}
    health: dict[str, Any] = {}
