"""Opens a checkpoint's weights and tokenizer.

A public family of block models is loaded into the transformers class that its tensors fit, under our own masks. None of the
code in the checkpoint runs. transformers maps the names of tensors as it loads. Only a fused query_key_value is split here,
which needs the whole checkpoint in memory once. While it loads, its bars feed ours, and its remarks stay off the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from logging import ERROR
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from safetensors.torch import load_file
from tokenizers import Tokenizer, pre_tokenizers
from torch import Tensor
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
    modeling_gguf_pytorch_utils,
)
from transformers.utils import logging

from harness.engine.checkpoint_files import TOKENIZER, opened
from harness.errors import MissingExtraError, SbdError, UnknownModelError
from harness.models.block_families import BlockModelFamily, native_config
from harness.models.config import Config
from harness.models.decodable import refuse_unreadable_tokenizer
from harness.models.gguf_header import LLAMA_3, read_gguf
from harness.progress import tell_share

FUSED = ".attention.query_key_value."
_LEFT_OUT = re.compile(r"(^|[._])(mtp|medusa)|rotary_emb\.|masked_bias$|\.(attn|attention)\.bias$|position_ids$")
"""Heads that draft, which no session asks, and buffers that transformers computes anew."""
_DRAFTS = re.compile(r"model\.layers\.\d+\.(?=eh_proj|enorm|hnorm|shared_head)")
"""A layer that drafts, by what only such layers have."""


class ShareBar:
    """Stands in for a tqdm bar (its interface as transformers uses it) and passes on the share that is done."""

    def __init__(self, iterable: Any = None, *_: Any, total: float | None = None, **__: Any) -> None:
        self._iterable = iterable
        known = total if total is not None else len(iterable) if hasattr(iterable, "__len__") else None
        self.total, self.n = known, 0.0

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            self.update()

    def __enter__(self) -> ShareBar:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def update(self, n: float = 1) -> None:
        """So many steps more are done."""
        self.n += n
        if self.total:
            tell_share(self.n / self.total)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """set_description, set_postfix, refresh, close and the like change only what a bar shows."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


@contextmanager
def libraries_silent() -> Iterator[None]:
    """Within it transformers logs errors only and reports progress to our bar; the hub's bars are off."""
    verbosity, hubs_off = logging.get_verbosity(), are_progress_bars_disabled()
    before = logging.set_tqdm_hook(lambda _, args, kwargs: ShareBar(*args, **kwargs))
    gguf: Any = modeling_gguf_pytorch_utils
    gguf.tqdm = logging.tqdm  # the library's own, which asks the hook
    logging.set_verbosity(ERROR)
    disable_progress_bars()
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)
        logging.set_verbosity(verbosity)
        if not hubs_off:
            enable_progress_bars()


@contextmanager
def errors_in_a_line(name: str) -> Iterator[None]:
    """Report transformers' errors about a checkpoint in one line; they are of any kind where a setting has another type.

    Its bars and remarks stay off the terminal.
    """
    try:
        with libraries_silent():
            yield
    except (SbdError, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        words = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnknownModelError(f"cannot load {name}: {words}; give a folder or a hub id with safetensors weights") from error


def open_for_training(name: str, revision: str | None = None) -> tuple[Any, Any]:
    """The module, in float32, and the tokenizer of a folder or hub id. Raises UnknownModelError: it cannot be loaded."""
    with errors_in_a_line(name), opened(name, revision) as folder:
        return open_checkpoint(str(folder), name, {"dtype": torch.float32}, {"trust_remote_code": False})


def open_checkpoint(path: str, name: str, how: dict[str, object], options: dict[str, Any]) -> tuple[Any, Any]:
    """The module and the tokenizer of a checkpoint of no public family.

    Args:
        path: a folder of checked files; a folder or a hub id where its own code may run.
        name: what the scenario calls it.
        how: transformers' dtype and attn_implementation, and its options to split the model over several processes.
        options: the revision, and whether the checkpoint's own code may run.

    Raises:
        OSError, ValueError: the checkpoint does not exist or cannot be loaded so.
        UnknownModelError: its tensors do not fit.
    """
    auto: Any = AutoModelForCausalLM
    known = AutoConfig.from_pretrained(path, **options)
    known._name_or_path = name  # transformers picks some tokenizers by their hub id
    tokenizer = read_tokenizer(path, known, **options)
    module, info = auto.from_pretrained(path, **how | options | {"use_safetensors": True, "output_loading_info": True})
    _refuse_other_tensors(name, info, module.config)
    return module, tokenizer


def open_family(folder: Path, name: str, how: dict[str, object], family: BlockModelFamily, config: Config) -> tuple[Any, Any]:
    """The same of a checkpoint of a public family, in a folder of checked files; ``config``: its config.json."""
    native = native_config(family, config)
    as_native = AutoConfig.for_model(native.pop("model_type"), **native)
    native_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(as_native)]
    how = how | {"config": as_native, "output_loading_info": True}
    if family.renames:
        how["key_mapping"] = dict(family.renames)
    if family.fused_qkv:
        held = {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(str(file)).items()}
        module, info = native_class.from_pretrained(None, state_dict=_unfused(held, as_native), **how)
        module.generation_config = _generation_config(folder)
    else:
        module, info = native_class.from_pretrained(folder, use_safetensors=True, **how)
    _refuse_other_tensors(name, info, as_native)
    return module, read_tokenizer(folder, as_native)


