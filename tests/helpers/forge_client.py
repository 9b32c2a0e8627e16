"""`gh api` and `glab api` as their manuals describe them, against the forge at $FORGE: `forge_client.py gh api ENDPOINT ...`.

An error's body goes to standard output and the exit code is 1, as both do. gh filters each page with its own jq; here it is the
program jq.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def written(folder: Path) -> str:
    """Both programs in ``folder``; returns the PATH that finds them first."""
    folder.mkdir(exist_ok=True)
    for name in ("gh", "glab"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def asked(name: str, method: str, path: str, body: dict[str, str] | None) -> Any:
    """The forge's answer; raises HTTPError."""
    token = {"Authorization": f"Bearer {os.environ['GH_TOKEN']}"} if name == "gh" else {}
    token |= {"Private-Token": os.environ["GITLAB_TOKEN"]} if name == "glab" else {}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(f"{os.environ['FORGE']}/{path}", data, token, method=method), timeout=30) as answer:
        return json.load(answer)


def main() -> int:
    """Print the answers, page by page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("api", choices=["api"])
    parser.add_argument("endpoint")
    parser.add_argument("--paginate", action="store_true")
    parser.add_argument("--method")
    parser.add_argument("--field", action="append", default=[])
    parser.add_argument("--jq")
    given = parser.parse_args()
    assert given.jq is None or given.name == "gh", "glab has no --jq"
    pairs = [field.split("=", 1) for field in given.field]
    body = {key: Path(value[1:]).read_text() if value.startswith("@") else value for key, value in pairs} or None
    page, answer = 1, None
    while page == 1 or (given.paginate and answer):
        path = f"{given.endpoint}&page={page}" if given.paginate else given.endpoint
        try:
            answer = asked(given.name, given.method or ("POST" if body else "GET"), path, body)
        except HTTPError as error:
            print(error.read().decode())
            print(f"{given.name}: {error}", file=sys.stderr)
            return 1
        text = json.dumps(answer)
        if given.jq is not None:
            done = subprocess.run(["jq", "-r", given.jq], input=text, capture_output=True, text=True, check=True)
            text = done.stdout.rstrip("\n")
        print(text, end="\n" if text else "")
        page += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
