"""Two revisions in turn: the order, what is kept and gone on with, how commands fail, and what the gate makes of it.

The commands are pretended; their runs have times that were put in, so what should come out is known.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.analysis.judge.judgement import Judgement, Judgements
from harness.errors import ProcessEndedError, RecordError, UserError
from harness.progress import Progress
from harness.record.schema import Run
from harness.regression.gate.judge import GateOptions, gate_revisions
from harness.regression.gate.noise import NoiseFloor, NoiseWish, measure_noise
from harness.regression.gate.revisions import RevisionCommands, Revisions, default_work
from tests.helpers import ROOT
from tests.helpers.environments import with_environment
from tests.helpers.sealed_lines import reseal
from tests.helpers.synthetic_run import NTP, altered
from tests.helpers.two_runs import MORE_PASSES, PretendedLauncher, at_commit, noisy, stored, two_arms

RUN = two_arms()
SEED = 0
"""Its first four pairs are taken as base new, new base, new base, base new."""
SAME = RevisionCommands(base="measure base {out}", new="measure new {out}")
NOISE = RevisionCommands(base=SAME.base, new=SAME.base)
MORE = two_arms(arms=(NTP, MORE_PASSES))


class Notes(Progress):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        """Remember it."""
        self.said.append(message)


def alike() -> PretendedLauncher:
    """Both revisions leave the same."""
    return PretendedLauncher(base=lambda n: RUN, new=lambda n: RUN)


def revisions(work: Path, launcher: PretendedLauncher | None = None, commands: RevisionCommands = SAME) -> Revisions:
    """Begun, or gone on with; where nothing else is told both revisions leave the same."""
    return Revisions(commands, work, Progress(), launcher or alike(), seed=SEED)


def gate(
    work: Path,
    base: Callable[[int], Run | int],
    new: Callable[[int], Run | int],
    wish: GateOptions | None = None,
    floors: dict[str, NoiseFloor] | None = None,
) -> tuple[Judgements, PretendedLauncher]:
    """The answers, and what was launched for them."""
    launcher = PretendedLauncher(base=base, new=new)
    found = gate_revisions(revisions(work, launcher), wish or GateOptions(), lambda run: floors or {}, Progress())
    return found, launcher


def of(found: Judgements, metric: str, arm: str) -> Judgement:
    """The one answer about it."""
    return next(one for one in found.judgements if one.metric == metric and one.subject.startswith(arm))


def test_the_pairs_are_taken_in_the_drawn_order(tmp_path: Path) -> None:
    """Every pair says which run is which all the same; the seed and each run's place in its pair are kept."""
    launcher = PretendedLauncher(base=lambda n: at_commit(RUN, "a"), new=lambda n: at_commit(RUN, "b"))
    one = revisions(tmp_path / "work", launcher)
    for number in range(1, 5):
        base, new = one.pair("pair", number)
        assert (base.header.environment["commit"], new.header.environment["commit"]) == ("a", "b")
    assert launcher.launched == ["base", "new", "new", "base", "new", "base", "base", "new"]
    assert json.loads((tmp_path / "work/gate.json").read_text())["seed"] == SEED
    places = {side: json.loads((tmp_path / f"work/pair-02/{side}.json").read_text())["place"] for side in ("base", "new")}
    assert places == {"base": 2, "new": 1}


def test_gates_draw_their_own_seed(tmp_path: Path) -> None:
    """So that one rhythm of the machine does not meet every gate of the same commands alike; going on keeps the seed."""
    launcher = alike()
    seeds = {Revisions(SAME, tmp_path / name, Progress(), launcher).order.seed for name in ("a", "b", "a")}
    assert len(seeds) == 2


def test_an_older_folder_goes_on_in_its_own_order(tmp_path: Path) -> None:
    """Before seeds: base first in odd pairs, new first in even ones."""
    given = {"version": 1, "base_cmd": SAME.base, "new_cmd": SAME.new}
    (tmp_path / "gate.json").write_text(json.dumps(given))
    launcher = alike()
    one = revisions(tmp_path, launcher)
    for number in range(1, 5):
        one.pair("pair", number)
    assert launcher.launched == ["base", "new", "new", "base"] * 2
    (tmp_path / "gate.json").write_text(json.dumps(given | {"version": 3}))
    with pytest.raises(RecordError, match="version 3 is not of this program"):
        revisions(tmp_path, launcher)


