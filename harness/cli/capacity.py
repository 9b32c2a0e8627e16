"""`sbd capacity`: turns arguments into a question for the planner, and its answer into a table, JSON or CSV. Runs nothing.

The CSV has a line per device and arm, or per device and context; an absent value is empty, with its reason beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from harness.capacity.acceptance import AssumedAcceptance, assumed_acceptance, from_passes, from_speedup, from_table1
from harness.capacity.deployments import plan_goals
from harness.capacity.plan import DEGREES, Question, plan
from harness.capacity.results import Goal, Workload
from harness.cli.capacity_table import in_order, render, render_break_even, to_csv
from harness.cli.deployed import (
    BatchingName,
    DpAttention,
    Dtype,
    ExpertParallel,
    KvDtype,
    LinkName,
    MatrixDtype,
    PipelineParallel,
    Weights,
    deployment,
)
from harness.cli.goals import goal_of, refuse, show_goals
from harness.cli.output import json_text, show
from harness.errors import EXIT_INCONCLUSIVE, UserError
from harness.hardware.links import link_called
from harness.hardware.profile import known_profiles, load_profile
from harness.models.choice import shape_called
from harness.models.deployment import dtype_called
from harness.roofline.anchored import rung_called
from harness.roofline.recorded_acceptance import passes_per_block

CONTEXTS = (1024, 8192, 32_768, 131_072)
CONTEXT = 4096
MS_PER_S = 1e3


def capacity_command(
    model: Annotated[str, typer.Option(help="a known shape, or a folder with a config.json")],
    hardware: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="a hardware profile, or its file; repeat for several; default: all")
    ] = None,
    nfe_speedup: Annotated[float | None, typer.Option(help="acceptance: mean tokens per forward pass of a row")] = None,
    table1: Annotated[
        str | None,
        typer.Option(metavar="MODEL/TASK/LEVEL", help="acceptance: a cell of the paper's Table 1; LEVEL is low or high (γ)"),
    ] = None,
    from_run: Annotated[Path | None, typer.Option(metavar="RUN", help="acceptance: as a run of yours recorded it")] = None,
    passes_at: Annotated[
        list[str] | None,
        typer.Option(metavar="BATCH=PASSES", help="lockstep: passes per block until a batch's slowest row is done; repeat"),
    ] = None,
    block_size: Annotated[int, typer.Option("--block-size", "-k", help="block size k")] = 16,
    tokens_per_check: Annotated[
        float | None, typer.Option(help="verified SBD: with --nfe-speedup, mean tokens of a block that its check makes final")
    ] = None,
    context: Annotated[
        int | None, typer.Option(help=f"workload: mean tokens in the cache per row; default, without a prompt: {CONTEXT}")
    ] = None,
    prompt_tokens: Annotated[
        int | None, typer.Option(help="workload, instead of --context: a request's prompt; its prefill is priced")
    ] = None,
    output_tokens: Annotated[int | None, typer.Option(help="workload: tokens that a request writes")] = None,
    shared_prefix: Annotated[
        int, typer.Option(metavar="TOKENS", help="workload: of the prompt, what all requests share and the cache has already")
    ] = 0,
    chunk: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="chunked prefill: prompt tokens that a step reads beside the rows that decode; default: "
            "prompts are read whole, and nothing is decoded meanwhile",
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="goal: rows per replica; default: the most tokens/s that fit")] = None,
    tokens_per_s: Annotated[float | None, typer.Option(help="goal: at least so many tokens/s for every user")] = None,
    latency_ms: Annotated[float | None, typer.Option(help="goal: at most so many ms per token, on average")] = None,
    requests_per_s: Annotated[
        float | None, typer.Option(help="goal: GPUs for so many requests/s of --output-tokens each; with --ttft simulated")
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="service: so many users with a request in flight; needs --ttft and both token counts")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="service: arrivals and lengths, Mooncake's .jsonl or Azure's .csv")
    ] = None,
    ttft: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="service: time to first token, queue included; simulates")
    ] = None,
    think_s: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="service: mean time from a user's answer to the next request")
    ] = None,
    percentile: Annotated[
        float | None, typer.Option(help="service: % of requests for which --ttft and --tokens-per-s hold; default: 95")
    ] = None,
    dtype: Dtype = "bfloat16",
    weights: Weights = None,
    kv_dtype: KvDtype = None,
    matrix_dtype: MatrixDtype = None,
    tensor_parallel: Annotated[
        str,
        typer.Option(
            metavar="N|auto", help="GPUs per stage; auto: the fewest of 1, 2, 4, 8 that fit, with a speed goal the cheapest"
        ),
    ] = "auto",
    expert_parallel: ExpertParallel = False,
    dp_attention: DpAttention = False,
    pipeline_parallel: PipelineParallel = 1,
    link: LinkName = None,
    batching: BatchingName = None,
    memory_reserve: Annotated[float, typer.Option(help="share of the memory kept for runtime and prefill")] = 0.1,
    rung: Annotated[
        str | None, typer.Option(help="datasheet, anchored or calibrated; default: the profile's calibration, else anchored")
    ] = None,
    break_even: Annotated[
        bool, typer.Option("--break-even", help="where SBD stops paying, at contexts 1k, 8k, 32k, 128k and your own")
    ] = False,
    sort: Annotated[
        Literal["cost", "speed", "name"], typer.Option(help="by SBD's USD per token, its tokens/s per user, or by name")
    ] = "cost",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="print CSV: a line per device and arm; with --break-even, per device and context")
    ] = False,
) -> None:
    """Plan: on which devices a model fits, how fast and how dear NTP and SBD are there, up to which batch SBD pays.

    Give a model, where the acceptance comes from, and what is wanted. Everything is predicted, nothing runs.

    \b
    sbd capacity --model llama-3.1-8b --table1 llama-3.1-8b/GSM8K/low --batch 8
    sbd capacity --model qwen3-30b-a3b --nfe-speedup 3 --prompt-tokens 2000 --output-tokens 500 \\
        --tokens-per-s 50 --requests-per-s 20 --sort cost
    sbd capacity --model llama-3.1-8b --users 500 --tokens-per-s 30 --ttft 1 --prompt-tokens 2000 --output-tokens 300
    sbd capacity --model llama-3.1-70b --nfe-speedup 3 --weights float8-block128 --hardware h100-sxm --break-even
    """
    if as_json and as_csv:
        raise UserError("--json and --csv were given; choose one")
    service = {"--users": users, "--trace": trace, "--ttft": ttft}
    of_service = [name for name, value in service.items() if value is not None]
    needless = {"--think-s": think_s, "--percentile": percentile}
    if not of_service and (given := [name for name, value in needless.items() if value is not None]):
        raise UserError(f"{given[0]} goes with {', '.join(service)}; give one of them, or leave it out")
    lengths = (None, None, 0, None) if of_service else (prompt_tokens, output_tokens, shared_prefix, chunk)
    question = Question(
        shape=shape_called(model, weights),
        deployment=deployment(
            dtype,
            weights,
            kv_dtype,
            expert_parallel=expert_parallel,
            dp_attention=dp_attention,
            pipeline_parallel=pipeline_parallel,
        ),
        acceptance=_batched(
            _acceptance(block_size, nfe_speedup, table1, from_run, tokens_per_check, assume=bool(of_service)),
            batching,
            passes_at or [],
        ),
        workload=_workload(context, *lengths),
        goal=_goal(batch, tokens_per_s, latency_ms, None if of_service else requests_per_s),
        matrix_dtype=None if matrix_dtype is None else dtype_called(matrix_dtype),
        link=None if link is None else link_called(link),
        memory_reserve=memory_reserve,
        contexts=CONTEXTS if break_even else (),
        degrees=_degrees(tensor_parallel),
        rung=rung_called(rung),
    )
    profiles = [load_profile(name) for name in hardware] if hardware else list(known_profiles().values())
    if of_service:
        needless = {"--batch": batch, "--context": context, "--break-even": break_even or None}
        refuse({**needless, "--shared-prefix": shared_prefix or None}, of_service[0])
        service_goal = goal_of(
            users=users,
            requests_per_s=requests_per_s,
            trace=trace,
            ttft_s=ttft,
            think_s=think_s,
            percentile=percentile,
            tokens_per_s=question.goal.tokens_per_s_per_user,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )
        show_goals(plan_goals(question, service_goal, profiles, chunk), sort, as_json, as_csv)
        return
    found = in_order(plan(question, profiles), sort)
    if as_json:
        print(json_text(found.to_dict()))
    elif as_csv:
        print(to_csv(found, break_even), end="")
    else:
        show(render_break_even(found) if break_even else render(found))
    if not any(device.sbd and device.sbd.batch is not None for device in found.devices):
        raise typer.Exit(EXIT_INCONCLUSIVE)


def _acceptance(
    block_size: int, speedup: float | None, table1: str | None, run: Path | None, per_check: float | None, *, assume: bool
) -> AssumedAcceptance:
    if per_check is not None and speedup is None:
        raise UserError("--tokens-per-check says how far checks get, not how many passes that takes; give --nfe-speedup too")
    if assume and speedup is None and table1 is None and run is None:
        return assumed_acceptance(block_size)
    sources = {"--nfe-speedup": speedup, "--table1": table1, "--from-run": run}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        raise UserError(
            f"acceptance is given by {' and '.join(given) or 'nothing'}; give exactly one of --nfe-speedup 3, --table1 "
            "llama-3.1-8b/GSM8K/low (the paper's), --from-run RUN (your own model's)"
        )
    if speedup is not None:
        return from_speedup(block_size, speedup, per_check)
    if table1 is not None:
        return from_table1(block_size, table1)
    assert run is not None
    return from_passes(block_size, passes_per_block(run, block_size), str(run))


def _batched(acceptance: AssumedAcceptance, batching: str | None, passes_at: list[str]) -> AssumedAcceptance:
    """Ragged unless lockstep was asked for, or passes of slowest rows were given."""
    if batching == "ragged" and passes_at:
        raise UserError("--passes-at gives the passes of a slowest row, but in a --batching ragged no row waits; leave out one")
    if batching == "lockstep" or passes_at:
        return acceptance.in_lockstep([_passes_at(text) for text in passes_at])
    return acceptance


def _passes_at(text: str) -> tuple[int, float]:
    batch, _, passes = text.partition("=")
    try:
        return int(batch), float(passes)
    except ValueError:
        raise UserError(f"--passes-at {text!r}: write BATCH=PASSES, for example 8=7.9") from None


def _workload(
    context: int | None, prompt_tokens: int | None, output_tokens: int | None, shared_prefix: int, chunk: int | None
) -> Workload:
    if prompt_tokens is None:
        if shared_prefix or chunk is not None:
            raise UserError("--shared-prefix and --chunk are about prompts; give --prompt-tokens and --output-tokens with them")
        tokens = CONTEXT if context is None else context
        return Workload(context_tokens=tokens, longest_tokens=tokens, output_tokens=output_tokens)
    if context is not None or output_tokens is None:
        raise UserError(
            "give either --context, or --prompt-tokens together with --output-tokens (the mean context then follows from them)"
        )
    return Workload.of_request(prompt_tokens, output_tokens, shared_tokens=shared_prefix, chunk_tokens=chunk)


def _goal(batch: int | None, tokens_per_s: float | None, latency_ms: float | None, requests_per_s: float | None) -> Goal:
    if latency_ms is not None:
        if tokens_per_s is not None or not latency_ms > 0:
            raise UserError(
                f"--latency-ms {latency_ms:g}: it must be more than 0, and is the same goal as --tokens-per-s; give one of them"
            )
        tokens_per_s = MS_PER_S / latency_ms
    return Goal(batch=batch, tokens_per_s_per_user=tokens_per_s, requests_per_s=requests_per_s)


def _degrees(tensor_parallel: str) -> tuple[int, ...]:
    if tensor_parallel == "auto":
        return DEGREES
    if not tensor_parallel.isdecimal() or int(tensor_parallel) < 1:
        raise UserError(f"--tensor-parallel {tensor_parallel!r}: allowed are auto, or a number of GPUs per replica from 1")
    return (int(tensor_parallel),)
