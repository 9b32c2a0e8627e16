"""sbd compare, gate and noise from the command line: exit codes 0 to 5 and 130, what is printed, what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.record.schema import CaseOutcome
from harness.regression.gate import revisions
from harness.regression.gate.noise import NoiseFloor, floors_file, known_floors, save_floors
from harness.scenario.loading import load_scenario
from tests.helpers.command import Cli
from tests.helpers.environments import with_environment
from tests.helpers.synthetic_run import NTP, build
from tests.helpers.two_runs import MORE_PASSES, SBD, PretendedLauncher, in_processes, noisy, slower, stored, two_arms

RUN = two_arms(jitter=0.05)
LUCK = (1.0, 1.002, 0.997, 1.001, 0.999, 1.003, 0.998, 1.0005, 0.9985, 1.0015)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Floors and work folders of a test are its own."""
    monkeypatch.setattr(revisions.secrets, "randbits", lambda bits: 0)  # the first pair begins with BASE
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def base(home: Path) -> Path:
    """A stored run of ten processes."""
    return stored(in_processes(RUN, *LUCK), home / "base")


def test_two_runs_alike_pass(cli: Cli, base: Path, home: Path) -> None:
    """0 in a few lines; with --all every metric's word; the same as JSON."""
    new = stored(in_processes(RUN, *LUCK[::-1]), home / "new")
    assert cli(f"gate {base} {new}") == 0
    assert "output_sha256" not in cli.out and len(cli.out.splitlines()) <= 5 and "--all shows them" in cli.out
    text = cli.output(f"gate --all {base} {new}")
    assert "passed" in text and "unchanged" in text and "output_sha256" in text and "--all" not in text
    data = cli.answer(f"gate {base} {new}")
    assert data["state"] == "met" and data["runs"] == [str(base), str(new)]
    timed = [one["metric"] for one in data["judgements"] if one["kind"] == "timed"]
    assert timed == ["decode_s_per_token", "decode_s_per_token", "wall_speedup"]
    data = cli.answer(f"gate --metric prefill_s {base} {new}")
    assert {one["metric"] for one in data["judgements"] if one["kind"] == "timed"} == {"prefill_s"}


def test_a_slower_run_regressed(cli: Cli, base: Path, home: Path) -> None:
    """1; a margin above the slowdown lets it pass, and so does a noise floor measured for this machine and work."""
    run = slower(in_processes(RUN, *LUCK[::-1]), 1.1, "sbd")
    new = stored(run, home / "new")
    assert cli(f"gate {base} {new}") == 1
    assert "regressed" in cli.out
    assert cli(f"gate --margin 0.15 {base} {new}") == 0
    keys = [f"{name}:reference/b1/sbd-k16-g0.1-t0-entropy_bounded" for name in ("decode_s_per_token", "wall_speedup")]
    floors = [NoiseFloor(metric=key, ratio=0.2, repeats=20, pairs=10, method="m") for key in keys]
    save_floors(run.header, floors)
    assert "noise floor 20.000%" in cli.output(f"gate --json {base} {new}")


def test_extra_passes_changed(cli: Cli, home: Path) -> None:
    """1, on any machine: with --deterministic-only hardware may differ, versions may not."""
    base = stored(RUN, home / "base")
    other = with_environment(two_arms(jitter=0.05, arms=(NTP, MORE_PASSES)), cpu_model="Other CPU")
    new = stored(other, home / "new")
    assert "hardware.cpu_model" in cli.refusal(f"gate {base} {new}")
    assert cli(f"gate --deterministic-only --json {base} {new}") == 1
    data = json.loads(cli.out)
    missed = [one for one in data["judgements"] if one["state"] == "missed"]
    assert [one["metric"] for one in missed] == ["passes", "final_tokens_per_pass", "modelled_bytes"]
    assert missed[0]["cell"]["arm"] == SBD.label and (missed[0]["base"], missed[0]["value"]["value"]) == (64, 128)
    assert "64" in missed[0]["reason"] and "128" in missed[0]["reason"] and "hardware.cpu_model" in missed[0]["reason"]
    newer = stored(with_environment(other, packages={"torch": "9"}), home / "newer")
    assert cli(f"gate --deterministic-only {base} {newer}") == 2
    assert cli(f"gate --allow hardware,versions.torch --deterministic-only {base} {newer}") == 1


