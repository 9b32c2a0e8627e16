"""What a user sees where reading prompts takes time from decoding: tokens per second, and the time to the first token.

A replica of B slots is always full: as soon as an answer ends, the next request takes its slot, and its prompt is read on the
same devices. So in one cycle every slot reads one prompt and writes one answer, of n steps of t seconds.

* Whole prompts: nothing is decoded while one is read, in p seconds. A cycle takes n t + B p. An answer waits for the prompts of
  the B - 1 other slots, so it takes n t + (B - 1) p from its first token to its last.
* Chunked: a step reads one chunk beside the rows that decode. A prompt takes m steps, a cycle m + n of a slot. B m of them have
  a chunk beside B - 1 rows. Where that is more than there are, reading sets the pace: every step has a chunk, and n / m rows
  decode beside it.

With DP attention every device of a stage reads a prompt of its own at the same time, g of them; else g = 1. Then p and m are of
g prompts, and B becomes B / g where it counts prompts. Tokens of a shared prefix are in the cache already. The time to the
first token is that of a request that is admitted at once. With stages (PP) prompts are taken to be read one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.capacity.replica import Replica
from harness.capacity.results import Band, Method, Workload
from harness.roofline.operation import larger, smaller, some
from harness.roofline.speedup import SpeedupPrediction
from harness.roofline.step import NTP, DecodeArm, StepPrice, price_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One arm at one batch. ``decode_tokens_per_s`` and ``tokens_per_s`` are of the whole replica, without and with prompts.

    ``user_tokens_per_s``  of one row, from its first token to its last, with what the prompts of others take from it
    ``prefill_s``          of one prompt read alone; None: no prompt
    ``first_token_s``      from admission to the first token; None: no prompt
    """

    decode_tokens_per_s: Band
    user_tokens_per_s: Band
    tokens_per_s: Band
    prefill_s: Band | None
    first_token_s: Band | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """With numbers, or arrays over batches."""

    user: Any
    whole: Any
    first_token_s: Any


def serve(replica: Replica, method: Method, batch: int, workload: Workload) -> Served:
    """Every side of the band: the slow side of decoding goes with the slow side of reading.

    Raises:
        UnknownHardwareError: several devices whose link rate is not known.
    """
    decoding = decode_rate(replica.at(batch, workload.context_tokens), method)
    arm = replica.arm(method, batch)
    alone = _prompt(replica, arm, 0, replace_chunks(workload)) if workload.prompt_tokens is not None else None
    if workload.prompt_tokens is None or workload.output_tokens is None:
        user = Band(low=decoding.low / batch, expected=decoding.expected / batch, high=decoding.high / batch)
        return Served(
            decode_tokens_per_s=decoding,
            user_tokens_per_s=user,
            tokens_per_s=decoding,
            prefill_s=_band(alone),
            first_token_s=_band(alone),
        )
    read, at_once, step = _prompt(replica, arm, batch, workload), _at_once(replica, batch), arm.tokens_per_step
    slow, middle, fast = (
        _rates(workload, batch, at_once, step, rate, read_s)
        for rate, read_s in ((decoding.low, read.high_s), (decoding.expected, read.expected_s), (decoding.high, read.low_s))
    )
    return Served(
        decode_tokens_per_s=decoding,
        user_tokens_per_s=Band(low=slow.user, expected=middle.user, high=fast.user),
        tokens_per_s=Band(low=slow.whole, expected=middle.whole, high=fast.whole),
        prefill_s=_band(alone),
        first_token_s=Band(low=fast.first_token_s, expected=middle.first_token_s, high=slow.first_token_s),
    )


class Speeds(NamedTuple):
    """Expected tokens per second: of a user and of the whole replica with what prompts take, of the replica decoding alone."""

    user: Any
    whole: Any
    decode: Any


def serve_each(replica: Replica, arm: DecodeArm, batches: Any, workload: Workload) -> Speeds:
    """The speeds of ``arm``. Its numbers, ``batches`` and the counts of the workload may be arrays that broadcast."""
    step = price_step(
        replica.shape, replica.deployment, replica.ceilings, arm, rows=batches, context_tokens=workload.context_tokens
    )
    rate = batches * arm.tokens_per_step / step.expected_s
    if workload.prompt_tokens is None or workload.output_tokens is None:
        return Speeds(rate / batches, rate, rate)
    read, at_once = _prompt(replica, arm, batches, workload), _at_once(replica, batches)
    found = _rates(workload, batches, at_once, arm.tokens_per_step, rate, read.expected_s)
    return Speeds(found.user, found.whole, rate)