def test_what_was_finished_is_not_run_again(tmp_path: Path) -> None:
    """Interrupted in the second process of the second pair: gone on there, the cut-off run set aside, not continued."""

    def interrupted(number: int) -> Run:
        if number == 1:
            stored(RUN, tmp_path / "work/pair-02/base")
            raise KeyboardInterrupt
        return RUN

    one = revisions(tmp_path / "work", PretendedLauncher(base=interrupted, new=lambda n: RUN))
    one.pair("pair", 1)
    with pytest.raises(KeyboardInterrupt):
        one.pair("pair", 2)
    again = alike()
    other = revisions(tmp_path / "work", again)
    assert other.missing("pair", range(1, 4)) == ["base", "new", "base"]
    other.pair("pair", 1)
    other.pair("pair", 2)
    assert again.launched == ["base"] and (tmp_path / "work/pair-02/base.interrupted-1/run.json").exists()


def test_a_work_folder_belongs_to_its_commands(tmp_path: Path) -> None:
    """Others are refused, a finished gate too; a damaged file is named."""
    revisions(tmp_path).finish({})
    with pytest.raises(UserError, match="is finished"):
        revisions(tmp_path)
    with pytest.raises(UserError, match="other commands"):
        revisions(tmp_path, commands=RevisionCommands(base="measure x {out}", new="measure new {out}"))
    (tmp_path / "gate.json").write_text("{")
    with pytest.raises(RecordError, match=r"gate\.json"):
        revisions(tmp_path)


