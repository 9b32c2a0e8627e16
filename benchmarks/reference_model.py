"""The reference model's card out of its records: accuracy of NTP-only training, of SBD training with NTP decoding, and of
SBD decoding (the shape of the paper's Table 1), with recipe and loss curves. Writes reference_model.md beside this file.

    python -m benchmarks.reference_model [reports/reference_accuracy]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.analysis.results import ArmResult, Cell
from harness.models import ModelShape
from harness.models.choice import REFERENCE_DIR
from harness.record.store import read_run
from harness.stats.quantity import Quantity
from harness.training.reference import STAGES

EASY, MARGIN = "word_problems", -0.01
HERE = Path(__file__).parent
TRAINING = HERE / "training"


def percent(quantity: Quantity) -> str:
    """An accuracy in percent."""
    return "-" if quantity.value is None else f"{100 * quantity.value:.2f}"


def bound(quantity: Quantity | None) -> str:
    """A difference in points, with the lower end of its 95 % interval."""
    if quantity is None or quantity.value is None or quantity.low is None:
        return "-"
    return f"{100 * quantity.value:+.2f} (≥ {100 * quantity.low:+.2f})"


def rows(cell: Cell) -> list[str]:
    """Table lines of one task and one part."""
    lines = []
    for arm in cell.arms:
        speedup = "-" if arm.nfe_speedup.value is None else f"{arm.nfe_speedup.value:.2f}x"
        lines.append(
            f"| {cell.task} | {cell.part} | {arm.label} | {arm.prompts} | {percent(arm.accuracy)} | {speedup} | "
            f"{'-' if arm.is_ntp else bound(arm.accuracy_difference)} | {bound(arm.baseline_difference)} |"
        )
    return lines


def accuracy_table(cells: list[Cell]) -> list[str]:
    """The shape of the paper's Table 1; differences are paired, in points, with the lower ends of their 95 % intervals."""
    head = [
        "| task | weights | decoding | prompts | correct, % | NFE speedup | to own NTP, points | to NTP-only, points |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return head + [line for cell in sorted(cells, key=lambda c: (str(c.task), c.part)) for line in rows(cell)]


def recipe_table() -> list[str]:
    """Settings of every stage, from the file that the training wrote."""
    lines = ["| stage | objective | steps | sequences a step | peak learning rate | schedule | seed |", "|---" * 7 + "|"]
    for stage in STAGES:
        s = json.loads((TRAINING / stage / "training.json").read_text())
        lines.append(
            f"| {stage} | {s['objective']} | {s['steps']} | {s['batch_size']} | {s['learning_rate']:g} | "
            f"{s['schedule']} | {s['seed']} |"
        )
    return lines


def loss_table() -> list[str]:
    """Mean training loss of every 250 steps, in nats per next-token target."""
    curves = {}
    for stage in STAGES:
        history = json.loads((TRAINING / stage / "trainer_state.json").read_text())["log_history"]
        points = [(int(e["step"]), float(e["loss"])) for e in history if "loss" in e]
        for end in range(250, points[-1][0] + 1, 250):
            window = [loss for step, loss in points if end - 250 < step <= end]
            curves[stage, end] = sum(window) / len(window)
    ends = sorted({end for _, end in curves})
    lines = ["| steps | " + " | ".join(STAGES) + " |", "|---" * (len(STAGES) + 1) + "|"]
    for end in ends:
        cells = (f"{curves[stage, end]:.3f}" if (stage, end) in curves else "" for stage in STAGES)
        lines.append(f"| {end} | " + " | ".join(cells) + " |")
    return lines


def head(shape: ModelShape) -> str:
    """What the model is."""
    tokenizer = json.loads((REFERENCE_DIR / "sbd" / "tokenizer.json").read_text())
    entries = len(tokenizer["model"]["vocab"])
    embeddings = "tied" if shape.tied_embeddings else "untied"
    return f"""# The reference model

{shape.params / 1e6:.2f}M parameters, Llama architecture ({shape.layers} layers, hidden {shape.hidden}, {shape.heads} heads of
{shape.head_dim}, {shape.kv_heads} KV heads, FFN {shape.intermediate}, {embeddings} embeddings), its own tokenizer of
{entries} entries (numbers of up to two digits are one token), trained on the built-in tasks. `harness/engine/reference/sbd`
is the model, `ntp_only` its control. All figures are those of the stored bfloat16 weights, decoded in bfloat16. This file is
written by `python -m benchmarks.reference_model`.
"""


def card(cells: list[Cell], shape: ModelShape) -> str:
    """The whole file."""
    parts = [
        head(shape),
        "## Accuracy",
        *accuracy_table(cells),
        "",
        "Differences are paired by prompt; in brackets the lower end of the 95 % interval.",
        "",
        "## Recipe",
        "Each stage: `sbd train --reference STAGE --out DIR`, in this order; `sbd` and `ntp_only` both start from",
        "`base` and see the same examples in the same order. bfloat16 autocast on 2 CPU cores (attention of `sbd` in float32).",
        "",
        *recipe_table(),
        "",
        "## Training loss",
        "Nats per next-token target; `sbd` is the sum of both terms of eq. 14.",
        "",
        *loss_table(),
        "",
    ]
    return "\n".join(parts)


def within_margin(arm: ArmResult) -> bool:
    """Whether the paired lower bound against NTP decoding of the same weights is above -1 point."""
    low = arm.accuracy_difference.low
    return not arm.is_ntp and low is not None and low > MARGIN


def figures_of(cells: list[Cell]) -> dict[str, float]:
    """The figures that are tracked; those of the easy task carry no task in their name."""
    figures: dict[str, float] = {}
    for cell in cells:
        for arm in cell.arms:
            if arm.is_ntp and arm.accuracy.value is not None:
                name = "ntp_accuracy_pct" if cell.part == "ntp_only" else "sbd_trained_ntp_accuracy_pct"
                figures[f"{cell.task}_{name}"] = round(100 * arm.accuracy.value, 3)
    for name in ("ntp_accuracy_pct", "sbd_trained_ntp_accuracy_pct"):
        figures[name] = figures[f"{EASY}_{name}"]
    easy = next(cell for cell in cells if cell.task == EASY and cell.part == "sbd")
    best = [arm.nfe_speedup.value for arm in easy.arms if within_margin(arm) and arm.nfe_speedup.value is not None]
    if best:
        figures["best_nfe_speedup_within_1pt"] = round(max(best), 3)
    return figures


def main() -> None:
    """Read, print, write."""
    run = read_run(Path(sys.argv[1] if len(sys.argv) > 1 else "reports/reference_accuracy"))
    cells = [cell for cell in compare(run).cells if cell.task is not None]
    text = card(cells, run.header.cases[0].shape)
    (HERE / "reference_model.md").write_text(text)
    print(text)
    print(write_results("reference_model", figures_of(cells), run.header.environment))


if __name__ == "__main__":
    main()
