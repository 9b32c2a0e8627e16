"""`sbd hardware`: the list fits a terminal and is right, and no figure is shown without its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.hardware import figures_of, with_date
from harness.hardware.profile import HardwareProfile, known_profiles
from harness.paths import data_dir
from tests.helpers.command import Cli


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal so wide that no source is folded."""
    monkeypatch.setenv("COLUMNS", "1000")


def test_the_list_has_one_line_a_device(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device once, sorted, within 100 columns; ridge worked by hand, the weaker grade, and ? for what is not known."""
    monkeypatch.setenv("COLUMNS", "100")
    lines = cli.output("hardware").splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[1 : 1 + len(known_profiles())]}
    assert list(rows) == sorted(known_profiles())
    assert max(map(len, lines[: 1 + len(rows)])) <= 100
    assert rows["a100-80-sxm"] == ["80", "2,039", "312", "153", "1.79", "V"]  # 312e12 / 2039e9 = 153.0
    assert rows["b200-sxm"] == ["180", "7,700*", "2,250", "292", "6.69", "V"]  # two sources on the bandwidth
    assert rows["rtx-6000-ada"][-1] == "U"  # bandwidth S, peak U
    assert rows["m4"] == ["?", "120", "?", "?", "?", "S"]
    assert rows["cpu-amx"] == ["?"] * 6


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("name", sorted(known_profiles()))
def test_every_figure_is_shown_with_its_source(cli: Cli, name: str) -> None:
    """Each figure's line has its source or reason, each other source a line of its own; nothing of the file is left out."""
    out = cli.output(f"hardware {name}")
    profile = known_profiles()[name]
    figures = [figure for _, _, _, figure in figures_of(profile)]
    lines = out.splitlines()
    for label, _, _, figure in figures_of(profile):
        (line,) = [line for line in lines if line.startswith(f"{label} ")]
        assert line.endswith(with_date(figure.source, figure.date)) and (figure.value is None) == (" ? " in line)
    others = [other for figure in figures for other in figure.also]
    assert sum(line.startswith("  also ") for line in lines) == len(others)
    text = (data_dir("hardware_profiles") / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.count("{value:") == len(figures) + len(others)
    assert profile.notes is None or profile.notes in out


@pytest.mark.usefixtures("wide")
def test_values_are_shown_as_published(cli: Cli) -> None:
    """In the units of a datasheet, with those of other sources below; a measured rate is called measured."""
    assert cli("hardware h200-sxm") == 0
    words = [line.split() for line in cli.out.splitlines()]
    starts = [line[:5] for line in words]
    assert ["peak", "bfloat16", "989.4", "TFLOP/s", "V"] in starts
    cache = starts.index(["cache", "60", "MB", "V", "PyTorch"])
    assert words[cache + 1][:4] == ["also", "50", "MB", "V"]
    assert ["seen", "by", "driver", "143,771", "MiB"] in starts
    assert ["measured", "copy", "4,300", "GB/s", "S"] in starts
    assert ["ridge", "bfloat16", "206", "FLOP/byte", "derived:"] in starts


def test_json_holds_the_whole_profile(cli: Cli) -> None:
    """The list or one device in the same form; less the derived ridge it is the profile again."""
    every = cli.answer("hardware")
    assert every["version"] == 1 and list(every["hardware"]) == sorted(known_profiles())
    for name, found in every["hardware"].items():
        ridge = found.pop("ridge_flops_per_byte")
        assert HardwareProfile.model_validate(found) == known_profiles()[name]
        peak, bandwidth = found["peak_flops_per_s"]["bfloat16"]["value"], found["bandwidth_bytes_per_s"]["value"]
        assert ridge == pytest.approx(peak / bandwidth) if peak and bandwidth else ridge is None
    assert list(cli.answer("hardware l4")["hardware"]) == ["l4"]


def test_a_file_of_ones_own_is_shown_and_an_unknown_name_is_a_message(cli: Cli, tmp_path: Path) -> None:
    """A path stands for a name; a mistake leaves stdout empty and ends with exit code 2."""
    own = tmp_path / "own.yaml"
    own.write_text((data_dir("hardware_profiles") / "l4.yaml").read_text(encoding="utf-8").replace("name: l4", "name: mine"))
    assert cli(f"hardware {own}") == 0 and cli.out.startswith("mine (gpu)")
    own.write_text(own.read_text().replace("value: 300e+9", "value: 300"))
    for mistake, message in ((str(own), "bandwidth_bytes_per_s: got 300 bytes/s"), ("h100", "did you mean h100-nvl")):
        assert cli("hardware", mistake) == 2
        out, err = cli.out, cli.err
        assert out == "" and message in err and "Traceback" not in err
