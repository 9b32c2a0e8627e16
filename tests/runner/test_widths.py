"""A width that is left to the machine: chosen by cost and acceptance before the first sample, kept by every later run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, ClassVar

import pytest

from harness.errors import DoesNotFitError, ScenarioError, UserError
from harness.integrations.single_arm import case_of_scenario, single_case
from harness.record.schema import Run, TriedWidth, WidthChoice
from harness.record.store import read_run
from harness.record.trace import Generation
from harness.regression.comparability import unlike
from harness.runner.estimates import estimate_memory, estimate_time
from harness.runner.runner import run
from harness.scenario.loading import load_scenario
from harness.scenario.method import WIDTHS
from harness.scenario.plan import make_plan
from tests.helpers.fake_machine import FakeDecoded, FakeEngine, fake_machine, generation
from tests.helpers.letters import Letters
from tests.helpers.plans import CEILINGS

SCENARIO = """
version: 1
name: widths
claims:
  - {name: as fast as NTP, metric: wall_speedup, min: 1.0, where: {part: one, arm: quadratic self-speculation k=auto}}
parts:
  - name: one
    model: {reference: sbd}
    dtype: float32
    arms:
      - {method: ntp}
      - {method: self_speculation, form: quadratic, block_size: [2, auto]}
      - {method: prompt_lookup, draft_tokens: auto}
    workload: {tasks: [short_trace, word_problems], prompts: 2, max_new_tokens: 24, chat_template: false}
    warmup: 0
    baseline_check: 0
"""
NTP_S = 0.008
PASS_S = dict(zip(WIDTHS, (0.010, 0.011, 0.014, 0.020, 0.030, 0.050, 0.1, 0.2), strict=True))
TOKENS = dict(zip(WIDTHS, (1.6, 2.2, 2.5, 2.6, 2.7, 2.8, 2.8, 2.8), strict=True))
AUTO = "one/short_trace/b1/quadratic-kauto-t0"


class WideEngine(FakeEngine):
    """Decodes 24 tokens in passes of known time, each of which makes tokens as the table of its width says."""

    tokenizer = Letters()
    later_s: ClassVar[dict[int, float]] = {}
    """Seconds of a pass of a width, from its second batch on."""
    short = 0
    """So many of the first answers are one token long."""

    def __init__(self, pass_s: dict[int, float], most: int = 99) -> None:
        super().__init__()
        self.pass_s, self.most, self.widths = pass_s, most, []

    def measure_passes(self, block_sizes: Any, beside: Any = ()) -> list[FakeDecoded]:
        """Says what it was asked for."""
        self.beside = beside
        return super().measure_passes(block_sizes, beside)

    def decode(self, case: Any, prompts: Any, seed: int) -> Any:
        """The arm's width decides."""
        width = case.arm.block_size or case.arm.values.get("draft_tokens")
        self.widths.append((case.label, width))
        self.decoded.append((case.case_id, tuple(prompts), seed))
        if (width or 0) > self.most:
            raise DoesNotFitError("too wide")
        per_pass, cost_s = (1.0, NTP_S) if width is None else (TOKENS[width], self.pass_s[width])
        cost_s = self.later_s.get(width, cost_s) if self.widths.count((case.label, width)) > 2 else cost_s
        made, finals = 0, []
        if len(self.decoded) <= self.short:
            one = generation(1)
            return FakeDecoded(
                Generation(passes=one.passes[:1], prompt_tokens=(4,), output_ids=((7,),), stop_reasons=("stop",)), decode_s=0.0
            )
        while made < 23:  # the first token is the prefill's
            finals.append(min(23 - made, round(per_pass * (len(finals) + 1)) - round(per_pass * len(finals))))
            made += finals[-1]
        one = generation(1)
        query = 1 if width is None else width * (width + 1)
        passes = [one.passes[0]] + [
            one.passes[1]._replace(final_tokens=(final,), decided_tokens=(final,), query_tokens=(query,)) for final in finals
        ]
        told = Generation(passes=tuple(passes), prompt_tokens=(4,), output_ids=((7,) * 24,), stop_reasons=("length",))
        return FakeDecoded(
            told, decode_s=cost_s * len(finals), forward_s=(0.5, *[cost_s] * len(finals)), sampler_s=(0.0,) * len(passes)
        )


def ran(folder: Path, engine: WideEngine, out: str = "out", text: str = SCENARIO) -> Run:
    """A run, or its continuation."""
    file = folder / "widths.yaml"
    file.write_text(text)
    return read_run(run(file, folder / out, machine=fake_machine(engine)))


def tried(width: int, pass_s: float, tokens_per_pass: float, prompts: int = 8) -> TriedWidth:
    """A line of the table."""
    return TriedWidth(
        width=width, prompts=prompts, query_tokens=width * (width + 1), pass_s=pass_s, tokens_per_pass=tokens_per_pass
    )


