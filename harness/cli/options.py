"""The options of a command as one typed value, and those that `sbd roofline` and `sbd capacity` share."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from typer import Context, Option

from harness.errors import UserError
from harness.hardware.links import Link, link_called
from harness.models import DTYPE_BYTES
from harness.models.deployment import WEIGHT_FORMATS, Deployment, dtype_called
from harness.roofline.anchored import ProfileRung, rung_called
from harness.roofline.paper import PaperMode
from harness.scenario.arms import Batching


class Options(BaseModel):
    """Options of a command: a field each, its help the text below it. A flag has no opposite.

    ``given``: the names of those that stand on the command line, in order.
    """

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)
    given: tuple[str, ...] = ()


def takes_options(run: Callable[[Any], None]) -> Callable[..., None]:
    """The command for typer: its options are the fields of the class that ``run`` takes as ``options``, its own ones first."""
    kind: type[Options] = get_type_hints(run)["options"]

    @wraps(run)
    def command(ctx: Context, **values: Any) -> None:
        sources = {name: ctx.get_parameter_source(name) for name in values}
        named = tuple(name for name, source in sources.items() if source is not None and source.name != "DEFAULT")
        run(kind(**values, given=named))

    own_first = sorted(kind.model_fields, key=lambda name: name not in kind.__annotations__)
    options = [_parameter(name, kind.model_fields[name]) for name in own_first if name != "given"]
    context = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=Context)
    command.__signature__ = Signature([context, *options])  # type: ignore[attr-defined]  # what typer reads
    return command


def _parameter(name: str, field: FieldInfo) -> Parameter:
    """The option of a field, which may be annotated with one. What its value is called stands before the text: ``(N) text``."""
    flags = [f"--{name.replace('_', '-')}"] if field.annotation is bool else []
    option = next(iter(field.metadata), Option(..., *flags))
    option.default = ... if field.is_required() else field.default
    option.help = " ".join((field.description or "").split())
    if option.help.startswith("("):
        option.metavar, _, option.help = option.help[1:].partition(") ")
    return Parameter(name, Parameter.KEYWORD_ONLY, default=option, annotation=field.annotation)


class ModelOptions(Options):
    """How a model is stored and split, how its rows decode, and what the prices rest on."""

    block_size: Annotated[int, Option(..., "--block-size", "-k")] = 16
    """block size k"""
    dtype: str = "bfloat16"
    """dtype of activations, embeddings and LM head (bf16, fp8, ...)"""
    weights: str | None = None
    """(FORMAT) format of the linear layers, e.g. int4-g128; default: --dtype"""
    kv_dtype: str | None = None
    """dtype of the KV cache; default: --dtype"""
    matrix_dtype: Annotated[str | None, Option(parser=dtype_called)] = None
    """(TEXT) dtype whose peak the matrix products can reach; default: --dtype"""
    expert_parallel: bool = False
    """EP: the GPUs of a stage share out whole experts, not slices of each"""
    dp_attention: bool = False
    """every GPU of a stage has the whole attention, for its share of the rows"""
    pipeline_parallel: int = 1
    """PP: stages of --tensor-parallel GPUs each, with a share of the layers"""
    link: Annotated[Link | None, Option(parser=link_called)] = None
    """(KIND|GB/S) what joins the GPUs: nvlink3, nvlink4, nvlink5, xgmi, pcie3, pcie4, pcie5, or GB/s in one direction; default:
    what is known of the device"""
    batching: Batching | None = None
    """rows of a batch: ragged as engines run them (default), or lockstep, all waiting for the slowest"""
    rung: Annotated[ProfileRung | None, Option(parser=rung_called)] = None
    """(TEXT) datasheet, anchored or calibrated; default: the profile's calibration, else anchored"""
    as_json: Annotated[bool, Option(..., "--json")] = False
    """print JSON"""

    def deployment(self, tensor_parallel: int = 1) -> Deployment:
        """How the model is stored and split.

        Raises:
            UserError: an unknown dtype or format, with the nearest known ones; fewer than one device or stage.
        """
        return Deployment(
            dtype=_known("dtype", self.dtype, DTYPE_BYTES),
            weights=None if self.weights is None else WEIGHT_FORMATS[_known("weight format", self.weights, WEIGHT_FORMATS)],
            kv_dtype=None if self.kv_dtype is None else _known("dtype", self.kv_dtype, DTYPE_BYTES),
            tensor_parallel=tensor_parallel,
            expert_parallel=self.expert_parallel,
            attention_data_parallel=self.dp_attention,
            pipeline_parallel=self.pipeline_parallel,
        )


class RooflineOptions(ModelOptions):
    """Of `sbd roofline` and its modes."""

    paper: bool = False
    """print Tables 3 and 4 of the paper"""
    explain: bool = False
    """with --paper: from a published figure to ours, one correction at a time; the cell is batch 1, context 65536, block
    size 64, NFE speedup 4 unless --batch, --context, --block-size or --nfe-speedup say otherwise"""
    mode: PaperMode | None = None
    """the paper's model as printed, or with its dimensions corrected; default: both side by side"""
    model: str | None = None
    """what-if: a known shape, or a folder with a config.json"""
    hardware: str | None = None
    """what-if: a hardware profile (see `sbd hardware`)"""
    tensor_parallel: int = 1
    """what-if: GPUs per stage"""
    nfe_speedup: float | None = None
    """what-if: mean tokens per forward pass of a row; default: 3"""
    from_run: Path | None = None
    """what-if: acceptance and lengths of a recorded run instead, in lockstep and ragged"""
    batch: int = 1
    """what-if: batch size"""
    context: int = 4096
    """what-if: tokens already in the cache per row"""
    calibrate: bool = False
    """what-if: on this machine's own profile, measured now where none is kept"""
    methods: bool = False
    """other decoding methods on the same roofline"""
    systems: Path | None = None
    """with --methods: your own list, as the shipped systems.yaml"""
    anchors: bool = False
    """predictions beside speeds that others published"""


def _known(what: str, given: str, known: Iterable[str]) -> str:
    """``given`` as the program calls it: short names and capitals are understood."""
    name, names = given.lower(), list(known)
    called = name if name in names else dtype_called(name)
    if called not in names:
        near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise UserError(f"unknown {what} {given!r}{hint}; allowed are {', '.join(names)}")
    return called
