"""Exact bytes of a pass: the command line against Nsight Compute's documented options, its CSV, and the passes without it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import graph_bytes
from benchmarks.graph_bytes import (
    DURATION,
    READ,
    WRITTEN,
    Counted,
    NotCounted,
    PassBytes,
    ProfiledGraphs,
    beside,
    counted_by_ncu,
    ncu_command,
    read_ncu,
    table,
)
from harness.check.grid import TINY
from harness.models import ModelShape
from harness.roofline.operation import describe_pass
from tests.helpers.emulated_gpu import FakeCuda
from tests.helpers.pass_bytes import pass_bytes

DOCUMENTED = json.loads((Path(__file__).parent.parent / "data" / "ncu_options.json").read_text())["options"]
PAGE = f"""==PROF== Connected to process 7 (/usr/bin/python3.12)
==PROF== Profiling "Graph": 0%....50%....100% - 1 pass
a table
==PROF== Disconnected from process 7
"ID","Process ID","Kernel Name","{WRITTEN}","{READ}","{DURATION}"
"","","","byte","byte","ns"
"0","7","a graph, whole","40,960","15,088,000,000","5,500,000.5"
"1","7","a graph, whole","81920","15260000000","6000000"
"""
SAYS_SO = '"ID"\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters'
# Takes what ncu takes, runs the program unless it fails itself, and writes its page where the program ended well.
STAND_IN = """#!{python}
import pathlib, subprocess, sys
words = sys.argv[1:]
log, program = words[words.index("--log-file") + 1], words.index({python!r})
code = {code} or subprocess.run(words[program:], cwd={root!r}).returncode
if code in (0, {code}):
    pathlib.Path(log).write_text({page!r})
