"""What a run is asked for besides its scenario: one value, from the command line to fresh processes and cluster nodes.

A new option is a field here and its words in harness.cli.run; whoever acts on it reads ``Job.options``, or
``Work.options`` where samples are taken.
"""

from __future__ import annotations

from harness.frozen import frozen
from harness.models.choice import REMOTE_CODE


@frozen
class RunOptions:
    """Options of `sbd run` that the processes of a run act on."""

    allow: tuple[str, ...] = ()
    """Items of harness.record.identity that may differ from what the run was begun with."""
    engines: bool = False
    """NTP is held against every engine of others that is installed."""
    trust_remote_code: bool = False
    """Models whose scenario asks for it may run code of their own."""
    calibrate: bool = False
    """The run begins with this machine's own profile."""
    until: str | None = None
    """`decided`: it ends when its claims about the clock are, after up to MOST_PROCESSES processes."""
    at_most: float | None = None
    """Seconds after which it begins no further process; with ``until``."""

    @property
    def flags(self) -> list[str]:
        """As a command line has those that its record keeps, for they decide what is measured."""
        kept = {"--engines": self.engines, REMOTE_CODE: self.trust_remote_code, "--until decided": self.until is not None}
        limit = [] if self.at_most is None else ["--at-most", f"{self.at_most:g}s"]
        return [word for flag, given in kept.items() if given for word in flag.split()] + limit
