"""Fourteen ways to make a record say what was not measured: each changes the files of a run directory and nothing else.

``TAMPERINGS`` maps a name to the change. The seal stays as it was; ``tests.helpers.sealed_lines.reseal`` makes it anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from harness.record.journal import packed, whole_lines
from harness.record.passes import read_passes
from harness.record.store import HEADER, SAMPLES

Samples = list[dict[str, Any]]


def _times(sample: dict[str, Any], factor: float) -> None:
    if sample["decode_s"] is not None:
        sample["decode_s"] *= factor


def _faster(samples: Samples) -> None:
    for one in _of(samples, "sbd"):
        _times(one, 0.5)


def _faster_throughout(samples: Samples) -> None:
    """Every time of the decode with it: those of its passes, and its end."""
    for one in _of(samples, "sbd"):
        if one["decode_s"] is None:
            continue
        passes = read_passes(one["passes"]).spelt()
        halved = {name: [0.5 * s for s in times] for name in ("forward_s", "sampler_s") if (times := getattr(passes, name))}
        one["passes"] = read_passes(passes.model_copy(update=halved)).stored()
        if one["ended_at"] is not None:
            saved = timedelta(seconds=0.5 * one["decode_s"])
            one["ended_at"] = (datetime.fromisoformat(one["ended_at"]) - saved).isoformat(timespec="milliseconds")
        _times(one, 0.5)


def _slower_baseline(samples: Samples) -> None:
    for one in _of(samples, "/ntp"):
        _times(one, 2.0)


def _more_tokens(samples: Samples) -> None:
    for one in _of(samples, "sbd"):
        for row in one["rows"]:
            row["output_tokens"] *= 2


def _all_right(samples: Samples) -> None:
    for one in _of(samples, "sbd"):
        for row in one["rows"]:
            row["correct"] = True if row["correct"] is not None else None


def _others_outputs(samples: Samples) -> None:
    """SBD wrote what NTP wrote, with its length."""
    written = {(*_place(one), one["case_id"].split("/")[1]): one["rows"] for one in _of(samples, "/ntp")}
    for one in _of(samples, "sbd"):
        rows = written.get((*_place(one), one["case_id"].split("/")[1]))
        if rows is not None:
            one["rows"] = rows


def _doubled(samples: Samples) -> None:
    found = [json.loads(json.dumps(one)) for one in _of(samples, "sbd") if not one["warmup"]]
    for one in found:
        _times(one, 0.5)
    samples += found


def _copied_process(samples: Samples) -> None:
    first = [one for one in samples if one["process"] == 0]
    processes = {one["process"] for one in samples}
    samples[:] = first + [one | {"process": process} for process in sorted(processes - {0}) for one in first]


def _slowest_dropped(samples: Samples) -> None:
    timed = [one for one in _of(samples, "sbd") if one["decode_s"] is not None and not one["warmup"]]
    slow = sorted(timed, key=lambda one: -one["decode_s"])[: len(timed) // 4]
    samples[:] = [one for one in samples if one not in slow]


def _fewer_passes(samples: Samples) -> None:
    for one in _of(samples, "sbd"):
        passes = read_passes(one["passes"]).spelt()
        columns = {name: values[:-1] for name, values in passes if isinstance(values, list)}
        one["passes"] = read_passes(passes.model_copy(update=columns)).stored()


def _swapped(samples: Samples) -> None:
    """The slow arm's decodes under the fast arm's name, and the other way round."""
    arms = {kind: next(iter(_of(samples, kind)))["case_id"].rpartition("/")[2] for kind in ("/ntp", "sbd")}
    other = {arms["/ntp"]: arms["sbd"], arms["sbd"]: arms["/ntp"]}
    for one in _of(samples, ""):
        cell, _, arm = one["case_id"].rpartition("/")
        one["case_id"] = f"{cell}/{other.get(arm, arm)}"


def _cut(samples: Samples) -> None:
    del samples[-len(samples) // 4 :]


def _of(samples: Samples, kind: str) -> Iterable[dict[str, Any]]:
    """The samples of arms of this kind in the part that decodes for real."""
    real = samples[0]["case_id"].partition("/")[0]
    return (one for one in samples if one["case_id"].startswith(f"{real}/") and kind in one["case_id"])


def _place(one: dict[str, Any]) -> tuple[Any, ...]:
    return one["group"], one["repeat"], one["warmup"], one["process"]


def _claims(header: dict[str, Any]) -> None:
    header["scenario"]["claims"] = [{"metric": "wall_speedup", "min": 0.1}]


def _machine(header: dict[str, Any]) -> None:
    header["environment"]["cpu_model"] = "Another Processor 9000"


def _in_samples(change: Callable[[Samples], None]) -> Callable[[Path], None]:
    def tamper(directory: Path) -> None:
        samples = [json.loads(line) for line in whole_lines(directory / SAMPLES)]
        change(samples)
        packed(directory / SAMPLES).unlink(missing_ok=True)
        (directory / SAMPLES).write_text("".join(f"{json.dumps(one, separators=(',', ':'))}\n" for one in samples))

    return tamper


def _in_header(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def tamper(directory: Path) -> None:
        header = json.loads((directory / HEADER).read_text())
        change(header)
        (directory / HEADER).write_text(json.dumps(header, indent=1))

    return tamper


TAMPERINGS: dict[str, Callable[[Path], None]] = {
    "decode_s halved": _in_samples(_faster),
    "all times halved": _in_samples(_faster_throughout),
    "baseline slower": _in_samples(_slower_baseline),
    "output_tokens doubled": _in_samples(_more_tokens),
    "answers made right": _in_samples(_all_right),
    "outputs replaced by NTP's": _in_samples(_others_outputs),
    "faster duplicates appended": _in_samples(_doubled),
    "one process copied": _in_samples(_copied_process),
    "slowest samples dropped": _in_samples(_slowest_dropped),
    "last passes removed": _in_samples(_fewer_passes),
    "arms swapped": _in_samples(_swapped),
    "last samples cut": _in_samples(_cut),
    "claims loosened": _in_header(_claims),
    "another machine named": _in_header(_machine),
}
