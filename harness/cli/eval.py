"""`sbd eval`: the command line of lm_eval with the sbd model registered."""

from __future__ import annotations

import sys

import typer

from harness.errors import MissingExtraError

# lm_eval reads everything after the command, --help too.
CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def eval_command(context: typer.Context) -> None:
    """Run tasks of the LM Evaluation Harness with an arm of ours: `lm_eval run --model sbd` with the arguments given here.

    lm_eval up to 0.4.13 looks for models in its own package only; where it reads entry points the two are the same.
    """
    try:
        from lm_eval.__main__ import cli_evaluate

        import harness.engine.integrations.lm_eval  # noqa: F401 - makes the name sbd known to lm_eval
    except ImportError as error:
        raise MissingExtraError(f"sbd eval needs {error.name}; pip install 'sbd-bench[eval]'") from error
    given = context.args
    named = [] if any(one == "--model" or one.startswith("--model=") for one in given) else ["--model", "sbd"]
    before = sys.argv
    sys.argv = ["lm_eval", "run", *named, *given]
    try:
        cli_evaluate()
    finally:
        sys.argv = before