def test_one_process_each_is_inconclusive(cli: Cli, home: Path) -> None:
    """3 with the remedy, however great the difference; --inconclusive turns it; counts are judged all the same."""
    base, new = stored(RUN, home / "base"), stored(slower(RUN, 3), home / "new")
    assert cli(f"gate {base} {new}") == 3
    text = " ".join(cli.out.split())
    assert "--base-cmd" in text and "processes: 3" in text and "unchanged" in text
    assert cli(f"gate --inconclusive pass {base} {new}") == 0
    assert cli(f"gate --inconclusive fail {base} {new}") == 1
    assert cli(f"gate --deterministic-only {base} {new}") == 0


def test_a_case_that_left_no_samples_is_void(cli: Cli, home: Path) -> None:
    """4, and the reason is how it ended."""
    case_id = "reference/word_problems/b1/sbd-k16-g0.1-t0-entropy_bounded"
    outcome = CaseOutcome(case_id=case_id, outcome="does_not_fit", reason="needs 9 GB")
    broken = build(arms=(NTP, SBD), prompts=4, outcomes=(outcome,), without=frozenset({case_id}))
    base, new = stored(two_arms(), home / "base"), stored(broken, home / "new")
    assert cli(f"gate --json {base} {new}") == 4
    assert "needs 9 GB" in cli.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "two run directories"),
        ("base", "got 1 directories and 0 commands"),
        ("base base --base-cmd {out} --new-cmd {out}", "got 2 directories and 2 commands"),
        ("--base-cmd {out}", "got 0 directories and 1 commands"),
        ("--base-cmd sbd --new-cmd {out}", "has no {out}"),
        ("base base --pairs 4", "--pairs and --work belong to"),
        ("base base --metric speed", "--metric speed: no timed metric"),
        ("base base --allow all", "--allow all"),
        ("base base --margin -1", "--margin"),
    ],
)
def test_mistakes_are_the_users(cli: Cli, base: Path, arguments: str, words: str) -> None:
    """2, with what was given and what is allowed."""
    assert words in " ".join(cli.refusal(f"gate {arguments}").split())


