"""The kinds of session over a model."""

from __future__ import annotations

from harness.engine.cuda_graphs import GraphedSession
from harness.engine.plain_session import TransformersSession
from harness.engine.static_session import StaticSession
from tests.helpers.emulated_gpu import emulated_graphs

SESSIONS = {
    "plain-sdpa": lambda model: TransformersSession(model, "sdpa"),
    "static": StaticSession,
    "graphed": lambda model: GraphedSession(model, emulated_graphs()),
}
