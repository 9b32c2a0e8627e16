"""Inference servers that a part decodes on, and the arm that one of them decodes.

A server runs already (``url``), or is started from its own installation on this machine. A scenario comes from others: it
names no program, its arguments load no code, and its environment sets an engine's own switches alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from harness.config_file import Name, Numbers, StrictModel, Text, YoungerMany, one_or_several
from harness.models.choice import RandomModel
from harness.scenario.method import GREEDY, ArmKeys, ArmSettings, Method, ReplaySpec, number, per_token

EngineName = Literal["vllm", "llama_cpp", "sglang", "lmdeploy", "tensorrt_llm"]
SWITCHES = ("VLLM_", "LLAMA_", "GGML_", "SGLANG_", "LMDEPLOY_", "OMP_", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE")
NAMES_CODE = ("PLUGIN", "PACKAGE", "_KEY", "HF_TOKEN", "PASSWORD", "SECRET")
"""Or a key: a scenario stands in the record, and a server that sbd starts is reached from its machine alone."""
LOADS_CODE = (
    "trust-remote-code",
    "plugin",
    "middleware",
    "worker-cls",
    "worker-extension",
    "logits-processors",
    "custom_class",
    "hf-overrides",
    "scheduler-cls",
    "io-processor",
    "custom-weight-loader",
    "forward-hooks",
    "enable-custom-logit-processor",
    "json-model-override-args",
    "api-key",
    "hf-token",
    "password",
    "secret",
)
OURS = (
    "--host",
    "--port",
    "--model",
    "--served-model-name",
    "-m",
    "--model-path",
    "--server-name",
    "--server-port",
    "--model-name",
)


PORT = "[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
ADDRESS = rf"https?://(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(:({PORT}))?/?"


def _is_an_address(url: str) -> str:
    """What was given is not repeated: it may hold a key."""
    if not re.fullmatch(ADDRESS, url):
        raise ValueError(
            "an address is http://HOST:PORT or https://HOST:PORT alone; remove all else. A user and password, or a key, would "
            "stand in the record; give them as SBD_SERVER_AUTH_NAME in the environment (docs/servers.md)"
        )
    return url


class Server(StrictModel):
    """One server, which runs already or is started by this program."""

    engine: EngineName
    """The program that serves, which decides how its passes are counted."""
    url: Annotated[Text, AfterValidator(_is_an_address)] | None = None
    """Where it runs, as http://HOST:PORT. Left out: this program starts it, and ends it with all its children."""
    model: Text | None = None
    """Its name in requests. Left out: the only one that it serves."""
    diffusion: Annotated[bool, YoungerMany] = False
    """Whether it decodes a diffusion model whose passes it does not tell, so its answers are timed and not counted."""
    arguments: tuple[str, ...] = ()
    """Further arguments of the command that starts it; none may load code."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Switches of the engine, such as VLLM_... or GGML_...."""
    ready_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    """Seconds that a start may take, at most."""
    silent_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 120.0
    """Seconds between two pieces of an answer, at most."""

    @field_validator("arguments")
    @classmethod
    def _loads_no_code(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        for one in arguments:
            plain = one.lower().replace("_", "-")
            if word := next((word for word in LOADS_CODE if _means(plain, word.replace("_", "-"))), None):
                raise ValueError(
                    f"an argument that means {word} can load code, or puts a key into the record, which no scenario may; "
                    "remove it, or start the server yourself and give url"
                )
            if one.partition("=")[0] in OURS:
                raise ValueError(f"{one!r} is set by sbd; remove it")
        return arguments

    @field_validator("environment")
    @classmethod
    def _is_the_engines(cls, environment: dict[str, str]) -> dict[str, str]:
        for name in environment:
            if not name.startswith(SWITCHES) or any(word in name for word in NAMES_CODE):
                raise ValueError(
                    f"{name} is no switch of an engine, or is a key; allowed are names that begin with {', '.join(SWITCHES)}"
                )
        return environment

    @model_validator(mode="after")
    def _starts_or_runs(self) -> Server:
        if self.url is not None and (self.arguments or self.environment):
            raise ValueError("a server that runs already takes no arguments; remove them, or remove url and sbd starts it")
        return self


def _means(argument: str, word: str) -> bool:
    """Whether an argument holds the word, or is an option's beginning, which argparse takes for the whole option."""
    return word in argument or (argument.startswith("--") and f"--{word}".startswith(argument.partition("=")[0]))


Servers = Annotated[dict[Name, Server], YoungerMany]


FORCES = {"vllm": "synthetic", "llama_cpp": "--spec-synth", "sglang": "SGLANG_SIMULATE_ACC"}
"""What stands in the argument or switch that gives an engine's speculation its acceptance, instead of finding it."""


def given_acceptance(server: Server) -> str | None:
    """The arguments or switches with which a server that this program starts is given its acceptance; None: it finds it."""
    word = FORCES.get(server.engine)
    switches = (f"{name}={value}" for name, value in server.environment.items())
    told = [
        " ".join((one, *server.arguments[place + 1 : place + 2])) if one.startswith("--spec-synth") else one
        for place, one in enumerate((*server.arguments, *switches))
        if word is not None and word in one
    ]
    return " ".join(told) or None


def finds_acceptance(arm: ArmKeys, servers: Mapping[str, Server]) -> set[bool]:
    """Whether what an arm accepts is its own finding, neither replayed nor given to its server; one entry where all agree."""
    given = {given_acceptance(servers[name]) is None for name in _names(arm) if name in servers}
    return given or {getattr(arm, "acceptance", "real") == "real"}


def server_replay(variant: ArmSettings, servers: Mapping[str, Server]) -> ReplaySpec | None:
    """The replay of a variant whose server is given its acceptance; None where it finds it."""
    server = servers.get(variant.server or "")
    given = None if server is None else given_acceptance(server)
    if given is None:
        return None
    return ReplaySpec(source={"given": given}, nfe_speedup=None, mean_passes_per_block=None, assumed=False)


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


BaselineEngine = Literal["installed", "llama_cpp", "vllm"]
BESIDE: dict[EngineName, str] = {"llama_cpp": "llama.cpp", "vllm": "vLLM"}
"""What NTP is held against where a scenario says `installed`, by the names that readers see."""


def engine_beside(engine: EngineName, device: str, threads: int, rows: int, tokens: int) -> Server:
    """An engine beside our own on the same cores, as its users start it, for ``rows`` requests of ``tokens`` tokens each."""
    if engine == "llama_cpp":
        told = {"--threads": threads, "--parallel": rows, "--ctx-size": rows * tokens}
        return Server(engine=engine, arguments=tuple(str(word) for pair in told.items() for word in pair))
    shared = () if device == "cpu" else ("--gpu-memory-utilization", "0.45")  # our own model is in the rest
    return Server(
        engine=engine,
        arguments=("--max-model-len", str(tokens), *shared),
        ready_s=900.0,
        environment={"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "4"},
    )


class ServedArm(ArmKeys):
    """Decoded by a server of the part, however it decodes."""

    axes = ("server", "temperature")
    method: Literal["served"]
    """Decoded by a server."""
    server: Annotated[tuple[Name, ...], *one_or_several(Name)]
    """The server of the part that decodes it; each of a list is an arm."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature; 0 takes the likeliest token."""


SERVED: Method[ArmSettings] = Method(
    name="served",
    arm=ServedArm,
    decoder="harness.serving.engine:ServedEngine",
    arm_id=lambda arm, replay: f"served-{arm.server}-t{number(arm.temperature)}",
    label=lambda arm, replay: f"server {arm.server}" + (" replayed" if replay else ""),
    passes=lambda arm, prompt, new, passes_of: per_token(prompt, new - 1, ("verify", 1, 1, 1)),
)
