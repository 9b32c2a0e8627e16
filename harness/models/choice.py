"""The model that a scenario names, and its shape as far as it is known without loading or downloading."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PrivateAttr,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from harness.config_file import CountOrZero, Flag, StrictModel, Text, Younger, folder_of, named_by_key
from harness.errors import UnknownModelError
from harness.models import KNOWN_SHAPES, ModelShape, shape_from_config
from harness.models.block_families import native_config, recognised
from harness.models.config import Config, fitting, read_object
from harness.models.gguf_header import gguf_config, read_gguf
from harness.models.known import KNOWN_MODELS, known_name
from harness.models.pretrained import PRETRAINED, found_folder, here_or_on_hub, hub_cache, pretrained_folder

REFERENCE_MODELS = ("sbd", "ntp_only", "draft")
REMOTE_CODE = "--trust-remote-code"
"""The option with which models may run code of their own. A scenario comes from others and cannot grant itself that."""
REFERENCE_DIR = Path(__file__).parents[1] / "engine" / "reference"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MASK_EMBEDDING, BIGRAM = "mask_embedding.safetensors", "bigram.safetensors"


def _adapter_found(name: str, info: ValidationInfo) -> str:
    """The folder's own path; a relative one begins at the scenario file."""
    base = folder_of(info)
    if base is None:
        return name
    folder = Path(base, os.path.expanduser(name))
    if not (folder / ADAPTER_CONFIG).is_file():
        raise _unknown(
            f"no adapter at {name!r}: there is no {folder / ADAPTER_CONFIG}; give a folder that PEFT has written, or sbd train"
        )
    return str(folder.resolve())


GatedAdapter = Annotated[Annotated[Text, AfterValidator(_adapter_found)] | None, Younger]
"""A folder in PEFT's format (harness.engine.adapter_files). The adapter acts on what an arm feeds bidirectionally, and on
nothing that next-token prediction feeds (harness.engine.gated_adapter).
"""


class ReferenceModel(StrictModel):
    """A small trained model that ships with the package."""

    reference: str = Field(json_schema_extra={"enum": list(REFERENCE_MODELS)})
    """`sbd`; `ntp_only`, its control; `draft`, a tenth as large."""
    adapter: GatedAdapter = None
    """Folder of a gated adapter, in PEFT's format; it acts on masked blocks alone."""

    @field_validator("reference")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in REFERENCE_MODELS:
            raise _unknown(f"unknown reference model {name!r}; allowed: {', '.join(REFERENCE_MODELS)}")
        return name


class HuggingFaceModel(StrictModel):
    """A causal LM on the Hugging Face hub or in a local folder."""

    gguf_file: Annotated[Annotated[str, StringConstraints(pattern=r"^[^/\\]+\.gguf$")] | None, Younger] = None
    """The file of the folder that holds weights, config and tokenizer in one; it is de-quantised. A tokenizer.json beside
    it is read instead of its own tokenizer.
    """
    huggingface: Text
    """Id on the hub (org/name), or a folder, from the scenario's folder."""
    revision: Text | None = None
    """Commit, branch or tag on the hub. Left out: main."""
    mask_token_id: CountOrZero | None = None
    """Mask token that the SBD checkpoint was trained with. Left out: from its config.json, else its tokenizer."""
    trust_remote_code: Flag = False
    """Its own code may run, if its family fits no transformers class and the command line says so, too."""
    adapter: GatedAdapter = None
    """Folder of a gated adapter, in PEFT's format; it acts on masked blocks alone."""
    _code_granted: bool = PrivateAttr(default=False)

    @field_validator("huggingface")
    @classmethod
    def _found(cls, name: str, info: ValidationInfo) -> str:
        """A path must exist (relative to the scenario file); anything else must look like a hub id."""
        base = folder_of(info)
        if base is None:
            return name
        file = info.data.get("gguf_file") or "config.json"
        place = here_or_on_hub(name, base, lambda local: (local / file).is_file())
        if place is None:
            folder = Path(base, os.path.expanduser(name))
            files = ", ".join(sorted(gguf.name for gguf in folder.glob("*.gguf")))
            way = "a folder with a config.json or a Hugging Face id such as org/name"
            raise _unknown(
                f"no model at {name!r}: there is no {folder / file}; "
                + (f"write the name of a file there after gguf_file: {files}" if files else f"give {way}")
            )
        return place

    @model_validator(mode="after")
    def _code_as_granted(self, info: ValidationInfo) -> HuggingFaceModel:
        """Whoever reads the scenario grants the code in the ``context``, by REMOTE_CODE."""
        if self.gguf_file is not None and self.trust_remote_code:
            raise ValueError("a GGUF file has no code of its own; remove trust_remote_code")
        self._code_granted = (info.context or {}).get(REMOTE_CODE, False)
        return self


