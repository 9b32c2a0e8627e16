"""A program that speaks vLLM's protocol and decodes nothing: for faults of the wire, never for a figure.

    python protocol_server.py PORT FAULT

Answers as tests.helpers.hostile_server does, a token STEP_S behind the other. FAULT: none, refuse (500), half (breaks off),
hang, die (ends itself within the third answer), foreign (counts a request of another client), wrong_prompt, slow_start,
never_ready, no_ids, short (ends an answer a token early, whatever ignore_eos says), more (a token late), elsewhere (tokens of
another vocabulary).
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from hostile_server import Asked, HostileServer, Pause, Pieces, events_of, metrics_of, stream, whole

STEP_S = 0.002
FAULT = sys.argv[2]
BEGUN = time.monotonic()


class ProtocolServer(HostileServer):
    """Of vLLM, with that fault."""

    def honest(self, asked: Asked) -> Pieces:
        """But for the fault."""
        if asked.door == "health":
            ready = FAULT != "never_ready" and (FAULT != "slow_start" or time.monotonic() - BEGUN > 1.0)
            return [whole("{}", "200 OK" if ready else "503 Not Ready")]
        if asked.door == "metrics":
            counts = self._counts | {"requests": self._counts["requests"] * (2 if FAULT == "foreign" else 1)}
            return [whole(metrics_of("vllm", counts), "200 OK", "text/plain; version=0.0.4")]
        if asked.door == "about":
            return [whole('{"version": "0-protocol-only"}')]
        if asked.door != "stream":
            return super().honest(asked)
        return [whole('{"error": {"message": "planted"}}', "500 Error")] if FAULT == "refuse" else stream(answer(asked))


def answer(asked: Asked) -> Iterator[object]:
    """The events of an answer with the fault, and the time between them."""
    tokens = asked.tokens - (FAULT == "short") + (FAULT == "more")
    prompt = [*asked.body["prompt"], *[0] * (FAULT == "wrong_prompt")]
    events = events_of(replace(asked, body={"prompt": prompt, "max_tokens": tokens}))
    for number, event in enumerate(events):
        for choice in event["choices"] if isinstance(event, dict) else ():
            choice["token_ids"] = [one + 990_000 * (FAULT == "elsewhere") for one in choice["token_ids"] if FAULT != "no_ids"]
        if number == tokens // 2:
            if FAULT == "half":
                return
            if FAULT == "hang":
                yield Pause(3600.0)
            if FAULT == "die" and asked.number == 2:
                os._exit(9)
        yield event
        yield Pause(STEP_S)


if __name__ == "__main__":
    ProtocolServer("vllm", port=int(sys.argv[1])).serve()
