"""The options of a command as one typed value, and those that `sbd roofline` and `sbd capacity` share."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, get_type_hints

import typer

from harness.errors import UserError
from harness.hardware.links import Link, link_called
from harness.models import DTYPE_BYTES
from harness.models.deployment import WEIGHT_FORMATS, Deployment, dtype_called
from harness.roofline.anchored import ProfileRung, rung_called


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a command; ``given``: the names of those that stand on the command line, in order."""

    given: tuple[str, ...] = ()


def takes_options(run: Callable[[Any], None]) -> Callable[..., None]:
    """The command for typer: its options are the fields of the class that ``run`` takes as ``options``, its own ones first."""
    kind = get_type_hints(run)["options"]
    hints = get_type_hints(kind, include_extras=True)

    @wraps(run)
    def command(ctx: typer.Context, **values: Any) -> None:
        sources = {name: ctx.get_parameter_source(name) for name in values}
        named = tuple(name for name, source in sources.items() if source is not None and source.name != "DEFAULT")
        run(kind(**values, given=named))

    options = [option.replace(annotation=hints[name]) for name, option in signature(kind).parameters.items() if name != "given"]
    own_first = sorted(options, key=lambda option: option.name not in kind.__annotations__)
    context = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    command.__signature__ = Signature([context, *own_first])  # type: ignore[attr-defined]  # what typer reads
    return command


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """How a model is stored and split, how its rows decode, and what the prices rest on."""

    block_size: Annotated[int, typer.Option("--block-size", "-k", help="block size k")] = 16
    dtype: Annotated[str, typer.Option(help="dtype of activations, embeddings and LM head (bf16, fp8, ...)")] = "bfloat16"
    weights: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="format of the linear layers, e.g. int4-g128; default: --dtype")
    ] = None
    kv_dtype: Annotated[str | None, typer.Option(help="dtype of the KV cache; default: --dtype")] = None
    matrix_dtype: Annotated[
        str | None,
        typer.Option(
            parser=dtype_called, metavar="TEXT", help="dtype whose peak the matrix products can reach; default: --dtype"
        ),
    ] = None
    expert_parallel: Annotated[
        bool, typer.Option("--expert-parallel", help="EP: the GPUs of a stage share out whole experts, not slices of each")
    ] = False
    dp_attention: Annotated[
        bool, typer.Option("--dp-attention", help="every GPU of a stage has the whole attention, for its share of the rows")
    ] = False
    pipeline_parallel: Annotated[
        int, typer.Option(help="PP: stages of --tensor-parallel GPUs each, with a share of the layers")
    ] = 1
    link: Annotated[
        Link | None,
        typer.Option(
            parser=link_called,
            metavar="KIND|GB/S",
            help="what joins the GPUs: nvlink3, nvlink4, nvlink5, xgmi, pcie3, pcie4, pcie5, or "
            "GB/s in one direction; default: what is known of the device",
        ),
    ] = None
    batching: Annotated[
        Literal["ragged", "lockstep"] | None,
        typer.Option(help="rows of a batch: ragged as engines run them (default), or lockstep, all waiting for the slowest"),
    ] = None
    rung: Annotated[
        ProfileRung | None,
        typer.Option(
            parser=rung_called,
            metavar="TEXT",
            help="datasheet, anchored or calibrated; default: the profile's calibration, else anchored",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False

    def deployment(self, tensor_parallel: int = 1) -> Deployment:
        """How the model is stored and split.

        Raises:
            UserError: an unknown dtype or format, with the nearest known ones; fewer than one device or stage.
        """
        weights = None if self.weights is None else WEIGHT_FORMATS[_known("weight format", self.weights, WEIGHT_FORMATS)]
        return Deployment(
            dtype=_known("dtype", self.dtype, DTYPE_BYTES),
            weights=weights,
            kv_dtype=None if self.kv_dtype is None else _known("dtype", self.kv_dtype, DTYPE_BYTES),
            tensor_parallel=tensor_parallel,
            expert_parallel=self.expert_parallel,
            attention_data_parallel=self.dp_attention,
            pipeline_parallel=self.pipeline_parallel,
        )


def _known(what: str, given: str, known: Iterable[str]) -> str:
    """``given`` as the program calls it: short names and capitals are understood."""
    name, names = given.lower(), list(known)
    found = name if name in names else dtype_called(name)
    if found not in names:
        near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise UserError(f"unknown {what} {given!r}{hint}; allowed are {', '.join(names)}")
    return found