def decode_rate(prediction: SpeedupPrediction, method: Method) -> Band:
    """Tokens per second of the whole batch, decoding alone; lowest with nothing overlapped."""
    low, high = prediction.batch / prediction.ntp.high_s, prediction.batch / prediction.ntp.low_s
    if method == "ntp":
        return Band(low=low, expected=prediction.ntp_tokens_per_s, high=high)
    return Band(
        low=low * prediction.wall_speedup_serial,
        expected=prediction.sbd_tokens_per_s,
        high=high * prediction.wall_speedup_overlapped,
    )


def replace_chunks(workload: Workload) -> Workload:
    """The same with whole prompts."""
    return Workload(
        context_tokens=workload.context_tokens,
        longest_tokens=workload.longest_tokens,
        prompt_tokens=workload.prompt_tokens,
        output_tokens=workload.output_tokens,
        shared_tokens=workload.shared_tokens,
    )


def _at_once(replica: Replica, batch: Any) -> Any:
    """Prompts that are read side by side."""
    found = replica.deployment
    devices = found.tensor_parallel // found.attention_split
    return 1 if devices == 1 else smaller(batch, devices)


def _rates(workload: Workload, batch: Any, at_once: Any, tokens_per_step: Any, decode_rate: Any, read_s: Any) -> _Rates:
    """``read_s``: seconds of the steps that read ``at_once`` prompts, whatever decodes beside them."""
    written = workload.output_tokens
    assert written is not None
    chunks, steps, reads = _chunks(workload), written / tokens_per_step, batch / at_once
    if chunks is None:
        decode_s = written * batch / decode_rate
        held_s, cycle_s = decode_s + (reads - 1) * read_s, decode_s + reads * read_s
    else:
        # Steps of a cycle that have no chunk, B rows decoding in each.
        free_s = larger(chunks + steps - reads * chunks, 0) * (batch * tokens_per_step / decode_rate)
        held_s, cycle_s = smaller(reads - 1, steps / chunks) * read_s + free_s, reads * read_s + free_s
    return _Rates(user=written / held_s, whole=batch * written / cycle_s, first_token_s=read_s)


def _chunks(workload: Workload) -> Any:
    """Steps that read a prompt; None: it is read as a whole."""
    size, tokens = workload.chunk_tokens, workload.read_tokens
    return -(-tokens // size) if size is not None and some(tokens > 0) else None


def _prompt(replica: Replica, arm: DecodeArm, batch: Any, workload: Workload) -> StepPrice:
    """The steps that read one prompt: a whole one alone, or chunks, each beside the rows that decode then.

    A chunk's price is almost linear in what is in the cache before it, so those before the last are priced at their mean.
    """
    tokens, before, chunks = workload.read_tokens, workload.shared_tokens, _chunks(workload)
    if not some(tokens > 0):
        return StepPrice(low_s=0.0, expected_s=0.0, high_s=0.0)
    at_once = _at_once(replica, larger(batch, 1))
    where: dict[str, Any] = {
        "shape": replica.shape,
        "deployment": replica.deployment,
        "ceilings": replica.ceilings,
        "prefill_rows": at_once,
    }
    if chunks is None or workload.chunk_tokens is None:
        return price_step(
            **where, arm=NTP, rows=0, context_tokens=0, prefill_tokens=tokens, prefill_context=before, prefill_logits=1
        )
    assert workload.output_tokens is not None
    size = workload.chunk_tokens
    rows = smaller(batch - at_once, at_once * workload.output_tokens / arm.tokens_per_step / chunks)
    beside = where | {"arm": arm, "rows": rows, "context_tokens": workload.context_tokens}
    last = price_step(
        **beside, prefill_tokens=tokens - (chunks - 1) * size, prefill_context=before + (chunks - 1) * size, prefill_logits=1
    )
    if not some(chunks > 1):
        return last
    mean = price_step(**beside, prefill_tokens=size, prefill_context=before + size * larger(chunks - 2, 0) / 2)
    return StepPrice(
        low_s=last.low_s + (chunks - 1) * mean.low_s,
        expected_s=last.expected_s + (chunks - 1) * mean.expected_s,
        high_s=last.high_s + (chunks - 1) * mean.high_s,
    )


def _band(price: StepPrice | None) -> Band | None:
    return None if price is None else Band(low=price.low_s, expected=price.expected_s, high=price.high_s)
