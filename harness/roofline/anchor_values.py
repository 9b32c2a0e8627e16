"""Published speeds of others, with what is needed to predict them.

The values are those of anchors.yaml beside this module; harness.roofline.anchors predicts them, harness.roofline.anchored holds
the constants that were fitted to them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from harness.config_file import Flag, Name, StrictModel, Text, read_yaml
from harness.errors import InvariantError
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.deployment import WEIGHT_FORMATS, Deployment, WeightFormat
from harness.roofline.anchored import Kind

Measure = Literal["tokens_per_s", "decode_tokens_per_s", "token_s", "first_token_s", "request_s", "block_tokens_per_s"]

_FILE = Path(__file__).with_name("anchors.yaml")


class Source(StrictModel):
    """Where a figure was read, and its ``address``; ``quote`` shows how the table's head or the sentence reads.

    ``grade``: V in the source's own files, T a maintainer's or contributor's table in a thread of the project, S quoted by a
    third party, U one user's report.
    """

    text: Text
    address: Text
    grade: Literal["V", "T", "S", "U"]
    date: Text | None = None
    quote: Text | None = None


class Rival(StrictModel):
    """What another predictor, ``name``, published for the same figure, in the same unit."""

    name: Text
    value: PositiveFloat


class Dropped(StrictModel):
    """Figures of a source that are not in the table, and why; the reason never rests on a prediction."""

    what: Text
    why: Text


class AnchorFormat(StrictModel):
    """A weight format that only a published figure needs: bits a weight, and a scale of so many bytes for every group."""

    bits: PositiveFloat
    group_size: PositiveInt | None = None
    scale_bytes: float = 0
    what: Text


class PublishedSetting(StrictModel):
    """How a model was served where a speed was published."""

    engine: Name
    dtype: Name
    kv_dtype: Name | None = None
    split_vocab: Flag = True
    quantised_head: Flag = False
    conditions: Text
    source: Source


class AnchorSystem(PublishedSetting):
    """What the anchors of one source have in common; an anchor may say otherwise.

    ``window_slack_tokens``: tokens that layers with a sliding window keep and read beyond it. llama.cpp keeps the window and a
    micro-batch (n_swa + n_ubatch cells, src/llama-kv-cache-iswa.cpp), and its kernels read all of them.
    """

    device: Name | None = None
    rate_dtype: Name | None = None
    prompt_tokens: PositiveInt | None = None
    new_tokens: PositiveInt | None = None
    window_slack_tokens: NonNegativeInt = 0


class Anchor(PublishedSetting):
    """One published figure: ``batch`` rows of ``prompt_tokens``, each continued by ``new_tokens``, and how fast that was.

    ``tokens_per_s``         new tokens of all rows over the whole time, prefill included; of one device where ``per_gpu``
    ``decode_tokens_per_s``  new tokens of all rows over the time after the first token
    ``token_s``              mean seconds per token after the first
    ``first_token_s``        seconds of the prefill
    ``request_s``            seconds from the prompt to the last token
    ``block_tokens_per_s``   tokens per second of a prompt of ``prompt_tokens`` read in passes of ``block_base`` and of
                             ``block`` tokens; the figure is the ratio of the two passes' times
    ``own_gb_per_s``         the source's own bandwidth figure: its model size times its tokens per second
    """

    name: Name
    system: Name
    device: Name
    rate_dtype: Name
    shape: Name
    weights: Name | None = None
    attention_weights: Name | None = None
    lm_head: Name | None = None
    tensor_parallel: PositiveInt = 1
    batch: PositiveInt = 1
    prompt_tokens: PositiveInt
    new_tokens: PositiveInt = 1
    per_gpu: Flag = False
    block: PositiveInt | None = None
    block_base: PositiveInt = 1
    tokens_per_s: PositiveFloat | None = None
    decode_tokens_per_s: PositiveFloat | None = None
    token_s: PositiveFloat | None = None
    first_token_s: PositiveFloat | None = None
    request_s: PositiveFloat | None = None
    block_tokens_per_s: tuple[PositiveFloat, PositiveFloat] | None = None
    own_gb_per_s: PositiveFloat | None = None
    rival: Rival | None = None

    @model_validator(mode="after")
    def _one_figure(self) -> Self:
        given = [name for name in get_args(Measure) if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"{self.name} gives {given or 'no figure'}; give one figure")
        if (self.block is None) != (self.block_tokens_per_s is None):
            raise ValueError(f"{self.name} gives a block without its tokens per second, or these without the block")
        return self

    @property
    def measure(self) -> Measure:
        """Which of the figures is published."""
        return next(name for name in get_args(Measure) if getattr(self, name) is not None)

    @property
    def published(self) -> float:
        """The published figure, in the unit of its measure; of a block pass the ratio t(block) / t(block_base)."""
        if self.block_tokens_per_s is not None and self.block is not None:
            base, block = self.block_tokens_per_s
            return (self.block / block) / (self.block_base / base)
        return float(getattr(self, self.measure))

    @property
    def kind(self) -> Kind:
        """Which of the three reported errors it belongs to."""
        if self.block is not None:
            return "block_pass"
        return "multi_gpu" if self.tensor_parallel > 1 else "single_gpu"


class AnchorTable(StrictModel):
    """All anchors with the formats, shapes and systems they name, and what of their sources was dropped."""

    version: Literal[2]
    dropped: tuple[Dropped, ...]
    formats: dict[Name, AnchorFormat]
    shapes: dict[Name, ModelShape]
    systems: dict[Name, AnchorSystem]
    anchors: tuple[Anchor, ...] = Field(min_length=1)

    @field_validator("shapes", mode="before")
    @classmethod
    def _name_shapes(cls, shapes: Any) -> Any:
        return {name: {"name": name} | fields for name, fields in shapes.items()}

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        """Every anchor with what its system says; its own date goes into the source."""
        filled = []
        for anchor in data["anchors"]:
            own = dict(anchor)
            system = data["systems"][own["system"]]
            source = system["source"] | ({"date": own.pop("date")} if "date" in own else {})
            shared = {key: value for key, value in system.items() if key in Anchor.model_fields}
            whole = shared | {"source": source} | own
            filled.append({"rate_dtype": whole["dtype"]} | whole)
        return data | {"anchors": filled}

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        names = [anchor.name for anchor in self.anchors]
        unknown = [
            anchor.shape for anchor in self.anchors if anchor.shape not in self.shapes and anchor.shape not in KNOWN_SHAPES
        ]
        formats = {
            name for anchor in self.anchors for name in (anchor.weights, anchor.attention_weights, anchor.lm_head) if name
        }
        unknown += sorted(formats - set(self.formats) - set(WEIGHT_FORMATS))
        if unknown or len(set(names)) < len(names):
            raise ValueError(f"unknown or repeated names: {', '.join(unknown) or 'an anchor stands there twice'}")
        return self

    def shape_of(self, anchor: Anchor) -> ModelShape:
        """The model's shape: this table's own, or a known one; its window as wide as what the engine reads."""
        shape = self.shapes.get(anchor.shape) or KNOWN_SHAPES[anchor.shape]
        if shape.sliding_window is None:
            return shape
        slack = self.systems[anchor.system].window_slack_tokens
        return shape.model_copy(update={"sliding_window": shape.sliding_window + slack})

    def deployment_of(self, anchor: Anchor) -> Deployment:
        """How the model is stored and split."""
        weights, attention, head = map(self._format, (anchor.weights, anchor.attention_weights, anchor.lm_head))
        return Deployment(
            dtype=anchor.dtype,
            weights=weights,
            attention_weights=attention,
            kv_dtype=anchor.kv_dtype,
            lm_head_weights=weights if anchor.quantised_head else head,
            tensor_parallel=anchor.tensor_parallel,
            split_vocab=anchor.split_vocab,
        )

    def _format(self, name: str | None) -> WeightFormat | None:
        if name is None or name in WEIGHT_FORMATS:
            return None if name is None else WEIGHT_FORMATS[name]
        own = self.formats[name]
        return WeightFormat(name=name, bits=own.bits, group_size=own.group_size, scale_bytes=own.scale_bytes)


@cache
def known_anchors() -> AnchorTable:
    """The table that travels with the program.

    Raises:
        InvariantError: the file is damaged.
    """
    return read_yaml(_FILE, InvariantError).value(AnchorTable)
