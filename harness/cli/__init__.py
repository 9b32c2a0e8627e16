"""The command line: turns arguments into plain calls, and errors into a message and an exit code, in one place.

Each sub-command imports its heavy modules itself, so that `sbd --help` answers at once.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from harness import __version__
from harness.cli.calibrate import calibrate_command
from harness.cli.capacity import capacity_command
from harness.cli.compare import compare_command
from harness.cli.doctor import check_command, doctor_command
from harness.cli.gate import gate_command, noise_command
from harness.cli.hardware import hardware_command
from harness.cli.history import history_app
from harness.cli.output import json_text
from harness.cli.plan import plan_command
from harness.cli.report import gallery_command, report_command, take_and_tell
from harness.cli.roofline import roofline_command
from harness.cli.run import followed, process_command
from harness.cli.train import train_command
from harness.cli.verify import verify_command
from harness.errors import EXIT_INTERRUPTED, EXIT_TOOL_ERROR, MissingExtraError, SbdError

# lm_eval reads everything after the command, --help too.
EVAL_CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


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


app = typer.Typer(
    name="sbd",
    help="Does Set Block Decoding really make this model 3-5x faster on this hardware? Measure it, or predict it.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
Directory = Annotated[Path, typer.Argument(metavar="RUN", help="a run directory")]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sbd {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """Options before the command; main reads --debug and handles errors."""


app.command("plan", short_help="list the cases, with memory and time")(plan_command)


@app.command("run", short_help="measure a scenario")
def run_command(
    scenario: Annotated[str, typer.Argument(metavar="FILE", help="a scenario file, or the name of a shipped one")],
    out: Annotated[
        Path | None, typer.Option(help="run directory; default: a new one under reports/, or the unfinished one")
    ] = None,
    report: Annotated[bool, typer.Option(help="write the report when the run is finished")] = True,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="first measure this machine's ceilings, where no profile of them is kept")
    ] = False,
    on: Annotated[
        str | None, typer.Option(metavar="ray[://HOST:PORT]", help="spread it over a Ray cluster; see docs/clusters")
    ] = None,
) -> None:
    """Measure: take every sample of a scenario that its run directory does not hold yet."""
    if on is not None:
        from harness.cli.run import run_on_cluster

        run_on_cluster(scenario, out, report, on)
        return
    from harness.scenario.loading import find_scenario, load_scenario
    from harness.scenario.ranks import ranks_here

    if followed():
        return
    loaded = load_scenario(scenario)  # report a mistake in the file before a heavy import
    _need_run_extra("sbd run")
    sent_out = loaded.in_fresh_processes and ranks_here() is None
    if calibrate and not sent_out:  # else the process that begins the run does it; this one opens no device
        from harness.cli.calibrate import profile_of_scenario

        profile_of_scenario(loaded)
    from harness.runner.runner import run
    from harness.runner.subprocesses import FreshInterpreter

    spawn = FreshInterpreter(calibrate=calibrate, debug="--debug" in sys.argv)
    take_and_tell(lambda progress: run(find_scenario(scenario), out, progress, spawn=spawn), report)


app.command("run-process", hidden=True)(process_command)


app.command("report", short_help="the HTML report of runs")(report_command)
app.command("gallery", short_help="an index page of published runs")(gallery_command)
app.command("verify", short_help="is what is claimed of a run true?")(verify_command)


@app.command("publish", short_help="copy a run for keeping")
def publish_command(
    run: Directory, target: Annotated[Path, typer.Argument(metavar="TARGET", help="folder to write, for example reports/name")]
) -> None:
    """Copy a run for keeping, its samples gzipped; the same run gives the same bytes.

    A published run can be gone on with: sbd run SCENARIO --out TARGET. What it takes is packed in place by sbd publish TARGET
    TARGET.
    """
    from harness.record.store import publish

    print(publish(run, target))


@app.command("schema", short_help="JSON schema of scenario files")
def schema_command() -> None:
    """Print the JSON schema of scenario files, for editors that complete them."""
    from harness.scenario.scenario import Scenario

    print(json_text(Scenario.model_json_schema()))


app.command("roofline", short_help="predict; the paper, other methods, anchors")(roofline_command)
app.command("capacity", short_help="GPUs, cost, and where SBD pays")(capacity_command)
app.command("doctor", short_help="what this machine can measure")(doctor_command)
app.command("calibrate", short_help="measure this machine's ceilings")(calibrate_command)
app.command("check", short_help="what only a GPU can show")(check_command)
app.command("compare", short_help="what changed between runs")(compare_command)
app.command("gate", short_help="has a revision regressed")(gate_command)
app.command("noise", short_help="measure this machine's A/A noise floor")(noise_command)
app.command("hardware", short_help="devices a prediction can be asked for")(hardware_command)
app.add_typer(history_app, name="history", short_help="keep figures, find where they changed")
app.command("train", short_help="train an SBD model")(train_command)
app.command("eval", short_help="tasks of lm_eval with our decoders", context_settings=EVAL_CONTEXT)(eval_command)


def main() -> None:
    """Entry point of the ``sbd`` script; only this function catches the program's own errors."""
    try:
        app()
    except SbdError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        _fail(f"this is a fault in sbd, please report it: {what} (sbd --debug shows where)", EXIT_TOOL_ERROR)


def _fail(message: str, code: int) -> None:
    if "--debug" in sys.argv:
        traceback.print_exc()
    print(f"sbd: {message}", file=sys.stderr)
    sys.exit(code)


def _need_run_extra(command: str) -> None:
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{command} needs {' and '.join(missing)}, not installed here; pip install 'sbd-bench[run]' (in a checkout: "
            "pip install '.[run]'). sbd plan, roofline and report work without"
        )
