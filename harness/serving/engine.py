"""The servers of a part as its engine: started or found once, then asked for every batch of any of its arms.

A decode sends the prompts of a sample as token ids, at once or as their load says, and stamps every chunk. Nothing is shared
between two requests: prefix caches are off, or salted. Times are the client's: to the first chunk (prompt), and from it to the
last (decode).
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path

import httpx2 as httpx

from harness.errors import NotPossibleError, RequestError
from harness.meters.window import Absent, Windows
from harness.models import ModelShape
from harness.record.decode import Decoded, Readings
from harness.record.trace import ForwardPass, Generation
from harness.scenario.part import Beside, Part
from harness.scenario.plan import Case
from harness.serving.counts import FIGURES, arrivals, count_passes, merged, passes_of_round, prompt_pass, readings_of
from harness.serving.dialects.dialect import Rounds, ServerRequest
from harness.serving.served_model import ServedModel, growth
from harness.serving.stream import ServedAnswer, ask
from harness.serving.times import Turns, batch_times, in_turns, own_times, row_times, turns_of
from harness.workloads.loader import Tokenizer

SETTLE_S, SETTLE_TRIES = 0.05, 20
LONGEST_TOLD = 1000
"""Characters of what is wrong with an answer, which may quote the server."""


@dataclass
class ServedEngine:
    """All servers of a part. ``windows``: what watches this machine meanwhile, None for a part without a clock; ``absent``:
    what cannot be read here.
    """

    _part: Part
    shape: ModelShape
    tokenizer: Tokenizer | None
    _weights: str
    _logs: Path
    _windows: Windows | None = None
    _absent: Sequence[Absent] = ()

    def __post_init__(self) -> None:
        """Raises NotPossibleError, RequestError: a server does not start, or is none."""
        self._salt = count()
        self._loop = asyncio.new_event_loop()
        with ExitStack() as opened:
            opened.callback(self._loop.close)
            self._servers: dict[str, ServedModel] = {}
            for name, choice in self._part.servers.items():
                self._servers[name] = ServedModel(name, choice, self._weights, self._part.dtype, self._logs)
                opened.callback(self._servers[name].close)
            for server in self._servers.values():
                server.ensure_running()
            self.close: Callable[[], None] = weakref.finalize(self, opened.pop_all().close)

    @property
    def meters(self) -> dict[str, object] | None:
        """The figures of the samples, this machine's and the servers', with unit and source."""
        if self._windows is None:
            return None
        own = {name: asdict(figure) for name, figure in self._windows.figures.items()}
        absent = [asdict(missing) for missing in self._absent]
        return {"figures": own | {name: asdict(figure) for name, figure in FIGURES.items()}, "absent": absent}

    def fingerprint(self, part: Part) -> dict[str, object]:
        """What every server of the part says of itself."""
        return {"servers": {name: self._servers[name].described() for name in part.servers}}

    def measure_passes(self, block_sizes: Sequence[int], beside: Sequence[tuple[Beside, int]]) -> list[Decoded]:
        """Raises NotPossibleError: a server is asked for answers, not for passes."""
        raise NotPossibleError("a server's passes cannot be measured one by one; its requests are")

    def decode(self, case: Case, prompts: Sequence[tuple[int, ...]], seed: int) -> Decoded:
        """Ask the arm's server for all requests of a sample.

        Raises:
            RequestError: it did not answer; a server of ours that ended is started again for the next batch.
        """
        served = self._servers[case.arm.server or ""]
        served.ensure_running()
        turns = turns_of(case.load, case.batch_size, len(prompts), seed)
        lengths = turns.output_tokens or [case.workload.max_new_tokens] * len(prompts)
        requests = [
            ServerRequest(
                ids=ids,
                max_tokens=tokens,
                temperature=case.arm.temperature,
                seed=seed + row,
                salt=f"{id(self)}-{next(self._salt)}",
                ignore_stop=case.part.replayed or turns.output_tokens is not None,
            )
            for row, (ids, tokens) in enumerate(zip(prompts, lengths, strict=True))
        ]
        before = served.counters()
        if self._windows is not None:
            self._windows.open()
        try:
            answers = self._loop.run_until_complete(_ask_all(served, requests, turns))
        except RequestError as error:
            words = served.without_key(str(error))[:LONGEST_TOLD]
            raise RequestError(f"server {served.name}: {words}{served.why_dead()}") from error
        finally:
            machine = self._windows.close() if self._windows is not None else None
        _refuse_other_tokens(served.name, requests, answers, self.shape.vocab)
        return _decoded(case, prompts, answers, self._grown(served, before, len(answers)), machine, served.rounds)

    def _grown(self, served: ServedModel, before: Mapping[str, float], requests: int) -> dict[str, float]:
        """Growth of the counters, once the server has counted these requests as finished."""
        grown: dict[str, float] = {}
        for _ in range(SETTLE_TRIES):
            grown = growth(before, served.counters())
            if grown.get("requests", requests) >= requests:
                break
            self._loop.run_until_complete(asyncio.sleep(SETTLE_S))
        return grown


async def _ask_all(served: ServedModel, requests: Sequence[ServerRequest], turns: Turns) -> list[ServedAnswer]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=served.address, headers=served.headers, limits=limits, trust_env=False) as client:
        return await in_turns(turns, lambda i: ask(client, served.dialect, requests[i], served.model, served.silent_s))


def _refuse_other_tokens(server: str, requests: Sequence[ServerRequest], answers: Sequence[ServedAnswer], vocab: int) -> None:
    for asked, answer in zip(requests, answers, strict=True):
        if answer.prompt_tokens not in (None, len(asked.ids)):
            raise RequestError(f"server {server} read {answer.prompt_tokens} prompt tokens, {len(asked.ids)} were sent")
        if max(answer.ids) >= vocab:
            raise RequestError(f"server {server} wrote token {max(answer.ids)}; the model has {vocab}, check that it serves it")
        written = answer.said.get("written") or len(answer.ids)
        if written > asked.max_tokens or (written < asked.max_tokens and (asked.ignore_stop or answer.stop_reason == "length")):
            raise RequestError(
                f"server {server} wrote {written} tokens, {asked.max_tokens} were asked for: where it wrote fewer, its context "
                "is too short, or it does not take ignore_eos; use a longer one, or a load without a trace, and real acceptance"
            )


def _decoded(
    case: Case,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[ServedAnswer],
    grown: Mapping[str, float],
    machine: Readings | None,
    rounds: Rounds,
) -> Decoded:
    """The answers of a sample as one decode."""
    one_by_one = case.arm.method != "served" and rounds.passes == 1
    together = merged(
        [
            arrivals(row, answer, len(prompt), one_by_one, rounds.fed)
            for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
        ]
    )
    passes: list[ForwardPass] = []
    if rounds.passes is not None:
        later = (passes_of_round(of_round, len(answers), rounds.passes) for of_round in together)
        passes = [prompt_pass(answers, prompts), *chain.from_iterable(later)]
    generation = Generation(
        passes=tuple(passes),
        prompt_tokens=tuple(map(len, prompts)),
        output_ids=tuple(answer.ids for answer in answers),
        stop_reasons=tuple(answer.stop_reason for answer in answers),
    )
    at_once = case.load is None or case.load.closed
    times = batch_times(answers, together) if at_once else own_times(answers)
    forward_s = times.forward_s if rounds.passes == 1 else None
    ways = [count_passes(answer, grown, alone=len(answers) == 1, rounds=rounds) for answer in answers]
    own = readings_of(answers, ways, grown, case.batch_size == 1, rounds.untold)
    return Decoded(
        generation=generation,
        prefill_s=times.prefill_s,
        decode_s=times.decode_s,
        forward_s=forward_s,
        sampler_s=None if forward_s is None else [0.0] * len(passes),
        readings=Readings(
            values=own.values | (machine.values if machine else {}), reasons=own.reasons | (machine.reasons if machine else {})
        ),
        row_times=row_times(answers),
    )
