"""A model split over the ranks of a group by transformers' tensor parallelism: every rank keeps its share of the weights.

Heads, inner widths and the vocabulary are split as the model's own plan says (Megatron-LM, arXiv 1909.08053, section 3). Every
rank computes the same hidden states and, gathered, the same logits.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from harness.engine.rank_group import RankGroup
from harness.errors import UnknownModelError, UserError

OLDEST = (5, 23)
"""The transformers version that this was written for; before 5.21 it split models differently."""


def refuse_older_transformers() -> None:
    """Raises UserError where the functions that split a model are missing or different."""
    if tuple(map(int, transformers.__version__.split(".")[:2])) < OLDEST:
        raise UserError(
            f"tensor_parallel needs transformers {'.'.join(map(str, OLDEST))} or newer, this is {transformers.__version__}; "
            "pip install -U transformers"
        )


def loads_split(device: str) -> bool:
    """Whether transformers can read every rank its own share of a checkpoint. It goes by the accelerator that is present, so
    not for a model on the CPU beside a GPU.
    """
    accelerator: Any = torch.accelerator.current_accelerator()
    return torch.device(device).type == ("cpu" if accelerator is None else accelerator.type)


def loading_options(group: RankGroup) -> dict[str, Any]:
    """The options of ``from_pretrained``."""
    from transformers.distributed.configuration_utils import DistributedConfig

    return {"distributed_config": DistributedConfig(tp_size=group.ranks.world)}


def split(module: PreTrainedModel, name: str, device: str, group: RankGroup) -> None:
    """Keep this rank's share of a model that every rank has whole, the same weights everywhere, on the CPU or on ``device``.

    Raises:
        UnknownModelError: transformers has no plan to split it.
    """
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    if not module.tp_plan:
        raise UnknownModelError(
            f"{name}: transformers has no plan how to split {type(module).__name__}; use tensor_parallel: 1, or a model with a "
            "tp_plan (Llama, Qwen2, Qwen3 and others)"
        )
    untyped: Any = module
    head = untyped.get_output_embeddings()
    if head is not None and untyped.get_input_embeddings().weight is head.weight:
        head.weight = nn.Parameter(head.weight.detach(), requires_grad=False)  # else it would go by one name only
    plan, _, _ = module._resolve_parallel_plans(DistributedConfig(tp_size=group.ranks.world))
    apply_tensor_parallelism(module, group.mesh(device), plan)
    module.tie_weights()
