"""A pretended cluster: nodes that take units, and may lose them."""

from __future__ import annotations

from typing import Any

from harness.record.schema import Sample
from harness.runner.cluster.ray_worker import header_here, taken_here
from harness.runner.recorder import Begun
from tests.helpers.fake_machine import FakeEngine, fake_machine


def machine() -> Any:
    """A node's own, for the header."""
    return fake_machine()


class Unit:
    """A unit on a node; ``asked`` counts what it was asked for."""

    def __init__(self, order, node):
        self.order, self.node, self.entries, self.asked = order, node, None, 0


class FakeCluster:
    """Nodes that take one unit each. ``fault(unit, entry)``, called for every entry, may raise, or say that it hangs (True)."""

    def __init__(self, nodes=2, fault=None, engine=None, node=None):
        self.free = [f"node{i}" for i in range(nodes)]
        self.fault = fault or (lambda unit, entry: False)
        self.machine = node or (lambda node: fake_machine(engine(node) if engine else FakeEngine()))
        self.units, self.queue, self.ended, self.now_s = [], [], [], 0.0

    def clock(self):
        """Stands still unless nothing is to be had."""
        return self.now_s

    def header(self, order, part):
        """By a node of its own."""
        return header_here(order, machine)

    def room(self):
        """More than there are nodes: some wait."""
        return 3

    def start(self, order, part):
        """In the queue."""
        self.units.append(Unit(order, None))
        return self.units[-1]

    def ask(self, unit):
        """The asked thing is the unit with a number."""
        unit.asked += 1
        return unit, unit.asked

    def ready(self, asked, timeout_s):
        """Whoever has, or gets, a node and does not hang; else time passes."""
        for unit, _ in asked:
            if unit.node is None and self.free:
                wanted = unit.order.here
                unit.node = wanted if wanted in self.free else self.free[0]
                self.free.remove(unit.node)
                unit.entries = taken_here(unit.order, unit.node, self.machine(unit.node))
        found = [one for one in asked if one[0].node is not None and not getattr(one[0], "hangs", False)]
        if not found:
            self.now_s += timeout_s
        return found[-1:]  # the last first: units overtake one another

    def answer(self, asked):
        """The next entry, unless the fault comes first."""
        unit = asked[0]
        entry = next(unit.entries, None)
        if self.fault(unit, entry):
            unit.hangs = True
            return Begun(case_id=entry.case_id, what="decoding") if isinstance(entry, Sample) else entry
        return entry

    def end(self, unit):
        """Its node is free again."""
        self.ended.append(unit)
        if unit.node is not None:
            self.free.append(unit.node)

    def lacking(self, part):
        """Said where there are no nodes."""
        return None if self.free or any(unit.node for unit in self.units) else "a node; 0 nodes are there"
