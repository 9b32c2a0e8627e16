"""A torch.cuda whose time passes only when told to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class FakeCuda:
    """What the bench uses of torch.cuda, with events on a fake time line of 2 ms a kernel."""

    def __init__(self, present: bool = True) -> None:
        self.present, self.synchronized, self.now_ms, self.current = present, list[object](), 0.0, 0

    def is_available(self) -> bool:
        return self.present

    def current_device(self) -> int:
        return self.current

    def set_device(self, device: int) -> None:
        self.current = device

    def get_device_name(self, device: int) -> str:
        return "Fake H200"

    def mem_get_info(self, device: int) -> tuple[int, int]:
        return 7 << 30, 8 << 30

    def synchronize(self, device: object) -> None:
        self.synchronized.append(device)

    def empty_cache(self) -> None: ...

    def Event(self, enable_timing: bool) -> Any:
        event = SimpleNamespace(at=0.0)
        event.record = lambda: setattr(event, "at", self.now_ms)
        event.elapsed_time = lambda end: end.at - event.at
        return event
