"""`sbd capacity`: turns options into a question for the planner, and its answer into a table, JSON or CSV. Runs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from harness.capacity.acceptance import AssumedAcceptance, assumed_acceptance, from_passes, from_speedup, from_table1
from harness.capacity.columns import csv_lines, plain
from harness.capacity.plan import plan
from harness.capacity.question import DEGREES, PERCENTILE, Goal, Question, RowTokens, ServiceGoal, Trace
from harness.capacity.results import Sort
from harness.cli.capacity_table import render, render_break_even
from harness.cli.options import ModelOptions, takes_options
from harness.cli.output import csv_text, json_text, show
from harness.errors import EXIT_INCONCLUSIVE, UserError
from harness.hardware.profile import known_profiles, load_profile
from harness.models.choice import shape_called
from harness.roofline.recorded_acceptance import passes_per_block
from harness.workloads.arrivals import read_trace

CONTEXTS = (1024, 8192, 32_768, 131_072)
CONTEXT = 4096
MS_PER_S = 1e3
SERVICE = ("users", "trace", "ttft")
"""Options that ask for a service."""
OF_FULL_REPLICAS, OF_A_SERVICE = ("batch", "context", "break_even", "shared_prefix"), ("think_s", "percentile")
"""Options that say nothing about the other one."""


class CapacityOptions(ModelOptions):
    """Of `sbd capacity`."""

    model: str
    """a known shape, or a folder with a config.json"""
    hardware: list[str] | None = None
    """(NAME) a hardware profile, or its file; repeat for several; default: all"""
    nfe_speedup: float | None = None
    """acceptance: mean tokens per forward pass of a row"""
    table1: str | None = None
    """(MODEL/TASK/LEVEL) acceptance: a cell of the paper's Table 1; LEVEL is low or high (γ)"""
    from_run: Path | None = None
    """(RUN) acceptance: as a run of yours recorded it"""
    passes_at: list[str] | None = None
    """(BATCH=PASSES) lockstep: passes per block until a batch's slowest row is done; repeat"""
    tokens_per_check: float | None = None
    """verified SBD: with --nfe-speedup, mean tokens of a block that its check makes final"""
    context: int | None = None
    """workload: mean tokens in the cache per row; default, without a prompt: 4096"""
    prompt_tokens: int | None = None
    """workload, instead of --context: a request's prompt; its prefill is priced"""
    output_tokens: int | None = None
    """workload: tokens that a request writes"""
    shared_prefix: int = 0
    """(TOKENS) workload: of the prompt, what all requests share and the cache has already"""
    chunk: int | None = None
    """(TOKENS) chunked prefill: prompt tokens that a step reads beside the rows that decode; default: prompts are read whole,
    and nothing is decoded meanwhile"""
    batch: int | None = None
    """goal: rows per replica; default: the most tokens/s that fit"""
    tokens_per_s: float | None = None
    """goal: at least so many tokens/s for every user"""
    latency_ms: float | None = None
    """goal: at most so many ms per token, on average"""
    requests_per_s: float | None = None
    """goal: GPUs for so many requests/s of --output-tokens each; with --ttft simulated"""
    users: int | None = None
    """service: so many users with a request in flight; needs --ttft and both token counts"""
    trace: Path | None = None
    """(FILE) service: arrivals and lengths, Mooncake's .jsonl or Azure's .csv"""
    ttft: float | None = None
    """(SECONDS) service: time to first token, queue included; simulates"""
    think_s: float | None = None
    """(SECONDS) service: mean time from a user's answer to the next request"""
    percentile: float | None = None
    """service: % of requests for which --ttft and --tokens-per-s hold; default: 95"""
    tensor_parallel: str = "auto"
    """(N|auto) GPUs per stage; auto: the fewest of 1, 2, 4, 8 that fit, with a speed goal the cheapest"""
    memory_reserve: float = 0.1
    """share of the memory kept for runtime and prefill"""
    break_even: bool = False
    """where SBD stops paying, at contexts 1k, 8k, 32k, 128k and your own"""
    sort: Sort = "cost"
    """by SBD's USD per token, its tokens/s per user, or by name"""
    as_csv: Annotated[bool, Option(..., "--csv")] = False
    """print CSV: a line per device and arm; with --break-even, per device and context"""

    @property
    def service(self) -> list[str]:
        """The options that ask for a service, as they are typed."""
        return [f"--{name}" for name in SERVICE if name in self.given]

    @property
    def degrees(self) -> tuple[int, ...]:
        """Devices of a stage to try."""
        if self.tensor_parallel == "auto":
            return DEGREES
        if not self.tensor_parallel.isdecimal() or int(self.tensor_parallel) < 1:
            raise UserError(
                f"--tensor-parallel {self.tensor_parallel!r}: allowed are auto, or a number of GPUs per replica from 1"
            )
        return (int(self.tensor_parallel),)

    @property
    def least_tokens_per_s(self) -> float | None:
        """Of a user, as a speed or as a latency."""
        if self.latency_ms is None:
            return self.tokens_per_s
        if self.tokens_per_s is not None or not self.latency_ms > 0:
            raise UserError(
                f"--latency-ms {self.latency_ms:g}: it must be more than 0, and is the same goal as --tokens-per-s; give one "
                "of them"
            )
        return MS_PER_S / self.latency_ms


