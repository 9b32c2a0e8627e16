"""What a checkpoint is, and whether the sessions can decode it: from config.json and the tokenizer's files alone.

No weight is read, no network is asked, no code of its own runs. A model is refused if a session would decode it wrongly without
an error, or fail in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from harness.errors import MissingExtraError, UnknownModelError
from harness.frozen import frozen
from harness.models import ModelShape, shape_from_config
from harness.models.block_families import FAMILIES, BlockModelFamily, block_size, mask_id, native_config, recognised
from harness.models.choice import ModelChoice, RandomModel, gguf_of, model_config, model_folder, model_name, shape_of
from harness.models.config import MODEL_TYPES, Config, fitting, read_object, rotary
from harness.models.gguf_header import read_gguf

ModelKind = Literal["block model", "sbd", "ntp"]
NO_MASK = "the tokenizer has no mask token"
DTYPE = "bfloat16"
"""The dtype that a model of this size runs in."""


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

    That position may belong to another row or to a mask after the answer, and would change a row's own tokens.
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


@frozen
class ModelFacts:
    """``kind``: a public block model; an ordinary model with a mask token, as SBD training leaves it; or one without.

    ``native``: the model_type of the transformers class that the tensors fit. ``own_code``: the checkpoint has its own code,
    which is not needed. Sizes are None where the kind has none.
    """

    folder: Path
    kind: ModelKind
    model_type: str
    native: str
    own_code: bool
    shape: ModelShape
    family: BlockModelFamily | None
    block_size: int | None
    block_size_from: str | None
    mask_id: int | None
    mask_id_from: str | None
    stop_ids: set[int]
    chat: bool

    @property
    def base(self) -> str | None:
        """The next-token predictor that the model was made from, by its sizes; None: not known."""
        return None if self.family is None else self.family.bases.get((self.shape.hidden, self.shape.layers))


def read_model_facts(folder: Path) -> ModelFacts:
    """Say what the checkpoint in ``folder`` is.

    Raises:
        UnknownModelError: there is no config.json, it is of no known family, its tensors do not fit the native class, or no
            session decodes it; the message says what to do.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise UnknownModelError(f"no model at {folder}: there is no {file}; give the folder of a checkpoint")
    config = read_object(file)
    with fitting(file):
        family = recognised(config)
        if family is None and config.get("text_config", config).get("model_type") not in MODEL_TYPES:
            raise UnknownModelError(_unknown(config))
        native = config if family is None else native_config(family, config)
        shape = shape_from_config(folder.resolve().name, native)
        undecodable = why_undecodable(native, shape, DTYPE)
        if undecodable is not None:
            raise UnknownModelError(f"this model {undecodable}")
    with fitting(folder, "tokenizer of a language model"):
        of_tokenizer, where = _of_tokenizer(folder, "mask")
        mask, mask_from = mask_id(family, config, of_tokenizer)
        ends = {**config, **_settings(folder, "generation_config.json")}.get("eos_token_id")
        stops = {_of_tokenizer(folder, "eos")[0], *(ends if isinstance(ends, list) else [ends])} - {None}
        if any(type(stop) is not int for stop in stops):
            raise ValueError(f"eos_token_id is {ends!r:.80}, a token's number or a list of them is needed")
    size, size_from = (None, None) if family is None else block_size(family, config)
    return ModelFacts(
        folder=folder.resolve(),
        kind="block model" if family else "sbd" if of_tokenizer is not None else "ntp",
        model_type=str(config["model_type"]),
        native=native.get("text_config", native)["model_type"],
        own_code="auto_map" in config,
        shape=shape,
        family=family,
        block_size=size,
        block_size_from=size_from,
        mask_id=mask,
        mask_id_from=where if mask is None else mask_from,
        stop_ids=stops,
        chat=(folder / "chat_template.jinja").is_file() or "chat_template" in _settings(folder, "tokenizer_config.json"),
    )


def _unknown(config: Config) -> str:
    kinds = sorted({kind for family in FAMILIES.values() for kind in family.natives if not family.marks})
    plain = [name for name in MODEL_TYPES if name not in kinds]
    return (
        f"model_type {config.get('model_type')!r} (architectures: {config.get('architectures')}) is of no known "
        f"family; block models known are {', '.join(kinds)} (and qwen2 with text_mask_token_id), next-token predictors "
        f"{', '.join(plain)}; to add a block model, write an entry in harness/models/block_families.json: the native class "
        "that its tensors fit, block size, mask token, whether position i predicts token i or i + 1, what committed blocks "
        "saw, whether committing is a pass of its own; to decode by NTP with the checkpoint's own code, say trust_remote_code: "
        "true in a scenario's model, at your own risk"
    )


def refuse_ids_of(choice: ModelChoice, needs_mask: bool) -> None:
    """refuse_ids by what a folder on this machine says; loading has the tokenizer, and checks again.

    Raises:
        UnknownModelError: see there, and read_model_facts.
    """
    folder = None if isinstance(choice, RandomModel) else model_folder(choice)
    if choice.adapter or not folder or not {"config.json", "tokenizer_config.json"} <= {file.name for file in folder.iterdir()}:
        return
    facts, mask = read_model_facts(folder), getattr(choice, "mask_token_id", None)
    # Gemma's tokenizers have a mask without a setting.
    needs_mask &= facts.mask_id_from == NO_MASK and not facts.native.startswith("gemma")
    refuse_ids(model_name(choice), facts.mask_id if mask is None else mask, facts.stop_ids, facts.shape.vocab, needs_mask)


def _of_tokenizer(folder: Path, kind: str) -> tuple[int | None, str]:
    """The id of the tokenizer's mask or eos token, from its files."""
    config = _settings(folder, "tokenizer_config.json")
    token = config.get(f"{kind}_token") or _settings(folder, "special_tokens_map.json").get(f"{kind}_token")
    text = token.get("content") if isinstance(token, dict) else token
    if text is None:
        return None, NO_MASK
    for number, added in (config.get("added_tokens_decoder") or {}).items():
        if added.get("content") == text:
            return int(number), "tokenizer_config.json"
    for added in _settings(folder, "tokenizer.json").get("added_tokens") or ():
        if added.get("content") == text:
            return int(added["id"]), "tokenizer.json"
    return None, f"the tokenizer names {text!r} as its mask token, but no id for it"


def _settings(folder: Path, name: str) -> Config:
    """A JSON object of the folder; empty if the file is absent."""
    return read_object(folder / name) if (folder / name).is_file() else {}