def test_the_choice_is_what_trying_every_width_gives() -> None:
    """For 256 tables of costs and acceptances by position, against a brute force over all widths: seconds of 1,000 tokens,
    accepted position by position.
    """
    for steps in itertools.product((0.002, 0.004, 0.009, 0.02), repeat=4):
        pass_s = dict(zip((2, 3, 4, 5), itertools.accumulate(steps, initial=0.005), strict=False))
        accepted = [0.9, 0.75, 0.4, 0.3]  # share of passes whose draft is right up to this position
        tokens = {k: 1 + sum(accepted[: k - 1]) for k in pass_s}
        brute = {k: 1000 / sum(itertools.chain([1.0], accepted[: k - 1])) * pass_s[k] for k in pass_s}
        choice = WidthChoice(
            ntp=tried(1, 0.004, 1.0), tried=[tried(k, pass_s[k], tokens[k]) for k in pass_s], prompt_digests=[]
        )
        assert brute[choice.best.width] <= min(brute.values()) * (1 + 1e-12)
        assert choice.gain == pytest.approx(4 / min(brute.values()))


def test_a_width_that_fell_behind_is_not_chosen() -> None:
    """It decoded other prompts, here easier ones."""
    behind = tried(8, 0.01, 5.0, prompts=1)
    choice = WidthChoice(ntp=tried(1, 0.004, 1.0), tried=[tried(2, 0.01, 1.5), behind], prompt_digests=[])
    assert choice.best.width == 2


def test_a_run_chooses_before_its_first_sample_and_keeps_its_choice(tmp_path: Path) -> None:
    """Of 10, 11, 14, ... ms and 1.6, 2.2, 2.5, ... tokens a pass, 3 is the best: 5.0 ms a token. The record tells so under the
    name k=auto, on prompts that no sample has. A later run on another machine state decodes with 3 still.
    """
    engine = WideEngine(PASS_S)
    file = tmp_path / "widths.yaml"
    file.write_text(SCENARIO)
    out = run(file, tmp_path / "out", machine=fake_machine(engine))
    held = read_run(out)
    headers = {case.case_id: case for case in held.header.cases}
    auto = headers[AUTO]
    assert (auto.label, auto.arm.block_size, auto.arm.values["auto"]) == ("quadratic self-speculation k=auto", 3, "block_size")
    choice = auto.width
    assert choice is not None and choice.best.width == 3 and choice.best.token_s == pytest.approx(0.011 / 2.2, rel=0.06)
    assert (choice.ntp.pass_s, choice.best.pass_s, choice.best.query_tokens) == pytest.approx((NTP_S, 0.011, 12.0))
    assert headers[AUTO.replace("short_trace", "word_problems")].width == choice, "one choice over all tasks"
    assert headers["one/short_trace/b1/prompt-lookup-g2-nauto-t0"].label == "prompt lookup n=auto"
    assert headers["one/short_trace/b1/ntp"].width is None
    timed = {row.prompt_digest for sample in held.samples for row in sample.rows}
    assert len(choice.prompt_digests) == 8 and not timed & set(choice.prompt_digests)
    assert choice.tried[-1].prompts < 8 and choice.tried[-1].width < WIDTHS[-1], "what is far behind is left, and what is wider"
    label = "quadratic self-speculation k=auto"
    assert [width for name, width in engine.widths if name == label][-4:] == [3] * 4, "two prompts of two tasks"
    assert engine.measured[-1] == (2, 3), "passes of the chosen width are measured beside the fixed one"

    (out / "samples.jsonl").write_bytes(b"".join((out / "samples.jsonl").read_bytes().splitlines(keepends=True)[:5]))
    (out / "seal.json").unlink()
    again = WideEngine(PASS_S | {3: 0.5})
    run(file, out, machine=fake_machine(again))
    assert len(again.decoded) == len(held.samples) - 5, "nothing is chosen anew"
    assert {width for name, width in again.widths if name == label} == {3}
    assert read_run(out).header == held.header


def test_runs_of_other_widths_are_not_alike(tmp_path: Path) -> None:
    """On a machine where wide passes are as cheap as narrow ones another width is chosen, the narrowest of those
    that take as few passes, and a comparison says which.
    """
    one, other = ran(tmp_path, WideEngine(PASS_S), "one"), ran(tmp_path, WideEngine(dict.fromkeys(WIDTHS, 0.01)), "other")
    told = [str(found) for found in unlike(one, other) if found.key == f"cases.{AUTO}"]
    assert told == [f"cases.{AUTO}: 3 in BASE, 5 in NEW"]


def test_widths_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    """Of those up to 4, with passes that all cost the same, 4; where not even 2 fits, the run says so."""
    held = ran(tmp_path, WideEngine(dict.fromkeys(WIDTHS, 0.01), most=4))
    [choice] = [case.width for case in held.header.cases if case.case_id == AUTO]
    assert choice is not None and [one.width for one in choice.tried] == [2, 3, 4] and choice.best.width == 4
    with pytest.raises(UserError, match="none fits into memory"):
        ran(tmp_path, WideEngine(PASS_S, most=1), "none")


