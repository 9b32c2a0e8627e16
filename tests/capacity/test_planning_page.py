"""docs/planning.md: its arithmetic done again from the model's sizes, beside what the program finds."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import pytest

from harness.capacity.acceptance import from_speedup
from harness.capacity.plan import plan
from harness.capacity.question import Question, RowTokens, ServiceGoal
from harness.capacity.replica import device_of
from harness.capacity.results import DeploymentPlan
from harness.capacity.service import ways_of
from harness.capacity.steps import PromptReading, price_steps
from harness.formatting import figure
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.models.deployment import Deployment
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
SHAPE = KNOWN_SHAPES["llama-3.1-8b"]
USERS, PROMPT, ANSWER, SPEED = 500, 2000, 300, 30.0
GOAL = ServiceGoal(users=USERS, prompt_tokens=PROMPT, output_tokens=ANSWER, tokens_per_s=SPEED, ttft_s=1.0)
QUESTION = Question(
    shape=SHAPE,
    deployment=Deployment(dtype="bfloat16"),
    acceptance=from_speedup(16, 3),
    workload=RowTokens(context_tokens=PROMPT, longest_tokens=PROMPT + ANSWER, chunk_tokens=2048),
    service=GOAL,
    degrees=(1,),
    rung="datasheet",
)
CLOSE = 0.12
"""By hand the activations are left out; in a step that reads a prompt they are some per cent of the time."""


@dataclass(frozen=True)
class Sizes:
    """Llama 3.1 8B as published: 32 layers of 4096, 32 heads and 8 KV heads of 128, FFN 14,336, vocabulary 128,256."""

    layers, hidden, ffn, heads, kv_heads, head, vocab = 32, 4096, 14_336, 32, 8, 128, 128_256
    bandwidth, peak, memory, usd, kw = 3.35e12, 989.4e12, 80e9, 3.99, 0.7

    @property
    def layer_weights(self) -> int:
        """Of all layers' matrices."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.ffn)

    @property
    def head_weights(self) -> int:
        """LM head; the embedding has as many."""
        return self.hidden * self.vocab

    @property
    def cache_bytes(self) -> int:
        """Of a token."""
        return self.layers * 2 * self.kv_heads * self.head * 2


def half_overlapped(bytes_: float, flops: float) -> float:
    """Seconds: the longer of memory and arithmetic, and half of the shorter."""
    size = Sizes()
    memory_s, arithmetic_s = bytes_ / size.bandwidth, flops / size.peak
    return max(memory_s, arithmetic_s) + min(memory_s, arithmetic_s) / 2


def by_hand() -> dict[str, float]:
    """The page's steps for NTP."""
    size, replicas = Sizes(), 4
    weights = 2 * (size.layer_weights + 2 * size.head_weights)
    fit = int((0.9 * size.memory - weights) / ((PROMPT + ANSWER) * size.cache_bytes))
    rows, context = USERS // replicas, PROMPT + ANSWER // 2
    layers_s, head_s = (half_overlapped(2 * count, 2 * count * rows) for count in (size.layer_weights, size.head_weights))
    pairs = 4 * size.layers * size.heads * size.head  # flops of a query and a key
    rows_s = half_overlapped(rows * context * size.cache_bytes, pairs * rows * context)
    rows_s += 20 * rows * size.vocab / size.bandwidth
    decode_s = layers_s + head_s + rows_s
    read_s = half_overlapped(2 * size.layer_weights, 2 * size.layer_weights * (PROMPT + rows))
    mixed_s = read_s + pairs * PROMPT**2 / 2 / size.peak + head_s + rows_s
    passes = ANSWER - 1
    request_s = passes * decode_s / rows + mixed_s - decode_s
    per_gpu = ANSWER / request_s
    # A row is open for 299 decode steps and for what n prompts add; a decode step of n rows takes a + b n seconds.
    base_s, row_s = 2 * (size.layer_weights + size.head_weights) / size.bandwidth, (rows_s + layers_s + head_s) / rows
    row_s -= base_s / rows
    most = passes * (1 / SPEED - base_s) / (passes * row_s + mixed_s - decode_s)
    return {
        "rows that fit": fit,
        "decode step, ms": decode_s * 1e3,
        "step with a prompt, ms": mixed_s * 1e3,
        "engine time of a request, ms": request_s * 1e3,
        "tokens/s of a user": passes / (rows * request_s),
        "users of a replica, at most": most,
        "replicas": ceil(USERS / most),
        "tokens/s per GPU": per_gpu,
        "USD per million tokens": size.usd / (per_gpu * 3600) * 1e6,
        "kWh per million tokens": size.kw / (per_gpu * 3600) * 1e6,
    }


def planned() -> tuple[DeploymentPlan, DeploymentPlan]:
    """NTP and SBD on H100."""
    found = plan(QUESTION, [load_profile("h100-sxm")])
    return found.deployments("ntp")[0], found.deployments("sbd")[0]


def by_program(ntp: DeploymentPlan) -> dict[str, float]:
    """The same figures."""
    device = device_of(QUESTION, load_profile("h100-sxm"))
    reading = PromptReading(chunk_tokens=2048)
    prices = price_steps(
        device.replica(1), ways_of(QUESTION)[0], largest_batch=185, contexts=(2000.0, 2300.0), reading=reading, prompts=[PROMPT]
    )
    step_s = prices.as_function(reading)
    per_gpu = ntp.tokens_per_s_per_gpu
    return {
        "rows that fit": ntp.largest_batch,
        "decode step, ms": step_s(0, 0.0, 125, 2150.0) * 1e3,
        "step with a prompt, ms": step_s(PROMPT, 0.0, 125, 2150.0) * 1e3,
        "engine time of a request, ms": ANSWER / per_gpu * 1e3,
        "tokens/s of a user": ntp.tokens_per_s,
        "users of a replica, at most": ntp.largest_load,
        "replicas": ntp.replicas,
        "tokens/s per GPU": per_gpu,
        "USD per million tokens": ntp.usd_per_million_tokens,
        "kWh per million tokens": ntp.kwh_per_million_tokens,
    }


def written(value: float) -> str:
    """As the page has it."""
    return f"{value:,}" if isinstance(value, int) else figure(value, 3)


def test_the_page_has_the_figures_of_both() -> None:
    """Every line of its table; the two columns agree, and the whole numbers exactly."""
    hand, program = by_hand(), by_program(planned()[0])
    for name, value in hand.items():
        assert program[name] == pytest.approx(value, rel=CLOSE), name
        assert f"| {name} | {written(value)} | {written(program[name])} |" in PAGE
    assert (hand["rows that fit"], hand["replicas"]) == (program["rows that fit"], program["replicas"])


def test_the_page_says_what_sbd_costs_there() -> None:
    """SBD beside it, and the verdict that follows from the two prices."""
    ntp, sbd = planned()
    assert f"{sbd.gpus} GPUs and {figure(sbd.usd_per_million_tokens, 3)} USD" in PAGE
    assert ("costs more" in PAGE) == (sbd.usd_per_million_tokens > ntp.usd_per_million_tokens)
