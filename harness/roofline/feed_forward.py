"""Counts of feed-forward networks: dense ones, and mixtures of experts.

Set Block Decoding gains less on a mixture. SBD gains because a pass over k tokens reads the same weights as a pass over one.
In a mixture k tokens visit more experts than one token does, and every visited expert is read. With E experts and K visited
per token, n tokens visit E (1 - (1 - K/E)^n) distinct ones. At E = 128, K = 8 one token reads 8 experts, 16 tokens 82.
The memory traffic of the experts grows almost with the tokens until nearly all are read, at n of about 3 E / K. Below that
a block can cost more than the passes it saves.
"""

from __future__ import annotations

from harness.models import MixtureOfExperts, ModelShape
from harness.models.deployment import Deployment
from harness.roofline.operation import Operation, linear


def expected_experts(experts: int, per_token: int, tokens: float) -> float:
    """Expected number of distinct experts that ``tokens`` tokens visit, each choosing ``per_token`` of ``experts``.

    Under uniform routing a token misses a given expert with probability 1 - K/E, n independent tokens with (1 - K/E)^n. The
    expectation is E (1 - (1 - K/E)^n). Tokens of one text choose alike, and trained routers are balanced only on
    average, so this is an upper estimate.
    """
    visited: float = experts * (1 - (1 - per_token / experts) ** tokens)
    return visited


def feed_forward_operations(
    shape: ModelShape, deployment: Deployment, lines: int, own_lines: int, visited_experts: float | None
) -> list[Operation]:
    """The dense network, router, experts and shared experts, as far as the model has them; ``shape`` is this device's part.

    Args:
        own_lines: the lines that this device routes: all, or with DP attention those of its rows.
        visited_experts: distinct experts that a recorded routing visited, summed over the layers; None: the expectation.
    """
    moe, operations = shape.moe, []
    if shape.dense_layers:
        biases = shape.ffn_params - shape.ffn_weights(shape.intermediate)
        operations.append(_dense("ffn", shape, deployment, lines, shape.dense_layers, shape.intermediate, biases))
    if moe is not None:
        operations += [_router(shape, moe, deployment, own_lines), _experts(shape, moe, deployment, lines, visited_experts)]
        if moe.shared_intermediate:
            operations.append(_dense("shared_experts", shape, deployment, lines, moe.layers, moe.shared_intermediate, 0))
    return operations


def activated_width(shape: ModelShape) -> int:
    """Inner elements that one token passes through the activation function, over all layers."""
    width = shape.dense_layers * shape.intermediate
    if shape.moe is not None:
        width += shape.moe.layers * (shape.moe.experts_per_token * shape.moe.intermediate + shape.moe.shared_intermediate)
    return width


def _dense(
    name: str, shape: ModelShape, deployment: Deployment, lines: int, layers: int, intermediate: int, biases: int
) -> Operation:
    size, weights = deployment.element_bytes, shape.ffn_weights(intermediate)
    weight_bytes = weights * deployment.weight_bytes + biases * size
    return linear(name, layers, lines, weights, weight_bytes, _moved(shape, intermediate) * size)


def _router(shape: ModelShape, moe: MixtureOfExperts, deployment: Deployment, lines: int) -> Operation:
    size, weights = deployment.element_bytes, shape.hidden * moe.experts
    weight_bytes = (weights + moe.experts * moe.router_bias) * size
    return linear("router", moe.layers, lines, weights, weight_bytes, (shape.hidden + moe.experts) * size)


def _experts(
    shape: ModelShape, moe: MixtureOfExperts, deployment: Deployment, lines: int, visited_experts: float | None
) -> Operation:
    # Of experts that are shared out, a device has its share of the visits and of the visited ones.
    devices = deployment.tensor_parallel if deployment.expert_parallel else 1
    visits, weights = lines * moe.experts_per_token / devices, shape.ffn_weights(moe.intermediate)
    visited = moe.layers * expected_experts(moe.experts, moe.experts_per_token, lines)
    visited = (visited if visited_experts is None else visited_experts) / devices
    return Operation(
        name="experts",
        kind="linear",
        tokens=moe.layers * visits / visited,
        flops=2 * moe.layers * visits * weights,
        weight_bytes=visited * weights * deployment.weight_bytes,
        activation_bytes=moe.layers * visits * _moved(shape, moe.intermediate) * deployment.element_bytes,
        pieces=moe.layers,
    )


def _moved(shape: ModelShape, intermediate: int) -> int:
    """Activations that one token reads and writes: in, gate and up, their product, out."""
    return 2 * shape.hidden + ((2 if shape.gated_ffn else 1) + 1) * intermediate
