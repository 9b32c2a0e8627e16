"""The command line: turns arguments into plain calls, and errors into a message and an exit code, in one place.

A command's module is imported when the command is called, so that `sbd --help` answers at once.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
import traceback
import warnings
from copy import copy
from importlib import import_module
from inspect import Parameter, getdoc, signature
from typing import Annotated, Any, NoReturn, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from harness import __version__
from harness.cli.output import show
from harness.cli.streams import prepare
from harness.errors import EXIT_INTERRUPTED, EXIT_TOOL_ERROR, EXIT_USER_ERROR, SbdError, UserError
from harness.formatting import each_line, one_line

COMMANDS = {
    "plan": ("plan:plan_command", "list the cases, with memory and time"),
    "run": ("run:run_command", "measure a scenario"),
    "run-process": ("run:process_command", None),
    "report": ("report:report_command", "the HTML report of runs"),
    "gallery": ("report:gallery_command", "an index page of published runs"),
    "import": ("import_results:import_command", "result files of other tools become a record"),
    "verify": ("verify:verify_command", "is what is claimed of a run true?"),
    "publish": ("report:publish_command", "copy a run for keeping"),
    "schema": ("plan:schema_command", "JSON schema of scenario files"),
    "roofline": ("roofline:roofline_command", "predict; the paper, other methods, anchors"),
    "capacity": ("capacity:capacity_command", "GPUs, cost, and where SBD pays"),
    "doctor": ("doctor:doctor_command", "what this machine can measure"),
    "calibrate": ("calibrate:calibrate_command", "measure this machine's ceilings"),
    "check": ("doctor:check_command", "what only a GPU can show"),
    "compare": ("compare:compare_command", "what changed between runs"),
    "gate": ("gate:gate_command", "has a revision regressed"),
    "noise": ("gate:noise_command", "measure this machine's A/A noise floor"),
    "acceptance": ("acceptance:acceptance_command", "a run's acceptance, for other engines to force"),
    "hardware": ("hardware:hardware_command", "devices a prediction can be asked for"),
    "model": ("model:model_app", "get a published model, once"),
    "train": ("train:train_command", "train an SBD model"),
    "eval": ("train:eval_app", "tasks of lm_eval with our decoders"),
    "history": ("history:history_app", "keep figures, find where they changed"),
}
"""The function, or the typer application, of every command, and its line in `sbd --help`; None: it is not listed."""
WRONG_PLACE = {errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM}
"""The system's refusals of a path that another path mends."""
PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None}


def documented(command: Any) -> Any:
    """The command with its arguments and options, each with what ``Args`` in its docstring says: ``name (METAVAR): help``.

    A flag that is off by default has no opposite.
    """
    text, _, listed = (getdoc(command) or "").partition("\n\nArgs:\n")
    if not listed:
        return command
    command.__doc__, hints, parameters = text, get_type_hints(command, include_extras=True), signature(command).parameters
    for name, metavar, words in re.findall(r"^    (\w+)(?: \((.+)\))?: (.+(?:\n {8}.+)*)", listed, re.MULTILINE):
        kind, default = hints[name], parameters[name].default
        if get_origin(kind) is Annotated:
            kind, option = kind.__origin__, copy(kind.__metadata__[0])
        elif default is Parameter.empty:
            option = typer.Argument()
        else:
            option = typer.Option(*([f"--{name.replace('_', '-')}"] if default is False else []))
        option.metavar, option.help = metavar or None, " ".join(words.split())
        command.__annotations__[name] = Annotated[kind, option]
    return command


class Commands(TyperGroup):
    """The commands by name; the module of one is imported when it is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": dict.fromkeys(COMMANDS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or None if there is no such one."""
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            module, _, name = COMMANDS[cmd_name][0].partition(":")
            found = getattr(import_module(f"harness.cli.{module}"), name)
            if not isinstance(found, typer.Typer):
                function, found = found, typer.Typer(**PLAIN)
                found.command(cmd_name)(documented(function))
            self.commands[cmd_name] = typer.main.get_command(found)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items() if text])


app = typer.Typer(
    name="sbd",
    cls=Commands,
    help="Does Set Block Decoding really make this model 3-5x faster on this hardware? Measure it, or predict it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    **PLAIN,
)


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


def main() -> None:
    """Entry point of the ``sbd`` script; only this function catches the program's own errors."""
    prepare()
    _silence_libraries()
    # An empty or relative entry is the folder that somebody's record lies in, and a program of his would be run for ssh-keygen.
    os.environ["PATH"] = os.pathsep.join(filter(os.path.isabs, os.get_exec_path())) or os.defpath  # an empty PATH is one
    os.environ.pop("MPLBACKEND", None)  # we draw files only, and matplotlib does not load with a name it does not know
    try:
        try:
            _heed_parent()
            _need_folder()
            app()
        finally:
            sys.stdout.flush()  # its refusal is the end, not the verdict
    except SbdError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            code = EXIT_USER_ERROR if error.errno in WRONG_PLACE else EXIT_TOOL_ERROR
            _fail(f"{error.filename}: {error.strerror}; give another place, or mend this one", code)
        what = one_line(f"{type(error).__name__}: {error}".partition("\n")[0])
        _fail(f"this is a fault in sbd, please report it: {what} (sbd --debug shows where)", EXIT_TOOL_ERROR)


def _silence_libraries() -> None:
    """Keep the warnings of other libraries off the terminal, unless -W or PYTHONWARNINGS asks for them; ours stay."""
    logging.getLogger().addHandler(logging.NullHandler())  # else what no handler takes is written to stderr
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", module=r"harness\b")


def _heed_parent() -> None:
    """End with the process that started this one as its child; see harness.runner.subprocesses."""
    if parent := os.environ.pop("SBD_PARENT", None):
        from harness.runner.subprocesses import end_with_parent

        end_with_parent(int(parent))


def _need_folder() -> None:
    """Raises UserError where the working folder was removed; torch ends the process there without a word of ours."""
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(f"the working folder cannot be read ({error.strerror}); cd to one that exists") from error


def _fail(message: str, code: int) -> NoReturn:
    if "--debug" in sys.argv:
        print(each_line(traceback.format_exc()), file=sys.stderr)
    show(f"sbd: {message}", sys.stderr)
    sys.exit(code)
