"""Modelled bytes of one pass, added up over its operations."""

from harness.roofline.operations import forward_operations


def pass_bytes(shape, deployment, forward_pass):
    """Weights, KV read and written, activations; without the sampler."""
    return sum(operation.bytes_ for operation in forward_operations(shape, deployment, forward_pass))
