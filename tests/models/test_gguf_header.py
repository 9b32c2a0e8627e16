"""GGUF headers: what they say of a model, and that a broken or unusual file is refused by name before any weight is read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from pydantic import ValidationError

from harness.errors import UnknownModelError
from harness.models.choice import HuggingFaceModel, model_config, model_name, shape_of
from harness.models.decodable import refuse_undecodable
from harness.models.digests import model_digests
from harness.models.gguf_header import BLOCKS, gguf_config, read_gguf
from tests.helpers.gguf_files import HIDDEN, INNER, LAYERS, WIDTH, vocabulary, write_gguf


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole file."""
    file: Path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(file)
    return file


def test_sizes_of_blocks_are_those_of_the_package() -> None:
    """By number and name."""
    for number, (name, weights, block_bytes) in BLOCKS.items():
        kind = gguf.GGMLQuantizationType(number)
        assert (kind.name, gguf.GGML_QUANT_SIZES[kind]) == (name, (weights, block_bytes))


def test_a_model_is_known_by_its_header(whole: Path) -> None:
    """Its shape, as a plan asks for it without torch; the digests follow the one file that holds all."""
    model = HuggingFaceModel(huggingface=str(whole.parent), gguf_file=whole.name)
    shape, _ = shape_of(model)
    assert shape is not None and shape.name == model_name(model).rpartition("/")[2] == "tiny.gguf"
    assert (shape.layers, shape.hidden, shape.intermediate, shape.head_dim) == (LAYERS, HIDDEN, INNER, WIDTH)
    assert (shape.heads, shape.kv_heads, shape.vocab, shape.tied_embeddings) == (4, 2, len(vocabulary()), True)
    config = model_config(model)
    assert config is not None and config["rope_theta"] == 100_000 and config["eos_token_id"] == 2
    before = model_digests(model, 1, "float32")
    (whole.parent / "other.gguf").write_bytes(b"x")
    assert model_digests(model, 1, "float32") == before and None not in {digest for digest, _ in before.values()}


def test_choices_of_before_are_written_as_before(tmp_path: Path) -> None:
    """No new key in a record without a GGUF file; a wrong name is answered with those that are there."""
    assert "gguf_file" not in HuggingFaceModel(huggingface="org/name").model_dump(mode="json")
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    for given, words in (({}, "after gguf_file: a.gguf"), ({"gguf_file": "b.gguf"}, "b.gguf")):
        with pytest.raises(ValidationError, match=words):
            HuggingFaceModel.model_validate({"huggingface": str(tmp_path), **given}, context={"base": tmp_path})
    for name in ("../a.gguf", "a.bin"):
        with pytest.raises(ValidationError):
            HuggingFaceModel(huggingface=str(tmp_path), gguf_file=name)
    with pytest.raises(ValidationError, match="no code of its own"):
        HuggingFaceModel(huggingface=str(tmp_path), gguf_file="a.gguf", trust_remote_code=True)


def test_a_cut_file_is_refused_wherever_it_ends(whole: Path, tmp_path: Path) -> None:
    """In the header or within the last tensor."""
    data, file = whole.read_bytes(), tmp_path / "cut.gguf"
    for size in (0, 3, 10, 24, 100, 1000, 5000, 7000, len(data) // 2, len(data) - 32):
        file.write_bytes(data[:size])
        with pytest.raises(UnknownModelError, match=f"{file}: is no whole GGUF file"):
            read_gguf(file)


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (0, b"GGML", "not with b'GGUF'"),
        (4, struct.pack("<I", 1), "version 1"),
        (8, struct.pack("<Q", 2**60), "tensors"),
        (16, struct.pack("<Q", 2**60), "no whole GGUF file"),
        (24, struct.pack("<Q", 2**60), "within its header"),
    ],
)
def test_a_damaged_header_is_refused(whole: Path, tmp_path: Path, at: int, value: bytes, words: str) -> None:
    """Magic, version, both counts and the first length."""
    data, file = bytearray(whole.read_bytes()), tmp_path / "damaged.gguf"
    data[at : at + len(value)] = value
    file.write_bytes(data)
    with pytest.raises(UnknownModelError, match=words):
        read_gguf(file)


