"""What a case needs before it runs: memory from its shape, time from the roofline; draft and public block models included.

A missing estimate has a reason. Where a case does not fit, the planner's account of memory gives the largest batch that does.
Upper bounds: a block model's pass decides one slot, and every draft is wrong. Shapes, counts and ceilings are arguments; knows
no model, device or clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import DTYPE_BYTES, ModelShape
from harness.models.deployment import Deployment
from harness.record.trace import ForwardPass, Role
from harness.roofline.batches import slowest_row_passes
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import describe_pass
from harness.roofline.pricing import price_pass
from harness.roofline.shape_calibration import MEASURED_BLOCKS, MEASURED_CONTEXT
from harness.roofline.storage import activation_bytes, kv_cache_bytes, memory_need, shard, slots_allocated
from harness.runner.widths import BATCHES
from harness.scenario.method import WIDTHS, ArmSettings, PlannedPass, per_token
from harness.scenario.methods import method_of
from harness.scenario.part import Part
from harness.scenario.plan import Case
from harness.scenario.speculative_arms import DraftStage, draft_shapes, stages
from harness.workloads.instructions.draw import instructions
from harness.workloads.prompts import read_prompts
from harness.workloads.spec import Workload
from harness.workloads.tasks import TASKS, problems


def draft_passes(arm: ArmSettings, target: ModelShape) -> list[tuple[ModelShape, Role, int, int, int]]:
    """(shape, role, query tokens, tokens kept, count) of one round, at most.

    Each stage makes one token a pass, stops at none for its confidence, and asks the stage below before each pass.
    """
    asked = stages(arm)
    below = [*(stage.draft_tokens for stage in asked[1:]), 0][: len(asked)]
    found: list[tuple[ModelShape, Role, int, int, int]] = []
    count = 1
    for stage, shape, tokens in zip(asked, draft_shapes(arm, target), below, strict=True):
        count *= stage.draft_tokens
        if shape is not None:
            found.append((shape, "verify" if tokens else "draft", tokens + 1, 1, count))
    return found


FLOAT32_BYTES = 4
SAMPLER_COPIES = 2
"""Float32 logits besides the first copy: their log-softmax and its exponential."""
NOT_READ = "how long its prompts are is known once the dataset is read, which a plan does not do"
Bound = Literal["expected", "at_most"]


@frozen
class MemoryEstimate:
    """Bytes a case needs at its longest: weights, KV cache, logits (model dtype and the sampler's float32 copy).

    Weights and KV of draft models are included, and the KV of slots that a captured session allocates and never fills.
    ``margin_bytes``: about what a captured session takes in addition; see graph_margin_bytes.
    """

    weight_bytes: int
    kv_bytes: int
    logit_bytes: int
    margin_bytes: int

    @property
    def total_bytes(self) -> int:
        """The required bytes, without the margin, a prompt's activations and the framework's own memory."""
        return self.weight_bytes + self.kv_bytes + self.logit_bytes


@frozen
class TimeEstimate:
    """Seconds for all samples of a case in all its processes, warm-ups included.

    ``at_most``: stops and acceptance can only shorten the time.
    """

    total_s: float
    bound: Bound
    rung: str


def prompt_tokens_at_most(case: Case) -> int:
    """Upper bound of a prompt's tokens: exact if synthetic, else its UTF-8 bytes plus one (no token is shorter than a byte).

    A chat template adds to it. Not for a dataset, because a plan does not read it.
    """
    if case.workload.synthetic is not None:
        return case.workload.synthetic.prompt_tokens
    return 1 + _longest(case.workload, case.task, case.part.seed)


@cache
def _longest(workload: Workload, task: str, seed: int) -> int:
    """Bytes of the longest prompt."""
    texts: Iterable[str]
    if workload.prompts_file is not None:
        texts = (prompt.prompt for prompt in read_prompts(Path(workload.prompts_file), workload.cluster))
    elif workload.instructions is not None:
        texts = instructions(task, workload.instructions.split, workload.prompt_count, seed)
    else:
        texts = (problem.prompt for problem in problems(TASKS[task], workload.split, workload.prompt_count, seed))
    return max(len(text.encode()) for text in texts)


def estimate_memory(case: Case) -> tuple[MemoryEstimate | None, str | None]:
    """Memory at the longest prompt and the most new tokens, or None with the reason.

    For a split model it is the memory of one device, or of all processes where they share the host's memory.
    """
    if case.shape is None:
        return None, case.shape_reason
    if case.workload.dataset is not None:
        return None, NOT_READ
    part, size = case.part, DTYPE_BYTES[case.part.dtype]
    fed, logits = method_of(case.arm).widest_of(case.arm, prompt_tokens_at_most(case), case.workload.max_new_tokens)
    length = prompt_tokens_at_most(case) + case.workload.max_new_tokens + (fed if fed > 1 else 0)
    shares = part.tensor_parallel if part.device == "cpu" else 1
    own = shard(case.shape, part.tensor_parallel)
    drafts = [
        (stage, draft) for stage, draft in zip(stages(case.arm), draft_shapes(case.arm, case.shape), strict=True) if draft
    ]

    def slots(shape: ModelShape) -> int:
        return slots_allocated(case.batch_size, shape.kv_heads, length + 1) if captured(part) else length

    # A draft model has its own KV cache; the target's own first layers add no weights.
    weights = (own.params + sum(draft.params for stage, draft in drafts if isinstance(stage, DraftStage))) * size
    kv = kv_cache_bytes(case.shape, deployment_of(case), slots(own))
    kv += sum(kv_cache_bytes(draft, part.dtype, slots(draft)) for _, draft in drafts)
    return MemoryEstimate(
        weight_bytes=shares * weights,
        kv_bytes=shares * case.batch_size * kv,
        logit_bytes=shares * case.batch_size * logits * case.shape.vocab * (size + FLOAT32_BYTES),
        margin_bytes=graph_margin_bytes(case, case.shape, fed, logits) if captured(part) else 0,
    ), None


def captured(part: Part) -> bool:
    """Whether the decode passes of a part are captured into CUDA graphs."""
    return part.device.startswith("cuda") and part.session == "static" and part.execution != "eager"


FRAMEWORK_BYTES = 500_000_000
COMPILED_LAYER_BYTES = 36_000_000
"""Resident memory of torch 2.13 with this program in a process, and of a layer of a compiled generate(), on a CPU of x86."""


CALIBRATION_S = 45.0
COMPILED_LAYER_S = 3.6
MEASURING_SHARE = 1 / 4
"""Seconds of a timed CPU part beside its samples, on two cores of x86: the machine's calibration, a process's start per layer
of a compiled generate(), and the passes measured between samples, as a share of these (worker.MEASURE_SHARE and its warm-up).
"""


def compiles(part: Part) -> bool:
    """Whether a CPU part has a generate() that is compiled; its own forwards never are."""
    return part.unchecked_baseline is None and part.may_be_native


def beside_samples_s(part: Part, layers: int, samples_s: float) -> float | None:
    """About the seconds that a run spends on ``part`` beside its samples; None where none was measured: GPUs, servers."""
    if part.device != "cpu" or part.servers:
        return None
    start_s = COMPILED_LAYER_S * layers * compiles(part)
    calibrating_s = CALIBRATION_S + MEASURING_SHARE * samples_s if part.timed else 0.0
    return calibrating_s + start_s * part.processes


def process_bytes(case: Case, memory: MemoryEstimate) -> int | None:
    """About the peak resident memory of a process, with the framework, weights packed for the kernels, and the graphs of a
    compiled generate(); None where it holds no model.
    """
    if case.part.device != "cpu" or case.part.servers or case.shape is None:
        return None
    graphs = case.shape.layers * COMPILED_LAYER_BYTES * compiles(case.part)
    packed = memory.weight_bytes * case.part.may_be_native
    return memory.total_bytes + case.part.tensor_parallel * FRAMEWORK_BYTES + packed + graphs


def graph_margin_bytes(case: Case, shape: ModelShape, fed: int, logits: int) -> int:
    """About what a captured session takes besides weights, KV and one set of logits; passes feed ``fed`` tokens a row.

    The activations of the widest pass are held twice: by the graphs' pool and by the allocator for the warm-up's stream. The
    second kind of pass keeps its own logits, and the sampler makes SAMPLER_COPIES. Measured passes use one further row.
    """
    size, part = DTYPE_BYTES[case.part.dtype], shard(shape, case.part.tensor_parallel)
    pools = 2 * case.batch_size * fed * activation_bytes(part, size)
    copies = case.batch_size * logits * shape.vocab * (size + SAMPLER_COPIES * FLOAT32_BYTES)
    tokens = MEASURED_CONTEXT + (MEASURED_BLOCKS + 2) * max(case.part.block_sizes, default=0)
    measured = kv_cache_bytes(shape, deployment_of(case), slots_allocated(1, part.kv_heads, tokens + 1))
    return pools + copies + measured


def deployment_of(case: Case) -> Deployment:
    """How the model of a case is stored and split."""
    return Deployment(dtype=case.part.dtype, tensor_parallel=case.part.tensor_parallel)


def estimate_time(case: Case, ceilings: Ceilings) -> tuple[TimeEstimate | None, str | None]:
    """Time of all samples priced by the roofline, or None with the reason.

    With real acceptance stops may come early; the time assumes ``max_new_tokens`` for every prompt, one token a pass. With
    drafts it assumes that every draft is made slot by slot and is wrong. A width that is left to the machine adds its choice.
    """
    samples = case.sample_count
    if case.arm.auto:  # the fastest is no slower than the narrowest
        samples += -(-BATCHES // len(case.workload.task_names)) * (1 + len(WIDTHS))
        case = replace(case, arm=case.arm.at_width(WIDTHS[0]))
    if case.shape is None:
        return None, case.shape_reason
    if case.replay is not None and case.replay.mean_passes_per_block is None:
        given = "the server's own settings" if "given" in case.replay.source else "a recorded trace"
        return None, f"the acceptance comes from {given}, which a plan does not read"
    if case.workload.dataset is not None:
        return None, NOT_READ
    try:
        prefill_s = price_pass(case.shape, deployment_of(case), _prompt_pass(case), ceilings).expected_s
        sample_s = prefill_s + _decode_s(case, ceilings)
    except UserError as error:
        return None, str(error)
    bound: Bound = "expected" if case.part.replayed else "at_most"
    return TimeEstimate(total_s=samples * sample_s, bound=bound, rung=ceilings.rung), None


def _prompt_pass(case: Case) -> ForwardPass:
    tokens = prompt_tokens_at_most(case)
    return describe_pass("prefill", case.batch_size, tokens, 0, logits=1, kept=tokens)


def _decode_s(case: Case, ceilings: Ceilings) -> float:
    """Decode time of one sample: the method's planned passes, and the draft models' passes between two tokens."""
    assert case.shape is not None
    rows, context, new_tokens = case.batch_size, prompt_tokens_at_most(case), case.workload.max_new_tokens

    def seconds(shape: ModelShape, how: Deployment, one: PlannedPass) -> float:
        described = describe_pass(one.role, rows, one.query_tokens, one.context_tokens, logits=one.logits, kept=one.kept)
        return one.count * price_pass(shape, how, described, ceilings).expected_s

    def passes(slots: int) -> float:
        """Of a block with ``slots`` tokens to decide; real acceptance takes at most one pass per token."""
        if case.replay is None or case.replay.mean_passes_per_block is None or case.arm.block_size is None:
            return slots
        taken: float = slowest_row_passes(case.arm.block_size, case.replay.mean_passes_per_block, rows)
        return min(taken, slots)

    planned = method_of(case.arm).passes(case.arm, context, new_tokens, passes)
    total_s = sum(seconds(case.shape, deployment_of(case), one) for one in planned)
    whole = Deployment(dtype=case.part.dtype)
    for shape in draft_shapes(case.arm, case.shape):
        total_s += 0 if shape is None else price_pass(shape, whole, _prompt_pass(case), ceilings).expected_s
    for shape, role, query, kept, count in draft_passes(case.arm, case.shape):
        total_s += sum(seconds(shape, whole, one) for one in per_token(context, new_tokens - 1, (role, query, kept, count)))
    return total_s


def what_would_fit(case: Case, free_bytes: int | None) -> str:
    """Words after "does not fit": the modelled batch, with the activations of one layer; empty where unknown.

    ``free_bytes``: free memory of the device before the model was loaded.
    """
    if case.shape is None or free_bytes is None:
        return ""
    tokens = prompt_tokens_at_most(case) + case.workload.max_new_tokens
    try:
        need = memory_need(
            case.shape,
            Deployment(dtype=case.part.dtype),
            tokens=tokens,
            block_size=case.arm.block_size,
            budget_bytes=free_bytes,
        )
    except UserError:
        return ""
    free = f"{free_bytes / 1e9:.1f} GB"
    if need.largest_batch >= case.batch_size:
        return f"; by the plan batch {case.batch_size} fits into {free}, so something else takes the memory"
    if need.largest_batch:
        return f"; by the plan batch {need.largest_batch} is the largest that fits into {free}"
    return f"; by the plan no batch fits into {free}: the weights take {need.weight_bytes / 1e9:.1f} GB"
