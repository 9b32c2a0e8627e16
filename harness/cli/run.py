"""`sbd run`, and `sbd run-process` (hidden), which starts a fresh process of a run (harness.runner.subprocesses).

With --on ray the nodes of a cluster take the run's units. This process then loads no model and no torch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from harness.cli.calibrate import need_torch, profile_of_scenario
from harness.cli.output import show
from harness.cli.progress import TerminalProgress
from harness.errors import NothingMeasuredError, UserError
from harness.formatting import one_line, ratio
from harness.models.choice import REMOTE_CODE
from harness.progress import Progress
from harness.record.identity import ALL, IDENTITY, ITEMS, allowed_items
from harness.record.kept_engines import keep
from harness.record.schema import Run
from harness.record.store import read_run
from harness.runner.cluster.ray_cluster import RayCluster
from harness.runner.cluster.scheduler import spread
from harness.runner.job import Job
from harness.runner.options import RunOptions
from harness.runner.runner import run, run_errand
from harness.runner.subprocesses import ChildTask, FreshInterpreter
from harness.scenario.loading import find_scenario, load_scenario
from harness.scenario.ranks import ranks_here

KIND = "ray"
RemoteCodeOption = Annotated[
    bool, Option(REMOTE_CODE, help="run the Python code of models whose scenario says trust_remote_code: true")
]


def run_command(
    scenario: str,
    out: Path | None = None,
    report: bool = True,
    calibrate: bool = False,
    on: str | None = None,
    allow: Annotated[
        list[str] | None,
        Option(
            metavar="WHAT,...",
            help=f"go on although this differs from what the run was begun with: {', '.join(ITEMS)}, or {ALL}",
        ),
    ] = None,
    engines: bool = False,
    until: str | None = None,
    at_most: str | None = None,
    trust_remote_code: RemoteCodeOption = False,
) -> None:
    """Measure: take every sample of a scenario that its run directory does not hold yet.

    A run goes on with what it was begun with: the same model files, program, machine and libraries. Anything else is refused
    by name (exit code 2). With --allow it goes on all the same, and the record and the report say what differed.

    Args:
        scenario (FILE): a scenario file, or the name of a shipped one
        out: run directory; default: a new one under reports/, or the unfinished one
        report: write the report when the run is finished
        calibrate: first measure this machine's ceilings, where no profile of them is kept
        on (ray[://HOST:PORT]): spread it over a Ray cluster; see docs/clusters
        engines: hold NTP against llama.cpp and vLLM too, where they are installed
        until (decided): look after each process from the fourth on, and end when all claims about the clock are decided
        at_most (TIME): with --until decided, begin no process that would end later, as 90s, 15m or 1h
    """
    options = RunOptions(
        allow=allowed_items(allow or ()),
        engines=engines,
        trust_remote_code=trust_remote_code,
        calibrate=calibrate,
        until=_until(until, at_most, on),
        at_most=None if at_most is None else _seconds(at_most),
    )
    if on is not None and on != KIND and not on.startswith(f"{KIND}://"):
        raise UserError(f"--on {on}: allowed are {KIND}, for the cluster of this machine, and {KIND}://host:port")
    if on is None and followed():
        return
    job = Job.of(find_scenario(scenario), options)  # report a mistake in the file before a heavy import or a connection
    if on is not None:
        take_and_tell(partial(_on_cluster, on, job, out), report)
        return
    need_torch("sbd run", " (in a checkout: pip install '.[run]'). sbd plan, roofline and report work without")
    sent_out = job.scenario.in_fresh_processes and ranks_here() is None
    if calibrate and not sent_out:  # else the process that begins the run does it; this one opens no device
        profile_of_scenario(job.scenario)
    take = partial(run, job, out, spawn=FreshInterpreter(debug="--debug" in sys.argv))
    if options.until:
        from harness.analysis.decided import look  # loads what a measuring process does not need

        take = partial(take, look=look)
    take_and_tell(take, report)


def _until(until: str | None, at_most: str | None, on: str | None) -> str | None:
    if until not in (None, "decided"):
        raise UserError(f"--until {until}: decided is allowed; a number of repeats stands in the scenario (repeats)")
    if at_most is not None and until is None:
        raise UserError(f"--at-most {at_most}: belongs to --until decided, which ends early; add it, or remove --at-most")
    if until and on:
        raise UserError("--until decided looks after each process, and a cluster takes several at once; remove --on or --until")
    return until


def _seconds(text: str) -> float:
    """Of a length of time such as 90s, 15m or 1.5h. Raises UserError."""
    found = re.fullmatch(r"([0-9]{1,6}(?:[.][0-9]{1,3})?)([smh])", text)
    seconds = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not seconds:
        raise UserError(f"--at-most {text}: give a length of time above 0 such as 90s, 15m or 1h")
    return seconds


def _on_cluster(where: str, job: Job, out: Path | None, progress: Progress) -> Path:
    with RayCluster(where) as cluster:
        return spread(job, out, cluster, progress)


def take_and_tell(take: Callable[[Progress], Path], report: bool) -> Path:
    """Take the samples of a run with progress on the terminal, print its record's place and, if wanted, make its page.

    Returns the run directory.

    Raises:
        NothingMeasuredError: no arm has a sample.
    """
    progress = TerminalProgress(sys.stderr)
    try:
        directory = take(progress)
    except KeyboardInterrupt:
        progress.end_line()
        show("interrupted: finished samples are kept; the same command continues the run", sys.stderr)
        raise
    progress.end_line()
    show(one_line(f"record  {directory}"))
    if report:
        from harness.cli.report import write_page  # loads what a measuring process does not need

        write_page(directory, None)
    held = read_run(directory)
    if why := held.unmeasured:
        raise NothingMeasuredError(f"{directory}: {why}; mend the cause, and run it anew with another --out")
    if any(case.is_check and case.arm.server for case in held.header.cases):
        with suppress(UserError):  # a run on several kinds of machine says nothing of this one
            _keep_engines(held)
    return directory


def _keep_engines(held: Run) -> None:
    """Keep how NTP stood beside the best engine, at the smallest batch of every part, for later runs that ask none."""
    from harness.analysis.answer import Derived

    for cell in reversed(Derived(held, ()).comparison.cells):
        check, part = cell.baseline_check, held.header.written(cell.part)
        speed = check.best_speed.value if check.has_engines and check.best_speed else None
        if cell.is_summary and speed:
            words = (
                f"on {held.header.created_at[:10]} NTP was {ratio(speed)} the best engine here ({check.best}), "
                f"{cell.size_words}; this run asked none (--engines)"
            )
            keep(held.events(IDENTITY, cell.part)[0], part.dtype or "", part.threads, words)


def followed() -> bool:
    """Follow another process and return True where this rank follows; then there is nothing else to do."""
    ranks = ranks_here()
    if ranks is None or ranks.leads:
        return False
    from harness.engine.tensor_parallel import follow

    follow()
    return True


def process_command(task: str) -> None:
    """Run one errand of `sbd run`, which starts this; not meant to be called by hand.

    Args:
        task (JSON): what to do, as sbd run writes it
    """
    errand = ChildTask.read(task)
    if followed():
        return
    if errand.share is None and errand.options.calibrate:
        profile_of_scenario(load_scenario(errand.scenario))
    progress = TerminalProgress(sys.stderr)
    try:
        run_errand(errand, progress)
    finally:
        progress.end_line()
