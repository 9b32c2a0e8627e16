"""The same run, or none: what a part was measured with, and whether every process of the run had the same.

Every process that opens a part's model records events ``identity``: digests of the model's files, of the prompts' token ids and
of the program's source, the processor, the GPUs and the versions of the libraries. What is known to differ from the first
value recorded of the part is refused by name, before anything is measured. ``sbd run --allow`` goes on in spite of it, and an
event ``allowed`` says so. A value that is unknown on one side is not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UserError
from harness.record.same import LATER_FACTS, LIBRARIES, facts_of
from harness.record.schema import Run, RunHeader

IDENTITY, ALLOWED = "identity", "allowed"
"""The names of the events."""
OF_MODEL = ("weights", "tokenizer", "config", "drafts", "prompts")
ITEMS = (*OF_MODEL, "code", "cpu", *LATER_FACTS, "gpus", *LIBRARIES, "python")
"""What is compared, by the names that --allow takes."""
ON_EVERY_NODE = (*OF_MODEL, "code")
"""What the nodes of a cluster share; unlike machines are kept apart on reading (harness.record.by_machine)."""
KEYS = {"code": ("code", "commit", "harness"), "cpu": ("cpu", "cpu_model")}
"""Keys of an item, where it has several: the first that both sides know decides. Older records lack the first one."""
ALL = "all"
DIGEST_DIGITS, SHOWN_DIGITS = 64, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An item of a part that one process had otherwise than the first; both values in words."""

    item: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.item}: {self.then}, then {self.now}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What differs between the processes of one part. ``allowed``: gone on with under --allow; ``unexplained``: without it."""

    part: str
    allowed: tuple[Difference, ...]
    unexplained: tuple[Difference, ...]

    @property
    def weakness(self) -> str:
        """What was allowed, as a remark; empty without it."""
        found = "; ".join(map(str, self.allowed))
        return f"the run was gone on with under --allow although this differed ({found})" if found else ""

    @property
    def why_void(self) -> str:
        """Why nothing is judged, in words; empty where all is the same or allowed."""
        found = "; ".join(map(str, self.unexplained))
        return f"processes of this part were not measured with the same ({found}), and no --allow is recorded" if found else ""


def allowed_items(given: Iterable[str]) -> tuple[str, ...]:
    """The items that --allow names, with commas or one by one; ``all`` is every one.

    Raises:
        UserError: a word is no item.
    """
    found = tuple(word.strip() for text in given for word in text.split(",") if word.strip())
    for word in found:
        if word not in (*ITEMS, ALL):
            raise UserError(f"--allow {word}: there is no such thing to allow; allowed: {', '.join(ITEMS)}, or {ALL}")
    return ITEMS if ALL in found else found


def machine_facts(environment: dict[str, Any]) -> dict[str, Any]:
    """What an environment tells of an identity, by key; None where it does not."""
    model, flags = environment.get("cpu_model"), environment.get("isa_flags")
    gpus = {
        f"{gpu.get('name')} ({gpu.get('memory_bytes')} bytes, {gpu.get('multiprocessors')} multiprocessors)"
        for gpu in environment.get("gpus") or ()
    }
    return {
        "cpu": None if model is None or flags is None else f"{model} ({' '.join(map(str, flags))})",
        "gpus": ", ".join(sorted(gpus)) or None,
        **facts_of(environment.get("packages") or {}, LIBRARIES),
        **facts_of(environment, ("cpu_model", *LATER_FACTS, "python", "commit", "harness")),
    }


def differences(header: RunHeader, earlier: Sequence[dict[str, Any]], event: dict[str, Any]) -> tuple[Difference, ...]:
    """What of an identity event is known to differ from the first values of the run, for a model of its part.

    Args:
        earlier: the identity events before it. Where none tells an item, the header's environment is asked, which describes
            samples without a node.
    """
    on_node = event.get("node") is not None
    found = []
    for item in ON_EVERY_NODE if on_node else ITEMS:
        asked = [
            one
            for one in earlier
            if (item not in OF_MODEL or one.get("part") == event.get("part"))
            and (item in ON_EVERY_NODE or one.get("node") is None)
        ]
        if not asked and not on_node:
            asked = [machine_facts(header.environment)]
        for key in KEYS.get(item, (item,)):
            then, now = next((one[key] for one in asked if one.get(key) is not None), None), event.get(key)
            if then is not None and now is not None:
                found += [Difference(item=item, then=_words(key, then), now=_words(key, now))] if then != now else []
                break
    return tuple(found)


def refuse_other(found: Sequence[Difference], event: dict[str, Any], allow: Collection[str]) -> None:
    """Refuse to go on with what ``allow`` does not name.

    Raises:
        UserError: each such item, with what it was and is.
    """
    refused = [one for one in found if one.item not in allow]
    if refused:
        where = f"part {event.get('part')}" + (f", node {event['node']}" if event.get("node") else "")
        raise UserError(
            f"{where}: the run was begun with something else, so its samples cannot be mixed with new ones:",
            *(f"  {one.item}: was {one.then}, is {one.now}" for one in refused),
            "restore it, start a new run with --out, or go on in spite of it with "
            f"--allow {','.join(one.item for one in refused)}: the record and the report then say so",
        )


def allowed_event(found: Sequence[Difference], event: dict[str, Any]) -> dict[str, Any]:
    """The event that says what was gone on with."""
    whose: dict[str, Any] = {name: value for name, value in event.items() if name in ("part", "process", "node")}
    return {"event": ALLOWED, **whose, "items": {one.item: {"then": one.then, "now": one.now} for one in found}}


def mixes(run: Run) -> tuple[Mix, ...]:
    """The parts whose processes had known differences, in order; one difference an item, the first."""
    found = []
    events = [one for one in run.sessions if one.get("event") == IDENTITY]
    for part in dict.fromkeys(str(one.get("part")) for one in events):
        own = [one for one in events if one.get("part") == part]
        every: dict[str, Difference] = {}
        for number, event in enumerate(own):
            for one in differences(run.header, own[:number], event):
                every.setdefault(one.item, one)
        told = [one["items"] for one in run.events(ALLOWED, part) if isinstance(one.get("items"), dict)]
        items = {item for one in told for item in one}
        if every:
            allowed, unexplained = (
                tuple(one for one in every.values() if (one.item in items) == known) for known in (True, False)
            )
            found.append(Mix(part=part, allowed=allowed, unexplained=unexplained))
    return tuple(found)


def model_values(run: Run, part: str) -> dict[str, list[Any]]:
    """Every known value of the items of a part's model, in order, each once."""
    found: dict[str, list[Any]] = {}
    for event in run.events(IDENTITY, part):
        for item in OF_MODEL:
            if event.get(item) is not None and event[item] not in found.setdefault(item, []):
                found[item].append(event[item])
    return found


def _words(key: str, value: Any) -> str:
    """The value, a digest by its first digits; a commit and a version are named as such."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(key, one)}" for name, one in value.items())
    text = str(value)
    short = text[:SHOWN_DIGITS] if len(text) == DIGEST_DIGITS else text
    return f"{key} {short}" if key in ("commit", "harness") else short
