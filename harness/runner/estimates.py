"""What a case will need before it runs: memory from its shape, time from the roofline. Absent with a reason, never guessed.

Knows no model, device or clock: shapes, counts and ceilings are handed in.

What the passes of a public block model's arm are at most: how wide, and how many where every pass decides one slot.

What the draft models of a case need: memory, and the passes they make between two tokens where every draft is wrong.

What to do about a case that does not fit: the largest batch that would, by the planner's account of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.errors import UserError
from harness.models import DTYPE_BYTES, ModelShape
from harness.models.deployment import Deployment
from harness.record.trace import ForwardPass, Role
from harness.roofline.batches import slowest_row_passes
from harness.roofline.ceilings import Ceilings
from harness.roofline.memory import memory_need
from harness.roofline.pricing import price_pass
from harness.roofline.shape_calibration import MEASURED_BLOCKS, MEASURED_CONTEXT
from harness.roofline.speedup import describe_pass
from harness.roofline.storage import activation_bytes, kv_cache_bytes, shard, slots_allocated
from harness.scenario.arms_public import protocol_of
from harness.scenario.plan import Case
from harness.scenario.scenario import Part
from harness.scenario.speculative_arms import draft_shapes, stages
from harness.workloads.prompts import read_prompts
from harness.workloads.tasks import TASKS, problems


def draft_weight_bytes(arm: Mapping[str, Any], target: ModelShape, element_bytes: int) -> int:
    """Of the models that are loaded besides the target; its own first layers are there already."""
    shapes = zip(stages(arm), draft_shapes(arm, target), strict=True)
    return sum(shape.params * element_bytes for stage, shape in shapes if shape is not None and "draft" in stage)


def draft_kv_bytes(arm: Mapping[str, Any], target: ModelShape, dtype: str, slots: Callable[[ModelShape], int]) -> int:
    """Of one row, of so many ``slots`` of each draft model: every one has a cache of its own."""
    return sum(kv_cache_bytes(shape, dtype, slots(shape)) for shape in draft_shapes(arm, target) if shape is not None)


def draft_passes(arm: Mapping[str, Any], target: ModelShape) -> list[tuple[ModelShape, Role, int, int, int]]:
    """(shape, role, query tokens, tokens kept, count) of one round, at most: each stage makes its tokens one a pass, and asks
    the one below before each pass.
    """
    asked = stages(arm)
    below = [*(stage["draft_tokens"] for stage in asked[1:]), 0][: len(asked)]
    found: list[tuple[ModelShape, Role, int, int, int]] = []
    count = 1
    for stage, shape, tokens in zip(asked, draft_shapes(arm, target), below, strict=True):
        count *= stage["draft_tokens"]
        if shape is not None:
            found.append((shape, "verify" if tokens else "draft", tokens + 1, 1, count))
    return found


FLOAT32_BYTES = 4
SAMPLER_COPIES = 2
"""Logits in float32 beside the first such copy: their log-softmax and its exponential."""
NOT_READ = "how long its prompts are is known once the dataset is read, which a plan does not do"
Bound = Literal["expected", "at_most"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes a case needs at its longest: weights, KV cache, logits (model dtype and the sampler's float32 copy).

    Weights and KV of draft models are among them, and the KV of slots that a captured session allocates and never fills.
    ``margin_bytes``: what a captured session takes besides, about: see graph_margin_bytes.
    """

    weight_bytes: int
    kv_bytes: int
    logit_bytes: int
    margin_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """What it cannot do without; the margin, a prompt's activations and the framework's own memory come on top."""
        return self.weight_bytes + self.kv_bytes + self.logit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEstimate:
    """Seconds for all samples of a case in all its processes, warm-ups included.

    ``at_most``: stops and acceptance can only shorten it.
    """

    total_s: float
    bound: Bound
    rung: str