@takes_options
def capacity_command(options: CapacityOptions) -> None:
    """Plan: on which devices a model fits, how fast and how dear NTP and SBD are there, up to which batch SBD pays.

    Give a model, where the acceptance comes from, and what is wanted. Everything is predicted, nothing runs.

    \b
    sbd capacity --model llama-3.1-8b --table1 llama-3.1-8b/GSM8K/low --batch 8
    sbd capacity --model qwen3-30b-a3b --nfe-speedup 3 --prompt-tokens 2000 --output-tokens 500 \\
        --tokens-per-s 50 --requests-per-s 20 --sort cost
    sbd capacity --model llama-3.1-8b --users 500 --tokens-per-s 30 --ttft 1 --prompt-tokens 2000 --output-tokens 300
    sbd capacity --model llama-3.1-70b --nfe-speedup 3 --weights float8-block128 --hardware h100-sxm --break-even
    """
    if options.as_json and options.as_csv:
        raise UserError("--json and --csv were given; choose one")
    question = question_of(options)
    names = options.hardware
    profiles = [load_profile(name) for name in names] if names else list(known_profiles().values())
    planned = plan(question, profiles).sorted_by(options.sort)
    if options.as_json:
        print(json_text(plain(planned)))
    elif options.as_csv:
        print(csv_text(csv_lines(planned, options.break_even)), end="")
    else:
        show(render_break_even(planned) if options.break_even else render(planned))
    if not planned.deployments("sbd") and (question.service is None or not planned.deployments("ntp")):
        raise Exit(EXIT_INCONCLUSIVE)


def question_of(options: CapacityOptions) -> Question:
    """What the options ask.

    Raises:
        UserError: options that contradict each other, or say nothing about what is asked.
    """
    service = _service(options)
    if service is not None:
        longest = service.longest_tokens
        workload, goal = RowTokens(context_tokens=longest, longest_tokens=longest, chunk_tokens=options.chunk), Goal()
    else:
        workload = _workload(options)
        goal = Goal(
            batch=options.batch, tokens_per_s_per_user=options.least_tokens_per_s, requests_per_s=options.requests_per_s
        )
    return Question(
        shape=shape_called(options.model, options.weights),
        deployment=options.deployment(),
        acceptance=_batched(_acceptance(options), options),
        workload=workload,
        goal=goal,
        service=service,
        matrix_dtype=options.matrix_dtype,
        link=options.link,
        memory_reserve=options.memory_reserve,
        contexts=CONTEXTS if options.break_even else (),
        degrees=options.degrees,
        rung=options.rung,
    )


