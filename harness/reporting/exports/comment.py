"""Posts a comment on the pull request or merge request that a CI job runs for, or rewrites the one that it posted before.

The first line of a comment is an HTML comment that names it: the program finds its own by that line and by their author.
Sources: docs.github.com, REST "Issue comments", and "Variables" of GitHub Actions; docs.gitlab.com, "Notes API" and
"Predefined CI/CD variables". Both list at most 100 comments a page. Both platforms' CI tell where their interface is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from harness.errors import UserError
from harness.formatting import one_line
from harness.reporting.exports.review import MARKER, marker

MOST_CHARACTERS = 65_000
"""GitHub refuses a comment with more than 65,536."""
PAGE = 100
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """The comments of one pull request or merge request."""

    name: str
    api: str
    """The interface's address, without a slash at the end."""
    listed: str
    """Path of its comments; a new one is posted there."""
    one: str
    """Path of a comment, before its number."""
    rewrite: str
    """The HTTP method that rewrites one."""
    author: str
    """The key of a comment that holds its author."""
    headers: Mapping[str, str]
    source: str
    """Where the job and the revision can be seen, in Markdown."""
    needs: str
    """What the token must be allowed to do."""


def post_comment(file: Path, name: str | None, environment: Mapping[str, str]) -> str:
    """Post ``file``, or rewrite the comment of the same name; returns what was done and where it is.

    Args:
        file: Markdown, as ``--to markdown=FILE`` writes it.
        name: what the comment is found by; None: the title in the file's first line.
        environment: variables of a job of GitHub Actions or GitLab CI.

    Raises:
        UserError: no pull or merge request, no token, a file that is no comment, or the platform refuses.
    """
    thread, text = thread_of(environment), _text(file, name)
    first = text.partition("\n")[0]
    body = {"body": f"{text.rstrip()}\n\n{thread.source}\n"}
    own = next((one for one in _comments(thread) if _is_ours(one, first, thread)), None)
    if own is None:
        posted = _ask(thread, "POST", thread.listed, body)
        return f"posted a comment: {_place(posted, thread)}"
    posted = _ask(thread, thread.rewrite, f"{thread.one}/{own['id']}", body)
    return f"rewrote the comment: {_place(posted, thread)}"


def thread_of(environment: Mapping[str, str]) -> Thread:
    """The pull request or merge request of this job. Raises UserError where there is none or no token."""
    if environment.get("GITHUB_ACTIONS") == "true":
        return _of_github(environment)
    if environment.get("GITLAB_CI") == "true":
        return _of_gitlab(environment)
    raise UserError(
        "this is no job of GitHub Actions or GitLab CI (GITHUB_ACTIONS and GITLAB_CI are not set); post the file by hand"
    )


