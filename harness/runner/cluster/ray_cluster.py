"""Ray as a harness.runner.cluster.protocol.Cluster: a unit is an actor that holds a node's CPUs or GPUs while it lives.

Ray decides node and time. The extra [ray] installs it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.errors import MissingExtraError, SbdError, UserError
from harness.record.schema import RunHeader
from harness.runner.cluster.protocol import STARTING, LostError, NodeTask
from harness.runner.cluster.ray_worker import header_here, taken_here
from harness.runner.job import machine_here
from harness.runner.protocols import Machine
from harness.runner.recorder import Begun, Entry
from harness.scenario.part import Part

NODE_RESOURCE = "sbd"
"""A custom resource: a node that offers 1 of it takes one unit at a time, with any number of cores and GPUs."""
JOIN_TRIES = 5
JOIN_PAUSE_S = 2.0
LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch on every system (ray_constants.ENABLE_RAY_CLUSTER): 0 makes the loopback the address of all its servers."""
SOME = 0.001
"""The amount that Ray's accelerator_type asks for: any node that has it."""


class RayUnit:
    """A unit of a run on the node that Ray gives it, in its own process."""

    def __init__(self, order: NodeTask, machine: Callable[[], Machine], threads: str | None) -> None:
        """``machine``: how a node finds its own. ``threads``: the sender's OMP_NUM_THREADS, so that torch chooses as there."""
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to the CPUs asked for
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads
        self._entries = _taken(order, machine)  # nothing runs before the first entry is asked for

    def next(self) -> Entry | None:
        """The next entry; None after the last. The first comes before anything heavy is loaded and says that a place exists.

        Raises:
            UserError and its kind: this node cannot take part in the run.
        """
        return next(self._entries, None)


def _taken(order: NodeTask, machine: Callable[[], Machine]) -> Iterator[Entry]:
    import ray

    yield Begun(case_id="", what=STARTING)
    yield from taken_here(order, ray.get_runtime_context().get_node_id(), machine())