def prompt_tokens_at_most(case: Case) -> int:
    """Upper bound of a prompt's tokens: exact if synthetic, else its UTF-8 bytes plus one (no token is shorter than a byte).

    A chat template comes on top of it. Not for a dataset, of which nothing has been read.
    """
    if case.workload.synthetic is not None:
        return case.workload.synthetic.prompt_tokens
    if case.workload.prompts_file is not None:
        prompts = read_prompts(Path(case.workload.prompts_file), case.workload.cluster)
        return 1 + max(len(prompt.prompt.encode()) for prompt in prompts)
    return 1 + _longest_problem(case.task, case.workload.split, case.workload.prompt_count, case.part.seed)


@cache
def _longest_problem(task: str, split: str, count: int, seed: int) -> int:
    return max(len(problem.prompt.encode()) for problem in problems(TASKS[task], split, count, seed))


def estimate_memory(case: Case) -> tuple[MemoryEstimate | None, str | None]:
    """Memory at the longest prompt and the most new tokens, or None with the reason.

    Of one device, where a model is split over several; of all its processes, where they share the host's memory.
    """
    if case.shape is None:
        return None, case.shape_reason
    if case.workload.dataset is not None:
        return None, NOT_READ
    size, (fed, logits) = DTYPE_BYTES[case.part.dtype], _widest_pass(case)
    length = prompt_tokens_at_most(case) + case.workload.max_new_tokens + (fed if fed > 1 else 0)
    deployed = deployment_of(case)
    shares = case.part.tensor_parallel if case.part.device == "cpu" else 1

    def slots(shape: ModelShape) -> int:
        return slots_allocated(case.batch_size, shape.kv_heads, length + 1) if captured(case.part) else length

    kv_slots = slots(shard(case.shape, case.part.tensor_parallel))
    return MemoryEstimate(
        weight_bytes=shares
        * (shard(case.shape, case.part.tensor_parallel).params * size + draft_weight_bytes(case.arm, case.shape, size)),
        kv_bytes=shares
        * case.batch_size
        * (kv_cache_bytes(case.shape, deployed, kv_slots) + draft_kv_bytes(case.arm, case.shape, case.part.dtype, slots)),
        logit_bytes=shares * case.batch_size * logits * case.shape.vocab * (size + FLOAT32_BYTES),
        margin_bytes=graph_margin_bytes(case, case.shape, fed, logits) if captured(case.part) else 0,
    ), None


def captured(part: Part) -> bool:
    """Whether the decode passes of a part are captured into CUDA graphs."""
    return part.device.startswith("cuda") and part.session == "static" and part.execution != "eager"


def graph_margin_bytes(case: Case, shape: ModelShape, fed: int, logits: int) -> int:
    """About what a captured session takes besides weights, KV and one set of logits, for passes of ``fed`` tokens a row.

    The activations of the widest pass are held twice: by the graphs' pool, and by the allocator for the stream of the warm-up.
    The second kind of pass keeps logits of its own, and the sampler makes SAMPLER_COPIES. Passes are measured beside the
    samples, on one row of their own.
    """
    size, part = DTYPE_BYTES[case.part.dtype], shard(shape, case.part.tensor_parallel)
    pools = 2 * case.batch_size * fed * activation_bytes(part, size)
    copies = case.batch_size * logits * shape.vocab * (size + SAMPLER_COPIES * FLOAT32_BYTES)
    tokens = MEASURED_CONTEXT + (MEASURED_BLOCKS + 2) * max(case.part.block_sizes, default=0)
    measured = kv_cache_bytes(shape, deployment_of(case), slots_allocated(1, part.kv_heads, tokens + 1))
    return pools + copies + measured


def deployment_of(case: Case) -> Deployment:
    """How the model of a case will be stored and split."""
    return Deployment(dtype=case.part.dtype, tensor_parallel=case.part.tensor_parallel)


def _widest_pass(case: Case) -> tuple[int, int]:
    """(query tokens, logits) of the widest decode pass of a row; it may reach past the last token."""
    block = case.arm.get("block_size", 1)
    if case.arm["method"] == "block_diffusion":
        return diffusion_widest_pass(case.arm, prompt_tokens_at_most(case), case.workload.max_new_tokens)
    if drafted := stages(case.arm):
        return drafted[0]["draft_tokens"] + 1, drafted[0]["draft_tokens"] + 1
    if case.arm["method"] == "self_speculation":
        return (block, block) if case.arm["form"] == "linear" else (block * (block + 1), block * (block + 1))
    if case.arm["method"] in ("sbd_verified", "apd"):
        return 2 * block, 2 * block
    if case.arm["method"] == "freedave":
        return (case.arm["draft_steps"] + 1) * block, case.arm["draft_steps"] * block
    return (2 * block, block) if block > 1 else (1, 1)  # SBD feeds the block before again with the next one


