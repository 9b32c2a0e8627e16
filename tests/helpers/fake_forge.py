"""GitHub's comments and GitLab's notes as their documentation describes them, on this machine, with what was asked kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

LISTED = re.compile(r"/repos/[^/]+/[^/]+/issues/\d+/comments|/projects/\d+/merge_requests/\d+/notes")
ONE = re.compile(r"(?:/repos/[^/]+/[^/]+/issues/comments|/projects/\d+/merge_requests/\d+/notes)/(\d+)")
BOT = {"id": 41898282, "login": "github-actions[bot]", "type": "Bot"}


@dataclass
class Forge:
    """``user``: who the token belongs to, None: the token may not ask; ``refusal``: a status that every change gets."""

    address: str = ""
    user: dict[str, Any] | None = None
    refusal: int | None = None
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def add(self, body: str, author: dict[str, Any] | None = None) -> dict[str, Any]:
        """A comment as both platforms list it; by default the bot's."""
        by = author or self.user or BOT
        one = {"id": len(self.comments) + 1, "body": body, "user": by, "author": by}
        self.comments.append(one)
        return one

    def answer(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        """Status and JSON of one request."""
        split = urlsplit(path)
        if split.path == "/user":
            return (200, self.user) if self.user else (403, {"message": "Resource not accessible by integration"})
        if self.refusal and method != "GET":
            return self.refusal, {"message": "Resource not accessible by integration"}
        if LISTED.fullmatch(split.path):
            if method == "POST" and body:
                return 201, self.add(body["body"])
            size, page = (int(parse_qs(split.query)[key][0]) for key in ("per_page", "page"))
            return 200, self.comments[size * (page - 1) : size * page]
        found = ONE.fullmatch(split.path)
        if found and body and method == ("PATCH" if "/repos/" in path else "PUT"):
            self.comments[int(found[1]) - 1]["body"] = body["body"]
            return 200, self.comments[int(found[1]) - 1]
        return 404, {"message": "Not Found"}


@contextmanager
def forge(**settings: Any) -> Iterator[Forge]:
    """A forge that answers at ``address`` until the block is left."""
    made = Forge(**settings)

    class Handler(BaseHTTPRequestHandler):
        """One connection."""

        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def handle_one(self) -> None:
            """Keep the request and answer it."""
            made.asked.append((self.command, self.path, dict(self.headers)))
            length = int(self.headers.get("Content-Length") or 0)
            status, answer = made.answer(self.command, self.path, json.loads(self.rfile.read(length)) if length else None)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_PUT = handle_one

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    made.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
