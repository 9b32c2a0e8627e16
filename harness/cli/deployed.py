"""The options that say how a model is stored and split, the same for `sbd roofline` and `sbd capacity`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Literal

import typer

from harness.errors import UserError
from harness.models import DTYPE_BYTES
from harness.models.deployment import WEIGHT_FORMATS, Deployment, dtype_called

Dtype = Annotated[str, typer.Option(help="dtype of activations, embeddings and LM head (bf16, fp8, ...)")]
Weights = Annotated[
    str | None, typer.Option(metavar="FORMAT", help="format of the linear layers, e.g. int4-g128; default: --dtype")
]
KvDtype = Annotated[str | None, typer.Option(help="dtype of the KV cache; default: --dtype")]
MatrixDtype = Annotated[str | None, typer.Option(help="dtype whose peak the matrix products can reach; default: --dtype")]
ExpertParallel = Annotated[
    bool, typer.Option("--expert-parallel", help="EP: the GPUs of a stage share out whole experts, not slices of each")
]
DpAttention = Annotated[
    bool, typer.Option("--dp-attention", help="every GPU of a stage has the whole attention, for its share of the rows")
]
PipelineParallel = Annotated[int, typer.Option(help="PP: stages of --tensor-parallel GPUs each, with a share of the layers")]
LinkName = Annotated[
    str | None,
    typer.Option(
        "--link",
        metavar="KIND|GB/S",
        help="what joins the GPUs: nvlink3, nvlink4, nvlink5, xgmi, pcie3, pcie4, pcie5, or "
        "GB/s in one direction; default: what is known of the device",
    ),
]
BatchingName = Annotated[
    Literal["ragged", "lockstep"] | None,
    typer.Option(help="rows of a batch: ragged as engines run them (default), or lockstep, all waiting for the slowest"),
]


def deployment(
    dtype: str,
    weights: str | None,
    kv_dtype: str | None,
    *,
    tensor_parallel: int = 1,
    expert_parallel: bool = False,
    dp_attention: bool = False,
    pipeline_parallel: int = 1,
) -> Deployment:
    """What the options say.

    Raises:
        UserError: an unknown dtype or format, with the nearest known ones; fewer than one device or stage.
    """
    return Deployment(
        dtype=_known("dtype", dtype, DTYPE_BYTES),
        weights=WEIGHT_FORMATS[_known("weight format", weights, WEIGHT_FORMATS)] if weights is not None else None,
        kv_dtype=None if kv_dtype is None else _known("dtype", kv_dtype, DTYPE_BYTES),
        tensor_parallel=tensor_parallel,
        expert_parallel=expert_parallel,
        attention_data_parallel=dp_attention,
        pipeline_parallel=pipeline_parallel,
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
