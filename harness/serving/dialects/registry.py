"""The dialects by their names in a scenario."""

from __future__ import annotations

from harness.scenario.servers import EngineName, Server
from harness.serving.dialects.dialect import Dialect
from harness.serving.dialects.llama_cpp import LLAMA_CPP
from harness.serving.dialects.lmdeploy import LMDEPLOY
from harness.serving.dialects.sglang import SGLANG
from harness.serving.dialects.tensorrt_llm import TENSORRT_LLM
from harness.serving.dialects.vllm import VLLM

DIALECTS: dict[EngineName, Dialect] = {one.name: one for one in (VLLM, LLAMA_CPP, SGLANG, LMDEPLOY, TENSORRT_LLM)}


def dialect_of(server: Server) -> Dialect:
    """The dialect that a server speaks."""
    return DIALECTS[server.engine]
