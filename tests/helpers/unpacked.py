"""Packed passes unpacked by hand."""

from __future__ import annotations

import base64
import zlib
from array import array
from typing import Any


def unpacked_by_hand(stored: dict[str, Any]) -> dict[str, list[Any]]:
    """The columns of one row's passes but its slots, by the description at the top of harness.record.passes alone."""
    data, found = zlib.decompress(base64.b64decode(stored["data"])), {}
    names = "role query_tokens context_tokens logit_tokens kept_tokens decided_tokens final_tokens active"
    for name, kind in zip(
        [*names.split(), "padded_query", "padded_context", "forward_s", "sampler_s"], stored["types"], strict=False
    ):
        column = array(kind, data[: stored["count"] * array(kind).itemsize])
        found[name], data = column.tolist(), data[len(column) * column.itemsize :]
    found["role"] = [stored["roles"][code] for code in found["role"]]
    return found
