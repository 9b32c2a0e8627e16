"""Result files as `vllm bench serve` writes them, with its figures by numpy, as the tool takes them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LENGTHS = (31, 40, 52, 47, 36, 60, 44, 33, 58, 41)
"""Prompt tokens of ten requests."""


def vllm_result(
    per_token_s: float = 0.02,
    seed: int = 1,
    lengths: Sequence[int] = LENGTHS,
    output_tokens: int = 16,
    first_token_s: float = 0.1,
    failed: Sequence[int] = (),
    texts: Sequence[str] = (),
    **others: Any,
) -> dict[str, Any]:
    """One run of requests one after the other; ``failed``: places of those that got no answer."""
    drawn = random.Random(seed)
    ttfts, itls, errors, outputs = [], [], [], []
    for place, _ in enumerate(lengths):
        lost = place in failed
        ttfts.append(0.0 if lost else first_token_s * drawn.uniform(0.9, 1.1))
        itls.append([] if lost else [per_token_s * drawn.uniform(0.9, 1.1) for _ in range(output_tokens - 1)])
        errors.append("Internal Server Error" if lost else "")
        outputs.append(0 if lost else output_tokens)
    latencies = [first + sum(gaps) for first, gaps in zip(ttfts, itls, strict=True)]
    good = [place for place in range(len(lengths)) if place not in failed]
    duration = sum(latencies) + 0.001 * len(lengths)
    values = {
        "ttft": [ttfts[i] for i in good],
        "tpot": [(latencies[i] - ttfts[i]) / (output_tokens - 1) for i in good],
        "itl": [gap for i in good for gap in itls[i]],
        "e2el": [latencies[i] for i in good],
    }
    told = {f"median_{name}_ms": float(np.median(found) * 1000) for name, found in values.items()}
    told |= {f"mean_{name}_ms": float(np.mean(found) * 1000) for name, found in values.items()}
    told |= {f"p99_{name}_ms": float(np.percentile(found, 99) * 1000) for name, found in values.items()}
    tokens = sum(outputs)
    return {
        "date": "20261120-100000",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None,
        "model_id": "model",
        "tokenizer_id": "model",
        "num_prompts": len(lengths),
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 1,
        "duration": duration,
        "completed": len(good),
        "failed": len(failed),
        "total_input_tokens": sum(lengths[i] for i in good),
        "total_output_tokens": tokens,
        "request_throughput": len(good) / duration,
        "output_throughput": tokens / duration,
        "input_lens": list(lengths),
        "output_lens": outputs,
        "ttfts": ttfts,
        "itls": itls,
        "latencies": latencies,
        "errors": errors,
        "generated_texts": list(texts) or [""] * len(lengths),
        **told,
        **others,
    }


def cut(result: dict[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """A result with these of its requests alone, in this order, without the figures that the tool printed."""
    sent = len(result["errors"])
    kept = {
        key: [value[place] for place in places] if isinstance(value, list) and len(value) == sent else value
        for key, value in result.items()
        if not key.endswith("_ms")
    }
    read, made = sum(kept["input_lens"]), sum(kept["output_lens"])
    rates = {"request_throughput": len(places) / kept["duration"], "output_throughput": made / kept["duration"]}
    return kept | rates | {"completed": len(places), "total_input_tokens": read, "total_output_tokens": made}


def written(folder: Path, name: str, result: Any) -> Path:
    """The file, in ``folder``."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(json.dumps(result), encoding="utf-8")
    return file


def a_pair(folder: Path, files: int = 3, speedup: float = 2.0, first: int = 0, **others: Any) -> list[str]:
    """Arguments of `sbd import` for so many files of NTP and of an arm ``fast``, whose tokens take ``speedup`` less time.

    ``first``: the seed of the first file.
    """
    found: list[str] = []
    for number in range(first, first + files):
        plain = written(folder, f"plain{number}.json", vllm_result(0.02, seed=number, **others))
        fast = written(folder, f"fast{number}.json", vllm_result(0.02 / speedup, seed=100 + number, **others))
        found += ["--ntp", str(plain), "--arm", f"fast={fast}"]
    return found
