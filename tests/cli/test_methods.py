"""`sbd roofline --methods`: every system in one table, every row with its mark, nothing absent shown as a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.methods import METHODS_VERSION
from harness.roofline.methods.systems import known_systems
from tests.helpers.command import Cli


def test_the_table_has_every_system_with_its_mark(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """NTP at 1.00x; a priced row says so; one over an assumed range is marked, its figures and their reasons are below."""
    monkeypatch.setenv("COLUMNS", "400")
    out = cli.output("roofline --methods --hardware a100-80-sxm --batch 2 --context 300")
    assert out.startswith("llama-3.1-8b bfloat16 on a100-80-sxm (datasheet), batch 2, context 300: priced, not run")
    lines = out.splitlines()
    for system in known_systems():
        (line,) = [line for line in lines if line.startswith(f"{system.name}  ")]
        assert system.reference in line
        if system.missing:
            assert line.endswith("not published") and "?" not in line and ".." in line
            assert f"  {system.name}:" in lines and all(f"({one.why})" in out for one in system.assumed.values())
        else:
            assert line.endswith("priced, not run") and "?" not in line
        if system.speedup.value is not None:
            assert f"{system.speedup.value:g}x over {system.speedup.over}" in line
            assert (system.speedup.hardware or "hardware not stated") in line
    (ntp,) = [line for line in lines if line.startswith("NTP  ")]
    assert ntp.split()[1:5] == ["1.000", "1.0", ntp.split()[3], "1.00x"]


def test_the_json_has_every_call_and_source(cli: Cli) -> None:
    """Version, setting, and per system its figures with sources, its calls, and a price that its row in the table shows."""
    found = cli.answer("roofline --methods --model qwen3-8b")
    assert (found["version"], found["model"], found["hardware"], found["batch"]) == (METHODS_VERSION, "qwen3-8b", "h100-sxm", 1)
    methods = {method["name"]: method for method in found["methods"]}
    for name, method in methods.items():
        assert method["mark"] == ("not published" if method["missing"] else "priced, not run"), name
        assert (method["price"] is None) == (method["range"] is not None), name
    jakiro = methods["Jakiro"]
    assert jakiro["figures"]["tokens_per_pass"]["source"].startswith("haiduo/Jakiro")
    assert [call["model"] for call in jakiro["trace"]["calls"]] == ["target", "drafter"]
    ntp = methods["NTP"]["price"]
    assert jakiro["price"]["wall_speedup"] == pytest.approx(
        ntp["expected_s_per_token"] / jakiro["price"]["expected_s_per_token"]
    )
    assert jakiro["price"]["wall_speedup_low"] <= jakiro["price"]["wall_speedup"] <= jakiro["price"]["wall_speedup_high"]
    assert methods["HSD"]["price"] is None and methods["HSD"]["trace"] is None and len(methods["HSD"]["missing"]) == 6


def test_a_band_says_where_it_beats_sbd(cli: Cli) -> None:
    """At the figures where the band begins to pay the system costs what SBD costs; the ends of the row are its own prices."""
    methods = {method["name"]: method for method in cli.answer("roofline --methods --context 1000")["methods"]}
    tree, to_beat = methods["Hidden Transfer"], methods["SBD, low gamma"]["price"]["expected_s_per_token"]
    over = tree["range"]
    (where,) = over["faster_where"]
    # A pass costs the same whatever is accepted, so a token costs the pass divided by the tokens.
    tokens = over["slowest"]["expected_s_per_token"] / to_beat
    assert over["faster_than"] == "SBD, low gamma" and where["from"]["tokens_per_pass"] == pytest.approx(tokens, rel=1e-4)
    assert where["to"]["tokens_per_pass"] == 4.34
    assert over["slowest"]["expected_s_per_token"] == pytest.approx(4.34 * over["fastest"]["expected_s_per_token"])
    assert methods["CALM (early exit)"]["range"]["faster_where"] == []
    assert cli("roofline --methods --context 1000") == 0
    out = " ".join(cli.out.split())
    assert f"faster than SBD, low gamma: from tokens_per_pass {tokens:.3g} on" in out
    assert "faster than SBD, low gamma: nowhere in this range" in out and "in the whole range" in out


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        ("{value: null, source: nobody counted them}", "  mine: tokens_per_pass: nobody counted them"),
        ("{value: 2, grade: R, source: my run}", ""),
    ],
)
def test_a_list_of_ones_own_is_priced_where_every_figure_is_known(cli: Cli, tmp_path: Path, figure: str, told: str) -> None:
    """A figure without a range leaves the row without a number, and its reason stands below."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        "systems:\n  - {name: mine, reference: me, lossless: yes it is, recipe: chunks, figures: {tokens_per_pass: "
        f"{figure}}}, speedup: {{value: null, over: NTP, source: not timed}}}}\n",
        encoding="utf-8",
    )
    out = cli.output(f"roofline --methods --systems {file}")
    (line,) = [line for line in out.splitlines() if line.startswith("mine  ")]
    assert (line.split()[1:5] == ["?"] * 4) == line.endswith("not priced") == bool(told) and told in out