def open_gguf(folder: Path, file: str, name: str, how: dict[str, object]) -> tuple[Any, Any]:
    """The module, de-quantised, and the tokenizer of a GGUF file in a folder of checked files; arguments as open_checkpoint.

    Raises:
        MissingExtraError: the package that reads the weights is not installed.
        UnknownModelError: its tensors do not fit.
    """
    need_gguf(name)
    from transformers import GgufConfig  # only versions that the extra [gguf] asks for have it

    auto: Any = AutoModelForCausalLM
    config, whole = AutoConfig.from_pretrained(folder), GgufConfig(dequantize=True)
    how = how | {"gguf_file": file, "quantization_config": whole, "output_loading_info": True}
    module, info = auto.from_pretrained(folder, config=config, **how)
    _refuse_other_tensors(name, info, config)
    tokenizer = read_tokenizer(folder, config, file)
    module.generation_config.eos_token_id = sorted(read_gguf(folder / file).ends(tokenizer.get_vocab()))
    return module, tokenizer


def need_gguf(what: str) -> None:
    """Raises MissingExtraError where what reads the weights of GGUF files is not installed; ``what`` needs it."""
    if missing := [package for package in ("gguf", "accelerate") if find_spec(package) is None]:
        raise MissingExtraError(f"{what}: a GGUF file needs {' and '.join(missing)}; pip install 'sbd-bench[gguf]'")


def _refuse_other_tensors(name: str, info: Any, config: Any) -> None:
    """transformers fills missing tensors with random numbers, leaves out those that nothing reads, and only warns. The model
    would then write something else at the right speed. Heads that draft and buffers may be left out.

    Raises:
        UnknownModelError: there are such tensors; the message names the first.
    """
    own, unread = config.get_text_config(), info["unexpected_keys"]
    layers = range(own.num_hidden_layers, own.num_hidden_layers + (getattr(own, "num_nextn_predict_layers", None) or 0))
    heads = (*(head[0] for key in unread if (head := _DRAFTS.match(key))), *(f"model.layers.{layer}." for layer in layers))
    unread = [key for key in unread if not key.startswith(heads)]
    for keys, words in ((info["missing_keys"], "lacks"), (unread, "has, beyond those that its config.json asks for,")):
        if found := sorted(key for key in keys if not _LEFT_OUT.search(key)):
            raise UnknownModelError(
                f"{name}: this checkpoint {words} {len(found)} tensors, {', '.join(found[:3])} among them: config.json is of "
                "another model or lacks a key (attention_bias, mlp_bias, num_hidden_layers), or it is no whole checkpoint; "
                "give the files that belong together"
            )


def read_tokenizer(
    path: str | Path, config: Any, gguf_file: str | None = None, trust_remote_code: bool = False, **options: Any
) -> Any:
    """The checkpoint's tokenizer as transformers reads it, or, where it has no class there, from its tokenizer.json.

    transformers builds some classes anew from the vocabulary and the merges. Texts are split and joined as tokenizer.json says
    all the same, unless code of the checkpoint's own may run. A ``gguf_file`` is read where there is no tokenizer.json.

    Raises:
        UnknownModelError: there is none that can be read here.
    """
    if not trust_remote_code:
        refuse_unreadable_tokenizer(Path(path), gguf_file)
    file = Path(path, TOKENIZER)
    if gguf_file is not None and not file.is_file():
        return _of_gguf(Path(path, gguf_file), config)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, config=config, trust_remote_code=trust_remote_code, **options)
    except (OSError, ValueError):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path)
    if file.is_file() and tokenizer.is_fast and not trust_remote_code:
        own = Tokenizer.from_file(str(file))
        for part in ("normalizer", "pre_tokenizer", "model", "decoder"):
            setattr(tokenizer.backend_tokenizer, part, getattr(own, part))
    return tokenizer


def _of_gguf(file: Path, config: Any) -> Any:
    """The tokenizer of a GGUF file, where transformers knows less of it than llama.cpp's llama_vocab::impl::load."""
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, config=config, gguf_file=file.name)
    header, backend = read_gguf(file), tokenizer.backend_tokenizer
    splits = header.of_tokenizer("pre")
    if splits == "smollm":
        digits, rest = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, rest])
    if splits in LLAMA_3:
        backend.model.ignore_merges = True
        tokenizer.add_bos_token = header.adds_begin
    return tokenizer


def _generation_config(folder: Path) -> Any:
    generation: Any = GenerationConfig  # its methods carry no types
    try:
        return generation.from_pretrained(folder)
    except OSError:
        return generation()


def _unfused(tensors: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
    """Queries, keys and values apart; their rows lie one after another, head by head."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    apart: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if FUSED not in name:
            apart[name] = tensor
            continue
        rows = [heads * width, kv_heads * width, kv_heads * width]
        for kind, part in zip("qkv", torch.split(tensor, rows), strict=True):
            apart[name.replace(FUSED, f".attention.{kind}_proj.")] = part.contiguous()
    return apart
