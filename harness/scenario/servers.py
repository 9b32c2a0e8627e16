"""Inference servers that a part decodes on, and the arm that one of them decodes.

A server runs already (``url``), or is started from its own installation on this machine. A scenario comes from others: it
names no program, its arguments load no code, and its environment sets an engine's own switches alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from harness.config_file import Name, Numbers, StrictModel, Text, one_or_several
from harness.models.choice import RandomModel
from harness.scenario.method import GREEDY, ArmKeys, Method, number, per_token

EngineName = Literal["vllm", "llama_cpp"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
SWITCHES = ("VLLM_", "LLAMA_", "GGML_", "OMP_", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE")
LOADS_CODE = (
    "trust-remote-code", "plugin", "middleware", "worker-cls", "worker-extension", "logits-processors", "custom_class",
    "hf-overrides", "scheduler-cls", "io-processor",
)  # fmt: skip
OURS = ("--host", "--port", "--model", "--served-model-name", "-m")


class Server(StrictModel):
    """One server. ``url``: where it runs; without it, this program starts it, and ends it with all its children.

    ``model``: its name in requests; needed where a running server has several.
    ``arguments``: further ones of the command that starts it. ``ready_s``: the longest that a start may take;
    ``silent_s``: the longest between two pieces of an answer.
    """

    engine: EngineName
    url: Annotated[Text, Field(pattern=r"^https?://[^\s/]+/?$")] | None = None
    model: Text | None = None
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    ready_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    silent_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 120.0

    @field_validator("arguments")
    @classmethod
    def _loads_no_code(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        for one in arguments:
            plain = one.lower().replace("_", "-")
            if word := next((word for word in LOADS_CODE if word.replace("_", "-") in plain), None):
                raise ValueError(
                    f"{one!r} can load code ({word}), which no scenario may; start the server yourself and give url"
                )
            if one.partition("=")[0] in OURS:
                raise ValueError(f"{one!r} is set by sbd; remove it")
        return arguments

    @field_validator("environment")
    @classmethod
    def _is_the_engines(cls, environment: dict[str, str]) -> dict[str, str]:
        for name in environment:
            if not name.startswith(SWITCHES) or "PLUGIN" in name:
                raise ValueError(f"{name} is no switch of an engine; allowed are names that begin with {', '.join(SWITCHES)}")
        return environment

    @model_validator(mode="after")
    def _starts_or_runs(self) -> Server:
        if self.url is not None and (self.arguments or self.environment):
            raise ValueError("a server that runs already takes no arguments; remove them, or remove url and sbd starts it")
        return self


Servers = Annotated[dict[Name, Server], Field(exclude_if=lambda servers: not servers)]


def check_servers(servers: Mapping[str, Server], arms: Sequence[ArmKeys], model: object, tensor_parallel: int) -> None:
    """Raises ValueError where arms and servers do not belong together, or no server could load the model."""
    asked = [(arm, name) for arm in arms for name in _names(arm)]
    if not servers:
        if asked:
            raise ValueError(f"an arm is decoded by server {asked[0][1]!r}, and the part has no servers; add servers: {{...}}")
        return
    allowed = ", ".join(servers)
    for arm in arms:
        if not _names(arm):
            raise ValueError(
                f"the part's arms are decoded by its servers ({allowed}); give this arm of {type(arm).__name__} a server"
            )
    for _, name in asked:
        if name not in servers:
            raise ValueError(f"no server {name!r} in this part; allowed: {allowed}")
    if unused := [name for name in servers if name not in {one for _, one in asked}]:
        raise ValueError(f"no arm is decoded by server {unused[0]!r}; add one, or remove the server")
    if isinstance(model, RandomModel) or getattr(model, "adapter", None) is not None:
        raise ValueError(
            "a server loads a checkpoint; give model: {huggingface: FOLDER} or {pretrained: NAME}, without an adapter"
        )
    if tensor_parallel > 1:
        raise ValueError("a server splits its model itself; remove tensor_parallel and give the server's own argument")


def _names(arm: ArmKeys) -> tuple[str, ...]:
    named: str | tuple[str, ...] | None = getattr(arm, "server", None)
    return (named,) if isinstance(named, str) else named or ()


class ServedArm(ArmKeys):
    """Decoded by a server of the part, however it decodes."""

    axes = ("server", "temperature")
    method: Literal["served"]
    server: Annotated[tuple[Name, ...], *one_or_several(Name)]
    temperature: Numbers = (GREEDY,)


SERVED = Method(
    name="served", arm=ServedArm, decoder="harness.serving.engine:ServedEngine",
    arm_id=lambda arm, replay: f"served-{arm['server']}-t{number(arm['temperature'])}",
    label=lambda arm, replay: f"server {arm['server']}",
    widest=lambda arm, prompt, new: (1, 1),
    passes=lambda arm, prompt, new, passes_of: per_token(prompt, new - 1, ("verify", 1, 1, 1)),
)  # fmt: skip
