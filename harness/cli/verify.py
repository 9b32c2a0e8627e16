"""`sbd verify`: checks a run against claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.analysis.answer import Derived
from harness.analysis.judge.judgement import by_records
from harness.analysis.judge.verdict import claims_for
from harness.cli.judged import InconclusiveOption, JsonOption, RequireOption, SignersOption, ToOption, demanding, finish
from harness.record.publication import pages_of, repeated
from harness.record.store import read_run
from harness.scenario.arm_names import refuse_unknown_arms


def verify_command(
    run: Path,
    claim: list[str] | None = None,
    claims: list[str] | None = None,
    require_signature: RequireOption = False,
    signers: SignersOption = None,
    as_json: JsonOption = False,
    inconclusive: InconclusiveOption = "report",
    to: ToOption = None,
) -> None:
    """Is what is claimed of a run true? Confirmed (exit code 0), refuted (1), inconclusive (3) or void (4).

    A claim is confirmed where the whole 95 % interval meets its bound, and refuted where all of it misses. Without --claim
    and --claims those of the run's scenario are judged. Where it has none: 3-5x faster by the clock, the paper's figure
    (3x fewer passes) and limits of ours (0.9 of the passes by the clock, 1 point of accuracy).

    \b
    --claim "wall_speedup >= 3"
    --claim "3-5x"                        at least 3x faster by the clock
    --claim "3-5x fewer passes within 1 point"
    --claim "wall_speedup >= 3 and close to the pass reduction"
    --claim "latency_p50_s <= 0.2 at part=reference, batch=1, arm='SBD k=16 γ=0.1'"

    "same accuracy" (1 point) and "close to the pass reduction" (0.9 of it) have limits of ours: the paper names none.
    Without an arm the best one of every part and batch size is meant: the fastest that keeps the accuracy. What --claim and
    --claims name, and the scenario does not, is judged among all that could have been named.

    The first line says how the record is sealed, the next whether the page beside it is this record's, and which run of its
    scenario it is in its folder. One whose seal is broken, or that contradicts itself, is void; a run that has not ended
    decides nothing.

    Args:
        run (RUN): a run directory
        claim (TEXT): such as "wall_speedup >= 3 within 1 point at part=reference"; may be repeated
        claims (FILE): a YAML file with claims: [...], or a shipped one: paper, ours
    """
    record = read_run(run)
    asked = claims_for(record.header, claim or (), claims or ())
    known = dict.fromkeys(case.label for case in record.cases if not case.is_check)
    if claim or claims:  # those of the scenario were held against its arms before it ran
        refuse_unknown_arms((one.where.arm for one in asked), known, f"claims about {run}")
    compared = Derived(record, asked).comparison
    judged = by_records(compared.judgements, [demanding(compared.integrity, run, require_signature, signers)])
    pages = [f"page {name}: {state}" for name, _, state in pages_of(run, record.seal)]
    finish(replace(judged, records=(*judged.records, *pages, *filter(None, [repeated(run)]))), as_json, inconclusive, to)