def test_two_gates_on_one_folder_exclude_each_other(tmp_path: Path) -> None:
    """The second is told who holds it; what the first kept is open again once it has ended, however it ends."""
    program = (
        "import sys; from pathlib import Path; "
        "from harness.regression.gate.revisions import RevisionCommands, Progress, Revisions; "
        f"Revisions(RevisionCommands(base={SAME.base!r}, new={SAME.new!r}), Path({str(tmp_path)!r}), Progress()); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=f"another gate measures here .process {first.pid} on .*--work"):
            revisions(tmp_path)
        first.kill()
    assert set(revisions(tmp_path).missing("pair", range(1, 2))) == {"base", "new"}


def test_the_default_folder_is_the_unfinished_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the commands; a finished one is left alone."""
    monkeypatch.chdir(tmp_path)
    first = default_work(SAME)
    one = revisions(first)
    assert default_work(SAME) == first
    one.finish({})
    assert default_work(SAME) != first != default_work(RevisionCommands(base="measure a {out}", new="measure b {out}"))


def test_a_revision_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    """Its old pairs are of another program."""

    def launcher(commit: str) -> PretendedLauncher:
        return PretendedLauncher(base=lambda n: at_commit(RUN, "a"), new=lambda n: at_commit(RUN, commit))

    revisions(tmp_path, launcher("b")).pair("pair", 1)
    other = revisions(tmp_path, launcher("c"))
    other.pair("pair", 1)
    with pytest.raises(UserError, match=r"NEW is at commit c, in .*pair-01/new it was at b.*another --work"):
        other.pair("pair", 2)


def test_uncommitted_changes_are_said_when_going_on(tmp_path: Path) -> None:
    """Nobody can tell two states of them apart."""
    launcher = PretendedLauncher(base=lambda n: at_commit(RUN, "a"), new=lambda n: at_commit(RUN, "b", dirty=True))
    revisions(tmp_path, launcher).pair("pair", 1)
    notes = Notes()
    other = Revisions(SAME, tmp_path, notes, launcher, seed=SEED)
    for number in (1, 2, 3):
        other.pair("pair", number)
    assert [line for line in notes.said if "uncommitted" in line] == [
        "NEW has uncommitted changes; they are taken to be those of the kept pairs"
    ]


@pytest.mark.parametrize(("status", "exit_code"), [(1, 5), (5, 5), (-9, 5), (2, 2), (127, 2)])
def test_a_command_that_fails_shows_its_last_words(tmp_path: Path, status: int, exit_code: int) -> None:
    """What the command calls its user's mistake is the user's; the runs before it are kept."""
    launcher = PretendedLauncher(base=lambda n: RUN, new=lambda n: status)
    words = rf"(?s)--new-cmd ended with exit status {status}: measure new .*the disk is on fire.*new\.stderr"
    with pytest.raises(ProcessEndedError, match=words) as ended:
        revisions(tmp_path, launcher).pair("pair", 1)
    assert ended.value.exit_code == exit_code
    again = alike()
    revisions(tmp_path, again).pair("pair", 1)
    assert again.launched == ["new"]


def test_a_command_that_leaves_no_run_is_the_users_mistake(tmp_path: Path) -> None:
    """It ended well, but wrote elsewhere."""
    with pytest.raises(UserError, match=r"left no run in .*pair-01/base; .*--out \{out\}"):
        revisions(tmp_path, PretendedLauncher(base=lambda n: 0, new=lambda n: RUN)).pair("pair", 1)


@pytest.mark.parametrize("number", [1, 2])
def test_the_record_of_the_other_side_is_refused(number: int, tmp_path: Path) -> None:
    """A copy by another name is the same record, of this pair or of an earlier one, whichever side comes first."""
    launcher = alike()

    def hand_back(command: str, stdout: Path, stderr: Path) -> int:
        place = Path(command.split()[-1])
        others = [one for one in (tmp_path / "work/pair-01/base", tmp_path / "work/pair-01/new") if one.exists()]
        source = next((one for one in others if one.name != place.name), None)
        if source is None or place.parent.name != f"pair-0{number}":
            return launcher(command, stdout, stderr)
        shutil.copytree(source, place)
        return 0

    one = Revisions(SAME, tmp_path / "work", Progress(), hand_back, seed=SEED)
    with pytest.raises(UserError, match=r"-cmd handed back the record of (BASE|NEW) in .*pair-01"):
        for pair in (1, 2):
            one.pair("pair", pair)


def test_a_broken_record_is_compared_with_nothing(tmp_path: Path) -> None:
    """A sample was changed behind the run's back, by the command that left it."""

    def left(command: str, stdout: Path, stderr: Path) -> int:
        out = stored(RUN, Path(command.split()[-1]))
        reseal(out)
        samples = out / "samples.jsonl"
        samples.write_text(samples.read_text().replace('"decode_s":', '"decode_s":1', 1))
        return 0

    with pytest.raises(UserError, match=r"-cmd left a record in .* whose seal is broken .*measure again"):
        Revisions(SAME, tmp_path, Progress(), left, seed=SEED).pair("pair", 1)


def test_words_without_end_are_cut(tmp_path: Path) -> None:
    """A megabyte in one line that is no text."""

    def speak(command: str, stdout: Path, stderr: Path) -> int:
        stderr.write_bytes(b"\xff\0\x1b" * 350_000 + b"the disk is on fire")
        return 1

    with pytest.raises(ProcessEndedError, match=r"(?s)exit status 1.*the disk is on fire") as ended:
        Revisions(SAME, tmp_path, Progress(), speak, seed=SEED).pair("pair", 1)
    assert len(str(ended.value)) < 20_000


def test_a_and_a_pass(tmp_path: Path) -> None:
    """Every process has its own luck of 0.3 %: timed metrics pass on ten pairs at most, counts on one; the answer is kept."""
    found, launcher = gate(tmp_path, noisy(RUN, "base"), noisy(RUN, "new"))
    assert found.exit_code() == 0 and {one.kind for one in found.judgements} == {"timed", "deterministic"}
    assert len(launcher.launched) <= 24 and not list(tmp_path.glob("rerun-*"))
    kept = json.loads((tmp_path / "judgements.json").read_text())
    assert kept["state"] == "met" and len(kept["judgements"]) == len(found.judgements)


def test_a_slower_arm_fails_by_name_after_a_re_run(tmp_path: Path) -> None:
    """10 % slower SBD: its time and its speedup regressed, NTP's time did not; the pairs of the re-run are there."""
    found, _ = gate(tmp_path, noisy(RUN, "base"), noisy(RUN, "new", factor=1.1, method="sbd"))
    assert found.exit_code() == 1 and list(tmp_path.glob("rerun-10/base"))
    assert of(found, "decode_s_per_token", "SBD").word == of(found, "wall_speedup", "SBD").word == "regressed"
    assert of(found, "decode_s_per_token", "NTP").word == "passed"
    assert of(found, "decode_s_per_token", "SBD").value.value == pytest.approx(1.1, rel=0.01)


def test_a_count_that_differs_in_the_third_pair_alone_fails(tmp_path: Path) -> None:
    """There and at once, by name; the pairs before it had the same counts."""
    found, launcher = gate(tmp_path, lambda n: RUN, lambda n: MORE if n == 2 else RUN)
    assert found.exit_code() == 1 and len(launcher.launched) == 6
    assert of(found, "passes", "SBD").word == "changed" and of(found, "passes", "SBD").sizes == {"runs": 6}
    assert of(found, "passes", "SBD").reason == "in pair 3: changed from 64 to 128 passes (+100.000%)"
    assert of(found, "passes", "NTP").reason == "in pair 1: the same: 256 passes; as good in all 3 pairs"


def test_a_base_that_counts_otherwise_itself_is_void(tmp_path: Path) -> None:
    """Nobody can tell NEW's passes from one of its own two."""
    found, _ = gate(tmp_path, lambda n: MORE if n == 3 else RUN, lambda n: MORE if n == 3 else RUN)
    assert found.exit_code() == 4
    assert "BASE itself is not the same in every process: 64 in pair 1, 128 in pair 4" in of(found, "passes", "SBD").reason


def test_memory_is_judged_by_its_median_over_the_pairs(tmp_path: Path) -> None:
    """One process in eight that peaks 50 % higher is no regression; all of them are."""

    def peaking(peak: float) -> Run:
        return altered(RUN, lambda sample: {"meters": {"peak_memory_bytes": peak}})

    found, _ = gate(tmp_path / "one", lambda n: peaking(100.0), lambda n: peaking(150.0 if n == 3 else 100.0))
    assert found.exit_code() == 0 and of(found, "peak_memory_bytes", "SBD").value.value == 100
    found, _ = gate(tmp_path / "all", lambda n: peaking(100.0), lambda n: peaking(150.0))
    assert found.exit_code() == 1 and of(found, "peak_memory_bytes", "SBD").base == 100


def test_pairs_from_elsewhere_are_refused(tmp_path: Path) -> None:
    """A gate gone on with on another machine."""

    elsewhere = with_environment(RUN, cpu_model="Other CPU")
    with pytest.raises(UserError, match=r"(?s)NEW of pair 2.*hardware.cpu_model"):
        gate(tmp_path, lambda n: RUN, lambda n: elsewhere if n else RUN)


def test_a_pair_without_times_is_taken_again(tmp_path: Path) -> None:
    """Once or twice, in its own place and order; a machine that never gives a time ends void, not passed."""

    def void(number: int) -> Run:
        return altered(RUN, lambda sample: {"meters": {"compiled_graphs": 1.0}})

    base, new = noisy(RUN, "base"), noisy(RUN, "new")
    found, launcher = gate(tmp_path / "once", base, lambda n: void(n) if n == 2 else new(n))
    pairs = of(found, "wall_speedup", "SBD").sizes["pairs"]
    assert found.exit_code() == 0 and len(launcher.launched) == 2 * pairs + 2
    order = [side for number in (1, 2, 3, 3, 4) for side in (("base", "new") if number in (1, 4) else ("new", "base"))]
    assert launcher.launched[:10] == order and (tmp_path / "once/void-pair-03-1/new/run.json").exists()
    found, _ = gate(tmp_path / "always", base, void)
    assert found.exit_code() == 4 and of(found, "wall_speedup", "SBD").word == "void"
    assert {path.name for path in (tmp_path / "always").glob("void-*")} == {f"void-pair-01-{n}" for n in (1, 2, 3)}


def test_going_on_gives_the_same_answer(tmp_path: Path) -> None:
    """A gate stopped in its fifth process and gone on with asks for no pair twice."""

    def stopped(number: int) -> Run:
        if number == 2:
            raise KeyboardInterrupt
        return noisy(RUN, "new")(number)

    whole, uncut = gate(tmp_path / "whole", noisy(RUN, "base"), noisy(RUN, "new"))
    with pytest.raises(KeyboardInterrupt):
        gate(tmp_path / "cut", noisy(RUN, "base"), stopped)
    later, rest = gate(tmp_path / "cut", lambda n: noisy(RUN, "base")(n + 2), lambda n: noisy(RUN, "new")(n + 2))
    assert later.judgements == whole.judgements
    assert len(rest.launched) == len(uncut.launched) - 4


def test_noise_of_gates_measured_one_by_one(tmp_path: Path) -> None:
    """The floor is about 2.6 standard errors of a gate's mean of log ratios: sd 1 % per process, 4 pairs, so 0.7 %."""
    launcher = PretendedLauncher(base=noisy(RUN, "aa", sd=0.01))
    like, floors = measure_noise(revisions(tmp_path, launcher, NOISE), NoiseWish(gates=20, pairs=4), Progress())
    assert like.header.scenario_digest == RUN.header.scenario_digest and len(launcher.launched) == 20 * 4 * 2
    by_key = {floor.metric: floor for floor in floors}
    floor = by_key["decode_s_per_token:reference/b1/ntp"]
    standard_error = 0.01 * 2**0.5 / 4**0.5
    assert 1.5 * standard_error < floor.ratio < 5 * standard_error
    assert (floor.repeats, floor.pairs) == (20, 4)
    speedup = by_key["wall_speedup:reference/b1/sbd-k16-g0.1-t0-entropy_bounded"]
    assert speedup.ratio == pytest.approx(0, abs=1e-12)  # a process slow as a whole is as fast by NTP's measure


def test_noise_from_a_pool_says_so(tmp_path: Path) -> None:
    """As many pairs as asked for, the same order of floor, and a method that names what it cannot see."""
    launcher = PretendedLauncher(base=noisy(RUN, "aa", sd=0.01))
    _, floors = measure_noise(revisions(tmp_path, launcher, NOISE), NoiseWish(pairs=4, pool=20), Progress())
    assert len(launcher.launched) == 40
    floor = next(floor for floor in floors if floor.metric == "decode_s_per_token:reference/b1/ntp")
    assert 0.01 < floor.ratio < 0.03 and "pool of 20 measured pairs, drift" in floor.method
    with pytest.raises(UserError, match=r"--pool 7.*at least 8"):
        NoiseWish(pairs=4, pool=7)