print("==ERROR== of its own", file=sys.stderr)
sys.exit(code)
"""


def test_the_command_line_is_one_that_nsight_compute_documents():
    """Every option and its value, up to the program; the figures that are read are those that are asked for."""
    command = ncu_command("ncu", Path("x.csv"), ("--device", "cuda"))
    program = command.index(sys.executable)
    words, asked = iter(command[1:program]), {}
    for option in words:
        allowed = DOCUMENTED[option]
        asked[option] = None if allowed == [] else next(words)
        assert not allowed or asked[option] in allowed, option
    assert command[program:] == [sys.executable, "-m", "benchmarks.graph_bytes", "--profiled", "--device", "cuda"]
    assert asked["--metrics"].split(",") == [READ, WRITTEN, DURATION]
    assert (asked["--clock-control"], asked["--graph-profiling"], asked["--profile-from-start"]) == ("none", "graph", "off")


def test_the_raw_page_is_read_by_name_and_unit():
    """Among ncu's own lines, in any order of columns, in base units or scaled ones, with an older release's words."""
    first = Counted(read_bytes=15.088e9, written_bytes=40960.0, seconds=pytest.approx(5.5000005e-3))
    assert read_ncu(PAGE) == [first, Counted(read_bytes=15.26e9, written_bytes=81920.0, seconds=pytest.approx(6e-3))]
    scaled = PAGE.replace('"byte","byte","ns"', '"Kbyte","Gbyte","msecond"').replace("15,088,000,000", "15.088")
    assert read_ncu(scaled)[0].read_bytes == pytest.approx(15.088e9)
    assert read_ncu(scaled)[0].written_bytes == pytest.approx(40.96e6) and read_ncu(scaled)[1].seconds == pytest.approx(6e3)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("", "ncu wrote no table"),
        (SAYS_SO.partition("\n")[2], "ERR_NVGPUCTRPERM"),
        ("==WARNING== No kernels were profiled.", "No kernels were profiled"),
        (PAGE.replace(READ, "dram__bytes.sum"), f"None None for {READ}"),
        (PAGE.replace('"ns"', '"cycle"'), "'5,500,000.5' 'cycle' for gpu__time_duration.sum"),
        (PAGE.replace("81920", "n/a"), "'n/a' 'byte' for dram__bytes_write.sum"),
    ],
)
def test_what_ncu_does_not_say_is_not_made_up(page, words):
    """No table, no permission, another metric, another unit, no number: a reason, in its words."""
    with pytest.raises(NotCounted, match=words):
        read_ncu(page)


def test_the_passes_run_without_ncu_and_are_modelled(capsys, monkeypatch, tmp_path):
    """One, 16 and 16 + 16 tokens behind 512, by the model that prices passes; a reason says why a CPU counts nothing."""
    monkeypatch.setattr(sys, "argv", ["graph_bytes", "--device", "cpu", "--out", str(tmp_path)])
    graph_bytes.main()
    held = json.loads((tmp_path / "graph_bytes.json").read_text())["passes"]
    shape = ModelShape(architecture="llama", tied_embeddings=False, **TINY)
    described = [
        describe_pass("decide", 1, 1, 512, logits=1, kept=1),
        describe_pass("decide", 1, 16, 512, logits=16),
        describe_pass("commit+decide", 1, 32, 512, logits=16, kept=16),
    ]
    assert [one["tokens"] for one in held] == ["1", "16", "16 + 16"]
    assert [one["modelled_bytes"] for one in held] == [pass_bytes(shape, "bfloat16", one) for one in described]
    assert all(one["replay_s"] > 0 and one["counted"] is None for one in held)
    out = capsys.readouterr().out
    assert out.count("| - | - | - |") >= 3 and "not counted: ncu counts on a GPU" in out


def stand_in(folder, page, code=0):
    """An ncu that writes this page and ends with this code."""
    program = folder / "ncu"
    root = str(Path(graph_bytes.__file__).parent.parent)
    program.write_text(STAND_IN.format(python=sys.executable, root=root, page=page, code=code))
    program.chmod(0o755)
    return str(program)


def test_ncu_runs_the_passes_and_its_counts_stand_beside_them(tmp_path):
    """A stand-in takes the options and runs the program; three workloads are three passes, and the ratio is by hand."""
    page = PAGE + '"2","7","a graph, whole","0","15441000000","6000000"\n'
    counted = counted_by_ncu(stand_in(tmp_path, page), tmp_path, ("--device", "cpu"), passes=3)
    assert [one.read_bytes for one in counted] == [15.088e9, 15.26e9, 15.441e9]
    held = [PassBytes(tokens=name, modelled_bytes=15.2e9, replay_s=0.006) for name in ("1", "16", "16 + 16")]
    found = beside(held, lambda: counted)
    assert found[2].over_modelled == pytest.approx(15.441 / 15.2) and found[0].reason is None
    assert "| 1 | 15.2000 | 15.0880 | 0.0000 | 0.993 | 6.000 | 5.500 |" in table(found)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (PAGE, "ncu saw 2 workloads and not the 3 graphs"),
        (SAYS_SO.partition("\n")[2], r"ERR_NVGPUCTRPERM .*, exit code 2"),
        ("", "ncu wrote no table, exit code 2: ==ERROR== of its own"),
        (None, "there is no /nowhere/ncu on the PATH and in /usr/local/cuda/bin"),
    ],
)
def test_an_ncu_that_fails_costs_its_figures_alone(tmp_path, page, words):
    """Passes and times stay, with the reason."""
    ncu = "/nowhere/ncu" if page is None else stand_in(tmp_path, page, code=2)
    held = [PassBytes(tokens="1", modelled_bytes=1.0, replay_s=1.0)]
    [found] = beside(held, lambda: counted_by_ncu(ncu, tmp_path, ("--device", "cpu"), passes=3))
    assert found.counted is None and found.over_modelled is None
    with pytest.raises(NotCounted, match=words):
        raise NotCounted(found.reason)
    assert replace(found, reason=None) == held[0] and f"not counted: {found.reason}" in table([found])


def test_a_profiler_sees_replays_and_nothing_else(monkeypatch):
    """Captures, uploads and the replays before lie outside its range."""
    cuda = FakeCuda()
    say = cuda.log.append
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: say("synchronise"))
    monkeypatch.setattr(torch.cuda, "profiler", SimpleNamespace(start=lambda: say("start"), stop=lambda: say("stop")))
    graphs = ProfiledGraphs(cuda, cuda.clear_workspaces)
    replay = graphs(lambda: torch.ones(1))
    replay()
    assert "start" not in cuda.log
    cuda.log.clear()
    graphs.profiling = True
    replay()
    assert cuda.log == ["synchronise", "start", "replay", "synchronise", "stop"]
