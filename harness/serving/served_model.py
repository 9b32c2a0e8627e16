"""One server that answers: started or found, its address, its model's name there, its counters and what it says of itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, Field, ValidationError

from harness.errors import RequestError
from harness.scenario.servers import Server
from harness.serving.dialects import DIALECTS
from harness.serving.dialects.dialect import Rounds, ServerFacts, Word
from harness.serving.launch import StartedServer, free_port, small_answer

END_SEEN_S = 1.0
LONGEST = 300
"""Characters of what a server said in a message of ours."""
LONGEST_COUNTERS = 200_000
"""Characters of all series of the wanted counters; 64 engines behind one address write half as many."""
BY_WORD = Rounds(passes=None, untold="the scenario says diffusion: true; such a server tells no passes")


class Listed(BaseModel):
    """A model that a server serves, by its name in requests."""

    id: Word


class Models(BaseModel):
    """All models that a server serves, as far as they are read."""

    data: Annotated[list[Listed], Field(fail_fast=True)]


def read_counters(text: str, wanted: Mapping[str, str]) -> dict[str, float]:
    """The wanted counters of an exposition, summed over their labels; one that is not there is left out.

    Args:
        text: in Prometheus' text format; no other series than those of the wanted counters are parsed.
        wanted: what each is called there, by this program's name.

    Raises:
        ValueError, LookupError, ArithmeticError: a series is malformed, there twice, or no count (negative, not finite, 1e18).
    """
    theirs = "\n".join(line for line in text.split("\n") if line.startswith(tuple(wanted.values())))
    if len(theirs) > LONGEST_COUNTERS:
        raise ValueError("longer than any engine's")
    sums: dict[str, float] = {}
    seen = set[str]()
    for family in text_string_to_metric_families(theirs):
        for sample in family.samples:
            if (series := f"{sample.name} {sorted(sample.labels.items())}") in seen or not 0 <= sample.value < 1e18:
                raise ValueError(series)
            seen.add(series)
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return {own: sums[name] for own, name in wanted.items() if name in sums}


def growth(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was added in between, where any were read before. A counter that came up began at 0; one that fell is left out."""
    grown = ((name, value - before.get(name, 0.0)) for name, value in after.items() if before)
    return {name: value for name, value in grown if value >= 0}


@dataclass
class ServedModel:
    """One server that answers: its address, its model's name there, and its dialect."""

    name: str
    _choice: Server
    _weights: str
    _dtype: str
    _logs: Path

    def __post_init__(self) -> None:
        """Starts it where the scenario gives no address, and does not wait: servers of a part get ready side by side."""
        self.dialect = DIALECTS[self._choice.engine]
        self.started: StartedServer | None = None
        self.command: list[str] = []
        self.address = (self._choice.url or "").rstrip("/")
        variable = f"SBD_SERVER_AUTH_{re.sub('[^0-9A-Za-z]', '_', self.name).upper()}"
        key = re.sub("[^!-~]+", " ", os.environ.get(variable, "")).strip()
        self.headers = {"authorization": key} if key else {}
        self._secret = key.rpartition(" ")[2]
        self._start()

    def _start(self) -> None:
        self.model, self._slow = "", False
        self._about = ServerFacts()
        if self._choice.url is None:
            port = free_port()
            self.command = self.dialect.command(self._choice, self._weights, port, self._dtype)
            self.address = f"http://127.0.0.1:{port}"
            log = self._logs / f"server-{self.name}.log"
            self.started = StartedServer(self.name, self.command, self._choice.environment, log)

    def ensure_running(self) -> None:
        """Wait until it answers; one of ours that had answered and has ended is started again.

        Raises:
            NotPossibleError, RequestError: it does not start, or serves another model.
        """
        if self.started is not None and self.model and self.started.poll() is not None:
            self.close()
            self._start()
        if not self.model:
            if self.started is not None:
                self.started.wait_ready(self.address + self.dialect.health, self._choice.ready_s)
            self.model = self._served_model()
            with suppress(RequestError, ValidationError):
                self._about = ServerFacts.model_validate_json(self.get(self.dialect.about))
            self.rounds = BY_WORD if self._choice.diffusion else self.dialect.rounds(self._about, self._choice)

    def _served_model(self) -> str:
        """The model's name in requests.

        Raises:
            RequestError: the server lists no models, serves another one, or several and none is named.
        """
        answer = self.get("/v1/models")
        try:
            listed = Models.model_validate_json(answer).data
        except ValidationError as error:
            raise RequestError(
                f"server {self.name}: {self.address}/v1/models answers {bytes(answer[:LONGEST])!r}; it must be a JSON object "
                "whose data lists models, each with an id of at most 1000 printable characters; give the url of such a server"
            ) from error
        wanted = self._choice.model
        fit = {model.id for model in listed if wanted in (None, model.id)}
        if len(fit) == 1:
            return fit.pop()
        raise RequestError(
            f"server {self.name} serves {', '.join(model.id for model in listed)[:LONGEST] or 'no model'}; "
            f"the scenario {f'asks for {wanted!r}' if wanted else 'names none (model:)'}"
        )

    def get(self, path: str) -> bytearray:
        """A small answer of the server. Raises RequestError: there is none."""
        answer = small_answer(self.name, self.address + path, self.headers)
        return answer.replace(self._secret.encode(), b"***") if self._secret else answer

    def without_key(self, words: str) -> str:
        """What the server said, without the key that it may repeat."""
        return words.replace(self._secret, "***") if self._secret else words

    def counters(self) -> dict[str, float]:
        """Its counters now; empty where it shows none, or not as an engine does. One that took too long is not asked again."""
        try:
            return {} if self._slow else read_counters(self.get(self.dialect.metrics).decode(), self.dialect.counters)
        except (RequestError, ValueError, LookupError, ArithmeticError) as error:
            self._slow = isinstance(error.__cause__, TimeoutError)
            return {}

    def described(self) -> dict[str, object]:
        """Version, model, command, environment, and what its figures mean, for the record. A record that is passed on names no
        folder of this machine: programs and weights stand by their own names.
        """
        command = [Path(word).name if Path(word).is_absolute() else word for word in self.command]
        return {
            "engine": self.dialect.name,
            "version": self._about.version or self._about.build_info,
            "model": self.model,
            "started": self.started is not None,
            "command": command,
            "environment": dict(self._choice.environment),
            "counters": sorted(self.counters()),
            "headline": self.dialect.headline,
            "passes_per_round": self.rounds.passes,
        }

    @property
    def silent_s(self) -> float:
        """The longest that it may be silent."""
        return self._choice.silent_s

    def why_dead(self) -> str:
        """What its log says where it has ended, or does so now; else nothing."""
        if self.started is None or not self.started.ends_within(END_SEEN_S):
            return ""
        return f"; the server has ended ({self.started.returncode}): {self.started.tail()}"

    def close(self) -> None:
        """End it where it was started here."""
        if self.started is not None:
            self.started.end()
