"""One server that answers: started or found, its address, its model's name there, its counters and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2 as httpx

from harness.errors import RequestError
from harness.scenario.servers import Server
from harness.serving.counters import read_counters
from harness.serving.dialects.dialect import ONE_PASS, Rounds
from harness.serving.dialects.registry import dialect_of
from harness.serving.launch import StartedServer, free_port

END_SEEN_S = 1.0
BY_WORD = Rounds(passes=None, untold="the scenario says diffusion: true; such a server tells no passes")


class ServedModel:
    """One server that answers: its address, its model's name there, and its dialect."""

    def __init__(self, name: str, choice: Server, weights: str, dtype: str, logs: Path) -> None:
        """Starts it where the scenario gives no address, and does not wait: servers of a part get ready side by side."""
        self.name, self.dialect, self._choice = name, dialect_of(choice), choice
        self._weights, self._dtype, self._log = weights, dtype, logs / f"server-{name}.log"
        self.started: StartedServer | None = None
        self.command: list[str] = []
        self.address = (choice.url or "").rstrip("/")
        self.model = ""
        self.rounds: Rounds = ONE_PASS
        self._about: Mapping[str, Any] = {}
        self._start()

    def _start(self) -> None:
        if self._choice.url is None:
            port = free_port()
            self.command = self.dialect.command(self._choice, self._weights, port, self._dtype)
            self.address, self.model = f"http://127.0.0.1:{port}", ""
            self.started = StartedServer(self.name, self.command, self._choice.environment, self._log)

    def ensure_running(self) -> None:
        """Wait until it answers; one of ours that had answered and has ended is started again.

        Raises:
            NotPossibleError, RequestError: it does not start, or serves another model.
        """
        if self.started is not None and self.model and self.started.ended is not None:
            self.close()
            self._start()
        if not self.model:
            if self.started is not None:
                self.started.wait_ready(self.address + self.dialect.health, self._choice.ready_s)
            self.model = self._served_model()
            self._about = self._described_by_itself()
            self.rounds = BY_WORD if self._choice.diffusion else self.dialect.rounds(self._about, self._choice)

    def _served_model(self) -> str:
        answer = self.get("/v1/models").json()
        return _known_model(self.name, self._choice.model, [str(one["id"]) for one in answer.get("data", [])])

    def _described_by_itself(self) -> Mapping[str, Any]:
        """What it says of itself; empty where it does not."""
        try:
            found = self.get(self.dialect.about).json()
        except (RequestError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def get(self, path: str) -> httpx.Response:
        """A small answer of the server.

        Raises:
            RequestError: there is none.
        """
        try:
            found = httpx.get(self.address + path, timeout=self._choice.silent_s, trust_env=False)
        except httpx.HTTPError as error:
            raise RequestError(
                f"server {self.name} at {self.address} does not answer: {error or type(error).__name__}"
            ) from error
        if found.status_code != httpx.codes.OK:
            raise RequestError(f"server {self.name}: {path} answered {found.status_code}")
        return found

    def counters(self) -> dict[str, float]:
        """Its counters now; empty where it shows none."""
        try:
            return read_counters(self.get(self.dialect.metrics).text, self.dialect.counters)
        except (RequestError, ValueError):
            return {}

    def described(self) -> dict[str, Any]:
        """Version, model, command, environment, and what its figures mean, for the record. A record that is passed on names no
        folder of this machine: programs and weights stand by their own names.
        """
        command = [Path(word).name if Path(word).is_absolute() else word for word in self.command]
        return {
            "engine": self.dialect.name, "version": self._about.get(self.dialect.version), "model": self.model,
            "started": self.started is not None, "command": command, "environment": dict(self._choice.environment),
            "counters": sorted(self.counters()), "headline": self.dialect.headline, "passes_per_round": self.rounds.passes,
        }  # fmt: skip

    @property
    def silent_s(self) -> float:
        """The longest that it may be silent."""
        return self._choice.silent_s

    def why_dead(self) -> str:
        """What its log says where it has ended, or does so now; else nothing."""
        if self.started is None or not self.started.ends_within(END_SEEN_S):
            return ""
        return f"; the server has ended ({self.started.ended}): {self.started.tail()}"

    def close(self) -> None:
        """End it where it was started here."""
        if self.started is not None:
            self.started.close()


def _known_model(name: str, wanted: str | None, listed: Sequence[str]) -> str:
    """The model's name in requests.

    Raises:
        RequestError: the server serves another model, or several and none is named.
    """
    if wanted is None and len(listed) == 1:
        return listed[0]
    if wanted is not None and wanted in listed:
        return wanted
    asked = f"the scenario asks for {wanted!r}" if wanted else "the scenario names none (model:)"
    raise RequestError(f"server {name} serves {', '.join(listed) or 'no model'}; {asked}")
