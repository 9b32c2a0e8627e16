"""What an inference engine is called, how it is started and asked, and where it counts: one Dialect in one module each.

In: a request, or an event of an answer. Out: the body as the engine takes it, or what the event holds by this program's names.
Open ``dialect`` first.
"""

from __future__ import annotations

from harness.scenario.servers import EngineName
from harness.serving.dialects.dialect import Dialect
from harness.serving.dialects.llama_cpp import LlamaCpp
from harness.serving.dialects.lmdeploy import Lmdeploy
from harness.serving.dialects.sglang import Sglang
from harness.serving.dialects.tensorrt_llm import TensorRtLlm
from harness.serving.dialects.vllm import Vllm

DIALECTS: dict[EngineName, Dialect] = {
    dialect.name: dialect for dialect in (Vllm(), LlamaCpp(), Sglang(), Lmdeploy(), TensorRtLlm())
}
"""By their names in a scenario."""
