"""Claims as one line of text, for the command line, and files of claims.

An example is ``wall_speedup >= 3 within 1 point at part=bandwidth, batch=1``.

    claim  := bound ("and" bound)* clause*
    bound  := METRIC (">=" | "<=") NUMBER ["x" | "%"] ["by" ESTIMATOR]
            | NUMBER "<=" METRIC "<=" NUMBER ["by" ESTIMATOR]
            | NUMBER "-" NUMBER "x" ["faster" | "fewer passes"]     at least the first: 3-5x
            | "same accuracy" | "close to the pass reduction" | "lossless"   with our limits: 1 point, 0.9 of it, 99 %
    clause := "within" NUMBER ("point" | "points") | "at" KEY "=" VALUE ("," KEY "=" VALUE)* | "in this process"

A value with spaces is quoted: arm='SBD k=16 γ=0.1'. A file of claims is YAML
with the one key ``claims``, given by path, or by name if it ships with the program.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pydantic import Field, ValidationError

from harness.config_file import StrictModel, read_yaml
from harness.errors import UserError
from harness.paths import data_dir
from harness.scenario.claims import ESTIMATORS, METRIC_NAMES, THIS_PROCESS, Claim, Claims, Where
from harness.scenario.loading import shipped_file

EXAMPLES = '"wall_speedup >= 3", "3-5x fewer passes within 1 point", "wall_speedup >= 3 at part=bandwidth, batch=1"'
_SAME_AS = str.maketrans({"–": "-", "—": "-", "≥": ">=", "≤": "<=", "×": "x"})
_TOKEN = re.compile(r"""\s*('[^']*'|"[^"]*"|>=|<=|==|[=,<>]|[^\s,=<>'"]+)""")
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(x|%)?")
_WHOLE = {"batch", "block_size", "prompt_tokens"}


class _Limits(TypedDict, total=False):
    """A bound, by the keys of a claim."""

    metric: str
    min: float
    max: float
    estimator: str


LOSSLESS = 0.99
_RANGE = r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)x"
# Our margin and our limits: at most so many percentage points lost; wall speedup ÷ NFE speedup. The paper names none.
_SHORT: dict[str, _Limits] = {
    "same accuracy": {"metric": "accuracy_loss_points", "max": 1.0},
    "close to the pass reduction": {"metric": "wall_over_nfe", "min": 0.9},
    "lossless(?! [<>]=)": {"metric": "lossless", "min": LOSSLESS},
    f"{_RANGE} fewer passes": {"metric": "nfe_speedup"},
    f"{_RANGE}(?: faster)?": {"metric": "wall_speedup"},
}
"""Bounds in few words; a range stands for its lower end. With a comparison, ``lossless`` is read as any metric."""


def read_claim(text: str) -> Claim:
    """The claim that ``text`` states.

    Raises:
        UserError: it is no claim; the message has what was read, what is allowed there, and examples.
    """
    reader = _Reader(text=text, words=_tokens(text))
    bounds = [reader.bound()]
    clauses: dict[str, object] = {}
    while (word := reader.take()) is not None:
        if word == "and" and not clauses:
            bounds.append(reader.bound())
        elif word == "within" and "within_points" not in clauses:
            clauses["within_points"] = reader.points()
        elif word == "at" and "where" not in clauses:
            clauses["where"] = reader.where()
        elif word == "in" and "scope" not in clauses and reader.took(*THIS_PROCESS.split()):
            clauses["scope"] = THIS_PROCESS
        else:
            said = "said twice" if word in ("within", "at") else "not expected here"
            allowed = "and (before the others), within 1 point, at part=..., batch=..., in this process"
            raise reader.refusal(f"{word!r} is {said}", allowed)
    try:
        return Claim.model_validate({**_merged(bounds, clauses), **clauses})
    except ValidationError as error:
        raise _refused(text, error, "") from error


def _refused(text: str, error: ValidationError, whole: str) -> UserError:
    """The first mistake after its key; ``whole``: what is named where the mistake is in no single key."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or whole
    return UserError(": ".join(filter(None, (f"claim {text!r}", where, first["msg"].removeprefix("Value error, ")))))


def _merged(bounds: list[_Limits], clauses: dict[str, object]) -> Mapping[str, object]:
    """The keys of a Claim: one bound stands by itself; a lone bound on accuracy is the claim's margin."""
    if len(bounds) > 1:
        return {"all": tuple(bounds)}
    alone = bounds[0]
    of_accuracy = alone.keys() == {"metric", "max"} and alone["metric"] == "accuracy_loss_points" and 0 < alone["max"] <= 100
    if of_accuracy and "within_points" not in clauses:
        clauses["within_points"] = alone["max"]
        return {}
    return alone


def _tokens(text: str) -> list[str]:
    plain = text.translate(_SAME_AS).rstrip()
    found, at = [], 0
    while at < len(plain):
        match = _TOKEN.match(plain, at)
        if match is None:
            raise UserError(f"claim {text!r}: a quote is opened and not closed at {plain[at:].strip()!r}; close it")
        found.append(match.group(1))
        at = match.end()
    return found


