"""`sbd roofline --paper --explain`: both chains on the terminal and as JSON, and what is refused."""

from __future__ import annotations

import json

import pytest

from harness.cli.paper import BAR_WIDTH, ratio_bar
from harness.roofline.paper import published_slowdowns, published_speedups
from tests.helpers.command import Cli

EXPLAIN = "roofline --paper --explain"


def test_without_options_one_cell_of_each_table_is_explained(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both tables within 100 columns: published, every step numbered, ours; each number has its reason below, once."""
    monkeypatch.setenv("COLUMNS", "100")
    out = cli.output(EXPLAIN)
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "Table 3, time(k) / time(1): batch 1, KV length 65,536, k=64" in out and "llama-3.1-8b, bfloat16, on h100-sxm" in out
    told = "Table 4, wall speedup: batch 1, KV length 65,536, k=64, NFE speedup 4 (slowest row: 16.00 passes)"
    assert told in " ".join(out.split())
    found = cli.answer(EXPLAIN)
    for name in ("table3", "table4"):
        chain = found[name]
        block = lines[next(n for n, line in enumerate(lines) if line.startswith(f"Table {name[-1]}")) :]
        rows = [line.split() for line in block[5 : 5 + len(chain["steps"]) + 2]]
        assert rows[0][:2] == ["published", f"{chain['published']:.3f}"]
        assert rows[-1][:3] == ["ours", f"{chain['ours']:.3f}", f"x{chain['ours'] / chain['published']:.3f}"]
        for number, (step, row) in enumerate(zip(chain["steps"], rows[1:-1], strict=True), 1):
            shown = "?" if step["after"] is None else f"{step['after']:.3f}"
            assert row[0] == str(number) and shown in row and " ".join(row[1:]).startswith(step["name"])
    for number, step in enumerate(found["table3"]["steps"], 1):
        assert out.count(f"{number:>2}  {step['name']} ({step['kind']}): ") == 1
    assert "not priced: a datasheet knows no launch cost" in " ".join(out.split())


def test_the_cell_is_the_one_asked_for(cli: Cli) -> None:
    """Published figures are those of the cell; ours is what `sbd roofline --model` says of the same, dtype included."""
    cell = "--batch 8 --context 4096 --block-size 16 --nfe-speedup 2 --dtype float8"
    found = cli.answer(f"{EXPLAIN} {cell}")
    assert (found["version"], found["dtype"], found["rung"], found["table4_reason"]) == (1, "float8", "datasheet", None)
    assert found["table3"]["cell"] == {"batch_size": 8, "kv_length": 4096, "block_size": 16}
    assert found["table3"]["published"] == published_slowdowns()[8, 4096, 16]
    assert found["table4"]["published"] == published_speedups()[8, 4096, 16, 2]
    what = "roofline --model llama-3.1-8b --hardware h100-sxm --rung datasheet --json"
    assert cli(f"{what} {cell} --batching lockstep") == 0
    what_if = json.loads(cli.out)
    assert found["table4"]["ours"] == what_if["wall_speedup"]
    assert found["table4"]["passes_per_block"] == what_if["passes_per_block"]
    assert found["table3"]["ours"] == what_if["later_pass"]["expected_s"] / what_if["ntp_pass"]["expected_s"]


def test_a_cell_of_table_3_alone_says_why_there_is_no_other(cli: Cli) -> None:
    """Table 4 ends at batch 8; the NFE speedup asked for by name is a mistake there."""
    found = cli.answer(f"{EXPLAIN} --batch 16")
    assert found["table3"]["published"] == published_slowdowns()[16, 65536, 64]
    assert found["table4"] is None and "it has: batch size 1, 4, 8;" in found["table4_reason"]
    assert cli(f"{EXPLAIN} --batch 16") == 0
    assert found["table4_reason"] in cli.out
    assert cli(f"{EXPLAIN} --batch 16 --nfe-speedup 2") == 2


def test_equal_factors_are_equally_long() -> None:
    """On a scale from 1 to 16 a doubling is a quarter of the width wherever it stands; no change is a tick inside the bar."""
    for before in (1.0, 2.0, 4.0, 8.0):
        up, down = ratio_bar(before, 2 * before, (1.0, 16.0)), ratio_bar(2 * before, before, (1.0, 16.0))
        assert up.end - up.begin == pytest.approx(0.25) and (down.begin, down.end) == (up.begin, up.end)
    for at, scale in ((1.0, (1.0, 16.0)), (16.0, (1.0, 16.0)), (1.0, (1.0, 1.0))):
        tick = ratio_bar(at, at, scale)
        assert 0 <= tick.begin < tick.end <= 1 and tick.end - tick.begin == pytest.approx(1 / (8 * BAR_WIDTH))
