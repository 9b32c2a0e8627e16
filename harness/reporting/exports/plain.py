"""Free text made safe to pass on: one line, no character that a terminal obeys or that XML 1.0 forbids.

A subject or a reason may quote a path, a model's name or a user's own words. Every format but JSON takes its text from here and
then escapes what is special to itself.
"""

from __future__ import annotations

import re

# C0 and C1 controls, line and paragraph separators: anything that moves a cursor becomes a space. XML 1.0 (fifth edition, 2.2)
# forbids most of C0; a terminal obeys both (ESC, CSI).
_CONTROL = re.compile("[\\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# What can be written in no UTF-8 file (lone surrogates), what XML forbids besides, and the marks that reorder a line on the
# screen (Unicode TR 36, 2.5, bidirectional spoofing; the byte order mark).
_NOWHERE = re.compile("[\ud800-\udfff\ufffe\uffff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_ELLIPSIS = "…"


def one_line(text: str, longest: int | None = None) -> str:
    """``text`` on one line, at most ``longest`` characters long; what is cut off is shown by an ellipsis."""
    line = _CONTROL.sub(" ", _NOWHERE.sub("", text)).strip()
    return line if longest is None or len(line) <= longest else line[: longest - 1] + _ELLIPSIS
