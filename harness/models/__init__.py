"""What the arithmetic needs to know of a model: widths and counts, no weights.

A ModelShape can be read off a transformers config, taken from the table of known models, read back from a record, or
written by hand; the roofline prices it.
"""

from harness.models.config import shape_from_config
from harness.models.known import KNOWN_MODELS, KNOWN_SHAPES
from harness.models.shape import DTYPE_BYTES, LatentAttention, MixtureOfExperts, ModelShape

__all__ = [
    "DTYPE_BYTES",
    "KNOWN_MODELS",
    "KNOWN_SHAPES",
    "LatentAttention",
    "MixtureOfExperts",
    "ModelShape",
    "shape_from_config",
]
