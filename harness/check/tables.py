"""The results of `sbd check` as Markdown; it derives nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.analysis.pass_values import DURING_RUN, EX_ANTE_SHAPE, price_words
from harness.check.attention import AttentionTime
from harness.check.cells import Row, WidthRow

MS, US, GB = 1e-3, 1e-6, 1e9
PREDICTED = (EX_ANTE_SHAPE, DURING_RUN, "calibrated")
"""Prices whose error is shown."""


def cells_table(rows: Sequence[Row], widths: Sequence[WidthRow]) -> str:
    """Every planned arm, then t(q)/t(1), then the reasons for missing energy or counted bytes."""
    heads = (
        "part", "batch", "arm", "state", "pass, ms", "over a 1-token pass", "wall speedup", "fewer passes", "wall over passes",
        "of read rate", "J/token", "modelled, GB/s", "counted, GB/s", "counted over modelled",
        *(f"error, {price_words(price)}" for price in PREDICTED), "NTP over generate()",
    )  # fmt: skip
    body = [
        (
            row.part, str(row.batch), row.arm, row.state, _number(row.pass_s, MS), _number(row.over_one_token),
            _number(row.wall_speedup), _number(row.nfe_speedup), _number(row.wall_over_passes),
            _number(row.share_of_ceiling), _number(row.energy_j_per_token), _number(row.modelled_bytes_per_s, GB),
            _number(row.counted_bytes_per_s, GB), _number(row.counted_over_modelled),
            *(_percent(row.decode_errors.get(price)) for price in PREDICTED), row.baseline,
        )
        for row in rows
    ]  # fmt: skip
    curve = [
        (w.part, str(w.batch), w.method, w.role, str(w.query_tokens), _number(w.pass_s, MS), _number(w.over_one_token))
        for w in widths
    ]
    reasons = dict.fromkeys(reason for row in rows for reason in row.missing)
    return "\n".join(
        [
            "# Cells", "", _table(heads, body), "",
            "Modelled: the decode's forwards. Counted, and its ratio to what is modelled for just that window: prefill and "
            "decode. J/token counts the prefill too. Error: of the predicted decode time, above 0 too long.",
            *(f"- {r}" for r in reasons), "",
            "# t(q)/t(1)", "", _table(("part", "batch", "method", "role", "q", "pass, ms", "over a 1-token pass"), curve), "",
        ]
    )  # fmt: skip


def attention_table(times: Sequence[AttentionTime]) -> str:
    """One line per way of attending at one place."""
    heads = ("batch", "context", "queries", "way", "µs", "over the mask", "largest difference to the mask", "reason")
    body = [
        (
            str(one.batch), str(one.context), str(one.queries), one.way, _number(one.seconds, US), _number(one.over_mask),
            "-" if one.difference is None else f"{one.difference:.1e}", one.reason or "",
        )
        for one in times
    ]  # fmt: skip
    notes = "No mask at 2k queries is two calls, one for the committed half. On a CPU flex_attention is not compiled."
    return f"# Ways of attending\n\n{_table(heads, body)}\n\n{notes}\n"


def _table(heads: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *("| " + " | ".join(b) + " |" for b in body)])


def _number(value: float | None, unit: float = 1.0) -> str:
    return "-" if value is None else f"{value / unit:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"
