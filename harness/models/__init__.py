"""What the arithmetic needs to know of a model: widths and counts, no weights.

In: a transformers config, a name of the table of known models, a record, or values written by hand. Out: a ModelShape that
the roofline prices, the family of a block model, and whether the sessions can decode it. Read ``shape`` first.
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
