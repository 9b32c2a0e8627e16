"""The roofline against one that shares no code with it: six models on five devices, decode, blocks and prompts."""

from __future__ import annotations

from benchmarks import second_roofline as second


def test_every_difference_above_one_percent_is_activations_beyond_the_cache() -> None:
    """With all activations on the chip both agree within 0.3 % everywhere; of themselves they only make a pass dearer."""
    rows = list(second.compare())
    assert len(rows) == len(second.MODELS) * len(second.DEVICES) * len(second.CELLS) == 270
    for model, device, cell, ratio, on_the_chip in rows:
        assert abs(on_the_chip - 1) < 0.003, (model, device, cell)
        assert ratio >= on_the_chip, (model, device, cell)
        if cell in ("ntp_1", "ntp_8_at_100k", "block_16_later_1"):
            assert abs(ratio - 1) < second.TOLERANCE, (model, device, cell)


def test_the_second_roofline_by_hand() -> None:
    """A model of one layer: 3 tokens behind 5 cached ones, causal; products, pairs and cache counted on paper."""
    tiny = second.Config(1, 8, 12, 4, 2, 2, 10)
    found = list(second.parts(tiny, second.Cell(1, 3, 5, 1, causal=True, kept=3)))
    assert found == [
        (2 * 3 * (64 + 32 + 32), 2 * 128),
        (4 * (6 + 7 + 8) * 4 * 2, 5 * 8 * 2),
        (0, 3 * 8 * 2),
        (2 * 3 * 64, 2 * 64),
        (2 * 3 * 288, 2 * 288),
        (2 * 80, 2 * 80),
    ]
