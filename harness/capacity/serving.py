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

from dataclasses import replace
from functools import partial
from typing import Any

from harness.capacity.question import RowTokens
from harness.capacity.replica import Replica
from harness.capacity.results import Band
from harness.frozen import frozen
from harness.roofline.operation import larger, smaller, some
from harness.roofline.pricing import SummedPrice, sum_prices
from harness.roofline.step import NTP, DecodeArm


@frozen
class Speeds:
    """One arm at one batch, or at several as arrays. ``decode_tokens_per_s`` and ``tokens_per_s`` are of the whole replica,
    without and with prompts.

    ``user_tokens_per_s``  of one row, from its first token to its last, with what the prompts of others take from it
    ``first_token_s``      from admission to the first token; None: no prompt, or no answer is known
    """

    decode_tokens_per_s: Band
    user_tokens_per_s: Band
    tokens_per_s: Band
    first_token_s: Band | None = None


def serve(replica: Replica, arm: DecodeArm, batch: Any, workload: RowTokens) -> Speeds:
    """Every side of the band: the slow side of decoding goes with the slow side of reading.

    The numbers of ``arm``, ``batch`` and the counts of the workload may be arrays that broadcast.

    Raises:
        UnknownHardwareError: several devices whose link rate is not known.
    """
    step = replica.price_step(arm, rows=batch, context_tokens=workload.context_tokens)
    written = batch * arm.tokens_per_step
    decode = Band(written / step.high_s, written / step.expected_s, written / step.low_s)
    if workload.prompt_tokens is None or workload.output_tokens is None:
        return Speeds(decode_tokens_per_s=decode, user_tokens_per_s=decode.scaled(1 / batch), tokens_per_s=decode)
    read = _prompt(replica, arm, batch, workload)
    sides = ((decode.low, read.high_s), (decode.expected, read.expected_s), (decode.high, read.low_s))
    at_once = _at_once(replica, batch)
    rates = (_rates(workload, batch, at_once, arm.tokens_per_step, rate, read_s) for rate, read_s in sides)
    user, whole = zip(*rates, strict=True)
    return Speeds(
        decode_tokens_per_s=decode,
        user_tokens_per_s=Band(*user),
        tokens_per_s=Band(*whole),
        first_token_s=Band.of_seconds(read),
    )


def read_alone(replica: Replica, workload: RowTokens) -> Band | None:
    """Seconds of one prompt that is read while nothing is decoded; None: no prompt."""
    if workload.prompt_tokens is None:
        return None
    return Band.of_seconds(_prompt(replica, NTP, 0, replace(workload, chunk_tokens=None)))


def _rates(
    workload: RowTokens, batch: Any, at_once: Any, tokens_per_step: Any, decode_rate: Any, read_s: Any
) -> tuple[Any, Any]:
    """Of a user and of the whole replica.

    ``read_s``: seconds of the steps that read ``at_once`` prompts, whatever decodes beside them.
    """
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
    return written / held_s, batch * written / cycle_s


def _at_once(replica: Replica, batch: Any) -> Any:
    """Prompts that are read side by side."""
    deployment = replica.deployment
    devices = deployment.tensor_parallel // deployment.attention_split
    return 1 if devices == 1 else smaller(batch, devices)


def _chunks(workload: RowTokens) -> Any:
    """Steps that read a prompt; None: it is read as a whole."""
    size, tokens = workload.chunk_tokens, workload.read_tokens
    return -(-tokens // size) if size is not None and some(tokens > 0) else None


def _prompt(replica: Replica, arm: DecodeArm, batch: Any, workload: RowTokens) -> SummedPrice:
    """The steps that read one prompt: a whole one alone, or chunks, each beside the rows that decode then.

    A chunk's price is almost linear in what is in the cache before it, so those before the last are priced at their mean.
    """
    tokens, before, chunks = workload.read_tokens, workload.shared_tokens, _chunks(workload)
    if not some(tokens > 0):
        return sum_prices(())
    at_once = _at_once(replica, larger(batch, 1))
    price = partial(replica.price_step, prefill_rows=at_once)
    if chunks is None or workload.chunk_tokens is None:
        return price(NTP, rows=0, context_tokens=0, prefill_tokens=tokens, prefill_context=before, prefill_logits=1)
    assert workload.output_tokens is not None
    size = workload.chunk_tokens
    rows = smaller(batch - at_once, at_once * workload.output_tokens / arm.tokens_per_step / chunks)
    beside = partial(price, arm, rows=rows, context_tokens=workload.context_tokens)
    read = (chunks - 1) * size
    last = beside(prefill_tokens=tokens - read, prefill_context=before + read, prefill_logits=1)
    if not some(chunks > 1):
        return last
    mean = beside(prefill_tokens=size, prefill_context=before + size * larger(chunks - 2, 0) / 2)
    return sum_prices(((1, last), (chunks - 1, mean)))