class PretrainedModel(StrictModel):
    """A published model that `sbd model get` put into the cache once."""

    pretrained: str = Field(json_schema_extra={"enum": list(PRETRAINED)})
    """Its name in `sbd model list`."""
    adapter: GatedAdapter = None
    """Folder of a gated adapter, in PEFT's format; it acts on masked blocks alone."""

    @field_validator("pretrained")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in PRETRAINED:
            raise _unknown(f"unknown pretrained model {name!r}; allowed: {', '.join(PRETRAINED)}; or huggingface: FOLDER")
        return name


def refuse_remote_code(model: object) -> None:
    """Raises UnknownModelError where a model asks to run its own code and the command line does not allow it."""
    if isinstance(model, HuggingFaceModel) and model.trust_remote_code and not model._code_granted:
        raise UnknownModelError(
            f"{model.huggingface}: the scenario says trust_remote_code: true, which runs Python code of that model with your "
            f"rights; if you have read it and trust it, add {REMOTE_CODE} to the command, else remove the key"
        )


def refuse_missing(model: object) -> None:
    """Raises UnknownModelError where a pretrained model is not on this machine yet; no run fetches one."""
    if isinstance(model, PretrainedModel):
        found_folder(model.pretrained)


class RandomModel(StrictModel):
    """Random weights at full size: a known shape by name, or the fields of a ModelShape."""

    random: Annotated[
        Annotated[str, Tag("name")] | Annotated[ModelShape, Tag("shape")],
        Discriminator(lambda value: "name" if isinstance(value, str) else "shape"),
    ]
    """Name of a known shape, or the fields of one."""
    adapter: GatedAdapter = None
    """Folder of a gated adapter of any model, in PEFT's format: random terms of its ranks act where it acts, for their cost."""

    @field_validator("random", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in KNOWN_SHAPES:
            raise _unknown(f"unknown shape {value!r}; allowed: {', '.join(KNOWN_SHAPES)}, or a shape's fields")
        return value


ModelChoice = Annotated[
    Annotated[ReferenceModel, Tag("reference")]
    | Annotated[HuggingFaceModel, Tag("huggingface")]
    | Annotated[PretrainedModel, Tag("pretrained")]
    | Annotated[RandomModel, Tag("random")],
    named_by_key(
        "reference",
        "huggingface",
        "pretrained",
        "random",
        error_type="unknown_model",
        message="no model named; write one of {reference: sbd}, {pretrained: smollm2-135m}, {huggingface: org/name}, "
        "{random: llama-250m}",
    ),
]
StoredModel = ReferenceModel | HuggingFaceModel | PretrainedModel
"""A model with files."""


def shape_of(model: StoredModel | RandomModel) -> tuple[ModelShape | None, str | None]:
    """The model's shape, or None with the reason; reads a config.json at most, no weights and no network.

    Raises:
        UnknownModelError: a config.json that is not one of a decoder-only transformer.
    """
    if isinstance(model, RandomModel):
        return (KNOWN_SHAPES[model.random] if isinstance(model.random, str) else model.random), None
    if isinstance(model, PretrainedModel):
        return KNOWN_SHAPES[model.pretrained], None
    file = _config_file(model)
    if isinstance(model, ReferenceModel):
        if file is None:
            missing = REFERENCE_DIR / model.reference / "config.json"
            return None, f"the reference model {model.reference!r} is not in this installation ({missing} is missing)"
        return _read_config(f"reference-{model.reference}", file), None
    if file is None:
        return None, f"{model.huggingface} is not in the local Hugging Face cache; a plan downloads nothing"
    local = (Path(model.huggingface) / file.name).is_file()
    return _read_config(Path(model_name(model)).name if local else model_name(model), file), None


def model_config(model: StoredModel | RandomModel) -> Config | None:
    """The model's config.json as that of the transformers class it is loaded into.

    None for random weights, and where the file is not on this machine. Call shape_of first: it reports a bad file.
    """
    if isinstance(model, PretrainedModel):
        return KNOWN_MODELS[model.pretrained].config
    file = None if isinstance(model, RandomModel) else _config_file(model)
    return None if file is None else _native(file)


def shape_called(name: str, weights: str | None = "") -> ModelShape:
    """A known shape by its name or its repository's on the hub, or that of the model in the folder ``name``. Raises
    UnknownModelError where it is neither, and the message lists the known ones; or the folder's config.json is refused, or
    says that its weights are quantised and no format of them was given (``weights`` None).
    """
    config = Path(name) / "config.json"
    if name not in KNOWN_SHAPES and config.is_file():
        quantised = read_object(config).get("quantization_config")
        if quantised and weights is None:
            raise UnknownModelError(
                f"{config}: the weights are quantised ({quantised}); say which format is planned for: --weights float8 (FP8), "
                "int8 (W8A8), w8a16 (8 bits for weights alone), int4-g128 (GPTQ, AWQ, bitsandbytes in 4 bits), mxfp4, nvfp4, "
                "or bfloat16 to leave it out"
            )
        return _read_config(Path(name).resolve().name, config)
    known, hint = known_name(name)
    if known is None:
        allowed = f"{', '.join(KNOWN_SHAPES)}, or a folder with a config.json"
        raise UnknownModelError(f"unknown model {name!r}{hint}; allowed: {allowed}")
    return KNOWN_SHAPES[known]


def model_name(model: StoredModel | RandomModel) -> str:
    """A short name for tables."""
    if isinstance(model, RandomModel):
        name = f"random {model.random if isinstance(model.random, str) else model.random.name}"
    elif isinstance(model, HuggingFaceModel):
        name = model.huggingface if model.gguf_file is None else f"{model.huggingface}/{model.gguf_file}"
    else:
        name = model.pretrained if isinstance(model, PretrainedModel) else f"reference {model.reference}"
    return name if model.adapter is None else f"{name} with {Path(model.adapter).name}"


def model_place(model: StoredModel) -> str:
    """The folder of the package, of the user or of sbd's cache that the model is loaded from; or its id on the hub."""
    if isinstance(model, HuggingFaceModel):
        return model.huggingface
    return str(REFERENCE_DIR / model.reference if isinstance(model, ReferenceModel) else pretrained_folder(model.pretrained))


def gguf_of(model: StoredModel) -> str | None:
    """The name of its GGUF file; None: its weights are safetensors."""
    return model.gguf_file if isinstance(model, HuggingFaceModel) else None


def model_folder(model: StoredModel) -> Path | None:
    """The folder that the model is loaded from: the package's, its own, or one in a cache; None: not there yet."""
    file = _config_file(model)
    return None if file is None else file.parent


def has_chat_template(model: StoredModel) -> bool | None:
    """Whether its tokenizer brings a chat template; None: it is not on this machine. Raises UnknownModelError: a bad file."""
    file = _config_file(model)
    if file is None:
        return None
    settings, own = file.with_name("tokenizer_config.json"), file.with_name("tokenizer.json")
    if file.suffix == ".gguf" and not own.is_file() and "tokenizer.chat_template" in read_gguf(file).settings:
        return True
    return file.with_name("chat_template.jinja").is_file() or (
        settings.is_file() and read_object(settings).get("chat_template") is not None
    )


def _config_file(model: StoredModel) -> Path | None:
    """The model's config.json or GGUF file: of the package, of its folder, or in a cache; None: not there."""
    config = Path(model_place(model), gguf_of(model) or "config.json")
    if isinstance(model, HuggingFaceModel) and not config.is_file():
        revision = model.revision or "main"
        folder, commit = hub_cache("models", model.huggingface, revision)
        config = folder / "snapshots" / (commit or revision) / config.name
    return config if config.is_file() else None


def _native(file: Path) -> Config:
    """The config of the transformers class that the weights are loaded into. Raises UnknownModelError."""
    with fitting(file):
        config = gguf_config(file) if file.suffix == ".gguf" else read_object(file)
        family = recognised(config)
        return config if family is None else native_config(family, config)


def _read_config(name: str, file: Path) -> ModelShape:
    native = _native(file)
    with fitting(file):
        return shape_from_config(name, native)


def _unknown(message: str) -> PydanticCustomError:
    # The message is a format string to pydantic: braces in it must not be read as fields.
    return PydanticCustomError("unknown_model", "{message}", {"message": message})
