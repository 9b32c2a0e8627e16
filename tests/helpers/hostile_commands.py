"""Shell commands for `sbd gate --base-cmd/--new-cmd` that leave processes behind, print too much, or hand back another record.

A command stands in a folder with ``sound.py``, which leaves a sound record of this moment where it is told; ``{sound}`` in a
command calls it for ``{out}``. A command that ``stays`` makes the file ``begun`` and waits, so that the gate can be ended.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOUND = """
import hashlib, json, shutil, sys, datetime, uuid
side, out = sys.argv[1:]
shutil.copytree("pool/" + side, out)
now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S").encode()
read = lambda name: open(out + "/" + name, "rb").read().replace(b"2026-11-20T10:00:00", now)
head = read("run.json")
data = json.loads(head)
head = head.replace(data["run_id"].encode(), uuid.uuid4().hex.encode())
open(out + "/run.json", "wb").write(head)
for name in ("samples.jsonl", "events.jsonl"):
    before, lines = hashlib.sha256(head).hexdigest(), []
    for line in read(name).splitlines():
        tree = json.loads(line)
        tree.pop("before", None)
        whole = ('{"before":"%s",' % before + json.dumps(tree, separators=(",", ":"))[1:]).encode()
        before = hashlib.sha256(whole).hexdigest()
        lines.append(whole + b"\\n")
    open(out + "/" + name, "wb").write(b"".join(lines))
"""
DAEMON = """
import os, signal, sys, time
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
os.chdir("/")
os.closerange(0, 64)
time.sleep(300)
"""
MOVING = """
import os, time
os.setsid()
end = time.monotonic() + 300
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.02)
"""
DAEMONS: dict[str, str] = {
    "in the background": "sleep 300 &",
    "with nohup": "nohup sleep 300 >/dev/null 2>&1 &",
    "in a session": "setsid sleep 300 &",
    "forked twice": "(setsid sh -c 'sleep 300 & sleep 300 &' &)",
    "that ignores signals": "sh -c \"trap '' INT TERM HUP QUIT; sleep 300 & wait\" &",
    "that a program left as Unix does": "{python} daemon.py",
    "that moves on all the time": "{python} moving.py &",
    "that holds the output": "setsid sh -c 'while :; do echo x; sleep 1; done' &",
    "without variables": "env -i setsid /bin/sh -c 'exec sleep 300' &",
    "that is stopped": "setsid sh -c 'kill -STOP $$; sleep 300' &",
    "among two hundred": "for i in $(seq 200); do setsid sleep 300 & done",
    "of a pipe": "(sleep 300 | setsid cat) &",
}
ENDS = ("by itself", "INT", "TERM", "HUP", "KILL")
PRINTS: dict[str, str] = {
    "1 GB of lines": "yes hstl7 | head -c 1000000000",
    "1 GB of lines to stderr": "yes hstl7 | head -c 1000000000 >&2",
    "1 GB without a newline": "head -c 1000000000 /dev/zero",
    "1 GB to both": "yes | head -c 1000000000 | tee /dev/stderr",
    "bytes that are no UTF-8": "head -c 100000 /dev/urandom >&2",
    "control characters": "printf '\\033[31mhstl7\\033]0;x\\007\\r' >&2",
    "a CI command": "printf '::error::hstl7\\n##[error]hstl7\\n' >&2; printf '::error::hstl7\\n'",
    "a line of 5 MB": "head -c 5000000 /dev/zero | tr '\\0' x >&2",
    "nothing": ":",
    "surrogates": "printf '\\355\\240\\200hstl7' >&2",
}
FAILS = (
    "exit 1",
    "exit 2",
    "exit 3",
    "exit 126",
    "exit 127",
    "exit 255",
    "kill -KILL $$",
    "kill -SEGV $$",
    "kill -INT $$",
    "kill -TERM $$",
    "kill -HUP 0",
    "hstl7-absent",
    "/",
    "}}",
    "'",
)
HANDED: dict[str, str] = {
    "BASE's record": "cp -r kept {out}",
    "a link to BASE's record": "ln -s $PWD/kept {out}",
    "BASE's record, hard links": "cp -al kept {out}",
    "a record from before": "cp -r pool/new {out}",
    "a link to one from before": "ln -s $PWD/pool/new {out}",
    "links to the files of one": "mkdir {out} && ln -s $PWD/kept/* {out}/",
    "BASE's with another id": 'cp -r kept {out} && sed -i \'s/"run_id":"[0-9a-f]*/&0/\' {out}/run.json',
    "BASE's samples with its own header": "{sound} && cp kept/samples.jsonl {out}/",
    "its own samples with BASE's header": "{sound} && cp kept/run.json {out}/",
    "BASE's packed": "cp -r kept {out} && gzip {out}/samples.jsonl",
}
"""``kept`` is the record that BASE's command has left, kept beside."""
OF_BEFORE = ("a record from before", "a link to one from before")
"""Of these nothing shows that NEW's command did not measure them: they may pass."""
BROKEN: dict[str, str] = {
    "an empty folder": "mkdir {out}",
    "a file": "touch {out}",
    "nothing at all": ":",
    "a pipe": "mkfifo {out}",
    "a header that is a pipe": "{sound} && rm {out}/run.json && mkfifo {out}/run.json",
    "a header without end": "{sound} && ln -sf /dev/zero {out}/run.json",
    "a link to itself": "ln -s {out} {out}",
    "samples of 10 GB": "{sound} && truncate -s 10G {out}/samples.jsonl",
    "cut samples": "{sound} && truncate -s 900 {out}/samples.jsonl",
    "no samples": "{sound} && rm {out}/samples.jsonl",
    "events of a million lines": "{sound} && yes '{{}}' | head -1000000 > {out}/events.jsonl",
    "a folder nobody may read": "{sound} && chmod 0 {out}",
    "a changed sample": '{sound} && sed -i \'2s/"decode_s":/"decode_s":1/\' {out}/samples.jsonl',
    "its folder removed": "rm -rf $(dirname {out})",
    "the work folder removed": "rm -rf work",
    "another's marker": "{sound} && echo '[' > $(dirname {out})/base.json",
    "a marker of its own": "mkdir -p $(dirname {out}) && {sound} && mkdir $(dirname {out})/new.json",
    "the gate's file changed": "{sound} && echo '{{' > work/gate.json",
    "an answer of its own": "{sound} && echo '{{}}' > work/judgements.json",
}
OF_THE_GATE = (
    "another's marker",
    "a marker of its own",
    "the gate's file changed",
    "an answer of its own",
    "a folder nobody may read",
)
"""Of these the record is sound, and a file of the gate is not, or root may read it all the same: it may pass."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """NEW's command; ``passes``: whether a gate of it may pass. ``ended`` by which signal to the gate."""

    what: str
    text: str
    passes: bool = False
    ended: str = ""


