"""Multi-head drafting: a tree of candidates is drafted from the target's own states and verified in one target pass."""

from __future__ import annotations

from harness.errors import UserError
from harness.models import ModelShape
from harness.record.trace import Role
from harness.roofline.methods.calls import MethodTrace, Setting, at_least, other_call, target_call, with_layers


def tree_drafting(
    at: Setting,
    *,
    tree_tokens: int,
    tokens_per_pass: float,
    drafter: ModelShape | None = None,
    drafter_passes: int = 0,
    drafter_query: int = 1,
) -> MethodTrace:
    """One target pass over ``tree_tokens`` query tokens emits ``tokens_per_pass``; a small drafter runs between them.

    ``tree_tokens`` counts the root, the token known already; a tree of one token is NTP exactly. Without a drafter the
    candidates come out of the target pass itself (Hidden Transfer, arXiv 2404.12022). All tokens of the tree get a K and
    V, those of rejected branches to be overwritten.

    Raises:
        UserError: sizes below 1 (passes below 0), more tokens per pass than the tree has, a drafter that makes no pass.
    """
    at_least("tree tokens", tree_tokens, 1)
    at_least("drafter passes", drafter_passes, 0)
    at_least("drafter query tokens", drafter_query, 1)
    if not 1 <= tokens_per_pass <= tree_tokens:
        raise UserError(f"tokens per pass: given were {tokens_per_pass:g}, allowed are 1 to the tree's {tree_tokens} tokens")
    if (drafter is None) != (drafter_passes == 0):
        raise UserError("a drafter and its passes go together: give both, or neither")
    role: Role = "verify" if tree_tokens > 1 else "decide"
    calls = [target_call(at, role, 1 / tokens_per_pass, query=tree_tokens, logits=tree_tokens, kept=tree_tokens)]
    if drafter is not None:
        count = drafter_passes / tokens_per_pass
        calls.append(other_call(at, "drafter", drafter, "draft", count, query=drafter_query, logits=drafter_query))
    return MethodTrace(family="multi-head drafting", calls=tuple(calls))


def small_drafter(target: ModelShape, *, layers: int, intermediate_of_hidden: float | None = None) -> ModelShape:
    """A drafter with the target's widths and vocabulary, few layers, and if said so its own dense feed-forward width.

    Raises:
        UserError: no layer, or no feed-forward width.
    """
    at_least("drafter layers", layers, 1)
    shape = with_layers(target, layers)
    if intermediate_of_hidden is None:
        return shape
    intermediate = int(at_least("drafter feed-forward width", target.hidden * intermediate_of_hidden, 1))
    return shape.model_copy(update={"intermediate": intermediate, "moe": None})