def _of_github(environment: Mapping[str, str]) -> Thread:
    token = _needed(environment, "GITHUB_TOKEN", "env: {GITHUB_TOKEN: ${{ github.token }}}")
    api, repository, event_file = (environment.get(f"GITHUB_{key}", "") for key in ("API_URL", "REPOSITORY", "EVENT_PATH"))
    try:
        event = json.loads(Path(event_file).read_text(encoding="utf-8"))
        pull = event["pull_request"]
        number, commit = int(pull["number"]), str(pull["head"]["sha"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError("the event of this job is no pull request; post comments in jobs of `on: pull_request` only") from error
    job = f"{environment.get('GITHUB_SERVER_URL')}/{repository}/actions/runs/{environment.get('GITHUB_RUN_ID')}"
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    return Thread(
        name=f"GitHub: pull request {number} of {repository}",
        api=api,
        listed=f"/repos/{repository}/issues/{number}/comments",
        one=f"/repos/{repository}/issues/comments",
        rewrite="PATCH",
        author="user",
        source=f"[The job]({job}), of {commit[:12]}.",
        headers=headers,
        needs="give the job `permissions: {contents: read, pull-requests: write}`; a fork's pull request never gets it",
    )


def _of_gitlab(environment: Mapping[str, str]) -> Thread:
    token = _needed(
        environment, "SBD_COMMENT_TOKEN", "a project access token (scope api, role Reporter) as a masked CI/CD variable"
    )
    number = environment.get("CI_MERGE_REQUEST_IID")
    if not number:
        raise UserError("this pipeline belongs to no merge request; post comments in merge request pipelines only")
    project, job = (environment.get(key, "") for key in ("CI_MERGE_REQUEST_PROJECT_ID", "CI_JOB_URL"))
    notes = f"/projects/{project}/merge_requests/{number}/notes"
    return Thread(
        name=f"GitLab: merge request {number}",
        api=environment.get("CI_API_V4_URL", ""),
        listed=notes,
        one=notes,
        rewrite="PUT",
        author="author",
        source=f"[The job]({job}), of {environment.get('CI_COMMIT_SHA', '')[:12]}.",
        headers={"PRIVATE-TOKEN": token},
        needs="SBD_COMMENT_TOKEN must be a project access token with scope api and role Reporter; a job token cannot comment",
    )


def _needed(environment: Mapping[str, str], name: str, what: str) -> str:
    if not (value := environment.get(name)):
        raise UserError(f"{name} is not set, so nothing can be posted; set it: {what}")
    return value


def _text(file: Path, name: str | None) -> str:
    """The comment with its first line."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not UTF-8 text; give what --to markdown=FILE wrote") from error
    first, _, rest = text.partition("\n")
    is_marked = first.startswith(f"<!-- {MARKER}: ")
    if name is None and not is_marked:
        raise UserError(
            f"{file}: its first line names no comment (<!-- {MARKER}: ...); give a file of --to markdown=FILE, or --name"
        )
    if name is not None:
        text = f"{marker(name)}\n{rest if is_marked else text}"
    if len(text) > MOST_CHARACTERS:
        raise UserError(f"{file}: {len(text)} characters, at most {MOST_CHARACTERS} fit a comment; shorten it")
    return text


def _comments(thread: Thread) -> Iterator[dict[str, Any]]:
    """Every comment, page by page."""
    page, found = 1, PAGE
    while found == PAGE:
        listed = _ask(thread, "GET", f"{thread.listed}?per_page={PAGE}&page={page}")
        yield from listed
        page, found = page + 1, len(listed)


def _is_ours(comment: Mapping[str, Any], first: str, thread: Thread) -> bool:
    """Whether it begins with our line and is by the token's owner. GITHUB_TOKEN may not ask whose it is: an app's."""
    if (comment.get("body") or "").partition("\n")[0].strip() != first:
        return False
    author = comment[thread.author]
    try:
        return bool(author["id"] == _ask(thread, "GET", "/user")["id"])
    except UserError:
        return bool(author.get("type") == "Bot")


def _place(comment: Mapping[str, Any], thread: Thread) -> str:
    return str(comment.get("html_url") or f"{thread.name}, note {comment['id']}")


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would take the token elsewhere."""

    def redirect_request(self, *_: object) -> None:
        """Follow none: the answer is then an error with its status."""


def _ask(thread: Thread, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
    """The answer's JSON. Raises UserError with the platform's own words."""
    if not re.match("https?://", thread.api):
        raise UserError(f"{thread.name}: {thread.api!r} is no address of an interface; CI sets GITHUB_API_URL or CI_API_V4_URL")
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "sbd", **thread.headers}
    try:
        with build_opener(_NoRedirect).open(
            Request(thread.api + path, data, headers, method=method), timeout=TIMEOUT_S
        ) as answer:
            return json.load(answer)
    except HTTPError as error:
        said = one_line(error.read(400).decode(errors="replace"))
        raise UserError(f"{thread.name}: refused to {method} ({error.code}: {said}); {thread.needs}") from error
    except (OSError, ValueError, HTTPException) as error:
        raise UserError(f"{thread.name}: no answer from {thread.api} ({error}); try again, or post the file by hand") from error
