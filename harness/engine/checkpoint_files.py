"""The files of a checkpoint, checked before transformers sees them, in a folder that names no code.

transformers lets config.json, generation_config.json and tokenizer_config.json choose code: modules of the folder or of another
repository (auto_map), kernels of the hub (any ``..._implementation``), a quantiser's library. It also lets them name other
files and override attributes of its classes. A checkpoint is therefore opened from a folder of its own. That holds links to
the weights and the tokenizer, and the settings without such keys. No pickle is in it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils.hub import cached_file

from harness.errors import UnknownModelError
from harness.models.config import read_bounded, read_object
from harness.models.gguf_header import gguf_config
from harness.models.limited_process import LimitedProcess, facts

INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
CONFIG, TOKENIZER, TOKENIZER_CONFIG, TEMPLATE = "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
SETTINGS = (CONFIG, "generation_config.json", TOKENIZER_CONFIG)
JSON_FILES = ("special_tokens_map.json", "added_tokens.json", "vocab.json")
OTHER_FILES = (TOKENIZER, TEMPLATE, "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model")
FLOATS = {"F64", "F32", "F16", "BF16"}
LIBRARIES = ("quantization_config", "compression_config")
"""Their absence changes what the weights mean, so that a checkpoint that has one is refused."""
CODE = {
    "auto_map",
    "custom_generate",
    "custom_pipelines",
    "distributed_config",
    "fusion_config",
    "kernel_config",
    "processor_class",
    "transformers_weights",
    "trust_remote_code",
    "use_kernels",
    "cache_dir",
    "name_or_path",
    "revision",
    "subfolder",
    "token",
    "mistral_format",
    "fix_mistral_regex",
}
_OF_THE_MODEL = {"model_type", "per_layer_config", "rope_scaling", "torch_dtype"} | {
    field.name for field in fields(PreTrainedConfig)
}
_OF_CLASS = frozenset(dir(PreTrainedConfig)) - _OF_THE_MODEL


@contextmanager
def opened(path: str, revision: str | None, gguf_file: str | None = None) -> Iterator[Path]:
    """A folder with the checkpoint's checked files, without any code and any key that chooses code; removed afterwards.

    Args:
        path: a folder, or a hub id, whose files are downloaded.
        revision: of the hub id; None: its main one.
        gguf_file: where weights, config and, unless there is a tokenizer.json, the tokenizer are; None: in files of their own.

    Raises:
        UnknownModelError: a file is missing or broken; the message names it. OSError: the hub does not answer.
    """
    first = gguf_file or CONFIG
    at = {} if Path(path).is_dir() else {"revision": revision or "main"}

    def found(name: str) -> Path | None:
        needed = bool(at) and name == first  # transformers says why a hub id cannot be had
        file = cached_file(path, name, _raise_exceptions_for_missing_entries=needed, **at)
        return None if file is None else Path(file).absolute()

    with tempfile.TemporaryDirectory(prefix="sbd-model-") as made:
        folder = Path(made)
        if at and (file := found(first)) is not None:
            at["revision"] = file.parent.name  # the commit, so that all files are of one
        if gguf_file is not None:
            if (file := found(gguf_file)) is None:
                raise UnknownModelError(f"{path}: holds no {gguf_file}; give the name of a GGUF file of this folder")
            (folder / CONFIG).write_text(json.dumps(gguf_config(file)))
            (folder / gguf_file).symlink_to(file)
        for name in SETTINGS if gguf_file is None else (TOKENIZER_CONFIG,):
            if (file := found(name)) is not None:
                (folder / name).write_text(json.dumps(without_code(read_object(file), file, deep=name != TOKENIZER_CONFIG)))
        if not (folder / CONFIG).is_file():
            raise UnknownModelError(f"{path}: holds no {CONFIG}; give a folder or a hub id with safetensors weights")
        for name in (*JSON_FILES, *OTHER_FILES):
            if (file := found(name)) is not None:
                read_object(file) if name in JSON_FILES else read_bounded(file)
                (folder / name).symlink_to(file)
        if (folder / TOKENIZER).is_file():
            check_tokenizer(folder / TOKENIZER, json.loads((folder / CONFIG).read_text()), found(TOKENIZER))
        if gguf_file is None:
            _take_safetensors(folder, found)
            tensor_names(folder, path)
        yield folder


def _take_safetensors(folder: Path, found: Callable[[str], Path | None]) -> None:
    """Link the weights of a checkpoint into the folder."""
    for name in (WEIGHTS, INDEX):
        if (file := found(name)) is not None:
            (folder / name).symlink_to(file)
            for shard in _shards(file) if name == INDEX else ():
                if (one := found(shard)) is None:
                    raise UnknownModelError(f"{file}: names {shard}, which is not there; download the checkpoint again")
                (folder / shard).symlink_to(one)
            return


def without_code(settings: Mapping[str, object], file: Path, deep: bool = True) -> dict[str, object]:
    """The settings without the keys by which transformers runs other code, reads another file or replaces an attribute of its
    class; ``deep``: in the objects that they hold, too.

    Raises:
        UnknownModelError: one of LIBRARIES is set.
    """
    for key in LIBRARIES:
        if settings.get(key):
            raise UnknownModelError(
                f"{file}: {key} asks for a quantiser's own code, which no session is checked with; give the weights as "
                "bfloat16, float16 or float32, and a config.json without it"
            )
    return {
        key: without_code(value, file) if deep and isinstance(value, dict) else value
        for key, value in settings.items()
        if not (key.startswith("_") or key.endswith(("_implementation", "_file", "_files")) or key in CODE | _OF_CLASS)
    }


def check_tokenizer(file: Path, config: Mapping[str, Any], named: Path | None) -> None:
    """Read ``file``, called ``named`` in messages, and compare its ids with the embeddings of ``config``.

    Raises:
        UnknownModelError: it is no tokenizer, or has an id without an embedding.
    """
    text = read_bounded(file).decode(errors="replace")
    read = LimitedProcess(f"{named}: is no tokenizer: it", "download the checkpoint again", len(text))
    rows = config.get("text_config", config).get("vocab_size")
    _, token, number = read(facts, text)
    if isinstance(rows, int) and number >= rows:
        raise UnknownModelError(
            f"{named}: the token {token[:40]!r} has the id {number}, but the model has {rows} embeddings (vocab_size in "
            f"{CONFIG}), so ids go up to {rows - 1}; give the tokenizer that belongs to these weights"
        )


def tensor_names(folder: Path, path: str) -> set[str]:
    """Names of the tensors in the checkpoint's weights, after a check of every header.

    Raises:
        UnknownModelError: there are none, a file is cut or broken, or the index names a tensor that its file lacks.
    """
    index = folder / INDEX
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UnknownModelError(
            f"{path}: holds neither {WEIGHTS} nor {INDEX}; give a folder or a hub id with safetensors weights "
            "(.bin and .pt files can run code and are never loaded)"
        )
    held = {file.name: _names(file) for file in files}
    if index.is_file():
        for name, file in read_object(index)["weight_map"].items():
            if name not in held[file]:
                raise UnknownModelError(f"{index.resolve()}: looks for {name} in {file}, which lacks it; download both again")
    return {name for names in held.values() for name in names}


def _names(file: Path) -> set[str]:
    """The tensors of a file whose header is whole and whose weights are floats; the library checks sizes and offsets."""
    named = Path(file).resolve() if file.is_symlink() else file
    try:
        with safe_open(str(file), framework="pt") as tensors:
            kinds = {name: tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError) as error:
        said = (str(error) or type(error).__name__).partition("\n")[0][:300]
        raise UnknownModelError(f"{named}: is no whole safetensors file ({said}); download it again") from error
    for name, kind in kinds.items():
        if name.endswith(".weight") and kind not in FLOATS:
            raise UnknownModelError(f"{named}: {name} is of type {kind}; allowed are {', '.join(sorted(FLOATS))}")
    return set(kinds)


def _shards(index: Path) -> set[str]:
    """The files that an index names: safetensors files beside it.

    Raises:
        UnknownModelError: it names others.
    """
    files = read_object(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise UnknownModelError(f"{index}: has no weight_map from tensors to files; download the checkpoint again")
    for name in files.values():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise UnknownModelError(f"{index}: weight_map names {name!r}; allowed are .safetensors files of the same folder")
    return set(files.values())


def refuse_cut_checkpoint(output: Path) -> None:
    """Check the checkpoint that training would go on from: the last one in ``output``, if any.

    Raises:
        UnknownModelError: one of its files is cut, or its weights are a pickle.
    """
    find: Any = get_last_checkpoint  # carries no types
    last: str | None = find(str(output)) if output.is_dir() else None
    if last is None:
        return
    try:
        tensor_names(Path(last), last)
        read_object(Path(last, "trainer_state.json"))
        for file in sorted(Path(last).glob("*.pt*")):  # optimizer, scheduler, random state; torch reads numbers alone from them
            if not is_zipfile(file):
                raise UnknownModelError(f"{file}: is cut")
    except (UnknownModelError, OSError) as error:
        raise UnknownModelError(
            f"{error}; training cannot go on from {last}: remove that folder to go on from the one before"
        ) from error
