"""Published speeds of others, with what is needed to predict them, and what each is expected to show.

The values are those of anchors.yaml beside this module; harness.roofline.anchors predicts them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError, field_validator, model_validator

from harness.config_file import Flag, Name, StrictModel, Text, read_yaml
from harness.errors import InvariantError
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.deployment import WEIGHT_FORMATS, Deployment

Measure = Literal["tokens_per_s", "token_s", "first_token_s"]
JudgedRung = Literal["published", "anchored"]

_FILE = Path(__file__).with_name("anchors.yaml")
_INHERITED = ("device", "dtype", "prompt_tokens", "new_tokens", "split_vocab")


class Source(StrictModel):
    """Where a figure was read. ``grade``: V in the source's own files, S quoted by a third party, U one user's report."""

    text: Text
    grade: Literal["V", "S", "U"]
    date: Text | None = None


class Rival(StrictModel):
    """What another predictor, ``name``, published for the same figure, in the same unit."""

    name: Text
    value: PositiveFloat


class Group(StrictModel):
    """Anchors that a prediction should meet.

    ``within_pct``  the largest error for each rung that is judged, and ``chosen`` by which rule
    ``assigned``    whether its members were named before their first prediction was seen, or after
    """

    what: Text
    within_pct: dict[JudgedRung, PositiveFloat] = Field(min_length=1)
    assigned: Literal["before", "after"]
    chosen: Text


class LeftOut(StrictModel):
    """A published figure that is not predicted, and why."""

    what: Text
    why: Text


class System(StrictModel):
    """What the anchors of one system have in common; an anchor may say otherwise."""

    device: Name
    dtype: Name
    prompt_tokens: PositiveInt | None = None
    new_tokens: PositiveInt | None = None
    split_vocab: Flag = True
    conditions: Text
    source: Source


class Anchor(StrictModel):
    """One published figure: ``batch`` rows of ``prompt_tokens``, each continued by ``new_tokens``, and how fast that was.

    ``tokens_per_s``   new tokens of all rows over the whole time, prefill included
    ``token_s``        mean seconds per token after the first
    ``first_token_s``  seconds of the prefill
    ``own_gb_per_s``   the source's own bandwidth figure: its model size times its tokens per second
    ``group``, ``reason``  exactly one: it should agree within the group's bar, or should not, for the reason of that name
    """

    name: Name
    system: Name
    device: Name
    dtype: Name
    conditions: Text
    source: Source
    shape: Name
    weights: Name | None = None
    tensor_parallel: PositiveInt = 1
    split_vocab: Flag
    batch: PositiveInt = 1
    prompt_tokens: PositiveInt
    new_tokens: PositiveInt
    tokens_per_s: PositiveFloat | None = None
    token_s: PositiveFloat | None = None
    first_token_s: PositiveFloat | None = None
    own_gb_per_s: PositiveFloat | None = None
    group: Name | None = None
    reason: Name | None = None
    rival: Rival | None = None

    @field_validator("weights")
    @classmethod
    def _known_format(cls, weights: str | None) -> str | None:
        if weights is not None and weights not in WEIGHT_FORMATS:
            raise ValueError(f"got {weights!r}, allowed are {', '.join(WEIGHT_FORMATS)}")
        return weights

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        given = [name for name in get_args(Measure) if getattr(self, name) is not None]
        if len(given) != 1 or (self.group is None) == (self.reason is None):
            raise ValueError(f"{self.name} gives {given or 'no figure'}; give one figure, and either a group or a reason")
        return self

    @property
    def measure(self) -> Measure:
        """Which of the three figures is published."""
        return "tokens_per_s" if self.tokens_per_s else "token_s" if self.token_s else "first_token_s"

    @property
    def published(self) -> float:
        """The published figure, in the unit of its measure."""
        return float(getattr(self, self.measure))

    @property
    def deployment(self) -> Deployment:
        """How the model is stored and split. Systems that quantise also quantise the LM head."""
        weights = None if self.weights is None else WEIGHT_FORMATS[self.weights]
        return Deployment(
            dtype=self.dtype, weights=weights, lm_head_weights=weights, tensor_parallel=self.tensor_parallel,
            split_vocab=self.split_vocab,
        )  # fmt: skip


class AnchorTable(StrictModel):
    """All anchors with the groups, reasons and shapes they name."""

    version: Literal[1]
    fixed_cost_from: Name
    groups: dict[Name, Group]
    reasons: dict[Name, Text]
    left_out: tuple[LeftOut, ...]
    shapes: dict[Name, ModelShape]
    systems: dict[Name, System]
    anchors: tuple[Anchor, ...]

    @field_validator("shapes", mode="before")
    @classmethod
    def _name_shapes(cls, shapes: Any) -> Any:
        return {name: {"name": name, **fields} for name, fields in shapes.items()}

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        """Every anchor with what its system says; its own date goes into the source."""
        filled = []
        for anchor in data["anchors"]:
            own = dict(anchor)
            system = data["systems"][own["system"]]
            source = {**system["source"], **({"date": own.pop("date")} if "date" in own else {})}
            shared = {"split_vocab": True} | {key: system[key] for key in _INHERITED if key in system}
            filled.append({**shared, "conditions": system["conditions"], "source": source, **own})
        return {**data, "anchors": filled}

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        names = [anchor.name for anchor in self.anchors]
        unknown = [] if self.fixed_cost_from in names else [self.fixed_cost_from]
        unknown += [one.group for one in self.anchors if one.group and one.group not in self.groups]
        unknown += [one.reason for one in self.anchors if one.reason and one.reason not in self.reasons]
        unknown += [one.shape for one in self.anchors if one.shape not in self.shapes and one.shape not in KNOWN_SHAPES]
        if unknown or len(set(names)) < len(names):
            raise ValueError(f"unknown or repeated names: {', '.join(unknown) or 'an anchor stands there twice'}")
        return self

    def shape_of(self, anchor: Anchor) -> ModelShape:
        """The model's shape: this table's own, or a known one."""
        return self.shapes.get(anchor.shape) or KNOWN_SHAPES[anchor.shape]


@cache
def known_anchors() -> AnchorTable:
    """The table that travels with the program.

    Raises:
        InvariantError: the file is damaged.
    """
    document = read_yaml(_FILE)
    try:
        return AnchorTable.model_validate(document.data)
    except ValidationError as error:
        raise InvariantError(*document.describe(error)) from error
