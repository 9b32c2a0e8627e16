"""What a checkpoint on disk is, from config.json and the tokenizer's files alone: no weight, no network, no code of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import UnknownModelError
from harness.models import ModelShape, shape_from_config
from harness.models.block_checkpoints import block_size, mask_id, native_config, recognised
from harness.models.block_families import FAMILIES, BlockModelFamily
from harness.models.choice import ModelChoice, RandomModel, model_folder, model_name
from harness.models.config import FAMILIES as NTP_FAMILIES
from harness.models.config import Config, fitting, read_object
from harness.models.decodable import refuse_ids, why_undecodable

ModelKind = Literal["block model", "sbd", "ntp"]
NO_MASK = "the tokenizer has no mask token"
DTYPE = "bfloat16"
"""The dtype that a model of this size runs in."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        if family is None and config.get("text_config", config).get("model_type") not in NTP_FAMILIES:
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
        if any(type(one) is not int for one in stops):
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
    plain = [name for name in NTP_FAMILIES if name not in kinds]
    return (
        f"model_type {config.get('model_type')!r} (architectures: {config.get('architectures')}) is of no known "
        f"family; block models known are {', '.join(kinds)} (and qwen2 with text_mask_token_id), next-token predictors "
        f"{', '.join(plain)}; to add a block model, write an entry in harness/models/block_families.py: the native class that "
        "its tensors fit, block size, mask token, whether position i predicts token i or i + 1, what committed blocks saw, "
        "whether committing is a pass of its own; to decode by NTP with the checkpoint's own code, say trust_remote_code: true "
        "in a scenario's model, at your own risk"
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
