"""Whether the sessions can decode a model, from its config alone, before any weight is read.

A model is refused if a session would decode it wrongly without an error, or fail in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

from harness.errors import MissingExtraError, UnknownModelError
from harness.models import ModelShape
from harness.models.block_checkpoints import Config
from harness.models.choice import ModelChoice, RandomModel, gguf_of, model_config, model_folder, model_name, shape_of
from harness.models.config import fitting, rotary
from harness.models.gguf_header import read_gguf


def refuse_undecodable(choice: ModelChoice, dtype: str) -> None:
    """Refuse a model that no session can decode; pass if its config is not on this machine yet, loading checks again.

    Raises:
        UnknownModelError: the sessions cannot decode it in ``dtype``; the message says why and what to do.
    """
    shape, _ = shape_of(choice)
    config = model_config(choice) or {}
    with fitting(model_name(choice)):
        reason = None if shape is None else why_undecodable(config, shape, dtype)
    if reason is not None:
        raise UnknownModelError(f"{model_name(choice)} {reason}")
    own_code = getattr(choice, "trust_remote_code", False)
    if not isinstance(choice, RandomModel) and not own_code and (folder := model_folder(choice)) is not None:
        refuse_unreadable_tokenizer(folder, gguf_of(choice))


def refuse_unreadable_tokenizer(folder: Path, gguf_file: str | None) -> None:
    """Refuse weights without a tokenizer that can be read here; transformers would make up an empty one for some.

    Raises:
        UnknownModelError: there is none, or it needs what is not installed; the message names the file and what to do.
    """
    if (folder / "tokenizer.json").is_file():
        return
    if gguf_file is not None:
        read_gguf((folder / gguf_file).resolve()).refuse_unknown_tokenizer()
        return
    words, weights = [*folder.glob("*.model")], [*folder.glob("*.safetensors")]
    if not words and weights and not any(folder.glob("vocab.*")):
        raise UnknownModelError(f"{weights[0].resolve().parent}: holds no tokenizer; put a tokenizer.json there")
    if words and not all(map(find_spec, ("sentencepiece", "google", "google.protobuf"))):
        raise MissingExtraError(
            f"{words[0].resolve()}: is a vocabulary of SentencePiece, which is read with packages that are not installed; pip "
            "install sentencepiece protobuf, or put the checkpoint's tokenizer.json beside it"
        )


def refuse_ids(name: str, mask_id: int | None, stop_ids: Collection[int], rows: int, needs_mask: bool = True) -> None:
    """Refuse a mask that no decode can use, and stops that no answer can reach. ``rows``: of the embeddings; some may stand for
    no token, and a mask may be one of these.

    Raises:
        UnknownModelError: with what is given, and what to do.
    """
    unfit = needs_mask if mask_id is None else mask_id in stop_ids or not 0 <= mask_id < rows
    if unfit or min(stop_ids, default=-1) >= rows:
        mask = "not known" if mask_id is None else mask_id
        raise UnknownModelError(
            f"{name}: the mask token is {mask}, answers end with {sorted(stop_ids)}, the embeddings have {rows} rows; a mask "
            "is one of the rows and no end, and one of the ends is a row. Name another by mask_token_id (in the model, in a "
            "recipe's adapter, mask_token_id=tokenizer.mask_token_id to generate()), ends by eos_token_id in "
            "generation_config.json; without a mask an arm of blocks takes an adapter, or acceptance: {replay: ...}"
        )


def why_undecodable(config: Config, shape: ModelShape, dtype: str) -> str | None:
    """What the model has that no session can decode exactly, with what to do; None: it can be decoded.

    ``config``: of the transformers class that the weights are loaded into, as read or with its defaults; {}: no config.
    ``shape``: the shape of the same model.
    """
    config = config.get("text_config", config)
    latent = (
        "has latent attention (MLA), whose cache no session holds so far; only ordinary attention is supported: give another "
        "model, or price this one without a run (sbd roofline, sbd capacity)"
    )
    wide = "has experts, whose grouped products torch has no float64 for; use dtype: float32, bfloat16 or float16"
    return (
        _window(config, shape)
        or (latent if shape.mla else None)
        or _moving_positions(config)
        or (wide if shape.moe and dtype == "float64" else None)
    )


def _window(config: Config, shape: ModelShape) -> str | None:
    """Sliding windows: the masks show every query the whole context, and a sliding cache cannot be cropped back."""
    kinds = sorted({kind for kind in config.get("layer_types") or () if kind != "full_attention"})
    if kinds:
        return f"has {', '.join(kinds)} layers; only full attention is supported so far: give a model without them"
    if shape.sliding_window is None:
        return None
    return (
        f"has sliding windows of {shape.sliding_window:,} tokens in {shape.sliding_layers} of {shape.layers} layers; only full "
        "attention is supported so far. Where prompt, answer and one block of masks are at most as long as the window, it is "
        'the same model without: write "sliding_window": null into a copy of its config.json'
    )


def _moving_positions(config: Config) -> str | None:
    """Rotary factors that depend on the largest position of a call.

    That position may belong to another row or to a mask behind the answer, and would change a row's own tokens.
    """
    for rope in rotary(config):
        kind = str(rope.get("rope_type") or rope.get("type"))
        if "dynamic" in kind:
            return (
                f"has {kind} rotary positions, whose factor follows the longest row of a batch and the masks behind it; only "
                f"factors that stay are supported. Where every row stays within the {config.get('max_position_embeddings'):,} "
                "positions of its config it is the same model without: remove rope_scaling from a copy of its config.json"
            )
        if rope.get("short_factor") != rope.get("long_factor"):
            length = rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
            return (
                f"has {kind} rotary positions, whose factors follow the longest row of a batch and the masks behind it; only "
                f"factors that stay are supported. Where prompt, answer and one block of masks are at most {length} tokens it "
                "is the same model with one list: write its short_factor as long_factor, too, into a copy of its config.json"
            )
    return None
