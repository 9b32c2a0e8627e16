"""`sbd doctor`: what this machine can measure, what it cannot, why, and the remedy; with --model, a scenario for a checkpoint.

Beside its meters it shows the memory counter's scale, our own kernels, those of attention, and the machine's fingerprint. The
scenario has what is known of the checkpoint as comments.
"""

from __future__ import annotations

import importlib.util
import textwrap
import time
from pathlib import Path
from typing import Any

from harness.cli.calibrate import need_torch, seen_device
from harness.cli.output import Amount, AsJson, by_reason, give, json_text, lines_of, show
from harness.errors import MissingExtraError, UserError
from harness.formatting import one_line
from harness.hardware.counter_scale import BandwidthScale
from harness.meters.environment import snapshot
from harness.models import KNOWN_SHAPES
from harness.models.decodable import ModelFacts, read_model_facts
from harness.record.regular_file import write_whole
from harness.record.same import crowded
from harness.scenario.part import Part
from harness.scenario.suggest import ANY_NTP_MODEL, scenario_text

MODEL_VERSION = 1


def to_json(facts: ModelFacts, scenario: str) -> dict[str, object]:
    """The facts as plain values."""
    family = facts.family
    return {
        "version": MODEL_VERSION,
        "folder": str(facts.folder),
        "kind": facts.kind,
        "model_type": facts.model_type,
        "native_model_type": facts.native,
        "own_code": facts.own_code,
        "needs_own_code": False,
        "family": family.name if family else None,
        "members": family.members if family else None,
        "block_size": facts.block_size,
        "block_size_from": facts.block_size_from,
        "mask_token_id": facts.mask_id,
        "mask_token_id_from": facts.mask_id_from,
        "protocol": _protocol(facts),
        "is_ntp": family.is_ntp if family else True,
        "made_from": facts.base,
        "parameters": facts.shape.params,
        "note": (family.note or None) if family else None,
        "source": family.source if family else None,
        "scenario": scenario,
    }


def render_model(facts: ModelFacts) -> str:
    """The facts as comments of a YAML file."""
    size, family = f"{facts.shape.layers} layers, {facts.shape.params:,} parameters", facts.family
    lines = [f"{facts.folder}: model_type {facts.model_type}, {size}"]
    if family:
        lines.append(f"a block model of family {family.name}: {family.members}")
    elif facts.kind == "ntp":
        lines.append("NTP only: a next-token predictor without a mask token; SBD needs fine-tuning, see sbd train --help")
    else:
        lines.append(
            f"an ordinary {facts.model_type} with a mask token ({facts.mask_id}), as sbd train leaves an SBD checkpoint; a "
            "config does not say whether it was trained with it, its accuracy in blocks will"
        )
    lines += [f"decoding: {line}" for line in _protocol(facts)]
    if facts.block_size is not None:
        lines.append(f"block size: {facts.block_size}, {facts.block_size_from}")
    if facts.mask_id is not None:
        lines.append(f"mask token: {facts.mask_id}, {facts.mask_id_from}")
    own = "the code it brings is not run" if facts.own_code else "it brings no code"
    ours, tried = (" under our masks", "; tried on tiny random weights only") if family else ("", "")
    lines.append(f"loads into transformers' own {facts.native} class{ours}; {own}{tried}")
    if family and not family.is_ntp:
        base = facts.base or f"a model of your choice: write it for {ANY_NTP_MODEL}"
        lines.append(f"baseline: NTP on {base}, in a part of its own; these weights are no next-token predictor")
    if facts.mask_id is None and facts.kind == "block model":
        lines.append(f"mask token: unknown, {facts.mask_id_from}; write mask_token_id into the model below")
    if family and family.note:
        lines.append(f"note: {family.note}")
    said = (textwrap.wrap(one_line(line), 118, initial_indent="# ", subsequent_indent="#   ") for line in lines)
    return "\n".join(line for one in said for line in one)


def _protocol(facts: ModelFacts) -> list[str]:
    if facts.family is None or facts.block_size is None:
        return []
    return facts.family.protocol.in_words(facts.block_size)


MODEL, DTYPE, CONTEXT_TOKENS, WIDTHS = "llama-3.1-8b", "bfloat16", 1024, (1, 16)
"""The model whose shapes the kernel query uses; a run queries and records its own."""