def test_no_byte_of_a_header_brings_another_error(whole: Path, tmp_path: Path) -> None:
    """Each of the first 400 bytes and of the table of tensors set to 255."""
    data, file = whole.read_bytes(), tmp_path / "damaged.gguf"
    table = data.index(b"token_embd.weight") - 8
    for at in (*range(400), *range(table, table + 300)):
        file.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
        try:
            gguf_config(file)
        except UnknownModelError as error:
            assert str(file) in str(error)


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("llama", lambda to: to.add_tensor("rope_freqs.weight", np.ones(8, np.float32)), "rope_freqs.weight"),
        ("llama", lambda to: to.add_tensor("blk.0.attn_q.bias", np.ones(64, np.float32)), "blk.0.attn_q.bias"),
        ("llama", lambda to: to.add_rope_scaling_type(gguf.RopeScalingType.YARN), "has llama.rope.scaling.type .yarn."),
        ("llama", lambda to: to.add_rope_scaling_factor(4.0), "has llama.rope.scaling.factor .4.0."),
        ("llama", lambda to: to.add_float32("llama.rope.scale_linear", 2.0), "has llama.rope.scale_linear .2.0."),
        ("llama", lambda to: to.add_sliding_window(256), "has llama.attention.sliding_window .256."),
        ("llama", lambda to: to.add_logit_scale(0.5), "has llama.logit_scale .0.5."),
        ("llama", lambda to: to.add_key_length(32), "has llama.rope.dimension_count .16."),
        ("llama", lambda to: to.add_uint16("split.count", 2), "is one of 2 files of a split model.*llama-gguf-split --merge"),
        ("qwen3", lambda to: None, "too few for 2 layers"),
        ("gemma2", lambda to: None, "allowed are llama, qwen2, qwen3"),
    ],
)
def test_what_transformers_would_leave_out_is_refused(
    tmp_path: Path, kind: str, change: Callable[[Any], None], words: str
) -> None:
    """Tensors beyond the architecture's own, scaled or partial rotary positions, and other architectures."""
    write_gguf(tmp_path / "x.gguf", kind=kind, change=change)
    with pytest.raises(UnknownModelError, match=words):
        gguf_config(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("splits", "keys", "words"),
    [
        (None, {}, "'pre': None"),
        ("default", {}, "'pre': 'default'"),
        ("tekken", {}, "'pre': 'tekken'"),
        ("smollm", {"model": "t5"}, "'model': 't5'"),
        ("smollm", {"model": None}, "'model': None"),
        ("smollm", {"eos_token_id": None}, "'eos_token_id': None"),
        ("llama-bpe", {"bos_token_id": None, "add_bos_token": None}, "'bos_token_id': None"),
        ("smollm", {"bos_token_id": None}, None),
        ("smollm", {"model": "llama"}, None),
        ("smollm", {"model": "llama", "add_space_prefix": False}, "'add_space_prefix': False"),
        ("smollm", {"model": "llama", "remove_extra_whitespaces": True}, "'remove_extra_whitespaces': True"),
        ("smollm", {"model": "llama", "bos_token_id": None, "add_bos_token": None}, "'bos_token_id': None"),
    ],
)
def test_a_tokenizer_that_would_make_other_ids_is_refused(
    tmp_path: Path, splits: str | None, keys: dict[str, Any], words: str | None
) -> None:
    """By the plan, with what to put beside the file; what is beside it goes first."""
    file = tmp_path / "x.gguf"
    write_gguf(file, splits=splits)
    header = read_gguf(file)
    settings = header.settings | {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    told = replace(header, settings={name: value for name, value in settings.items() if value is not None})
    if words is None:
        told.refuse_unknown_tokenizer()
        return
    with pytest.raises(UnknownModelError, match=f"x.gguf: .*{words}.*tokenizer.json beside it"):
        told.refuse_unknown_tokenizer()
    if not keys:
        choice = HuggingFaceModel(huggingface=str(tmp_path), gguf_file=file.name)
        with pytest.raises(UnknownModelError, match=words):
            refuse_undecodable(choice, "float32")
        (tmp_path / "tokenizer.json").write_text("{}")
        refuse_undecodable(choice, "float32")


def test_the_width_of_a_head_is_what_llama_cpp_assumes(tmp_path: Path) -> None:
    """Without a key: the hidden width over the heads. The base of the rotary positions is 10,000 where no key says it."""
    write_gguf(tmp_path / "x.gguf")
    header = read_gguf(tmp_path / "x.gguf")
    assert gguf_config(tmp_path / "x.gguf")["head_dim"] == WIDTH == HIDDEN // 4
    for key in ("llama.rope.freq_base", "llama.rope.dimension_count", "llama.attention.head_count_kv"):
        del header.settings[key]
    config = gguf_config(tmp_path / "x.gguf")
    assert (config["head_dim"], config["rope_theta"], config["num_key_value_heads"]) == (WIDTH, 10_000, 4)
    del header.settings["llama.attention.layer_norm_rms_epsilon"]
    with pytest.raises(UnknownModelError, match=r"has no number llama\.attention\.layer_norm_rms_epsilon"):
        gguf_config(tmp_path / "x.gguf")


def test_a_header_of_any_length_is_refused_at_once(tmp_path: Path) -> None:
    """Counts beyond any model's, and a text as long as a file without contents."""
    file, texts = tmp_path / "zeros.gguf", struct.pack("<QIIQ", 0, 9, 0, 2**38)
    for tensors, settings, behind in ((0, 2**60, b""), (2**63, 0, b""), (0, 1, struct.pack("<Q", 2**39)), (0, 1, texts)):
        file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, settings) + behind)
        with file.open("r+b") as opened:
            opened.truncate(2**40)
        with pytest.raises(UnknownModelError, match="is no whole GGUF file"):
            read_gguf(file)
