"""What the devices of one replica send each other in a pass.

Over t devices a ring all-reduce of S bytes sends 2 (t - 1) / t * S from each device. An all-gather or reduce-scatter of S bytes
in total sends (t - 1) / t * S (Patarasuk & Yuan 2009, doi 10.1016/j.jpdc.2008.09.002). Transfers that wait for one another are
hops: ceil(log2 t) for an all-gather or a reduce-scatter, twice that for an all-reduce (Thakur, Rabenseifner & Gropp 2005,
doi 10.1177/1094342005051521).

* TP: the partial sums of a layer's attention and feed-forward network are reduced, as are those of a split embedding; split
  logits are gathered.
* DP attention: a device gathers the others' lines before a feed-forward network and scatters its sums after it. That is one
  all-reduce a layer instead of two.
* EP behind DP attention: a line goes to the devices that hold its experts, and its sums come back. A token with K independent
  experts visits each of t devices with probability 1 - (1 - 1/t)^K. EP behind split heads reduces as TP does.
* PP: every stage hands its lines to the next one, each device its share of them.
"""

from __future__ import annotations

from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.operation import Operation


def collectives(shape: ModelShape, deployment: Deployment, lines: int, logit_lines: int) -> Operation | None:
    """Bytes one device sends for ``lines`` lines of a stage's rows, over all layers and stages; None on one device.

    ``shape`` is the whole model's.
    """
    devices, stages, size = deployment.tensor_parallel, deployment.pipeline_parallel, deployment.element_bytes
    if deployment.devices == 1:
        return None
    share, hops = (devices - 1) / devices, (devices - 1).bit_length()
    line_bytes = lines * shape.hidden * size
    networks, moved = shape.layers, float(shape.layers)
    if deployment.attention_data_parallel:
        reduced = int(deployment.split_vocab)
        if deployment.expert_parallel and shape.moe is not None:
            visited = 1 - (1 - 1 / devices) ** shape.moe.experts_per_token
            moved = shape.dense_layers + shape.moe.layers * visited
    else:
        reduced = shape.layers + deployment.split_vocab
    gathered = logit_lines * -(-shape.vocab // devices) * devices * size * deployment.split_vocab
    sent = share * (2 * (reduced + moved) * line_bytes + gathered)
    waits = hops * (2 * (reduced + networks) + deployment.split_vocab * (logit_lines > 0))
    return Operation(
        name="collectives",
        kind="link",
        tokens=lines,
        link_bytes=sent + (stages - 1) * line_bytes / devices,
        link_hops=waits + (stages - 1),
    )