def _listed() -> Iterator[Command]:
    for what, daemon in DAEMONS.items():
        yield Command(what=f"a process {what}, and it ends well", text=f"{daemon}\n{{sound}}", passes=True)
        yield Command(what=f"a process {what}, and it fails", text=f"{daemon}\nexit 3")
        for end in ENDS[1:]:
            yield Command(
                what=f"a process {what}, and the gate gets SIG{end}", text=f"{daemon}\ntouch begun; sleep 300", ended=end
            )
    for what, prints in PRINTS.items():
        yield Command(what=f"prints {what} and ends well", text=f"{prints}; {{sound}}", passes=True)
        yield Command(what=f"prints {what} and fails", text=f"{prints}; exit 7")
        yield Command(what=f"prints {what} and is killed", text=f"{prints}; kill -9 $$")
    yield from (Command(what=f"ends with {fail}", text=f"{fail} # {{out}}") for fail in FAILS)
    yield from (Command(what=f"hands back {what}", text=text, passes=what in OF_BEFORE) for what, text in HANDED.items())
    yield from (Command(what=f"leaves {what}", text=text, passes=what in OF_THE_GATE) for what, text in BROKEN.items())


COMMANDS = [Command(what="sound", text="{sound}", passes=True), *_listed()]


def written(folder: Path, base: Path, new: Path) -> None:
    """The scripts and the two sound records, in the folder where the gate runs."""
    (folder / "pool").mkdir()
    for name, source in (("base", base), ("new", new)):
        shutil.copytree(source, folder / "pool" / name)
    for name, text in (("sound.py", SOUND), ("daemon.py", DAEMON), ("moving.py", MOVING)):
        (folder / name).write_text(text)


def commands_of(one: Command) -> tuple[str, str]:
    """BASE's and NEW's command as the gate takes them."""
    sound = f"{sys.executable} -S sound.py"
    base = f"{sound} base {{out}} && rm -rf kept && cp -r {{out}} kept"
    text = one.text.replace("{{", "{").replace("}}", "}")
    new = text.replace("{sound}", f"{sound} new {{out}}").replace("{python}", f"{sys.executable} -S")
    return base, new if "{out}" in new else f"{new} # {{out}}"


def alive_in(folder: Path) -> list[int]:
    """Processes, other than this one, that stand in the folder or hold a file of it, or name it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _is_of(entry, str(folder)):
            found.append(int(entry.name))
    return found


def _is_of(entry: Path, folder: str) -> bool:
    try:
        if entry.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        named = entry.joinpath("environ").read_bytes() + entry.joinpath("cmdline").read_bytes()
        return folder.encode() in named or os.readlink(entry / "cwd").startswith(folder)
    except OSError:
        return False