def _attention(device: str) -> list[dict[str, Any]]:
    """The kernel that torch picks for one sequence of an 8B model, per width, with and without a mask."""
    from harness.engine.fingerprint import sdpa_backend

    part = Part.model_validate(
        {
            "name": "doctor",
            "model": {"random": MODEL},
            "device": device,
            "dtype": DTYPE,
            "arms": [{"method": "ntp"}],
            "workload": {"synthetic": {"prompt_tokens": CONTEXT_TOKENS}, "prompts": 1, "max_new_tokens": 1},
        }
    )
    return [
        {"model": MODEL, "dtype": DTYPE, **sdpa_backend(part, KNOWN_SHAPES[MODEL], rows=1, query=width, masked=masked)}
        for width in WIDTHS
        for masked in (False, True)
    ]


def _environment_lines(environment: dict[str, Any]) -> list[str]:
    """Every fact of the snapshot, or why it is unknown; one line per GPU."""
    reasons, lines = environment["reasons"], ["", "machine"]
    for name, value in environment.items():
        if name == "reasons":
            continue
        reason = f"none: {reasons.get(name)}" if value is None else f"({reasons[name]})" if name in reasons else ""
        many = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
        shown = "" if value is None or many else json_text(value, indent=None)
        lines.append(f"  {name:26}{' '.join(word for word in (shown, reason) if word)}")
        lines += [f"    {json_text(one, indent=None)}" for one in value] if many else []
    return lines


LISTENS = (
    ("sbd run --on ray, where no cluster is here", "127.0.0.1", "Ray's servers and workers, with a token where Ray has one"),
    ("sbd run --on ray, with RAY_ADDRESS or a cluster here", "as that cluster", "its nodes call this process back"),
    ("sbd run --on ray://HOST:PORT", "nothing here", "this process only connects, to the address that you name"),
    ("sbd run with tensor_parallel", "127.0.0.1", "gloo and NCCL between the processes; GLOO_/NCCL_SOCKET_IFNAME change it"),
    ("torchrun ... sbd run", "as torchrun", "it meets at MASTER_ADDR; --standalone and GLOO_SOCKET_IFNAME=lo keep it here"),
)
"""What opens a port, where, and why; no other command listens."""


DOCTOR_VERSION = 2


def doctor_command(device: str | None = None, as_json: AsJson = False, model: Path | None = None) -> None:
    """Open every meter once around a short pause and say what each one reads here, or why it reads nothing.

    With --model: no meter is opened and no weight loaded; what is printed is a scenario, with what is known as comments.

    Args:
        device: cpu, cuda or cuda:N; default: cuda where there is one
        model (FOLDER): say what a checkpoint is, and print a scenario for it
    """
    if model is not None:
        facts = read_model_facts(model)
        text = scenario_text(facts, device or "cuda")
        print(json_text(to_json(facts, text)) + "\n" if as_json else f"{render_model(facts)}\n{text}", end="")
        return
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("sbd doctor needs torch, not installed here; pip install 'sbd-bench[run]'")
    found = examine(seen_device(device))
    give(as_json, lambda: found, lambda: render(found))


def examine(device: str) -> dict[str, Any]:
    """Readable figures with a first value, the others with reason and remedy, and the machine, as plain JSON values."""
    from harness.kernels.library import built_for, why_not_built
    from harness.meters.available import find_meters

    without = why_not_built() if device == "cpu" else "they are for CPUs"
    available = find_meters(device)
    available.windows.open()
    time.sleep(0.5 if device == "cpu" else 2.1)  # GPM needs a window of 2 s, DCGM of 300 ms
    readings = available.windows.close()
    rows: list[tuple[Any, ...]] = [
        (name, figure.unit, figure.source, readings.values.get(name), readings.reasons.get(name), None)
        for name, figure in available.windows.figures.items()
    ]
    rows += [(name, None, None, None, one.reason, one.remedy) for one in available.absent for name in one.figures]
    keys = ("figure", "unit", "source", "value", "reason", "remedy")
    figures = [dict(zip(keys, row, strict=True)) for row in rows]
    scale = available.scale
    return {
        "version": DOCTOR_VERSION,
        "device": device,
        "figures": figures,
        "bandwidth_scale": None if isinstance(scale, str) else scale.model_dump(mode="json"),
        "bandwidth_scale_reason": scale if isinstance(scale, str) else None,
        "attention": _attention(device),
        "kernels": None if without else built_for(),
        "kernels_reason": without,
        "listens": [dict(zip(("command", "address", "why"), one, strict=True)) for one in LISTENS],
        "environment": snapshot(),
    }


