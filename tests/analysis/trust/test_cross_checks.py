"""A record that was altered is reported: by its seal, and where it was sealed anew by its own contradictions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.planted.tampering import TAMPERINGS
from harness.analysis.trust.cross_checks import contradictions
from harness.analysis.trust.integrity import integrity_of
from harness.meters.environment import snapshot
from harness.record.publication import publish
from harness.record.store import read_run
from harness.reporting import write_report
from tests.helpers import ROOT
from tests.helpers.command import Cli
from tests.helpers.pages import headlines, words
from tests.helpers.published import published
from tests.helpers.records import RECORDS
from tests.helpers.sealed_lines import reseal

UNSEEN = {"all times halved", "claims loosened"}
"""What no contradiction shows once it is sealed anew: times that agree with each other, and claims, which nobody measured."""
PUBLISHED = ("quickstart", "verified_250m", "gamma_selection", "reference_accuracy")
VOID = 4


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three processes with graded answers, as this version would have written it."""
    folder = tmp_path_factory.mktemp("sealed") / "run"
    shutil.copytree(ROOT / "reports" / "quickstart", folder, ignore=shutil.ignore_patterns("report.*"))
    header = (folder / "run.json").read_text()
    (folder / "run.json").write_text(re.sub(r'"record_version": ?\d+', '"record_version": 7', header, count=1))
    reseal(folder)
    return folder


def verified(cli: Cli, line: str) -> tuple[int, str]:
    """Exit code and first line of `sbd verify`."""
    code = cli(f"verify {line}")
    return code, (cli.out or cli.err).partition("\n")[0]


@pytest.mark.parametrize("kind", TAMPERINGS)
def test_an_altered_record_proves_nothing(kind: str, sealed: Path, tmp_path: Path) -> None:
    """The seal is broken and says where; sealed anew it is not signed, and most kinds contradict themselves."""
    folder = shutil.copytree(sealed, tmp_path / "run")
    TAMPERINGS[kind](folder)
    assert integrity_of(read_run(folder)).void.startswith("the record's seal is broken (")
    reseal(folder)
    found = integrity_of(read_run(folder))
    assert found.seal_words == "sealed, not signed" and (found.void is None) == (kind in UNSEEN), found.words
    if found.void is not None:
        assert "contradicts itself" in found.void


def test_a_second_try_within_a_second_is_no_copy_of_the_first() -> None:
    """One process begins anew after a server's 503; another process with its pid and its moment is a copy."""
    run = published("quickstart")
    start = next(one for one in run.sessions if one.get("event") == "start" and one.get("pid"))

    def found(process: int) -> list[str]:
        again = run.model_copy(update={"sessions": [*run.sessions, start | {"process": process, "load_average": [9.0]}]})
        return contradictions(again).get("two processes are one and the same", [])

    assert found(start["process"]) == []
    assert found(7) == [f"process {start['process']} and process 7"]
    assert snapshot()["taken_at"] != snapshot()["taken_at"]


@pytest.mark.parametrize("kind", sorted(UNSEEN))
def test_a_demanded_signature_leaves_no_verdict_on_what_was_sealed_anew(
    cli: Cli, kind: str, sealed: Path, tmp_path: Path
) -> None:
    """Only the key's owner could have sealed it; with the signature that was there before, the seal is broken."""
    folder = shutil.copytree(sealed, tmp_path / "run")
    TAMPERINGS[kind](folder)
    code, first = verified(cli, f"{folder}")
    assert code == VOID and first.startswith("record  the record's seal is broken (")
    reseal(folder)
    code, first = verified(cli, f"{folder} --require-signature")
    assert code == VOID and "a signature was demanded: the record is sealed, not signed" in first
    code, first = verified(cli, f"{folder}")
    assert code != VOID and first == "record  sealed, not signed"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_signed_record_meets_the_demand(cli: Cli, sealed: Path, tmp_path: Path) -> None:
    """By any key, or by an allowed signer; another signer's is void; signers without the demand are refused."""
    key, other = tmp_path / "key", tmp_path / "other"
    for file in (key, other):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True, stdin=subprocess.DEVNULL)
    folder = publish(sealed, tmp_path / "kept", key)
    (tmp_path / "allowed").write_text(f"me@here {key.with_suffix('.pub').read_text()}")
    (tmp_path / "others").write_text(f"them@there {other.with_suffix('.pub').read_text()}")
    code, first = verified(cli, f"{folder} --require-signature")
    assert code != VOID and first.startswith("record  sealed, signed by ED25519 key SHA256:")
    assert verified(cli, f"{folder} --require-signature --signers {tmp_path}/allowed")[0] != VOID
    assert verified(cli, f"{folder} --require-signature --signers {tmp_path}/others")[0] == VOID
    assert verified(cli, f"{folder} --signers {tmp_path}/allowed")[0] == 2


def test_the_page_of_an_altered_record_has_no_headline(sealed: Path, tmp_path: Path) -> None:
    """Its cards say void and why, in place of a speedup."""
    folder = shutil.copytree(sealed, tmp_path / "run")
    TAMPERINGS["decode_s halved"](folder)
    page = write_report(folder).read_text("utf-8")
    parts = {case.part for case in read_run(sealed).header.cases}
    assert [one.split() for one in headlines(page)] == [["Void", "no", "answer"]] * len(parts)
    assert "seal is broken (samples.jsonl:" in words(page)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_record_contradicts_nothing(name: str) -> None:
    """Measured runs of several versions, machines and methods."""
    found = integrity_of(published(name))
    assert found.contradictions == () and found.void is None


@pytest.mark.parametrize("version", range(6, 9))
def test_a_record_of_every_version_contradicts_nothing(version: int) -> None:
    """Cut from measured runs; answers are graded again."""
    found = integrity_of(read_run(RECORDS / f"v{version}"))
    assert found.contradictions == () and found.graded_again == 10 and not found.not_graded
