"""Model folders with one hostile file: configs, GGUF files, headers of weights, and what hostile_tokenizers has.

Each change begins with a sound folder. ``PRICED``, ``HEADERS`` and ``RUN`` tell by which command a case is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.helpers.gguf_files import write_gguf
from tests.helpers.hostile_files import (
    FILLINGS,
    LARGE,
    REFUSED,
    WRONG,
    Hostile,
    Plant,
    in_place_of,
    in_places_of,
    repeated,
    sparse,
)
from tests.helpers.hostile_templates import templates
from tests.helpers.hostile_tokenizers import SETTINGS, TOKENIZER, edited, tokenizers, with_

CONFIG, WEIGHTS, GGUF = "config.json", "model.safetensors", "m.gguf"
PLACED = ("a pipe", "a folder", "a link to /dev/zero", "a socket", "240 MB of zeros", "10 GB of zeros")


def _filled(key: str, head: bytes, piece: bytes, size: int, tail: bytes) -> Plant:
    """A key more in the config, of any size."""

    def plant(folder: Path, chance: Random) -> None:
        before = (folder / CONFIG).read_bytes().rstrip().removesuffix(b"}")
        repeated(folder / CONFIG, before + f', "{key}": '.encode() + head, piece, size, tail + b"}")

    return plant


def _configs() -> Iterator[Hostile]:
    yield from _hostile(in_places_of(CONFIG, *WRONG, *LARGE), exits=REFUSED, names=CONFIG)
    fillings = FILLINGS | {
        "a text of 200 MB": (b'"', b"x", 200_000_000, b'"'),
        "60 million empty lists": (b"[", b"[],", 180_000_000, b"[]]"),
        "150 open lists": (b"[" * 150, b" ", 1, b"]" * 150),
    }
    for key in ("hstl7", "layer_types", "architectures", "model_type", "rope_scaling", "eos_token_id"):
        for what, filling in fillings.items():
            if filling[2] < 10**8 or key == "hstl7":
                yield Hostile(f"{CONFIG}: {key} is {what}", _filled(key, *filling))
    values: tuple[Any, ...] = (
        "\ud800",
        ["\ud800"],
        {"\ud800": "\ud800"},
        "\x1b[31mhstl7\n::error::hstl7",
        [[]],
        {"a": {}},
        2**53,
        1e300,
        "x" * 200_000,
    )
    for key in (
        "model_type",
        "architectures",
        "hidden_act",
        "torch_dtype",
        "rope_scaling",
        "layer_types",
        "quantization_config",
        "transformers_version",
    ):
        for value in values:
            yield Hostile(f"{CONFIG}: {key} is {str(value)[:20]!r}", edited(with_(key, value), CONFIG))
    for key in (
        "num_hidden_layers",
        "vocab_size",
        "hidden_size",
        "num_attention_heads",
        "head_dim",
        "max_position_embeddings",
        "intermediate_size",
    ):
        for number in (10**6, 10**9, 2**40, 2**63):
            yield Hostile(f"{CONFIG}: {key} is {number}", edited(with_(key, number), CONFIG))


def _gguf(change: Callable[[bytes], bytes], folder: Path, chance: Random) -> None:
    write_gguf(folder / GGUF)
    (folder / GGUF).write_bytes(change((folder / GGUF).read_bytes()))


def _at(place: int, form: str, value: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + struct.pack(form, value) + data[place + struct.calcsize(form) :]


def _head(tensors: int, settings: int, rest: bytes = b"", more: bytes = b"", times: int = 0) -> Callable[[bytes], bytes]:
    """A header with so many of both, then ``rest``, and ``more`` so many times."""
    return lambda data: b"GGUF" + struct.pack("<IQQ", 3, tensors, settings) + rest + more * times


def _text(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def _gguf_files() -> Iterator[tuple[str, Plant]]:
    changes: dict[str, Callable[[bytes], bytes]] = {
        **{
            f"cut at {share}": partial(lambda share, data: data[: int(len(data) * share)], share)
            for share in (0.0, 0.00001, 0.0001, 0.001, 0.01, 0.03, 0.1, 0.5, 0.999)
        },
        **{
            f"cut at byte {end}": partial(lambda end, data: data[:end], end)
            for end in (3, 4, 7, 8, 12, 16, 23, 24, 25, 31, 32, 40, 200)
        },
        "zeros": lambda data: bytes(len(data)),
        "0xff": lambda data: b"\xff" * len(data),
        "zeros behind the name": lambda data: b"GGUF" + bytes(len(data)),
        "0xff behind the name": lambda data: b"GGUF" + b"\xff" * len(data),
        "0xff behind the version": lambda data: data[:8] + b"\xff" * len(data),
        **{f"version {number}": _at(4, "<I", number) for number in (0, 1, 4, 2**31, 2**32 - 1, 3 << 24)},
        **{f"{number} tensors": _at(8, "<Q", number) for number in (0, 10**6, 2**32, 2**63, 2**64 - 1)},
        **{f"{number} settings": _at(16, "<Q", number) for number in (0, 10**6, 2**32, 2**63, 2**64 - 1)},
        "a text beyond the file": _head(0, 1, _text(b"x", 2**63)),
        "an empty key": _head(0, 2, _text(b"") + struct.pack("<IB", 0, 1)),
        "a key that is no UTF-8": _head(0, 1, _text(b"\xff\xfe") + struct.pack("<IB", 0, 1)),
        "a list beyond the file": _head(0, 1, _text(b"x") + struct.pack("<IIQ", 9, 0, 2**63)),
        "a list of lists": _head(0, 1, _text(b"x") + struct.pack("<IIQ", 9, 9, 2**40)),
        "lists in lists": _head(0, 1, _text(b"x") + struct.pack("<I", 9), struct.pack("<IQ", 9, 1), 100_000),
        "an unknown type": _head(0, 1, _text(b"x") + struct.pack("<I", 99)),
        "a million settings": _head(0, 10**6, b"", _text(b"general.x") + struct.pack("<IB", 0, 1), 10**6),
        "a list of a million empty texts": _head(
            0, 1, _text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 10**6), _text(b""), 10**6
        ),
        "a million tensors": _head(10**6, 0, b"", _text(b"x") + struct.pack("<IQIQ", 1, 1, 0, 0), 10**6),
        "a tensor of many axes": _head(1, 0, _text(b"x") + struct.pack("<I", 2**31)),
        "a huge tensor": _head(1, 0, _text(b"x") + struct.pack("<IQQIQ", 2, 2**62, 2**62, 0, 0)),
        "a tensor of a type that is none": _head(1, 0, _text(b"x") + struct.pack("<IQIQ", 1, 1, 99, 0)),
    }
    for what, change in changes.items():
        yield f"{GGUF}: {what}", partial(_gguf, change)
    yield from in_places_of(GGUF, *PLACED, "80 million empty lists", "noise")
    yield (
        f"{GGUF}: a head and 10 GB of zeros",
        in_place_of(partial(sparse, size=10**10, head=b"GGUF\x03\0\0\0" + b"\x01" + b"\0" * 7 + b"\xff" * 7), GGUF),
    )


def _weights() -> Iterator[tuple[str, Plant]]:
    def head(size: int, text: bytes, behind: int = 0) -> Plant:
        return in_place_of(partial(sparse, size=8 + len(text) + behind, head=size.to_bytes(8, "little") + text), WEIGHTS)

    def filled(size: int, text: bytes, piece: bytes, room: int, tail: bytes = b"") -> Plant:
        whole = partial(repeated, head=size.to_bytes(8, "little") + text, piece=piece, size=room, tail=tail)
        return in_place_of(whole, WEIGHTS)

    one = b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
    for what, plant in {
        "a header beyond all": head(2**64 - 1, b"{}"),
        "a header of 90 MB of spaces": filled(90_000_000, b"", b" ", 90_000_000),
        "a header of empty lists": filled(60_000_002, b"[", b"[],", 60_000_000, b"[]]"),
        "a deep header": head(200_000, b"[" * 200_000),
        "one small tensor": head(len(one), one, 4),
        "a tensor too short": head(len(one), one, 3),
        "10 GB behind it": head(len(one), one, 10**10),
        "no UTF-8": head(4, b"\xff\xff\xff\xff"),
        "surrogates": head(12, b'{"\xed\xa0\x80": 1}'),
        "a million tensors": filled(
            60_000_001, b"{", b'"x": {"dtype": "F32", "shape": [0], "data_offsets": [0,0]},', 60_000_000
        ),
        "metadata of 50 MB": filled(50_000_024, b'{"__metadata__": {"a": "', b"x", 50_000_000, b'"}}'),
    }.items():
        yield f"{WEIGHTS}: {what}", plant
    yield from in_places_of(WEIGHTS, *PLACED)


def _beside() -> Iterator[tuple[str, Plant]]:
    for name in (
        TOKENIZER,
        SETTINGS,
        "generation_config.json",
        "special_tokens_map.json",
        "vocab.json",
        "merges.txt",
        "preprocessor_config.json",
    ):
        yield from in_places_of(
            name,
            "a pipe",
            "a link to /dev/zero",
            "a million open lists",
            "a million empty lists",
            "240 MB of zeros",
            "a half of a surrogate pair",
        )


def _hostile(found: Iterator[tuple[str, Plant]], **fits: Any) -> list[Hostile]:
    return [Hostile(what, plant, **fits) for what, plant in found]


PRICED = list(_configs())
"""Read by the commands that load no model."""
HEADERS = _hostile(_gguf_files(), exits=REFUSED, names=GGUF)
RUN = [*_hostile(tokenizers()), *_hostile(templates()), *_hostile(_weights()), *_hostile(_beside())]
"""Read by a run, too."""
