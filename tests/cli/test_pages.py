"""A page is of the record beside it, of another state of it, or changed since it was signed: the commands say so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.record.store import RunStore
from tests.helpers import synthetic_run as synthetic
from tests.helpers.command import Cli
from tests.helpers.two_runs import stored

RUN = synthetic.build(jitter=0.05, prompts=4)
NEEDS_TOOL = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


@pytest.fixture
def run(tmp_path: Path, cli: Cli) -> Path:
    """A run with its page; it lacks the last sample."""
    folder = stored(synthetic.with_samples(RUN, RUN.samples[:-1]), tmp_path / "run")
    assert cli(f"report {folder}") == 0
    return folder


@pytest.fixture
def key(tmp_path: Path) -> str:
    """An SSH key without a passphrase."""
    file = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True, stdin=subprocess.DEVNULL)
    return str(file)


def told(folder: Path, cli: Cli) -> dict[str, str]:
    """What verify says of each page."""
    cli(f"verify --json {folder}")
    _, *pages = json.loads(cli.out)["records"]
    return {name.removeprefix("page "): state for name, _, state in (one.partition(": ") for one in pages)}


def test_a_page_of_an_earlier_state_is_stale_and_not_published(cli: Cli, run: Path, tmp_path: Path) -> None:
    """The run was gone on with; rendered again the page is the record's, each time the same bytes."""
    fits = dict.fromkeys(("report.html", "report.json"), "of this record (no signature covers it)")
    assert told(run, cli) == fits
    with RunStore(run) as store:
        store.resume(RUN.header.scenario, RUN.header.scenario_digest)
        store.append(RUN.samples[-1])
    assert told(run, cli) == dict.fromkeys(fits, "not of this record (stale)")
    assert "report.html: not of this record (stale); render it again (sbd report" in cli.refusal(
        f"publish {run} {tmp_path}/kept"
    )
    assert not (tmp_path / "kept").exists()
    assert cli(f"report {run}") == 0
    page = (run / "report.html").read_bytes()
    assert told(run, cli) == fits and cli(f"report {run}") == 0
    assert (run / "report.html").read_bytes() == page
    assert cli(f"publish {run} {tmp_path}/kept") == 0
    assert told(tmp_path / "kept", cli) == fits


@NEEDS_TOOL
def test_a_signature_covers_the_pages(cli: Cli, run: Path, key: str, tmp_path: Path) -> None:
    """A changed word is seen, in a copy too; what another signs without the key is not of it."""
    kept, copy = tmp_path / "kept", tmp_path / "copy"
    assert cli(f"publish {run} {kept} --sign {key}") == 0
    assert cli(f"publish {kept} {copy}") == 0
    assert set(told(copy, cli).values()) == {"of this record"}
    assert (copy / "seal.json.sig").read_bytes() == (kept / "seal.json.sig").read_bytes()
    page = (copy / "report.html").read_text("utf-8")
    (copy / "report.html").write_text(page.replace("</main>", "<p>100x</p></main>"), "utf-8")
    assert told(copy, cli) == {"report.html": "changed since it was signed", "report.json": "of this record"}
    assert "report.html: changed since it was signed" in cli.refusal(f"publish {copy} {tmp_path}/further")
    (copy / "seal.json.sig").unlink()
    assert set(told(copy, cli).values()) == {"of this record (no signature covers it)"}


@NEEDS_TOOL
def test_a_page_rendered_again_in_a_signed_folder_is_told(cli: Cli, run: Path, key: str) -> None:
    """It says by now that the record is signed; signed again, the same bytes are rendered and covered."""
    for said in (True, False):
        assert cli(f"publish {run} {run} --sign {key}") == 0
        assert set(told(run, cli).values()) == {"of this record"}
        assert cli(f"report {run}") == 0
        assert ("the signature covers this page no more; sign again" in cli.out) is said
        assert told(run, cli)["report.html"] == ("changed since it was signed" if said else "of this record")


def test_other_pages_do_not_end_verify(cli: Cli, run: Path) -> None:
    """One of an older program names no record; a pipe is not waited for, a link not followed, a file without end not held."""
    (run / "report.html").write_text("<p>by an older program</p>")
    (run / "report.json").unlink()
    assert told(run, cli) == {"report.html": "not checked (it names no record, as older ones do)"}
    (run / "report.html").unlink()
    os.mkfifo(run / "report.html")
    (run / "report.json").symlink_to("/dev/zero")
    found = told(run, cli)
    assert "is a pipe" in found["report.html"] and "is a symbolic link" in found["report.json"]
    (run / "report.html").unlink()
    (run / "report.html").touch()
    os.truncate(run / "report.html", 1 << 42)
    assert "has more than" in told(run, cli)["report.html"]