def estimate_time(case: Case, ceilings: Ceilings) -> tuple[TimeEstimate | None, str | None]:
    """Time of all samples priced by the roofline, or None with the reason.

    Where stops may come early (real acceptance) every prompt is taken to write ``max_new_tokens``, one token a pass; where
    drafts are checked, every draft is taken to be made slot by slot and to be wrong.
    """
    if case.shape is None:
        return None, case.shape_reason
    if case.replay is not None and case.replay.mean_passes_per_block is None:
        return None, "passes per block come from a recorded trace, which a plan does not read"
    if case.workload.dataset is not None:
        return None, NOT_READ
    try:
        sample_s = _prefill_s(case, ceilings) + _decode_s(case, ceilings)
    except UserError as error:
        return None, str(error)
    samples = case.sample_count
    bound: Bound = "expected" if case.stops_suppressed else "at_most"
    return TimeEstimate(total_s=samples * sample_s, bound=bound, rung=ceilings.rung), None


def _prefill_s(case: Case, ceilings: Ceilings) -> float:
    """The prompt's pass, the same for every arm."""
    assert case.shape is not None
    return price_pass(case.shape, deployment_of(case), _prompt_pass(case), ceilings).expected_s


def _prompt_pass(case: Case) -> ForwardPass:
    tokens = prompt_tokens_at_most(case)
    return describe_pass("prefill", case.batch_size, tokens, 0, logits=1, kept=tokens)


