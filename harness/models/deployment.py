"""How a model is stored and split: compute dtype, formats of weights and KV cache, devices."""

from __future__ import annotations

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import DTYPE_BYTES


@frozen
class WeightFormat:
    """How the weights of linear layers are stored: ``bits`` each, and a scale of ``scale_bytes`` for every ``group_size``.

    ``group_size`` counts weights (a 128 x 128 block is 16384); None where a scale serves a whole row or tensor, which adds
    less than 0.1 % and is not counted. Zero points are part of ``scale_bytes``.
    """

    name: str
    bits: float
    group_size: int | None = None
    scale_bytes: float = 0

    @property
    def bytes_per_weight(self) -> float:
        """Bytes one weight takes, its share of the scales included."""
        stored = int(self.bits // 8) if self.bits % 8 == 0 else self.bits / 8
        return stored if self.group_size is None else stored + self.scale_bytes / self.group_size

    @property
    def native(self) -> str:
        """The dtype that a device with such a peak multiplies it in; ``w8a16`` and ``int4`` are no dtype of any peak."""
        return self.name.partition("-")[0]


# Besides the plain dtypes: what deployed checkpoints use. Sources: DeepSeek-V3 (arXiv 2412.19437, section 3.3.2: blocks of
# 128 x 128, float32 scales), GPTQ and AWQ checkpoints (groups of 128, float16 scale, 4-bit zero point), OCP Microscaling 1.0
# (MXFP4: groups of 32, one-byte scale), NVIDIA NVFP4 (groups of 16, one-byte scale), PyTorch's tinygemm as gpt-fast and torchao
# pack it (int4-g32, int4-g64: bfloat16 scale and bfloat16 zero). float8 and int8 quantise activations too, where a device
# multiplies them so (W8A8); w8a16 is 8 bits for the weights alone.
WEIGHT_FORMATS: dict[str, WeightFormat] = {
    weights.name: weights
    for weights in (
        *(WeightFormat(name=dtype, bits=8 * size) for dtype, size in DTYPE_BYTES.items()),
        WeightFormat(name="float8-block128", bits=8, group_size=128 * 128, scale_bytes=4),
        WeightFormat(name="int8", bits=8),
        WeightFormat(name="w8a16", bits=8),
        WeightFormat(name="int4-g32", bits=4, group_size=32, scale_bytes=4),
        WeightFormat(name="int4-g64", bits=4, group_size=64, scale_bytes=4),
        WeightFormat(name="int4-g128", bits=4, group_size=128, scale_bytes=2.5),
        WeightFormat(name="mxfp4", bits=4, group_size=32, scale_bytes=1),
        WeightFormat(name="nvfp4", bits=4, group_size=16, scale_bytes=1),
    )
}


@frozen
class Deployment:
    """A model as it is served.

    ``dtype``            of activations and of every weight that is not in a linear layer of the blocks: embeddings, LM head,
                         norms, router and biases stay in it (as GPTQ, AWQ and FP8 checkpoints leave them)
    ``weights``          of the linear layers; None: also ``dtype``
    ``attention_weights``  of the attention's linear layers where they are stored otherwise (DeepSeek-R1 in NVFP4, gpt-oss in
                         GGUF files); None: as ``weights``
    ``lm_head_weights``  of the LM head where it is quantised too (gpt-fast, torchao); None: ``dtype``. A tied embedding table
                         is then stored twice, once in ``dtype`` for the look-up
    ``kv_dtype``         of the KV cache; None: also ``dtype``
    ``tensor_parallel``  devices that every layer is split over
    ``split_vocab``      embedding and LM head are split as well (Megatron-LM); False: whole on every device (gpt-fast)
    ``expert_parallel``  these devices share out whole experts, instead of a slice of every expert (EP)
    ``attention_data_parallel``  each of them has the whole attention, for its share of the rows (DP attention)
    ``pipeline_parallel``  stages of as many devices each, every one with its share of the layers (PP)

    The ceilings have the matrix rates: weights are multiplied in their own format, or unpacked first.

    Raises:
        UserError: an unknown dtype, or a split over fewer than one device or stage.
    """

    dtype: str
    weights: WeightFormat | None = None
    kv_dtype: str | None = None
    lm_head_weights: WeightFormat | None = None
    tensor_parallel: int = 1
    split_vocab: bool = True
    attention_weights: WeightFormat | None = None
    expert_parallel: bool = False
    attention_data_parallel: bool = False
    pipeline_parallel: int = 1

    def __post_init__(self) -> None:
        for dtype in (self.dtype, self.kv_dtype or self.dtype):
            element_bytes(dtype)
        if self.tensor_parallel < 1:
            raise UserError(f"a model is split over at least 1 device, not {self.tensor_parallel}")
        if self.pipeline_parallel < 1:
            raise UserError(f"a pipeline has at least 1 stage, not {self.pipeline_parallel}")

    @property
    def devices(self) -> int:
        """Devices that one replica takes."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def attention_split(self) -> int:
        """Devices that the heads are split over."""
        return 1 if self.attention_data_parallel else self.tensor_parallel

    @property
    def words(self) -> str:
        """How it is split: ``TP 8, EP, PP 2``; empty on one device."""
        parts = [f"TP {self.tensor_parallel}"] if self.tensor_parallel > 1 else []
        parts += ["EP"] * self.expert_parallel + ["DP attention"] * self.attention_data_parallel
        return ", ".join(parts + [f"PP {self.pipeline_parallel}"] * (self.pipeline_parallel > 1))

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation, and of a weight that is not in a linear layer."""
        return element_bytes(self.dtype)

    @property
    def weight_bytes(self) -> float:
        """Bytes of a weight of a linear layer, scales included."""
        return self.element_bytes if self.weights is None else self.weights.bytes_per_weight

    @property
    def attention_weight_bytes(self) -> float:
        """Bytes of a weight of the attention's linear layers, scales included."""
        return self.weight_bytes if self.attention_weights is None else self.attention_weights.bytes_per_weight

    @property
    def lm_head_bytes(self) -> float:
        """Bytes of a weight of the LM head, scales included."""
        return self.element_bytes if self.lm_head_weights is None else self.lm_head_weights.bytes_per_weight

    def stored(self, operation: str) -> WeightFormat | None:
        """The format of what an operation of a pass multiplies with; None: ``dtype``."""
        return {"attention": None, "router": None, "lm_head": self.lm_head_weights}.get(operation, self.weights)

    @property
    def kv_element_bytes(self) -> int:
        """Bytes of one element of the KV cache."""
        return element_bytes(self.kv_dtype or self.dtype)


def as_deployment(deployment: Deployment | str) -> Deployment:
    """A dtype alone means: everything in this dtype, on one device."""
    return Deployment(dtype=deployment) if isinstance(deployment, str) else deployment


ALIASES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "fp8": "float8",
    "fp64": "float64",
    **{f"f{bits}": f"float{bits}" for bits in (8, 16, 32, 64)},
}


def dtype_called(name: str) -> str:
    """The dtype that people call ``name``: bf16, FP8, half; one that is not known stays as it is, for whoever refuses it."""
    return ALIASES.get(name.lower(), name.lower())


def element_bytes(dtype: str) -> int:
    """Bytes of one element.

    Raises:
        UserError: the dtype is not one the arithmetic knows.
    """
    if dtype not in DTYPE_BYTES:
        raise UserError(f"unknown dtype {dtype!r}; known are {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]