@dataclass
class _Reader:
    """The words of a claim that are still to be read."""

    text: str
    words: list[str]

    def refusal(self, what: str, allowed: str) -> UserError:
        return UserError(f"claim {self.text!r}: {what}; allowed here: {allowed}. Examples: {EXAMPLES}")

    def peek(self) -> str | None:
        return self.words[0] if self.words else None

    def take(self) -> str | None:
        return self.words.pop(0) if self.words else None

    def took(self, *words: str) -> bool:
        """Take these words if they come next; returns whether they do."""
        if tuple(self.words[: len(words)]) != words:
            return False
        del self.words[: len(words)]
        return True

    def bound(self) -> _Limits:
        found = self._short() or self._between() or self._one_sided()
        if self.took("by"):
            found["estimator"] = self._one_of(ESTIMATORS, "an estimator")
        return found

    def _short(self) -> _Limits | None:
        rest = " ".join(self.words)
        for pattern, limits in _SHORT.items():
            match = re.match(f"{pattern}(?= |$)", rest)
            if match is None:
                continue
            words = match[0].split()
            del self.words[: len(words)]
            if not match.groups():
                return limits.copy()
            low, high = map(float, match.groups())
            if low > high:
                raise self.refusal(f"{words[0]} runs downwards", "the smaller number first")
            return {**limits, "min": low}
        return None

    def points(self) -> float:
        value = self._number()
        if not (self.took("point") or self.took("points")):
            raise self.refusal(f"{self.peek()!r} after 'within {value:g}'", "point or points (of a percentage)")
        return value

    def where(self) -> Where:
        found: dict[str, object] = {}
        while True:
            key = self._one_of(tuple(Where.model_fields), "a key after 'at'")
            if key in found:
                raise self.refusal(f"{key} is said twice", "each key once")
            if not self.took("="):
                raise self.refusal(f"{self.peek()!r} after {key!r}", "= and a value")
            found[key] = self._value(key)
            if not self.took(","):
                break
        try:
            return Where.model_validate(found)
        except ValidationError as error:
            raise _refused(self.text, error, "at") from error

    def _value(self, key: str) -> object:
        word = self.take()
        if word is None or word in {",", "=", "<", ">", "<=", ">="}:
            raise self.refusal(f"{key} has no value", f"{key}=VALUE, in quotes where it has spaces")
        if key in _WHOLE:
            if not word.isascii() or not word.isdigit():
                raise self.refusal(f"{key}={word}", f"a whole number for {key}")
            return int(word)
        if key == "gamma":
            return self._as_number(word)
        return word[1:-1] if word[0] in "'\"" else word

    def _between(self) -> _Limits | None:
        if _NUMBER.fullmatch(self.peek() or "") is None:
            return None
        low = self._number()
        self._operator("<=")
        metric = self._one_of(METRIC_NAMES, "a metric")
        self._operator("<=")
        return {"metric": metric, "min": low, "max": self._number()}

    def _one_sided(self) -> _Limits:
        metric = self._one_of(METRIC_NAMES, "a metric (or a range such as 3-5x)")
        at_least = self._operator(">=", "<=") == ">="
        limit = self._number()
        return {"metric": metric, "min": limit} if at_least else {"metric": metric, "max": limit}

    def _operator(self, *allowed: str) -> str:
        word = self.take()
        if word not in allowed:
            raise self.refusal(f"{word!r} is no comparison" if word else "the claim ends early", " or ".join(allowed))
        return word

    def _number(self) -> float:
        word = self.take()
        if word is None:
            raise self.refusal("the claim ends early", "a number")
        return self._as_number(word)

    def _as_number(self, word: str) -> float:
        match = _NUMBER.fullmatch(word)
        if match is None:
            raise self.refusal(f"{word!r} is no number", "a number such as 3, 0.9, 3x or 10%")
        return float(match.group(1)) / (100 if match.group(2) == "%" else 1)

    def _one_of(self, allowed: tuple[str, ...], what: str) -> str:
        word = self.take()
        if word in allowed:
            return word
        near = difflib.get_close_matches(word or "", allowed, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise self.refusal(f"{word!r} is not {what}{hint}" if word else f"{what} is missing", ", ".join(allowed))


PAPER = "paper"
"""The shipped file with the figures that the paper claims (arXiv 2509.04185)."""
OURS = "ours"
"""The shipped file with our limits for what the paper claims without a figure."""


class ClaimFile(StrictModel):
    """The whole file."""

    claims: tuple[Claim, ...] = Field(min_length=1)
    """The claims, in order."""


def load_claims(given: Path | str) -> Claims:
    """The claims of a file, or of a shipped one by its bare name.

    Raises:
        ScenarioError: there is no such file, or it is refused; ``file:line: key: given, allowed, what to do`` per mistake.
    """
    path = Path(given)
    file = path if path.is_file() else shipped_file(path, data_dir("scenarios") / "claims", "file of claims")
    return read_yaml(file, when_empty="write claims: [...] (see `sbd verify --help`)").value(ClaimFile).claims
