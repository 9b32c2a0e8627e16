"""What this program must know of an inference engine, as data and small functions, and what several engines share."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from typing import Annotated, Any, Self, TypedDict

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from harness.errors import LONGEST_SHOWN, MissingExtraError, RequestError, first_mistake
from harness.frozen import frozen
from harness.record.trace import StopReason
from harness.scenario.servers import EngineName, Server

MOST = 1 << 31
"""Tokens, rounds, drafts or milliseconds of one request, at most: no engine takes a longer one."""
Count = Annotated[int, Field(ge=0, le=MOST)]
Counts = Annotated[list[Count], Field(fail_fast=True)]
Figure = Annotated[float, Field(ge=0, le=MOST)]
"""A server's own mean, or its milliseconds."""


class Sent(BaseModel):
    """What a server sends, as far as it is read here: further keys are passed over, a value of another kind is refused."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def of(cls, sent: object) -> Self:
        """What was sent, checked.

        Raises:
            RequestError: it is an error of the server, or a value is missing or of another kind; its place is named.
        """
        if isinstance(sent, dict) and (given := sent.get("error")) is not None:
            words = str(given.get("message", given) if isinstance(given, dict) else given)
            raise RequestError(f"the server broke off: {words:.{LONGEST_SHOWN}}")
        try:
            return cls.model_validate(sent)
        except ValidationError as error:
            raise RequestError(first_mistake(error, "the whole")) from error


class RequestFigures(TypedDict, total=False):
    """What a server tells of one request; absent or None: it does not.

    ``written``: output tokens so far. ``steps``: decode rounds. ``headline``: its own mean of tokens a round, and
    ``tokens_per_iteration`` the same with the prompt's iteration. ``accepted_histogram``: rounds by their accepted drafts.
    """

    prompt_tokens: int | None
    written: int | None
    cached: int | None
    accepted: int | None
    steps: int
    headline: float
    tokens_per_iteration: float
    accepted_histogram: list[int]
    accepted_by_round: list[int] | None
    drafted_by_round: list[int] | None


class CompletionChoice(Sent):
    """The one answer that is asked for, from its last event to this one."""

    index: Annotated[int, Field(ge=0, le=0)] = 0
    finish_reason: str | None = None
    token_ids: Counts | None = None
    avg_decoded_tokens_per_iter: Figure | None = None


class PromptDetails(Sent):
    """Prompt tokens that were found in a cache."""

    cached_tokens: Count | None = None


class Usage(Sent):
    """Tokens of the request up to this event."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None


class Completion(Sent):
    """An event of a server that follows OpenAI's completions."""

    choices: Annotated[list[CompletionChoice], Field(max_length=1, fail_fast=True)]
    usage: Usage | None = None

    def told(self, said: RequestFigures) -> StreamEvent:
        """This as an event; what it counts is added to what else it said."""
        usage, choice = self.usage or Usage(), self.choices[0] if self.choices else CompletionChoice()
        details = usage.prompt_tokens_details or PromptDetails()
        said |= {"prompt_tokens": usage.prompt_tokens, "written": usage.completion_tokens, "cached": details.cached_tokens}
        return tokens_event(choice.finish_reason, choice.token_ids, said)


Word = Annotated[str, StringConstraints(pattern=r"^\P{C}*$", max_length=1000)]


class ServerFacts(BaseModel):
    """What an engine says of itself, as far as it is read: its version, and what SGLang was started with."""

    version: Word | None = None
    build_info: Word | None = None
    dllm_algorithm: Word | None = None
    speculative_algorithm: Word | None = None
    speculative_num_draft_tokens: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = None


@frozen
class RoundProgress:
    """Where a request is: a ``mark`` that all tokens of one round share, and its drafted and accepted tokens up to there."""

    mark: float
    drafted: int
    accepted: int


@frozen
class StreamEvent:
    """What one event of a stream holds. ``said``: of the whole request, up to there.

    A server may send the tokens of one round in several events: ``progress`` tells the round, and ``same_round`` that it is the
    one of the event before.
    """

    ids: tuple[int, ...] = ()
    stop_reason: StopReason | None = None
    said: RequestFigures = field(default_factory=RequestFigures)
    progress: RoundProgress | None = None
    same_round: bool = False


