"""Judgements as the texts that other programs read: values in, text out; the command line writes the files.

FORMATS has every format by its name for ``--to``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial

from harness.analysis.judge.judgement import Judgements, to_json
from harness.formatting import escaped_json
from harness.reporting.exports.review import github_text, junit_text, markdown_text
from harness.reporting.exports.trackers import action_text, bencher_text, prometheus_text
from harness.reporting.exports.wording import finite


def json_text(judgements: Judgements) -> str:
    """The versioned JSON form of harness.analysis.judge.judgement, text unchanged."""
    # Before it is escaped: JSON could name a lone surrogate, which no reader can encode.
    return escaped_json(_whole(json.dumps(to_json(judgements), indent=1, ensure_ascii=False, allow_nan=False))) + "\n"


FORMATS: dict[str, Callable[[Judgements], str]] = {
    "json": json_text,
    "junit": junit_text,
    "markdown": markdown_text,
    "github": github_text,
    "bigger-is-better": partial(action_text, better="higher"),
    "smaller-is-better": partial(action_text, better="lower"),
    "bencher": bencher_text,
    "prometheus": prometheus_text,
}


def export(judgements: Judgements, name: str) -> str:
    """The text of one format, encodable as UTF-8 and ending in a newline; the same judgements give the same text.

    A lone surrogate (from a file name that is not UTF-8) becomes U+FFFD.

    Raises:
        KeyError: unknown format.
    """
    return _whole(FORMATS[name](finite(judgements)))


def _whole(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)