def _acceptance(options: CapacityOptions) -> AssumedAcceptance:
    speedup, size = options.nfe_speedup, options.block_size
    if options.tokens_per_check is not None and speedup is None:
        raise UserError("--tokens-per-check says how far checks get, not how many passes that takes; give --nfe-speedup too")
    sources = {"--nfe-speedup": speedup, "--table1": options.table1, "--from-run": options.from_run}
    given = [name for name, value in sources.items() if value is not None]
    if not given and options.service:
        return assumed_acceptance(size)
    if len(given) != 1:
        raise UserError(
            f"acceptance is given by {' and '.join(given) or 'nothing'}; give exactly one of --nfe-speedup 3, --table1 "
            "llama-3.1-8b/GSM8K/low (the paper's), --from-run RUN (your own model's)"
        )
    if options.table1 is not None:
        return from_table1(size, options.table1)
    if options.from_run is not None:
        return from_passes(size, passes_per_block(options.from_run, size), str(options.from_run))
    assert speedup is not None
    return from_speedup(size, speedup, options.tokens_per_check)


def _batched(acceptance: AssumedAcceptance, options: CapacityOptions) -> AssumedAcceptance:
    """Ragged unless lockstep was asked for, or passes of slowest rows were given."""
    if options.batching == "ragged" and options.passes_at:
        raise UserError("--passes-at gives the passes of a slowest row, but in a --batching ragged no row waits; leave out one")
    if options.batching == "lockstep" or options.passes_at:
        return acceptance.in_lockstep([_passes_at(text) for text in options.passes_at or ()])
    return acceptance


def _passes_at(text: str) -> tuple[int, float]:
    batch, _, passes = text.partition("=")
    try:
        return int(batch), float(passes)
    except ValueError:
        raise UserError(f"--passes-at {text!r}: write BATCH=PASSES, for example 8=7.9") from None


def _workload(options: CapacityOptions) -> RowTokens:
    prompt, output, context = options.prompt_tokens, options.output_tokens, options.context
    if prompt is None:
        if options.shared_prefix or options.chunk is not None:
            raise UserError("--shared-prefix and --chunk are about prompts; give --prompt-tokens and --output-tokens with them")
        tokens = CONTEXT if context is None else context
        return RowTokens(context_tokens=tokens, longest_tokens=tokens, output_tokens=output)
    if context is not None or output is None:
        raise UserError(
            "give either --context, or --prompt-tokens together with --output-tokens (the mean context then follows from them)"
        )
    return RowTokens.of_request(prompt, output, shared_tokens=options.shared_prefix, chunk_tokens=options.chunk)


def _service(options: CapacityOptions) -> ServiceGoal | None:
    """What users are promised; None: full replicas are asked for."""
    _refuse_needless(options)
    if not options.service:
        return None
    if options.ttft is None:
        raise UserError("no time to first token was given, so users could wait without limit; give --ttft 1 (seconds)")
    if options.trace is not None and (options.prompt_tokens is not None or options.output_tokens is not None):
        raise UserError("a trace has its own lengths; leave out --prompt-tokens and --output-tokens")
    return ServiceGoal(
        users=options.users,
        requests_per_s=options.requests_per_s,
        trace=None if options.trace is None else _trace(options.trace),
        think_s=options.think_s or 0.0,
        prompt_tokens=options.prompt_tokens or 0,
        output_tokens=options.output_tokens or 0,
        tokens_per_s=options.least_tokens_per_s,
        ttft_s=options.ttft,
        percentile=PERCENTILE if options.percentile is None else options.percentile,
    )


def _refuse_needless(options: CapacityOptions) -> None:
    """Options that say nothing about what is asked."""
    service = options.service
    for name in OF_FULL_REPLICAS if service else OF_A_SERVICE:
        typed = f"--{name.replace('_', '-')}"
        if name not in options.given:
            continue
        if service:
            raise UserError(f"{typed} and {service[0]} were given; it says nothing about a service here, so leave out {typed}")
        raise UserError(f"{typed} goes with --users, --trace, --ttft; give one of them, or leave it out")


def _trace(file: Path) -> Trace:
    requests = read_trace(file)
    return Trace(
        at_s=tuple(request.after_s for request in requests),
        prompt_tokens=tuple(request.prompt_tokens for request in requests),
        output_tokens=tuple(request.output_tokens for request in requests),
    )
