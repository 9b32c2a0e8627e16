"""The header of a GGUF file: its settings and its table of tensors, each checked against the file, and the config they mean.

Reads no weight and needs neither torch nor the package gguf. Layout: docs/gguf.md of the repository ggml-org/ggml. What
transformers would leave out without a word is refused here: tensors beyond the architecture's own, and scaled positions.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

from harness.errors import UnknownModelError
from harness.frozen import frozen

BLOCKS = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
"""Types of tensors by their number: name, weights in a block, bytes of a block. Source: gguf.constants.GGML_QUANT_SIZES."""
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "llama": (),
    "qwen2": ("attn_q.bias", "attn_k.bias", "attn_v.bias"),
    "qwen3": ("attn_q_norm.weight", "attn_k_norm.weight"),
}
"""The architectures that are loaded, each with the tensors that its layers have beyond those of llama."""
LLAMA_3 = {"llama-bpe", "llama3", "llama-v3"}
"""Whole words go before merges, and a begin token stands before every text unless the file says otherwise."""
PRE_TOKENIZERS = {"smollm", "gpt-2", "qwen2", "deepseek-r1-qwen"} | LLAMA_3
"""How byte-level vocabularies split a text, where that is known here; another one would give other ids than the original."""
_OF_TOKENIZER = "model pre bos_token_id eos_token_id add_space_prefix remove_extra_whitespaces"
ENDS = "eos eot eom fim_pad fim_rep fim_sep"
END_TEXTS = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> <EOT> "
    "_<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> [e~[ <｜end▁of▁sentence｜> "
    "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>"
)
"""Tokens that end an answer in llama.cpp, by their keys and by their texts. Source: special_eog_ids in its llama-vocab.cpp."""
_EVERY_LAYER = tuple(
    f"{name}.weight"
    for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
LONGEST_HEADER_BYTES = 2**25
"""The largest in use have 2,000 tensors, and 16 MB with their vocabulary and merges."""


@frozen
class GgufHeader:
    """``settings``: numbers, texts and, each in a list, lengths of arrays by their names. ``sizes``: of every tensor, the row's
    length first.
    """

    file: Path
    settings: dict[str, Any]
    sizes: dict[str, tuple[int, ...]]

    def of_tokenizer(self, name: str) -> Any:
        """A setting of the tokenizer; None where it is absent."""
        return self.settings.get(f"tokenizer.ggml.{name}")

    @property
    def adds_begin(self) -> bool:
        """Whether a begin token stands before every text; without the key, as llama.cpp assumes by the kind of tokenizer."""
        assumed = self.of_tokenizer("model") == "llama" or self.of_tokenizer("pre") in LLAMA_3
        return bool(self.settings.get("tokenizer.ggml.add_bos_token", assumed))

    def ends(self, vocabulary: Mapping[str, int]) -> set[int]:
        """The tokens that end an answer, as in llama.cpp."""
        named = [self.of_tokenizer(f"{name}_token_id") for name in ENDS.split()]
        return {token for token in (*named, *map(vocabulary.get, END_TEXTS.split())) if isinstance(token, int)}

    def refuse_unknown_tokenizer(self) -> None:
        """Raises UnknownModelError where the file's own tokenizer would make other ids here than its authors'."""
        given = {name: self.of_tokenizer(name) for name in _OF_TOKENIZER.split()}
        known = {
            "gpt2": given["pre"] in PRE_TOKENIZERS,
            "llama": given["add_space_prefix"] is not False and not given["remove_extra_whitespaces"],
        }
        if not known.get(given["model"]) or None in (given["eos_token_id"], given["bos_token_id"] if self.adds_begin else 0):
            raise UnknownModelError(
                f"{self.file}: how its tokenizer splits texts is not known here, by {given} (None: tokenizer.ggml has no such "
                f"key); known are the model gpt2 with pre {', '.join(sorted(PRE_TOKENIZERS))} and llama where it adds a space, "
                "with the tokens that begin and end a text: put the checkpoint's own tokenizer.json beside it"
            )


def read_gguf(file: Path) -> GgufHeader:
    """The header of a whole file.

    Raises:
        UnknownModelError: it is no GGUF file, is cut or damaged, or holds weights of another kind than BLOCKS.
    """
    try:
        state = file.stat()
        return _read(file, state.st_size, state.st_mtime_ns)
    except (OSError, ValueError, struct.error) as error:
        raise UnknownModelError(f"{file}: is no whole GGUF file ({error}); download it again") from error


def gguf_config(file: Path) -> dict[str, Any]:
    """The config.json that the transformers class of this file's architecture has.

    Raises:
        UnknownModelError: as read_gguf; or a session would compute something else than the file's authors.
    """
    header = read_gguf(file)
    settings, kind = header.settings, header.settings.get("general.architecture")
    if settings.get("split.count", 1) != 1:
        raise UnknownModelError(
            f"{file}: is one of {settings['split.count']} files of a split model; make one of them (llama-gguf-split --merge "
            "FIRST_FILE WHOLE_FILE), or give its safetensors"
        )
    if kind not in ARCHITECTURES:
        raise UnknownModelError(
            f"{file}: is of the architecture {kind!r}; allowed are {', '.join(ARCHITECTURES)}: give its safetensors"
        )

    read = set[str]()

    def number(name: str, default: float | None = None, allowed: tuple[type, ...] = (int,)) -> Any:
        read.add(name)
        value = settings.get(f"{kind}.{name}", default)
        if type(value) not in allowed:
            raise UnknownModelError(f"{file}: has no number {kind}.{name}; give the checkpoint's safetensors")
        return value

    real = partial(number, allowed=(int, float))

    heads, hidden, layers = number("attention.head_count"), number("embedding_length"), number("block_count")
    _refuse_other_tensors(header, kind, layers)
    width = number("attention.key_length", hidden // max(heads, 1))
    config = {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": number("feed_forward_length"),
        "num_key_value_heads": number("attention.head_count_kv", heads),
        "head_dim": width,
        "max_position_embeddings": number("context_length"),
        "rope_theta": real("rope.freq_base", 10_000.0),
        "rms_norm_eps": real("attention.layer_norm_rms_epsilon"),
        "vocab_size": header.sizes["token_embd.weight"][-1],
        "tie_word_embeddings": "output.weight" not in header.sizes,
    }
    for key, value in settings.items():
        name = key.removeprefix(f"{kind}.")
        own = width if name in ("rope.dimension_count", "attention.value_length") else 0
        if name not in {key, "vocab_size", *read} and value not in (0, 1, "none", own):
            raise UnknownModelError(
                f"{file}: has {key} ({value}), which is not read and may change what the model computes (scaled rotary "
                "positions, some on a part of each head, windows); give the checkpoint's safetensors"
            )
    ids = {f"{ours}_token_id": header.of_tokenizer(f"{theirs}_token_id") for ours, theirs in _IDS.items()}
    return config | {name: value for name, value in ids.items() if isinstance(value, int)}


_IDS = {"bos": "bos", "eos": "eos", "pad": "padding"}


def _refuse_other_tensors(header: GgufHeader, kind: str, layers: int) -> None:
    """Raises UnknownModelError unless the file has exactly the tensors of its architecture."""
    in_layer = (*_EVERY_LAYER, *ARCHITECTURES[kind])
    if layers * len(in_layer) > len(header.sizes):
        raise UnknownModelError(
            f"{header.file}: has {len(header.sizes)} tensors, too few for {layers:,} layers; download it again"
        )
    needed = {"token_embd.weight", "output_norm.weight"}
    needed |= {f"blk.{layer}.{name}" for layer in range(layers) for name in in_layer}
    present = set(header.sizes)
    more = present - needed - {"output.weight"}
    for names, words in ((needed - present, "lacks"), (more, "has, beyond a plain model's own,")):
        if names:
            raise UnknownModelError(
                f"{header.file}: {words} {len(names)} tensors, {min(names)} among them; download it again, or give the "
                "checkpoint's safetensors"
            )


@cache
def _read(file: Path, size: int, mtime_ns: int) -> GgufHeader:
    """Raises ValueError, OSError or struct.error where the file is not whole."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(data)
        if data[:4] != b"GGUF":
            raise ValueError(f"it begins with {data[:4]!r}, not with b'GGUF'")
        cursor.at = 4
        version, tensors, count = cursor.numbers("IQQ")
        if version not in (2, 3) or tensors + count > 100_000:
            raise ValueError(f"version {version}, allowed are 2 and 3, with {tensors:,} tensors and {count:,} settings")
        settings: dict[str, Any] = {}
        for _ in range(count):
            name = cursor.text()
            settings[name] = cursor.value(*cursor.numbers("I"))
        sizes: dict[str, tuple[int, ...]] = {}
        ends = [0]
        alignment = settings.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"general.alignment is {alignment!r}")
        for _ in range(tensors):
            name = cursor.text()
            sizes[name] = cursor.numbers(f"{cursor.numbers('I')[0]}Q")
            ends.append(_end(name, sizes[name], alignment, *cursor.numbers("IQ")))
        needed = -(-cursor.at // alignment) * alignment + max(ends)
        if needed > size:
            raise ValueError(f"it has {size:,} bytes, and its tensors end at {needed:,}")
        return GgufHeader(file=file, settings=settings, sizes=sizes)


def _end(name: str, sizes: tuple[int, ...], alignment: int, kind: int, offset: int) -> int:
    """Where a tensor ends, in bytes after the header."""
    if kind not in BLOCKS:
        allowed = ", ".join(label for label, _, _ in BLOCKS.values())
        raise ValueError(f"{name} is of type {kind}, allowed are {allowed}")
    label, weights, block_bytes = BLOCKS[kind]
    if not 1 <= len(sizes) <= 4 or offset % alignment or sizes[0] % weights or not all(sizes):
        raise ValueError(f"{name} ({label}) of {' x '.join(map(str, sizes))} begins at byte {offset}: not in whole blocks")
    return offset + prod(sizes) // weights * block_bytes


class _Cursor:
    """Reads little-endian values one after another."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def numbers(self, layout: str) -> tuple[Any, ...]:
        """Values by a layout of the module struct; raises struct.error after the file's end."""
        form = struct.Struct(f"<{layout}")
        self.at += form.size
        return form.unpack_from(self.data, self.at - form.size)

    def skip(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        self.at += size
        if self.at > min(len(self.data), LONGEST_HEADER_BYTES):
            raise ValueError(f"it ends at byte {len(self.data):,}, within its header, or that is too long")
        return self.data[self.at - size : self.at]

    def text(self) -> str:
        """A length and as many bytes of UTF-8."""
        return self.skip(*self.numbers("Q")).decode()

    def value(self, kind: int) -> Any:
        """One setting; of an array its length."""
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            of, count = self.numbers("IQ")
            if of == _TEXT:
                for _ in range(count):
                    self.skip(8 + int.from_bytes(self.data[self.at : self.at + 8], "little"))
            else:
                self.skip(count * struct.calcsize(f"<{_layout(of)}"))
            return [count]  # the values are not kept
        return self.numbers(_layout(kind))[0]


def _layout(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"a setting is of type {kind}")
    return _NUMBERS[kind]
