"""What one of two processes that share a model does in tests/integration/test_split.py; started twice, and by hand never.

python -m tests.helpers.split_worker logits OUT    the logits of a few passes of every model below, as each rank has them
python -m tests.helpers.split_worker fail HOW OUT  a decode in which rank 1 fails in one of several ways
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.decoding.session import Segment
from harness.engine import tensor_parallel
from harness.engine.engine import LocalEngine
from harness.engine.loading import LoadedModel, load_model
from harness.engine.rank_group import RankGroup, joined
from harness.engine.sessions import open_session
from harness.errors import DoesNotFitError, ProcessEndedError
from harness.scenario.part import Part
from harness.scenario.plan import make_plan
from harness.scenario.scenario import Scenario

TINY = {"name": "tiny", "layers": 2, "hidden": 32, "intermediate": 47, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab": 101}
"""An inner width and a vocabulary that do not halve."""
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"random": TINY},
    "qwen2": {"random": TINY | {"architecture": "qwen2", "qkv_bias": True, "kv_heads": 4}},
    "qwen3": {"random": TINY | {"architecture": "qwen3", "qk_norm": True, "tied_embeddings": True}},
    "reference": {"reference": "sbd"},
}
SYNTHETIC = {"synthetic": {"prompt_tokens": 6}, "prompts": 2, "max_new_tokens": 8}
WORD_PROBLEMS = {"tasks": ["word_problems"], "prompts": 2, "max_new_tokens": 8}


def part_of(name: str, session: str = "static", **changes: Any) -> Part:
    """A part with one of MODELS, in float64."""
    workload = WORD_PROBLEMS if name == "reference" else SYNTHETIC
    return Part.model_validate(
        {
            "name": name,
            "model": MODELS[name],
            "dtype": "float64",
            "session": session,
            "timed": False,
            "workload": workload,
            "arms": [{"method": "ntp", "temperature": [0, 1]}],
            "tensor_parallel": 2,
        }
        | changes
    )


def logits_of(part: Part, group: RankGroup | None) -> tuple[LoadedModel, Any, list[torch.Tensor]]:
    """Model, session and the logits of a prompt, one token, a block, and a block behind a committed one."""
    model = load_model(part, group)
    session = open_session(model.module, part.session, part.attention, "eager", 1 if group is None else 2)
    ids = torch.arange(2 * 20).reshape(2, 20) * 7 % 89
    session.reset(2, 40)
    found, end = [], 0
    for widths in ((("causal", 6),), (("causal", 1),), (("bidirectional", 4),), (("causal", 4), ("bidirectional", 4))):
        segments, start = [], end
        for visibility, width in widths:
            at = torch.arange(start, start + width).expand(2, -1)
            segments.append(Segment(tokens=ids[:, start : start + width], positions=at, visibility=visibility, logits=width))
            start += width
        found.append(session.forward(segments))
        kept = 0 if widths == (("bidirectional", 4),) else widths[0][1]
        session.keep([kept] * 2)
        end += kept
    return model, session, found


def logits(out: Path) -> None:
    """Every rank: what it holds, and a digest of its logits; rank 0: the logits themselves."""
    group = joined()
    assert group is not None
    told: dict[str, Any] = {}
    for name in MODELS:
        for session in ("static", "plain"):
            model, opened, found = logits_of(part_of(name, session), group)
            told[f"{name}/{session}"] = {
                "digest": hashlib.sha256(b"".join(one.numpy().tobytes() for one in found)).hexdigest(),
                "stored_bytes": stored_bytes(model.module),
                "kv_shape": list(opened._keys[0].shape) if session == "static" else None,
            }
            if group.ranks.leads:
                torch.save(found, out / f"{name}-{session}.pt")
    (out / f"rank{group.ranks.rank}.json").write_text(json.dumps(told))
    group.barrier()


def stored_bytes(module: torch.nn.Module) -> int:
    """Bytes of the memory that parameters keep alive in this process, shared memory once."""
    held = {}
    for weight in module.parameters():
        local = weight.to_local() if hasattr(weight, "to_local") else weight
        storage = local.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
    return sum(held.values())


def fail(how: str, out: Path) -> None:
    """Rank 0 decodes and writes down what it met; rank 1 fails in that decode, at temperature 1."""
    tensor_parallel.GRACE_S = 0.5
    part = part_of("llama")
    cases = make_plan(Scenario(version=1, name="s", parts=(part,))).cases
    case = next(case for case in cases if case.arm.temperature == 1)
    if os.environ["RANK"] == "1":
        LocalEngine.decode = failing(how, LocalEngine.decode)  # type: ignore[method-assign]  # the fault that is planted
        tensor_parallel.follow()
        return
    engine = tensor_parallel.open_split_engine(part)
    try:
        engine.decode(case, [(1, 2, 3), (4, 5, 6)], seed=1)
    except ProcessEndedError as error:
        (out / "met").write_text(str(error))
    sys.exit(3)


def failing(how: str, decode: Callable[..., Any]) -> Callable[..., Any]:
    """``decode`` with a fault: out of memory before it, another seed, or the end of the process."""

    def planted(engine: LocalEngine, case: Any, prompts: Any, seed: int) -> Any:
        if how == "memory":
            raise DoesNotFitError("out of memory on a planted device")
        if how == "killed":
            os.kill(os.getpid(), 9)
        return decode(engine, case, prompts, seed + (how == "seed"))

    return planted


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    if sys.argv[1] == "logits":
        logits(Path(sys.argv[2]))
    else:
        fail(sys.argv[2], Path(sys.argv[3]))