def test_a_wider_one_that_was_tried_stays(tmp_path: Path) -> None:
    """Where 8 has bad luck with its blocks, 12 may have none: passes that all cost the same, but for those of 8 from the second
    batch on.
    """
    engine = WideEngine(dict.fromkeys(WIDTHS, 0.01))
    engine.later_s = {8: 0.1}
    [choice] = [case.width for case in ran(tmp_path, engine).header.cases if case.case_id == AUTO]
    assert choice is not None and {one.width: one.prompts for one in choice.tried} == dict.fromkeys(WIDTHS, 8) | {8: 2}


def test_answers_of_one_token_cost_no_pass(tmp_path: Path) -> None:
    """They are passed over; where all are so, the run says so."""
    engine = WideEngine(PASS_S)
    engine.short = 3
    [choice] = [case.width for case in ran(tmp_path, engine).header.cases if case.case_id == AUTO]
    assert choice is not None and choice.best.width == 3 and choice.ntp.prompts < 8
    engine = WideEngine(PASS_S)
    engine.short = 10**6
    with pytest.raises(UserError, match="answers of two tokens"):
        ran(tmp_path, engine, "none")


def test_a_part_without_further_prompts_is_refused(tmp_path: Path) -> None:
    """A file of two prompts, both timed; with a third there is one to choose on."""
    prompts = tmp_path / "prompts.jsonl"
    text = SCENARIO.replace("tasks: [short_trace, word_problems]", "prompts_file: prompts.jsonl")
    prompts.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    with pytest.raises(UserError, match="part one: quadratic self-speculation k=auto is chosen on prompts that"):
        ran(tmp_path, WideEngine(PASS_S), text=text)
    assert not (tmp_path / "out" / "run.json").exists()
    prompts.write_text('{"prompt": "one"}\n{"prompt": "two"}\n{"prompt": "three"}\n')
    held = ran(tmp_path, WideEngine(PASS_S), text=text)
    assert len(held.header.cases[2].width.prompt_digests) == 1


def test_the_header_of_a_run_without_auto_is_written_as_before(tmp_path: Path) -> None:
    """So that an older program of the same version of the format reads it."""
    ran(tmp_path, WideEngine(PASS_S), text=SCENARIO.replace("[2, auto]", "[2, 4]").replace("auto", "4"))
    assert '"width"' not in (tmp_path / "out" / "run.json").read_text()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("draft_tokens: auto", "draft_tokens: all", "draft_tokens"),
        ("    warmup: 0\n", "    timed: false\n", "auto is not for timed: false"),
        ("{reference: sbd}", "{random: llama-250m}", "tensor_parallel or random weights; give a number"),
        ("- {method: prompt_lookup, draft_tokens: auto}", "", "auto is not for timed: false, replays"),
    ],
)
def test_where_auto_makes_no_sense_it_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    """With file, line and what to do."""
    text = SCENARIO.replace(old, new).replace("tasks: [short_trace, word_problems]", "synthetic: {prompt_tokens: 8}")
    text = text if "lookup" in text else text.replace("quadratic, ", "quadratic, acceptance: {replay: {trace: .}}, ")
    file = tmp_path / "widths.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=words) as refused:
        load_scenario(file)
    assert "widths.yaml:" in str(refused.value)


def test_one_arm_for_another_program_needs_a_number(tmp_path: Path) -> None:
    """lm_eval and the like have no run that could choose."""
    with pytest.raises(ScenarioError, match="has several settings, and one is decoded with"):
        single_case({"method": "sbd", "block_size": "auto", "gamma": 0.1}, {"model": {"reference": "sbd"}, "dtype": "float32"})
    file = tmp_path / "widths.yaml"
    file.write_text(SCENARIO)
    with pytest.raises(ScenarioError, match=r"no arm 'prompt-lookup-g2-nauto-t0'.* one of 0: ntp, 1: quadratic-k2-t0$"):
        case_of_scenario(file, None, "prompt-lookup-g2-nauto-t0")


def test_a_plan_bounds_what_it_cannot_know(tmp_path: Path) -> None:
    """Memory as of the widest that may be chosen; time as of the narrowest, which the chosen one is no slower than, with the
    decodes of the choice: 4 batches of each task by 8 widths and NTP.
    """
    file = tmp_path / "widths.yaml"
    file.write_text(SCENARIO.replace("[2, auto]", "[2, 16, auto]"))
    narrow, wide, auto = [case for case in make_plan(load_scenario(file)).cases if "short_trace/b1/quad" in case.case_id]
    assert estimate_memory(auto) == estimate_memory(wide) != estimate_memory(narrow)
    (known, _), (bounded, _) = (estimate_time(case, CEILINGS) for case in (narrow, auto))
    assert known is not None and bounded is not None
    assert bounded.total_s == pytest.approx(known.total_s * (2 + 4 * 9) / 2)
