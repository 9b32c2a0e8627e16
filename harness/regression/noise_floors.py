"""The noise floors of this user's machines, one file per machine and work, in the user's own data folder.

A floor holds for the hardware it was measured on and for what was measured; another scenario has another floor.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.paths import user_data_dir
from harness.record.journal import refused, write_whole
from harness.record.machine import machine_of
from harness.record.schema import RunHeader
from harness.regression.comparability import work_fingerprint
from harness.regression.noise_floor import NoiseFloor, from_json, to_json

FILE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFloors:
    """What one file holds; ``measured_at`` is the date of the first run behind it."""

    file: Path
    machine: str
    scenario: str
    measured_at: str
    commit: str | None
    floors: tuple[NoiseFloor, ...]


def floors_file(header: RunHeader) -> Path:
    """Where the floors for the machine and the work of this run are, or would be."""
    return user_data_dir("noise_floors") / f"{machine_of(header).fingerprint}-{work_fingerprint(header)}.json"


def save_floors(header: RunHeader, floors: Sequence[NoiseFloor]) -> Path:
    """Keep ``floors`` in place of what was known before.

    Raises:
        StorageError: the file cannot be written.
    """
    file = floors_file(header)
    data = {
        "version": FILE_VERSION, "machine": machine_of(header).words, "scenario": header.scenario_name,
        "measured_at": header.created_at, "commit": header.environment.get("commit"),
        "floors": [to_json(floor) for floor in floors],
    }  # fmt: skip
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(file.parent, error) from error
    write_whole(file, json.dumps(data, indent=1, ensure_ascii=False).encode())
    return file


def known_floors(header: RunHeader) -> dict[str, NoiseFloor]:
    """The floors that hold for the machine and the work of this run, by metric key; empty where none were measured."""
    file = floors_file(header)
    return {floor.metric: floor for floor in _read(file).floors} if file.exists() else {}


def every_floor() -> list[StoredFloors]:
    """All that is kept, by file name."""
    return [_read(file) for file in sorted(user_data_dir("noise_floors").glob("*.json"))]


def _read(file: Path) -> StoredFloors:
    """Raises:
    UserError: the file is damaged; it is named and not passed over, for the gate's margin would silently be another.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["version"] > FILE_VERSION:
            raise UserError(f"{file}: format version {data['version']} is newer than this program's; upgrade sbd")
        return StoredFloors(
            file=file, machine=data["machine"], scenario=data["scenario"], measured_at=data["measured_at"],
            commit=data["commit"], floors=tuple(from_json(one) for one in data["floors"]),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{file}: cannot be read as noise floors ({error!r}); remove it and run sbd noise again") from error
