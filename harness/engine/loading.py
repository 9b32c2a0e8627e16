"""Loads a scenario's model choice as a module with its token ids: the only place that creates models to be measured."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from harness.engine.adapter_files import read_adapter
from harness.engine.checkpoint_files import CONFIG, TEMPLATE, TOKENIZER_CONFIG, opened, tensor_names
from harness.engine.checkpoints import errors_in_a_line, open_checkpoint, open_family, open_gguf, read_tokenizer
from harness.engine.gated_adapter import Adapter, attach, random_like
from harness.engine.rank_group import RankGroup, loading_options, refuse_older_transformers, split
from harness.engine.text_tokenizer import TextTokenizer
from harness.errors import DoesNotFitError, UnknownModelError
from harness.frozen import frozen
from harness.models import KNOWN_SHAPES, ModelShape, shape_from_config
from harness.models.block_families import BlockModelFamily, native_config, recognised
from harness.models.block_families import mask_id as mask_id_of
from harness.models.choice import (
    HuggingFaceModel,
    RandomModel,
    ReferenceModel,
    StoredModel,
    gguf_of,
    model_name,
    model_place,
    refuse_missing,
    refuse_remote_code,
)
from harness.models.config import Config, read_object
from harness.models.decodable import refuse_ids, why_undecodable
from harness.scenario.part import Part
from harness.scenario.ranks import refuse_uneven_heads

BUILT = ("llama", "qwen2", "qwen3")
"""Architectures of random models."""


@frozen
class LoadedModel:
    """A model ready to decode. ``mask_id``: None without a mask token (NTP only). ``family``: None for a model of no public
    family of block models.
    """

    module: PreTrainedModel
    shape: ModelShape
    tokenizer: TextTokenizer | None
    mask_id: int | None
    stop_ids: frozenset[int]
    family: BlockModelFamily | None = None

    @property
    def filler_id(self) -> int:
        """What stands in undecided positions where it does not matter which token does: the mask, or any token without one."""
        return 0 if self.mask_id is None else self.mask_id


def load_model(part: Part, group: RankGroup | None = None) -> LoadedModel:
    """Load the model of a part onto its device; with a ``group``, this rank's share of it.

    Raises:
        UnknownModelError: it cannot be found, or its family is not supported.
        ScenarioError: its heads cannot be split as the part asks.
        DoesNotFitError: the weights do not fit into memory.
    """
    torch.set_grad_enabled(False)
    if group is not None:
        refuse_older_transformers()
    try:
        if isinstance(part.model, RandomModel):
            return _random(part.model, part, group)
        return _pretrained(part.model, part, group)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise DoesNotFitError(f"the weights do not fit into the memory of {part.device}: {error}") from error


def _random(choice: RandomModel, part: Part, group: RankGroup | None) -> LoadedModel:
    shape = KNOWN_SHAPES[choice.random] if isinstance(choice.random, str) else choice.random
    adapter = _adapter_of(choice, group)
    if shape.architecture not in BUILT:
        raise UnknownModelError(f"architecture {shape.architecture!r} cannot be built; allowed: {', '.join(BUILT)}")
    config = AutoConfig.for_model(
        shape.architecture,
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        head_dim=shape.head_dim,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.max_positions or 131072,
        tie_word_embeddings=shape.tied_embeddings,
    )
    torch.manual_seed(part.seed)
    # A split model is larger than a GPU; every rank draws the same whole model and keeps its share.
    with torch.device(part.device if group is None else "cpu"):
        auto: Any = AutoModelForCausalLM  # its methods carry no types
        module = auto.from_config(config, dtype=getattr(torch, part.dtype), attn_implementation=part.model_attention)
    if shape.sliding_window is not None or module.num_parameters() != shape.params:
        raise UnknownModelError(
            f"{shape.name}: random weights of this shape cannot be built ({module.num_parameters():,} parameters instead of "
            f"{shape.params:,}, or sliding windows); allowed are plain {shape.architecture} models"
        )
    if group is not None:
        split(module, shape.name, part.device, group)
    module, mask_id = module.to(part.device).eval(), shape.vocab - 1
    if adapter is not None:
        _adapt(module, shape, random_like(adapter, module, mask_id), str(choice.adapter))
    return LoadedModel(module=module, shape=shape, tokenizer=None, mask_id=mask_id, stop_ids=frozenset())


@frozen
class OpenedModel:
    """A checkpoint in memory: ``config`` is its config.json, ``template_file`` where a chat template would be."""

    module: Any
    tokenizer: Any
    config: Config
    family: BlockModelFamily | None
    template_file: str


def open_stored(choice: StoredModel, dtype: str, attention: str, share: dict[str, object] | None = None) -> OpenedModel:
    """The module and the tokenizer of a model with files, on the CPU unless ``share`` says otherwise.

    Raises:
        UnknownModelError: see load_model.
    """
    name = _name(choice)
    how = {"dtype": getattr(torch, dtype), "attn_implementation": attention}
    with errors_in_a_line(name), _place(choice) as (path, folder, options):
        config, family = _decodable(folder, path, name, options, dtype)
        template_file = str(Path(name, TEMPLATE if (folder / TEMPLATE).is_file() else TOKENIZER_CONFIG))
        gguf = gguf_of(choice)
        if gguf is not None:
            if share is not None:
                raise UnknownModelError(f"{name}: a GGUF file cannot be split; remove tensor_parallel, or give its safetensors")
            module, tokenizer = open_gguf(folder, gguf, name, how)
            template_file = name
        elif family is None:
            module, tokenizer = open_checkpoint(path, name, how | (share or {}), options)
        elif share is None:  # a family's own code is never needed
            module, tokenizer = open_family(folder, name, how, family, config)
        else:
            raise UnknownModelError(f"a model of the family {family.name} cannot be split yet; remove tensor_parallel")
    return OpenedModel(module=module, tokenizer=tokenizer, config=config, family=family, template_file=template_file)


def _pretrained(choice: StoredModel, part: Part, group: RankGroup | None) -> LoadedModel:
    name = _name(choice)
    share: dict[str, object] | None = None
    adapter = _adapter_of(choice, group)
    if group is not None:
        refuse_uneven_heads(part, checkpoint_shape(choice))
        share = loading_options(group, part.device)
    held = open_stored(choice, part.dtype, part.model_attention, share)
    module, tokenizer, family = held.module, held.tokenizer, held.family
    if group is not None and not share:
        split(module, name, part.device, group)
    # The scenario's, else the adapter's, else the checkpoint's.
    mask_id = choice.mask_token_id if isinstance(choice, HuggingFaceModel) else None
    if mask_id is None and adapter is not None:
        mask_id = adapter.mask_id
    if mask_id is None:
        mask_id, _ = mask_id_of(family, held.config, tokenizer.mask_token_id)
    shape, module = shape_from_config(name, module.config.to_dict()), module.to(part.device).eval()
    stop_ids = stop_ids_of(module.generation_config, tokenizer.eos_token_id)
    refuse_ids(name, mask_id, stop_ids, shape.vocab, part.needs_mask)
    if adapter is not None:
        _adapt(module, shape, replace(adapter, mask_id=mask_id), str(choice.adapter))
    text = TextTokenizer(tokenizer, held.template_file, stop_ids)
    return LoadedModel(module=module, shape=shape, tokenizer=text, mask_id=mask_id, family=family, stop_ids=stop_ids)


def _adapter_of(choice: StoredModel | RandomModel, group: RankGroup | None) -> Adapter | None:
    if choice.adapter is None:
        return None
    if group is not None:
        raise UnknownModelError(f"{choice.adapter}: an adapter cannot be split yet; remove tensor_parallel")
    return read_adapter(Path(choice.adapter))


def _adapt(module: Any, shape: ModelShape, adapter: Adapter, folder: str) -> None:
    """Raises UnknownModelError where the adapter does not fit; the message names its ``folder``."""
    if shape.moe is not None:
        raise UnknownModelError(f"{folder}: {shape.name} has experts, whose layers no adapter is gated in; remove adapter")
    try:
        attach(module, adapter)
    except UnknownModelError as error:
        raise UnknownModelError(f"{folder}: {error}") from error


def checkpoint_shape(choice: StoredModel) -> ModelShape:
    """The shape of a checkpoint by its configuration alone.

    Raises:
        UnknownModelError: it cannot be found, or is not a decoder-only transformer.
    """
    name = _name(choice)
    with errors_in_a_line(name), _place(choice) as (path, _, options):
        return shape_from_config(name, AutoConfig.from_pretrained(path, **options).to_dict())


def open_tokenizer(choice: StoredModel) -> TextTokenizer:
    """A checkpoint's tokenizer without its weights. Raises UnknownModelError: it cannot be found."""
    with errors_in_a_line(_name(choice)), _place(choice) as (path, _, options):
        return TextTokenizer(read_tokenizer(path, AutoConfig.from_pretrained(path, **options), gguf_of(choice)))


