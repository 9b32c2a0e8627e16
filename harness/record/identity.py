"""What a part was measured with, and whether every process of the run had the same.

Every process that opens a part's model records an event ``identity``: digests of the model's files, of the prompts' token ids
and of the program's source, the processor, the GPUs and the versions of the libraries. An item that is known to differ from the
first value recorded of the part is refused by name, before anything is measured. ``sbd run --allow`` continues anyway, and an
event ``allowed`` records it. A value that is unknown on one side is not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from harness.errors import UserError
from harness.frozen import frozen
from harness.record.same import LATER_FACTS, LIBRARIES, facts_of
from harness.record.schema import Run, RunHeader
from harness.record.written import Environment

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


@frozen
class Difference:
    """One item whose value differs between a process and the first; both values in words."""

    item: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.item}: {self.then}, then {self.now}"


@frozen
class Mix:
    """What differs between the processes of one part. ``allowed``: accepted by --allow; ``unexplained``: not."""

    part: str
    allowed: tuple[Difference, ...]
    unexplained: tuple[Difference, ...]

    @property
    def weakness(self) -> str:
        """What was allowed, as a remark; empty without it."""
        words = "; ".join(map(str, self.allowed))
        return f"the run was continued under --allow although this differed ({words})" if words else ""

    @property
    def why_void(self) -> str:
        """Why nothing is judged, in words; empty where all is the same or allowed."""
        words = "; ".join(map(str, self.unexplained))
        return f"processes of this part were not measured with the same ({words}), and no --allow is recorded" if words else ""


def comma_separated(given: Iterable[str]) -> tuple[str, ...]:
    """``--allow hardware,versions --allow model`` as three words."""
    return tuple(word.strip() for text in given for word in text.split(",") if word.strip())


def allowed_items(given: Iterable[str]) -> tuple[str, ...]:
    """The items that --allow names, with commas or one by one; ``all`` is every one.

    Raises:
        UserError: a word is no item.
    """
    words = comma_separated(given)
    for word in words:
        if word not in (*ITEMS, ALL):
            raise UserError(f"--allow {word}: there is no such thing to allow; allowed: {', '.join(ITEMS)}, or {ALL}")
    return ITEMS if ALL in words else words


def machine_facts(environment: Environment) -> dict[str, object]:
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


def differences(
    header: RunHeader, earlier: Sequence[Mapping[str, object]], event: Mapping[str, object]
) -> tuple[Difference, ...]:
    """What of an identity event is known to differ from the first values of the run, for a model of its part.

    Args:
        earlier: the identity events before it. Where none tells an item, the header's environment is asked, which describes
            samples without a node.
    """
    on_node = event.get("node") is not None
    differing = []
    for item in ON_EVERY_NODE if on_node else ITEMS:
        before = [
            known
            for known in earlier
            if (item not in OF_MODEL or known.get("part") == event.get("part"))
            and (item in ON_EVERY_NODE or known.get("node") is None)
        ]
        if not before and not on_node:
            before = [machine_facts(header.environment)]
        for key in KEYS.get(item, (item,)):
            then, now = next((known[key] for known in before if known.get(key) is not None), None), event.get(key)
            if then is not None and now is not None:
                differing += [Difference(item=item, then=_words(key, then), now=_words(key, now))] if then != now else []
                break
    return tuple(differing)


def refuse_other(differing: Sequence[Difference], event: Mapping[str, object], allow: Collection[str]) -> None:
    """Refuse to continue with items that ``allow`` does not name.

    Raises:
        UserError: each such item, with what it was and is.
    """
    refused = [difference for difference in differing if difference.item not in allow]
    if refused:
        where = f"part {event.get('part')}" + (f", node {event['node']}" if event.get("node") else "")
        raise UserError(
            f"{where}: the run was begun with something else, so its samples cannot be mixed with new ones:",
            *(f"  {one.item}: was {one.then}, is {one.now}" for one in refused),
            "restore it, start a new run with --out, or continue anyway with "
            f"--allow {','.join(one.item for one in refused)}: the record and the report then say so",
        )


def allowed_event(differing: Sequence[Difference], event: Mapping[str, object]) -> dict[str, object]:
    """The event that records what --allow accepted."""
    whose = {name: value for name, value in event.items() if name in ("part", "process", "node")}
    return {"event": ALLOWED, **whose, "items": {one.item: {"then": one.then, "now": one.now} for one in differing}}


def mixes(run: Run) -> tuple[Mix, ...]:
    """The parts whose processes had known differences, in order; one difference an item, the first."""
    mixed = []
    for part in dict.fromkeys(str(event.get("part")) for event in run.events(IDENTITY)):
        own = run.events(IDENTITY, part)
        every: dict[str, Difference] = {}
        for number, event in enumerate(own):
            for difference in differences(run.header, own[:number], event):
                every.setdefault(difference.item, difference)
        accepted = {item for event in run.events(ALLOWED, part) for item in event.get("items") or ()}
        if every:
            allowed, unexplained = (
                tuple(one for one in every.values() if (one.item in accepted) == known) for known in (True, False)
            )
            mixed.append(Mix(part=part, allowed=allowed, unexplained=unexplained))
    return tuple(mixed)


def model_values(run: Run, part: str) -> dict[str, list[object]]:
    """Every known value of the items of a part's model, in order, each once."""
    values: dict[str, list[object]] = {}
    for event in run.events(IDENTITY, part):
        for item, value in facts_of(event, OF_MODEL).items():
            if value is not None and value not in values.setdefault(item, []):
                values[item].append(value)
    return values


def _words(key: str, value: object) -> str:
    """The value, a digest by its first digits; a commit and a version are named as such."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(key, inner)}" for name, inner in value.items())
    text = str(value)
    short = text[:SHOWN_DIGITS] if len(text) == DIGEST_DIGITS else text
    return f"{key} {short}" if key in ("commit", "harness") else short
