"""A program that speaks vLLM's protocol and decodes nothing: for faults of the wire, never for a figure.

    python protocol_server.py PORT FAULT

Answers token 1, 2, 3, ... as many as asked for, STEP_S apart. FAULT: none, refuse (500), half (breaks off), hang, die (ends
itself within the third answer), foreign (counts a request of another client), wrong_prompt, slow_start, never_ready, no_ids,
short (ends an answer a token early, whatever ignore_eos says), more (a token late), elsewhere (tokens of another vocabulary).
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STEP_S = 0.002
COUNTS = {"steps": 0, "requests": 0, "prefix": 0}
FAULT = sys.argv[2] if len(sys.argv) > 2 else "none"
BEGUN = time.monotonic()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _send(self, status: int, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Health, version, models, counters."""
        if self.path == "/health":
            ready = FAULT != "never_ready" and (FAULT != "slow_start" or time.monotonic() - BEGUN > 1.0)
            self._send(200 if ready else 503, "{}")
        elif self.path == "/version":
            self._send(200, json.dumps({"version": "0-protocol-only"}))
        elif self.path == "/v1/models":
            self._send(200, json.dumps({"data": [{"id": "model"}]}))
        else:
            requests = COUNTS["requests"] * (2 if FAULT == "foreign" else 1)
            lines = [
                "# TYPE vllm:iteration_tokens_total histogram",
                f'vllm:iteration_tokens_total_bucket{{le="+Inf"}} {COUNTS["steps"]}',
                f"vllm:iteration_tokens_total_count {COUNTS['steps']}",
                f"vllm:iteration_tokens_total_sum {COUNTS['steps']}",
                "# TYPE vllm:request_success counter",
                f'vllm:request_success_total{{finished_reason="length"}} {requests}',
                "",
            ]
            self._send(200, "\n".join(lines), "text/plain; version=0.0.4")

    def do_POST(self) -> None:
        """An answer as a stream."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if FAULT == "refuse":
            self._send(500, json.dumps({"error": {"message": "planted"}}))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        prompt = len(asked["prompt"]) + (FAULT == "wrong_prompt")
        wanted = asked["max_tokens"] - (FAULT == "short") + (FAULT == "more")
        for number in range(1, wanted + 1):
            COUNTS["steps"] += 1
            if number == wanted // 2:
                if FAULT == "half":
                    return
                if FAULT == "hang":
                    time.sleep(3600)
                if FAULT == "die" and COUNTS["requests"] == 2:
                    os._exit(9)
            last = number == wanted
            if last:
                COUNTS["requests"] += 1
            ids = [] if FAULT == "no_ids" else [number + 990_000 * (FAULT == "elsewhere")]
            self._event(
                {
                    "choices": [{"index": 0, "text": "x", "token_ids": ids, "finish_reason": "length" if last else None}],
                    "usage": {"prompt_tokens": prompt},
                }
            )
            time.sleep(STEP_S)
        self._event({"choices": [], "usage": {"prompt_tokens": prompt}, "metrics": {}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: object) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