def test_revisions_are_gated(cli: Cli, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """0, 1, 5 for a command that fails, 130 for Ctrl-C, after which the same command goes on; runs are kept in --work."""
    launcher = PretendedLauncher(
        same=noisy(RUN, "same"),
        alike=noisy(RUN, "alike"),
        slow=noisy(RUN, "slow", factor=1.1),
        broken=lambda n: 1,
        stopped=lambda n: (_ for _ in ()).throw(KeyboardInterrupt),
    )
    monkeypatch.setattr(revisions, "launch", launcher)

    def gated(new: str, *more: str) -> int:
        return cli("gate --base-cmd", "measure same {out}", "--new-cmd", f"measure {new} {{out}}", *more)

    assert gated("alike", "--work", "kept") == 0
    out, err = cli.out, cli.err
    assert "passed" in out and "runs are kept in kept" in err and "left" not in out
    assert gated("alike", "--work", "kept") == 2 and "is finished" in cli.err
    assert gated("slow") == 1 and "regressed" in cli.out
    assert gated("broken") == 5 and "the disk is on fire" in cli.err
    assert gated("stopped", "--work", "cut") == 130 and "the same command goes on" in cli.err
    launched = len(launcher.launched)
    launcher.measured["stopped"] = noisy(RUN, "alike")
    assert gated("stopped", "--work", "cut", "--deterministic-only") == 0
    assert launcher.launched[launched:] == ["stopped"]


def test_compare_shows_what_changed(cli: Cli, home: Path) -> None:
    """0 whatever it shows: every figure of both, the change with its interval; as JSON a list, one entry per NEW."""
    varied = two_arms(jitter=0.2)
    base, new = stored(varied, home / "a"), stored(slower(varied, 1.1, "sbd"), home / "b")
    assert cli(f"compare --all {base} {new}") == 0
    lines = {" ".join(line.split()) for line in cli.out.splitlines()}
    assert any(line.startswith("passes SBD") and line.endswith("64 64 same") for line in lines)
    assert any(line.startswith("decode_s_per_token SBD") and "+10.0" in line for line in lines)
    assert any(line.startswith("decode_s_per_token SBD") and line.endswith("unclear") for line in lines)
    assert "): 1 process of BASE, 1 process of NEW" in cli.out and "`processes: 3`" in cli.out
    assert "times, over the same prompts: all processes and prompts gave the same ratio" in cli.out
    first, second = cli.answer(f"compare {base} {new} {base}")
    change = next(one for one in first["changes"] if one["key"].startswith("decode_s_per_token:reference/b1/sbd"))
    assert change["ratio"]["value"] == pytest.approx(1.1) and change["better"] == "lower"
    assert change["outcome"] == "unclear" and "1 process of BASE" in change["reason"] and "processes: 3" in change["remedy"]
    assert all(one["base"] == one["new"] for one in second["changes"])


def test_compare_says_better_or_worse_of_three_processes(cli: Cli, home: Path) -> None:
    """10 % slower in every one of three processes that differ by a few per mille; NTP beside it stays within 2 %."""
    base, new = in_processes(RUN, *LUCK[:3]), slower(in_processes(RUN, *LUCK[3:6]), 1.1, "sbd")
    assert cli(f"compare --all {stored(base, home / 'a')} {stored(new, home / 'b')}") == 0
    lines = [" ".join(line.split()) for line in cli.out.splitlines()]
    assert next(line for line in lines if line.startswith("decode_s_per_token SBD")).endswith("worse")
    assert next(line for line in lines if line.startswith("decode_s_per_token NTP")).endswith("same")
    assert "times, over the same prompts: t on log ratios, 3 processes of BASE beside 3 of NEW" in lines
    assert cli(f"compare {home}/a {home}/b") == 0
    lines = [" ".join(line.split()) for line in cli.out.splitlines()]
    assert not [line for line in lines if line.endswith(" same")]
    assert any(" same; --all shows every figure" in line for line in lines)
    assert "geometric mean of the time per token over 2 arms: 1.05x slower" in lines  # sqrt(1.1 x 1.0)
    assert "the speedup fell because the arm itself became slower" in " ".join(lines)


def test_compare_refuses_unlike_runs(cli: Cli, home: Path) -> None:
    """2; what is allowed is said below the table; dropped prompts are left out on both sides then."""
    base = stored(two_arms(), home / "a")
    new = stored(with_environment(two_arms(prompts=3), cpu_model="Other CPU"), home / "b")
    assert cli(f"compare {base}") == 2
    assert "prompts.reference/word_problems/b1/ntp" in cli.refusal(f"compare {base} {new}")
    assert cli(f"compare --all --allow hardware --allow prompts {base} {new}") == 0
    assert 'allowed to differ: hardware.cpu_model: "Example CPU" in BASE, "Other CPU" in NEW' in cli.out
    passes = next(line for line in cli.out.splitlines() if line.startswith("passes") and "NTP" in line)
    assert passes.split()[-3:] == ["192", "192", "same"]


def test_noise_is_kept_and_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """By machine and work, in the user's data folder; a damaged file is refused by name, not passed over."""
    launcher = PretendedLauncher(base=noisy(RUN, "aa", sd=0.01))
    monkeypatch.setattr(revisions, "launch", launcher)
    assert "no noise floor is kept" in cli.output("noise --show")
    assert cli("noise --gates 4 --pairs 3 --cmd", "measure base {out}") == 0
    text = cli.out
    assert "synthetic on Example CPU" in text and "decode_s_per_token:reference/b1/ntp" in text and "4 gates of 3 pairs" in text
    assert len(launcher.launched) == 24
    assert cli("noise --show") == 0 and cli.out == text
    floors = known_floors(RUN.header)
    assert floors["decode_s_per_token:reference/b1/ntp"].repeats == 4
    assert known_floors(with_environment(RUN, cpu_model="Other CPU").header) == {}
    assert floors_file(RUN.header).is_relative_to(home / "home/sbd")
    assert cli("noise gate --cmd", "{out}") == 2
    assert cli("noise no-such-scenario") == 2
    floors_file(RUN.header).write_text("{}")
    assert cli("noise --show") == 2 and floors_file(RUN.header).name in cli.err


def test_noise_runs_the_shipped_scenario(cli: Cli, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """By default, with this very interpreter, so that it is this revision whose noise is measured."""
    commands: list[str] = []

    def launcher(command: str, stdout: Path, stderr: Path) -> int:
        commands.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr(revisions, "launch", launcher)
    assert cli("noise") == 130
    assert commands[0].startswith(f"{sys.executable} -m harness run ") and "gate.yaml --no-report --out " in commands[0]
    part = load_scenario("gate").parts[0]
    assert part.timed and len(part.arms) == 2 and part.baseline_check == 0 and part.warmup == 1