class RayCluster:
    """The nodes of a Ray cluster; a context manager that releases them."""

    def __init__(self, where: str, machine: Callable[[], Machine] = machine_here) -> None:
        """Join a cluster.

        ``where``: ``ray`` for RAY_ADDRESS or this machine's cluster, else a new one on the loopback alone; ``ray://host:port``
        for a remote one.
        ``machine``: how a node finds its own.

        Raises:
            MissingExtraError: Ray is not installed.
            UserError: the cluster does not answer.
        """
        if where == "ray" and not os.environ.get("RAY_ADDRESS"):
            os.environ[LOOPBACK_ONLY] = "0"  # read on import, here and in what Ray starts
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("--on ray needs Ray, not installed here; pip install 'sbd-bench[run,ray]'") from error
        self._ray: Any = ray  # partly typed, and not always installed
        self._machine = machine
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = None if where == "ray" else where
        try:
            _join(self._ray, address)
        except (ConnectionError, ImportError, ValueError, RuntimeError) as error:
            raise UserError(
                f"--on {where}: no Ray cluster answers ({_ends(error)}); start one with `ray start --head`, or see "
                "docs/clusters"
            ) from error
        self._actors = self._ray.remote(RayUnit)

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    def header(self, order: NodeTask, part: Part) -> RunHeader:
        """As the protocol says; by a Ray task."""
        task = self._ray.remote(header_here).options(**needs_of(part, self._nodes()), max_retries=0)
        found: RunHeader = self._got(task.remote(order, self._machine))
        return found

    def room(self) -> int:
        """Two per node or GPU, so that one is ready when another ends."""
        return 2 * sum(max(1, int(node.get("GPU", 0))) for node in self._nodes()) or 1

    def start(self, order: NodeTask, part: Part) -> Any:
        """As the protocol says; the actor waits in Ray's queue for its resources."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options = needs_of(part, self._nodes())
        if order.here is not None and order.here in {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id=order.here, soft=True)
        actors = self._actors.options(**options, max_restarts=0, max_task_retries=0)
        return actors.remote(order, self._machine, os.environ.get("OMP_NUM_THREADS"))

    def ask(self, unit: Any) -> Any:
        """As the protocol says."""
        return unit.next.remote()

    def ready(self, asked: Sequence[Any], timeout_s: float) -> Sequence[Any]:
        """As the protocol says."""
        found, _ = self._ray.wait(list(asked), num_returns=1, timeout=timeout_s)
        return list(found)

    def answer(self, asked: Any) -> Entry | None:
        """As the protocol says."""
        entry: Entry | None = self._got(asked)
        return entry

    def end(self, unit: Any) -> None:
        """As the protocol says."""
        self._ray.kill(unit, no_restart=True)

    def lacking(self, part: Part) -> str | None:
        """As the protocol says."""
        return lacking(part, self._nodes())

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _got(self, asked: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._ray.get(asked)
        except RayTaskError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, SbdError):
                raise cause from None
            raise LostError(f"{type(cause or error).__name__}: {_first(cause or error)}") from error
        except RayError as error:
            raise LostError(why_lost(error)) from error


def _join(ray: Any, address: str | None) -> None:
    """``ray.init``, repeated where the head refuses.

    Ray's client server forks a process per client while its threads use gRPC; on a busy head that process sometimes dies.
    """
    for left in reversed(range(JOIN_TRIES)):
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except ConnectionAbortedError:
            if not left:
                raise
            time.sleep(JOIN_PAUSE_S)
        else:
            return


def needs_of(part: Part, nodes: Sequence[dict[str, float]]) -> dict[str, Any]:
    """What a part's units ask Ray for, as its options, so that no other unit runs beside a timed one.

    A GPU unit asks for its GPU and its share of the node's cores. A CPU unit asks for all cores of the largest node that fits.
    Where nodes offer the custom resource ``sbd``, a unit asks for 1 of it. A CPU unit then asks for nothing else, which makes
    nodes of several sizes usable.
    """
    custom = {f"accelerator_type:{device}": SOME for device in part.devices}
    fitting = [node for node in nodes if _fits(part, node)]
    one_at_a_time = {NODE_RESOURCE: 1.0} if any(NODE_RESOURCE in node for node in fitting) else {}
    cpus = max((node.get("CPU", 0.0) for node in fitting), default=float(part.threads or 1))
    gpus = 0
    if part.device.startswith("cuda"):
        on_node = max((node.get("GPU", 1.0) for node in fitting), default=1.0)
        cpus, gpus, custom = max(1.0, cpus // on_node), 1, custom | one_at_a_time
    elif not part.timed and part.threads is not None:
        cpus = part.threads
    elif one_at_a_time:
        cpus, custom = 0, custom | one_at_a_time
    return {"num_cpus": cpus, "num_gpus": gpus, "resources": custom}


def lacking(part: Part, nodes: Sequence[dict[str, float]]) -> str | None:
    """What a part needs that no node has, in words."""
    if any(_fits(part, node) for node in nodes):
        return None
    wanted = "1 GPU" if part.device.startswith("cuda") else "a node"
    of_kind = f" of accelerator_type {part.devices[0]}" if part.devices else ""
    there = sorted({name for node in nodes for name in node if name == "GPU" or name.startswith("accelerator_type:")})
    return f"{wanted}{of_kind}; {len(nodes)} nodes are there, with {', '.join(there) or 'CPUs only'}"


def _fits(part: Part, node: dict[str, float]) -> bool:
    kinds = all(f"accelerator_type:{device}" in node for device in part.devices)
    return kinds and (not part.device.startswith("cuda") or node.get("GPU", 0) >= 1)


def why_lost(error: Exception) -> str:
    """A Ray error in a few words."""
    kind, text = type(error).__name__, str(error)
    if "creation task" in text:
        return f"it could not be begun: {text.strip().splitlines()[-1]}"
    if kind == "OutOfMemoryError":
        return "its process was ended by Ray, for its node ran out of memory"
    if kind == "NodeDiedError" or "node died" in text or "node was terminated" in text or "its node has died" in text:
        return f"its node is gone ({kind})"
    if kind in {"ActorDiedError", "WorkerCrashedError"}:
        return f"its process was killed ({kind}); Linux kills so what asks for more memory than there is"
    return f"{kind}: {_first(error)}"


def _first(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _ends(error: BaseException) -> str:
    """The first and the last line; a client server that cannot start returns a traceback with the cause last."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(dict.fromkeys((lines[0].strip(), lines[-1].strip())))
