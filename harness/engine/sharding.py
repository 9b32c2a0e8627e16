"""A model split over the ranks of a group by transformers' tensor parallelism: every rank keeps its share of the weights.

Heads, inner widths and the vocabulary are split as the model's own plan says (Megatron-LM, arXiv 1909.08053, section 3). Every
rank computes the same hidden states and, gathered, the same logits.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
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


def loading_options(group: RankGroup, device: str) -> dict[str, Any]:
    """The options of ``from_pretrained`` by which a rank reads its own share of a checkpoint. Empty where transformers cannot
    do that: it goes by the accelerator that is present, so not for a model on the CPU beside a GPU.
    """
    from transformers.distributed.configuration_utils import DistributedConfig

    accelerator: Any = torch.accelerator.current_accelerator()
    if torch.device(device).type != ("cpu" if accelerator is None else accelerator.type):
        return {}
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
    mesh = init_device_mesh(torch.device(device).type, (group.ranks.world,), mesh_dim_names=("tp",))
    apply_tensor_parallelism(module, mesh, plan)
    module.tie_weights()