def _decode_s(case: Case, ceilings: Ceilings) -> float:
    """Decode time of one sample: the passes of each block at that block's context."""
    assert case.shape is not None
    context, new_tokens = prompt_tokens_at_most(case), case.workload.max_new_tokens
    if case.arm["method"] == "block_diffusion":
        slow = diffusion_slowest_passes(case.arm, case.batch_size, context, new_tokens)
        return sum(count * price_pass(case.shape, deployment_of(case), one, ceilings).expected_s for one, count in slow)
    if case.arm["method"] != "sbd":
        # Where the next-token head writes, the prefill's logits give the first token.
        steps = new_tokens if case.arm["method"] in ("freedave", "apd") else new_tokens - 1
        whole = Deployment(dtype=case.part.dtype)
        passes = [(case.shape, deployment_of(case), *one) for one in _passes_to_one_token(case)]
        drafts = draft_passes(case.arm, case.shape)
        passes += [(shape, whole, role, query, kept, count) for shape, role, query, kept, count in drafts]
        readers = [shape for shape in draft_shapes(case.arm, case.shape) if shape is not None]
        read_s = sum(price_pass(shape, whole, _prompt_pass(case), ceilings).expected_s for shape in readers)
        return read_s + steps * sum(
            count * price_pass(
                shape, how, describe_pass(role, case.batch_size, query, context + steps // 2, logits=query, kept=kept), ceilings
            ).expected_s
            for shape, how, role, query, kept, count in passes
        )  # fmt: skip
    block = case.arm["block_size"]
    total_s = 0.0
    for start in range(0, new_tokens, block):
        committed = block if start else 0
        slots = min(block, new_tokens - start)
        first = describe_pass(
            "commit+decide" if start else "decide", case.batch_size, committed + block, context + start - committed,
            logits=block, kept=committed,
        )  # fmt: skip
        later = describe_pass("decide", case.batch_size, block, context + start, logits=block)
        first_s, later_s = (price_pass(case.shape, deployment_of(case), p, ceilings).expected_s for p in (first, later))
        total_s += first_s + (_passes(case, slots) - 1) * later_s
    return total_s


def _passes_to_one_token(case: Case) -> list[tuple[Role, int, int, int]]:
    """(role, query tokens, tokens kept, count) of the passes that at most come between two tokens, drafts being wrong."""
    block = case.arm.get("block_size", 1)
    widest, _ = _widest_pass(case)
    if stages(case.arm):
        return [("verify", widest, 1, 1)]
    if case.arm["method"] == "sbd_verified":
        return [("draft", block, 0, block - 1), ("verify+draft", widest, 1, 1)]
    if case.arm["method"] == "apd":
        return [("draft", block, 0, 1), ("verify+draft", widest, 1, 1)]
    if case.arm["method"] == "freedave":
        return [("verify+draft", widest, 1, 1)]
    if case.arm["method"] == "self_speculation":
        linear = case.arm["form"] == "linear"
        return [("draft", block, 0, 1), ("verify", block, 1, 1)] if linear else [("verify+draft", widest, 1, 1)]
    return [("decide", 1, 1, 1)]


def _passes(case: Case, slots: int) -> float:
    """Passes of a block with ``slots`` tokens to decide; real acceptance takes at most one pass per token."""
    if case.replay is None or case.replay.mean_passes_per_block is None:
        return slots
    passes = slowest_row_passes(case.arm["block_size"], case.replay.mean_passes_per_block, case.batch_size)
    return min(passes, slots)


Arm = dict[str, Any]


def diffusion_widest_pass(arm: Arm, prompt_tokens: int, new_tokens: int) -> tuple[int, int]:
    """(query tokens, logits) of the widest decode pass of a row."""
    protocol, block = protocol_of(arm), int(arm["block_size"])
    if protocol.layout == "canvas":
        return prompt_tokens + new_tokens, new_tokens + (protocol.prediction == "shifted")
    wider = protocol.layout == "window" or protocol.commit == "merged"
    return (2 * block if wider else block), block


def diffusion_slowest_passes(arm: Arm, rows: int, prompt_tokens: int, new_tokens: int) -> list[tuple[ForwardPass, float]]:
    """The kinds of pass of one decode, one slot decided a pass, at the context in its middle; with how many there are."""
    protocol, block = protocol_of(arm), int(arm["block_size"])
    context, blocks = prompt_tokens + new_tokens // 2, new_tokens / block
    if protocol.layout == "canvas":
        query, logits = diffusion_widest_pass(arm, prompt_tokens, new_tokens)
        return [(describe_pass("decide", rows, query, 0, logits=logits), new_tokens)]
    if protocol.layout == "window":
        return [(describe_pass("commit+decide", rows, 1 + block, context, logits=block, kept=1), new_tokens)]
    decide = describe_pass("decide", rows, block, context, logits=block)
    if protocol.commit == "merged":
        first = describe_pass("commit+decide", rows, 2 * block, context, logits=block, kept=block)
        return [(decide, new_tokens - blocks), (first, blocks)]
    logits = int(protocol.first_slot == "committed")
    return [(decide, new_tokens), (describe_pass("commit+decide", rows, block, context, logits=logits, kept=block), blocks)]


def what_would_fit(case: Case, free_bytes: int | None) -> str:
    """Words to go behind "does not fit": modelled, with the activations of one layer; empty where nothing is known.

    ``free_bytes``: what the device had to spare before the model was loaded.
    """
    if case.shape is None or free_bytes is None:
        return ""
    tokens = prompt_tokens_at_most(case) + case.workload.max_new_tokens
    try:
        need = memory_need(
            case.shape, Deployment(dtype=case.part.dtype), tokens=tokens, block_size=case.arm.get("block_size"),
            budget_bytes=free_bytes,
        )  # fmt: skip
    except UserError:
        return ""
    free = f"{free_bytes / 1e9:.1f} GB"
    if need.largest_batch >= case.batch_size:
        return f"; by the plan batch {case.batch_size} fits into {free}, so something else takes the memory"
    if need.largest_batch:
        return f"; by the plan batch {need.largest_batch} is the largest that fits into {free}"
    return f"; by the plan no batch fits into {free}: the weights take {need.weight_bytes / 1e9:.1f} GB"