def _name(choice: StoredModel) -> str:
    return f"reference-{choice.reference}" if isinstance(choice, ReferenceModel) else model_name(choice)


@contextmanager
def _place(choice: StoredModel) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Where transformers reads a checkpoint, the folder of its checked files, and further options for transformers.

    The two places are one unless the checkpoint's own code may run.
    """
    refuse_remote_code(choice)
    refuse_missing(choice)
    path, trusted, revision = model_place(choice), False, None
    if isinstance(choice, HuggingFaceModel):
        trusted, revision = choice.trust_remote_code, choice.revision
    elif not Path(path).is_dir():
        raise UnknownModelError(
            f"the {model_name(choice)} does not ship with this version; use reference: sbd, or train it with sbd train "
            "--reference NAME --out DIR and give huggingface: DIR/NAME/export"
        )
    with opened(path, revision, gguf_of(choice)) as folder:
        options = {"revision": revision or "main", "trust_remote_code": True} if trusted else {"trust_remote_code": False}
        yield path if trusted else str(folder), folder, options


def stop_ids_of(generation_config: Any, *more: int | None) -> frozenset[int]:
    """End-of-sequence ids of a generation config (see ids_of; None: no config) and ``more``."""
    return frozenset([*ids_of(getattr(generation_config, "eos_token_id", None)), *(i for i in more if i is not None)])


def ids_of(given: Any) -> list[int]:
    """Token ids that are given as one, several (a list, an array, a tensor) or None."""
    return [] if given is None else torch.as_tensor(given).flatten().tolist()


def _decodable(
    folder: Path, path: str, name: str, options: dict[str, Any], dtype: str
) -> tuple[Config, BlockModelFamily | None]:
    """The checkpoint's config.json and its public family; checks what it will be loaded with before any weight is read."""
    config = read_object(folder / CONFIG)
    family = recognised(config)
    if family is None:
        class_config = AutoConfig.from_pretrained(path, **options)
        loaded = class_config.to_dict()
        if "text_config" in loaded and "text_config" not in class_config.sub_configs:
            raise UnknownModelError(f"{name}: a {config.get('model_type')} model has no text_config; remove it from {CONFIG}")
    else:
        loaded = native_config(family, config)
    shape = shape_from_config(name, loaded)
    reason = why_undecodable(loaded, shape, dtype)
    if reason is not None:
        raise UnknownModelError(f"{name} {reason}")
    files = [*folder.glob("*.safetensors")]
    count = len(tensor_names(folder, name)) if files else shape.layers  # a GGUF header is checked
    if shape.layers > count:  # transformers would build every one of them before it looks
        raise UnknownModelError(f"{name}: {CONFIG} has {shape.layers:,} layers, but its weights are {count} tensors")
    if files and shape.params > (held := sum(file.stat().st_size for file in files)):
        raise UnknownModelError(f"{name}: {CONFIG} describes {shape.params:,} weights, but its files have {held:,} bytes")
    return config, family


def device_here() -> str:
    """The default device of a command: the GPU if the machine has one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


# Options of mallopt(3), from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_SMALL_BYTES, _LARGE_BYTES = 128 * 1024, 1 << 30


def map_what_comes() -> bool:
    """Give every later large allocation on a CPU a mapping of its own, the same for every arm: call before weights are loaded.

    Weights are read a quarter slower from the heap than from mappings of their own (46 against 35 ms, a 250M model). By default
    glibc gives the temporaries of a pass back to the kernel and faults them in again page by page: the sampler then took 3.3 ms
    a pass instead of 0.8 ms (vocabulary 32,000, block 16). Both were seen once, on a 2-core EPYC. False without glibc.
    """
    return _set(_MMAP_THRESHOLD, _SMALL_BYTES)


def keep_what_is_freed() -> bool:
    """Take large allocations from the heap and keep freed ones for the next pass: call after weights are loaded."""
    return _set(_MMAP_THRESHOLD, _LARGE_BYTES) and _set(_TRIM_THRESHOLD, _LARGE_BYTES)


def _set(option: int, value: int) -> bool:
    """False where this C library has no mallopt or refuses."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(option, value))
