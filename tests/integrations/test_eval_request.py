"""What a task may ask of an answer, and the sums of what answers have cost."""

from __future__ import annotations

import pytest

from harness.errors import ScenarioError
from harness.integrations.decode_log import Asked, answers, summary
from harness.record.trace import ForwardPass, Generation
from harness.roofline.operation import describe_pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"do_sample": True, "temperature": 0.8}, "the task samples at temperature 0.8, the arm at 0"),
        ({"repetition_penalty": 1.2}, "repetition_penalty cannot be honoured"),
        ({"do_sample": True, "temperature": 0.0, "top_p": 0.9}, "samples at temperature"),
    ],
)
def test_what_would_change_the_tokens_is_refused(options: dict, words: str) -> None:
    """Nothing a task asks for is ignored in silence."""
    with pytest.raises(ScenarioError, match=words):
        Asked.of(options, 80, 0.0)


def test_what_changes_nothing_is_taken() -> None:
    """A greedy task's own words, one text for until, temperature that the arm has."""
    assert Asked.of({"do_sample": False, "temperature": 0.0, "top_p": 1, "until": "\n"}, 80, 0.0) == Asked(80, ("\n",))
    assert Asked.of({"temperature": 0.7, "max_gen_toks": 5}, 80, 0.7) == Asked(5, ())


@pytest.mark.parametrize(
    ("until", "text"), [((), "a b. c"), (("b",), "a "), (("c", " "), "a"), (("",), "a b. c"), (("x",), "a b. c")]
)
def test_the_first_stop_ends_the_text(until: tuple[str, ...], text: str) -> None:
    """Whichever comes first; an empty one stops nothing."""
    assert Asked(5, until).before_stop("a b. c") == text


def test_ratios_of_nothing_are_unknown() -> None:
    """No answer, no pass: None, not 0."""
    assert summary([])["nfe_speedup"] is None and summary([])["decode_s_per_token"] is None


def one_pass(role, query: tuple[int, ...], final: tuple[int, ...], active: tuple[bool, ...]) -> ForwardPass:
    """A pass of two rows."""
    widest = describe_pass(role, 2, max(query), 3, logits=1, kept=1)
    return widest._replace(query_tokens=query, decided_tokens=final, final_tokens=final, active=active)


def test_sums_by_hand() -> None:
    """Two rows, three decode passes, of which the second row waits in the last: its tokens fed there are not its own cost."""
    generation = Generation(
        passes=(
            one_pass("prefill", (3, 2), (1, 1), (True, True)),
            one_pass("decide", (8, 8), (4, 2), (True, True)),
            one_pass("commit+decide", (16, 16), (3, 2), (True, True)),
            one_pass("decide", (8, 8), (1, 0), (True, False)),
        ),
        prompt_tokens=(3, 2),
        output_ids=((1,) * 9, (1,) * 5),
        stop_reasons=("stop", "length"),
    )
    first, second = answers(generation, batch=0, prefill_s=0.5, decode_s=3.0)
    counts = ("passes", "query_tokens", "decode_tokens", "output_tokens")
    assert [first[name] for name in counts] == [3, 32, 8, 9]
    assert [second[name] for name in counts] == [2, 24, 4, 5]
    sums = summary([first, second, *answers(generation, batch=1, prefill_s=0.5, decode_s=1.0)])
    assert (sums["answers"], sums["passes"], sums["decode_tokens"], sums["query_tokens"]) == (4, 10, 24, 112)
    assert sums["nfe_speedup"] == 2.4 and sums["query_tokens_per_decode_token"] == pytest.approx(112 / 24)
    assert (sums["decode_s"], sums["prefill_s"]) == (4.0, 1.0), "a batch's time counts once, not once a row"
