"""Runs the steps of a composite GitHub Action and the scripts of a GitLab component, as the platforms describe it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Environment = Mapping[str, str]


def bash(script: str, folder: Path, environment: Environment) -> subprocess.CompletedProcess[str]:
    """As GitHub starts a step with ``shell: bash``, and GitLab's runner its script."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def run_action(
    file: Path, inputs: Mapping[str, str], folder: Path, environment: Environment
) -> tuple[int, dict[str, str], dict[str, str]]:
    """The first failing step's code, the outputs of the step ``gate``, and what each step printed, by its name."""
    action = yaml.safe_load(file.read_text(encoding="utf-8"))
    known = {f"inputs.{key}": inputs.get(key, str(one.get("default", ""))) for key, one in action["inputs"].items()}
    assert set(inputs) <= set(action["inputs"])
    known |= {"github.token": environment["TOKEN"], "github.event_name": environment["GITHUB_EVENT_NAME"]}
    known |= {"github.event.pull_request.number": "7", "github.event.pull_request.head.sha": "0123456789abcdef"}
    known["inputs.token"] = _filled(known["inputs.token"], known)
    code, printed, outputs = 0, dict[str, str](), dict[str, str]()
    for step in action["runs"]["steps"]:
        known |= {f"steps.gate.outputs.{key}": outputs.get(key, "") for key in action["outputs"]}
        if not _holds(step["if"], known) if "if" in step else code:
            continue
        if "uses" in step:
            printed[step["name"]] = step["uses"]
            continue
        variables = {key: _filled(value, known) for key, value in step["env"].items()}
        done = bash(step["run"], folder, {**environment, **variables})
        printed[step["name"]] = done.stdout + done.stderr
        code = code or done.returncode
        outputs = dict(re.findall(r"^(.*?)=(.*)$", Path(environment["GITHUB_OUTPUT"]).read_text(), re.MULTILINE))
    return code, outputs, printed


def _filled(text: str, known: Mapping[str, str]) -> str:
    """An expression's value, or the text as it is."""
    found = re.fullmatch(r"\$\{\{ ([\w.-]+) \}\}", text)
    return known[found[1]] if found else text


def _holds(condition: str, known: Mapping[str, str]) -> bool:
    """Conditions joined by &&: nothing is cancelled here; ``name == 'text'``, ``name != 'text'``."""
    for clause in condition.removeprefix("${{").removesuffix("}}").split("&&"):
        found = re.fullmatch(r"([\w.-]+) ([!=]=) '(.*)'", clause.strip())
        if clause.strip() != "!cancelled()" and (found is None or (known[found[1]] == found[3]) != (found[2] == "==")):
            return False
    return True


def component_job(file: Path, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and body of the one job, inputs put in place: a value alone keeps its type, one inside a text becomes text."""
    spec, template = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    told = spec["spec"]["inputs"]
    assert set(inputs) <= set(told) and all(key in inputs or "default" in one for key, one in told.items())
    values = {key: inputs.get(key, one.get("default")) for key, one in told.items()}
    [(name, body)] = _interpolated(template, values).items()
    return str(name), body


def _interpolated(node: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(node, dict):
        return {_interpolated(key, values): _interpolated(one, values) for key, one in node.items()}
    if isinstance(node, list):
        return [_interpolated(one, values) for one in node]
    if not isinstance(node, str):
        return node
    if whole := re.fullmatch(r"\$\[\[ inputs\.([\w-]+) \]\]", node):
        return values[whole[1]]
    return re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda found: _text(values[found[1]]), node)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def run_job(body: Mapping[str, Any], folder: Path, environment: Environment) -> tuple[int, str]:
    """Exit code of before_script and script in one shell, and what they and after_script, in another shell, printed."""
    variables = {**environment, **{key: _text(value) for key, value in body["variables"].items()}}
    first = bash("\n".join([*body["before_script"], *body["script"]]), folder, variables)
    last = bash("\n".join(body["after_script"]), folder, variables)
    return first.returncode, first.stdout + first.stderr + last.stdout + last.stderr
