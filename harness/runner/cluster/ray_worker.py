"""What a cluster node does with an order: checks that it has the same program, then takes the unit, entry by entry.

It does not load Ray; Ray runs it in a process and calls it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from harness import __version__
from harness.errors import UserError
from harness.models.choice import REMOTE_CODE
from harness.progress import Progress
from harness.record.by_machine import CEILINGS
from harness.record.identity import IDENTITY
from harness.record.schema import RunHeader
from harness.runner.cluster.protocol import NodeTask
from harness.runner.identity import source_digest
from harness.runner.job import Job, make_header, refuse_other_execution
from harness.runner.protocols import Machine
from harness.runner.recorder import Entry
from harness.runner.work import work_of
from harness.runner.worker import take
from harness.scenario.part import Part
from harness.scenario.scenario import Scenario

ON_NODES = "in a run over a cluster every node has its own: see the session entries"


def header_here(order: NodeTask, machine: Callable[[], Machine]) -> RunHeader:
    """The header of a run, without what every node finds out about itself.

    Raises:
        UserError and its kind: this node cannot take part in the run.
    """
    job = _checked(order, "a node")
    return make_header(job, replace(machine(), profile=lambda scenario: (None, ON_NODES)), Progress())


def taken_here(order: NodeTask, node: str, machine: Machine) -> Iterator[Entry]:
    """The entries of an order's unit, with the profile of this machine, which a local run has in its header."""
    assert order.share is not None and order.held is not None
    job = _checked(order, f"node {node}")
    part = job.part(order.share.part)
    _pin(part)
    refuse_other_execution([part], order.held, machine.execution)
    work = work_of(job, order.held, order.share, node)
    entries = take(work, machine, Progress())
    for entry in entries:  # the node, and what is refused, before anything slow
        yield entry
        if isinstance(entry, dict) and entry.get("event") == IDENTITY:
            break
    hardware, reason = machine.profile(job.scenario)
    yield work.event(CEILINGS, part.name) | {"hardware": hardware, "hardware_reason": reason}
    yield from entries


def _checked(order: NodeTask, where: str) -> Job:
    """The order's job, after a check that this program is the sender's.

    Raises:
        UserError: the program differs, or its files are missing or differ.
    """
    code = source_digest()
    if code != order.code:
        raise UserError(
            f"{where}: its sbd {__version__} has the code {code[:12]}, the run was started with {order.code[:12]}; install "
            "the same version on every node"
        )
    try:  # its paths are resolved; with a context they are searched here
        context = {"base": Path("/"), REMOTE_CODE: order.options.trust_remote_code}
        scenario = Scenario.model_validate(order.scenario, context=context)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(
            f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}; models and prompts in files must be at the same "
            "path on every node, on a shared disk for example"
        ) from error
    job = Job.of(order.path, order.options, scenario)
    if job.digest != order.digest:
        raise UserError(f"{where}: reads the scenario otherwise than the process that sent it; install the same version there")
    return job


def _pin(part: Part) -> None:
    """Pin a timed part that names its threads to as many cores: the first, or by GPU where units share a node."""
    if part.threads is None or not part.timed or not hasattr(os, "sched_setaffinity"):
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
    first = part.threads * (int(visible) if part.device == "cuda" and visible.isdecimal() else 0)
    cores = sorted(os.sched_getaffinity(0))[first : first + part.threads]
    if len(cores) == part.threads:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
