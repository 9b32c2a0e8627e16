"""Calls functions on what comes from somebody else in a process of its own, with limits of processor time and memory.

A tokenizer and a chat template come with a model, and are programs of its authors. A regular expression in one, or a loop in
the other, may never end, fill the memory or break the process off. One C call cannot be interrupted from within its process.
Processor time counts, so a busy machine refuses nothing. The process ends with its owner: a closed pipe ends it, and so does
the limit of a call.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import resource
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from signal import ITIMER_PROF, setitimer
from subprocess import DEVNULL, Popen
from typing import Any

from harness.errors import UnknownModelError

MOST_S = 10.0
"""Of processor time for one call. Published templates take milliseconds, the largest tokenizers 3 s to be read."""
MOST_BYTES, LONGEST_ANSWER_BYTES = 2**29, 2**24
"""Of the address space, beside 16 bytes for each byte of a file; Python and transformers take a quarter."""

_PART = (
    r'\{"type":"(ByteLevel|ByteFallback|Fuse|Metaspace|WordPiece)"[^{}]*\}|\{"type":"BPEDecoder","suffix":"[^"]+"\}|'
    r'\{"type":"Strip",[^{}]*"stop":0\}|\{"type":"Replace","pattern":\{"String":"[^"]+"\},"content":"[^"]?"\}'
)
LINEAR = re.compile(rf'(None|{_PART}|\{{"type":"Sequence","decoders":\[({_PART})(,({_PART}))*\]\}})')
"""Decoders that take time and memory in proportion to the texts of the tokens, as JSON."""
_HELD: list[Any] = []
"""The tokenizer that the process holds."""


class LimitedProcess:
    """A process for calls on ``what``, for messages, which say what to do then, too (``advice``). ``size_bytes``: of the file
    that it reads.
    """

    def __init__(self, what: str, advice: str, size_bytes: int = 0) -> None:
        self._what, self._advice = what, advice
        self._pipe, theirs = Pipe()
        most = MOST_BYTES + 16 * size_bytes
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve({theirs.fileno()}, {most})"
        with theirs:
            self._child = Popen(
                [sys.executable, "-c", code],
                pass_fds=[theirs.fileno()],
                stderr=DEVNULL,
                start_new_session=True,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # each would reserve address space
            )

    def __call__(self, work: Callable[..., Any], *args: Any) -> Any:
        """``work(*args)``, all sent by pickle.

        Raises:
            UnknownModelError: it fails or exceeds a limit, or an earlier call did.
        """
        try:
            self._pipe.send((MOST_S, work, args))
            done, answer = pickle.loads(self._pipe.recv_bytes(LONGEST_ANSWER_BYTES))
        except (EOFError, OSError):
            done, answer = False, f"takes more than {MOST_S:g} s or too much memory, writes too much, or breaks off"
        except BaseException:
            self._pipe.close()  # else the next call would take this one's answer for its own
            raise
        if done:
            return answer
        raise UnknownModelError(f"{self._what} {answer}; {self._advice}")

    def __del__(self) -> None:
        self._child.kill()
        self._child.wait()


def serve(descriptor: int, most_bytes: int) -> None:
    """What the process does: answer calls until the other end closes."""
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    pipe = Connection(descriptor)
    while True:
        most_s, work, args = pipe.recv()  # nobody reads that it ends by EOFError
        setitimer(ITIMER_PROF, most_s)  # its signal ends the process, within a C call, too
        try:
            pipe.send((True, work(*args)))
        except BaseException as error:  # a panic of the library tokenizers is no Exception
            pipe.send((False, f"fails ({error!r:.200})"))


def load(text: str, specials_as_text: bool = False) -> None:
    """Hold the tokenizer of this JSON for the calls below; ``specials_as_text``: no special token is found in a text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = specials_as_text
    _HELD[:] = [tokenizer]


def facts(text: str) -> Any:
    """Load it; SHA-256 of the tokenizer's own JSON form, the token of the largest id, and that id ("" and -1 without any).

    Raises:
        ValueError: the decoder may make any text of the tokens.
    """
    load(text)
    tokenizer = _HELD[0]
    vocabulary, decoder = tokenizer.get_vocab(), str(tokenizer.decoder and tokenizer.decoder.__getstate__().decode())
    if not LINEAR.fullmatch(decoder):
        raise ValueError(f"its decoder may lengthen texts: {decoder}")
    number, token = max(((number, token) for token, number in vocabulary.items()), default=(-1, ""))
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest(), token, number


def encode(text: str, special: bool) -> list[int]:
    """Ids of a text, with the ``special`` tokens before and after it or without."""
    return list(_HELD[0].encode(text, add_special_tokens=special).ids)


def decode(ids: list[int]) -> str:
    """The text of ids, special tokens left out."""
    return str(_HELD[0].decode(ids, skip_special_tokens=True))