def render(found: dict[str, Any]) -> str:
    """The result as text: readable figures first, then the missing ones grouped by reason."""
    environment = found["environment"]
    lines = [f"device {found['device']}: {environment['cpu_model']}, {environment['logical_cores']} cores"]
    lines += [f"  {gpu['name']}, {gpu['memory_bytes'] / 1e9:.1f} GB" for gpu in environment["gpus"] or []]
    lines += ["", "can be read here"]
    for one in found["figures"]:
        if one["value"] is not None:
            lines.append(f"  {one['figure']:26}{one['value']:14,.6g} {one['unit']:6} {one['source']}")
    absent = ((one["figure"], (one["reason"], one["remedy"])) for one in found["figures"] if one["value"] is None)
    missing = by_reason(absent)
    lines += ["", "cannot be read here"] if missing else []
    for (reason, remedy), names in missing.items():
        lines.append(f"  {', '.join(names)}")
        lines.append(f"      because {reason}" + (f"; to change that: {remedy}" if remedy else ""))
    lines += ["", "kernels for CPUs; without them execution: auto is eager there, and every pass slower"]
    lines.append(f"  {found['kernels'] or found['kernels_reason']}")
    first, *_ = attention = found["attention"]
    asked = f"attention kernel for {first['model']}, {first['dtype']}, {first['context_tokens']} tokens of context"
    lines += ["", "one percent of the memory counter"]
    if found["bandwidth_scale"] is None:
        lines.append(f"  not known: {found['bandwidth_scale_reason']}")
    else:
        scale = BandwidthScale.model_validate(found["bandwidth_scale"])
        theoretical = scale.theoretical_bytes_per_s_per_percent
        by_bus = scale.interface_reason if theoretical is None else f"{theoretical / 1e9:.4g} GB/s"
        by_copy = f"{scale.bytes_per_s_per_percent / 1e9:.4g} GB/s by a copy of known bytes"
        lines.append(f"  {scale.counter}: {by_copy}; by memory clock and bus: {by_bus}")
        lines += [f"  beware: {scale.disagreement()}"] if scale.disagreement() else []
    lines += ["", asked]
    for one in attention:
        mask = "with a mask" if one["masked"] else "without a mask"
        lines.append(f"  {one['query_tokens']:3} tokens {mask:16}{one['backend'] or one['reason']}")
    lines += ["", "listens on the network", *(f"  {command}: {address} ({why})" for command, address, why in LISTENS)]
    return lines_of(*lines, *_environment_lines(environment), "", *_closing(found))


QUESTIONS = (
    ("times and speedups by the clock", ("kernel_before_s",)),
    ("peak memory", ("peak_memory_bytes", "peak_device_memory_bytes")),
    ("energy per token", ("energy_j", "cpu_energy_j")),
    ("memory bandwidth by a counter", ("dram_bandwidth_pct",)),
    ("clocks and throttling", ("sm_clock_mhz",)),
)
"""What a run can tell of a machine, and the figures of which one is enough for it. Passes and accuracy need no meter."""


def _closing(found: dict[str, Any]) -> list[str]:
    """``you can measure X; not Y``."""
    there = {one["figure"] for one in found["figures"] if one["value"] is not None}
    can = ["passes", "accuracy", *(words for words, figures in QUESTIONS if there & set(figures))]
    cannot = [words for words, figures in QUESTIONS if not there & set(figures)]
    cannot += filter(None, [crowded(found["environment"])])
    if found["device"] == "cpu":
        cannot.append("how fast a GPU is (sbd capacity and sbd roofline predict it)")
    return [f"you can measure: {', '.join(can)}", *([f"not here: {', '.join(cannot)}"] if cannot else [])]


def check_command(out: Path = Path("gpu-check"), minutes: Amount = 7.5, dry_run: bool = False) -> None:
    """Check an NVIDIA GPU: exactness, NTP and SBD at an 8B shape, baseline, ways of attending, energy; writes tables.

    Exit code 1: an engine does not compute on it what the reference computes.

    Args:
        out: folder for the results
        minutes: time for everything; cells not reached are listed, and the same command continues
        dry_run: the same code on the CPU, with tiny shapes
    """
    need_torch("sbd check")
    from harness.engine.loading import device_here

    device = "cpu" if dry_run else "cuda"
    if device == "cuda" and device_here() != "cuda":
        raise UserError("torch sees no CUDA device here; run sbd check on a GPU machine, or with --dry-run")
    from harness.check.conduct import check

    try:
        show(check(out, minutes, dry=dry_run))
    finally:
        if out.exists():
            write_whole(out / "doctor.json", json_text(examine(device)).encode())
    show(one_line(f"files  {out}"))