@frozen
class ServerRequest:
    """What a prompt is asked with, whatever the engine. ``ignore_stop``: all tokens are wanted, whatever they are."""

    ids: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    salt: str
    ignore_stop: bool = False


@frozen
class Rounds:
    """How a server decodes: in rounds, each of which gives the tokens that arrive together.

    ``passes``     of the served model in a round; None: the server does not tell, for the reason ``untold``
    ``own_tokens`` tokens of a round that no draft gave
    ``fed``        tokens that each pass of a round feeds, where the server says it
    ``drafts``     whether the server drafts; None: unknown
    """

    passes: int | None = 1
    own_tokens: int = 1
    fed: int | None = None
    drafts: bool | None = None
    untold: str = ""


ONE_PASS = Rounds()
"""A round is one pass, which ends with one token of the model's own."""


class Dialect:
    """One engine; one that follows OpenAI's completions leaves most as it is here.

    ``path``      where a prompt of token ids is sent
    ``whole``     whether every token is sent; else the server's own count may be above the ids
    ``health``    answers 200 once requests are served
    ``about``     where it describes itself, as JSON (ServerFacts)
    ``metrics``   where its Prometheus counters are, and ``counters``: those, by this program's names: passes, rounds, drafted,
                  accepted, requests, cached, preempted, read_bytes; absent ones are not counted there
    ``headline``  what its own figure of acceptance means, in words
    """

    name: EngineName
    headline: str
    path = "/v1/completions"
    health = "/health"
    about = "/version"
    metrics = "/metrics"
    whole = True
    counters: Mapping[str, str] = {}

    def body(self, request: ServerRequest, model: str) -> dict[str, object]:
        """The request as this engine takes it, for the model of that name."""
        return {
            "model": model,
            "prompt": list(request.ids),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed % (1 << 31),
            "stream": True,
            "n": 1,
            "ignore_eos": request.ignore_stop,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }

    def read(self, sent: object) -> StreamEvent:
        """An event of its stream, whatever JSON was sent; raises RequestError where it is none."""
        raise NotImplementedError

    def rounds(self, about: ServerFacts, server: Server) -> Rounds:
        """How it decodes, from what it says of itself and the scenario's server."""
        return ONE_PASS

    def command(self, server: Server, model: str, port: int, dtype: str) -> list[str]:
        """How it is started, from its own installation, for the weights on a port in a dtype.

        Raises:
            NotPossibleError, MissingExtraError: it is not started here, or is not installed.
        """
        raise NotImplementedError


def spec_counters(prefix: str) -> dict[str, str]:
    """The schema that vLLM, llama.cpp and LMDeploy share. A pass without a draft is no round; accepted drafts after a
    stop count.
    """
    named = {"rounds": "drafts", "drafted": "draft_tokens", "accepted": "accepted_tokens"}
    return {own: f"{prefix}:spec_decode_num_{name}_total" for own, name in named.items()}


def tokens_event(reason: str | None, ids: Sequence[int] | None, said: RequestFigures, **more: Any) -> StreamEvent:
    """An event with the reason why the answer ended, None within it; raises RequestError where the server broke it off."""
    if reason not in (None, "stop", "length"):
        raise RequestError(f"the answer was ended: {reason:.{LONGEST_SHOWN}}")
    stop: StopReason | None = "stop" if reason == "stop" else "length" if reason == "length" else None
    return StreamEvent(ids=tuple(ids or ()), stop_reason=stop, said=said, **more)


def python_of(engine: str, package: str) -> str:
    """The Python that has the ``package`` of an ``engine``: named by a variable, or this one.

    Raises:
        MissingExtraError: neither.
    """
    variable = f"SBD_{package.upper()}_PYTHON"
    python = os.environ.get(variable) or (sys.executable if find_spec(package) else None)
    if python is None:
        raise MissingExtraError(
            f"{engine} is not installed beside sbd; set {variable} to the Python of the environment that has it, or give url: "
            "of a running server (docs/servers.md)"
        )
    return python


def program_of(name: str) -> str:
    """The program of an engine: named by a variable, or on the PATH.

    Raises:
        MissingExtraError: neither.
    """
    variable = f"SBD_{name.upper().replace('-', '_')}"
    program = os.environ.get(variable) or shutil.which(name)
    if program is None:
        raise MissingExtraError(f"{name} is not on the PATH; set {variable} to it, or give url: of a running server")
    return program
