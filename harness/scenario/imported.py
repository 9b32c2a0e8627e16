"""An imported run as a scenario and cases of ours: the arms are named by whoever imports, everything else is in the files."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from harness import __version__
from harness.errors import UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.record.imports.measured import MOST_REQUESTS, ResultFile
from harness.record.imports.samples import Placed, imported_of, samples_of
from harness.record.schema import CaseHeader, RunHeader, Sample
from harness.record.written import Environment, WrittenPartKeys, WrittenScenario
from harness.scenario.arms import NTP
from harness.scenario.claims import Claims
from harness.scenario.loading import scenario_digest
from harness.scenario.method import ArmSettings
from harness.scenario.servers import SERVED

PART, TASK = "imported", "requests"
QUESTION = "What do the files of {tool} show?"
NOT_TOLD = {
    "dtype": "the files do not tell how the weights are stored",
    "device": "the files do not tell on what the server ran",
}
NO_MODEL = "the files hold no shape of the model; --model names one"
NO_TIME = "the files tell no time of day; a history has their runs in the order of importing"
NO_MACHINE = "no file names the machine; --machine does"


@frozen
class ImportedArm:
    """One side: its label and its files, each one process. ``is_ntp``: the baseline, which decodes a token a pass."""

    name: str
    is_ntp: bool
    files: tuple[ResultFile, ...]

    @property
    def settings(self) -> ArmSettings:
        """No file tells more."""
        return ArmSettings.model_validate({"method": "ntp"} if self.is_ntp else {"method": "served", "server": self.name})

    @property
    def case_id(self) -> str:
        """As in a plan."""
        return f"{PART}/{TASK}/b1/{NTP.name if self.is_ntp else f'served-{self.name}'}"

    @property
    def label(self) -> str:
        """As tables write it."""
        return (NTP if self.is_ntp else SERVED).label(self.settings, None)


@frozen
class About:
    """What whoever imports says of the files, and what no file says."""

    model: ModelShape | None
    machine: str | None
    claims: Claims
    command: str


def refuse_unlike_files(arms: Sequence[ImportedArm]) -> None:
    """Nothing where the files can stand beside each other.

    Raises:
        UserError: they are of several tools or versions, of different loads or models, one is there twice, or the arms have
            different numbers of files.
    """
    every = [file for arm in arms for file in arm.files]
    alike: dict[str, set[object]] = {
        "the tool": {one.tool for one in every},
        "the tool's version": {one.tool_version for one in every},
        "the model": {one.model for one in every},
        "the most requests at once": {one.concurrency for one in every},
        "the rate of requests": {one.requests_per_s for one in every},
    }
    for what, values in alike.items():
        if len(values) > 1:
            told = ", ".join(sorted(str(value) for value in values))
            raise UserError(f"{what} differs between the files ({told}); give files that were made alike, or import each alone")
    if (sent := sum(one.sent for one in every)) > MOST_REQUESTS:
        raise UserError(f"the files hold {sent:,} requests together, at most {MOST_REQUESTS:,} are read; give fewer")
    first: dict[str, str] = {}
    for one in every:
        if one.sha256 in first:
            raise UserError(f"{one.name} and {first[one.sha256]} are the same file; each is a process of its own, give it once")
        first[one.sha256] = one.name
    if len({len(arm.files) for arm in arms}) > 1:
        counts = ", ".join(f"{arm.label} {len(arm.files)}" for arm in arms)
        raise UserError(f"the arms have different numbers of files ({counts}); give each as many, all that were made")


def imported_run(arms: Sequence[ImportedArm], about: About) -> tuple[RunHeader, list[Sample]]:
    """Header and samples of a run made of these files.

    Raises:
        UserError: as ``refuse_unlike_files``.
    """
    refuse_unlike_files(arms)
    files = [Placed(case_id=arm.case_id, process=process, file=file) for arm in arms for process, file in enumerate(arm.files)]
    told = (at for arm in arms for file in arm.files for at in (file.measured_at, *(one.begun_at for one in file.requests)))
    begun = min(filter(None, told), default=None)
    lacks = NOT_TOLD | ({} if begun else {"measured_at": NO_TIME}) | ({} if about.model else {"model": NO_MODEL})
    lacks |= {} if about.machine else {"machine": NO_MACHINE}
    origin = imported_of(files, lacks)
    scenario = _scenario(arms, files, about)
    header = RunHeader(
        run_id=uuid.uuid4().hex,
        scenario_name=scenario["name"],
        question=scenario["question"],
        scenario=scenario,
        scenario_digest=scenario_digest(scenario),
        command=about.command,
        created_at=begun or datetime.now(UTC).isoformat(timespec="seconds"),
        cases=[_case(arm, files[0], about) for arm in arms],
        hardware=None,
        hardware_reason="an imported run has no passes to price",
        environment=cast(
            Environment,
            {"harness": __version__, "machine": about.machine, "reasons": {} if about.machine else {"machine": NO_MACHINE}},
        ),
        imported=origin,
    )
    return header, list(samples_of(files, origin.pairing))


def _scenario(arms: Sequence[ImportedArm], files: Sequence[Placed], about: About) -> WrittenScenario:
    """The same for every import of the same arms under the same load, so that a history joins them."""
    first = files[0].file
    part = {
        "name": PART,
        "tool": first.tool,
        "tool_version": first.tool_version,
        "model": first.model,
        "shape": about.model.name if about.model else None,
        "arms": [arm.settings.values for arm in arms],
        "requests": max(one.file.sent for one in files),
        "concurrency": first.concurrency,
        "requests_per_s": first.requests_per_s,
    }
    return {
        "version": 1,
        "name": f"imported-{first.format}",
        "question": QUESTION.format(tool=first.tool),
        "parts": [cast(WrittenPartKeys, part)],
        "claims": [claim.model_dump(mode="json", exclude_defaults=True) for claim in about.claims],
    }


def _case(arm: ImportedArm, first: Placed, about: About) -> CaseHeader:
    return CaseHeader(
        case_id=arm.case_id,
        part=PART,
        arm=arm.settings.written,
        label=arm.label,
        batch_size=1,
        task=TASK,
        model=about.model,
        model_source={"named": first.file.model},
        dtype=None,
        device=None,
        attention=None,
        session="served",
        execution="served",
        timed=True,
    )
