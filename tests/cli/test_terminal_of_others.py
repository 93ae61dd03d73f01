# SPDX-License-Identifier: GPL-2.0-or-later
"""Text of hosts and of the engine is shown on a terminal without controlling it."""

from __future__ import annotations

import json
import re
import sys

import pytest
from engine_double import EngineDouble, sample_world
from support.command_line import run_on_terminal
from support.engine.engine_command_line import access
from support.engine.engine_door import DoubleDoor, serve_hosts

from ovirt_rdma.cli.engine.session import Progress
from ovirt_rdma.cli.output import Output

# Title, clipboard and screen of xterm; C1 codes; changes of the writing direction; line
# separators; invisible characters.
STEERS = (
    "\x1b]0;PWNED\x07 \x1b]52;c;AAAA\x07 \x1b[2J \x1b[31m \x00\x08\x7f"
    "\x85\x9b\x9c \u202a\u202e\u2066\u2069\u200e\u200f \u2028\u2029 \u200b\u2060\ufeff"
    "\u115f\u3164\ufe0f\U000e0041 "
)
# XML has no C0 codes; names in the engine can have all others.
NAME = "h\x9b2J\u202e01"
MEANT = re.compile("\r\x1b\\[K|\x1b\\[[0-9;]*m|\r|\n")


def is_shown(text: str, *parts: str) -> None:
    """Check that only our own codes are sent, and ``parts`` are shown."""
    rest = MEANT.sub("", text)
    odd = {c for c in rest if not c.isprintable()} | (set(STEERS) - set(" ")) & {
        c for c in rest if not c.isascii()
    }
    assert odd == set(), ascii(text)
    seen = "".join(rest.split())
    for part in parts:
        assert part in seen, ascii(text)


def program(monkeypatch, *words: str) -> None:
    monkeypatch.setattr("support.command_line.COMMAND", (sys.executable, *words))


PROGRESS = f"""
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.engine.session import Progress
odd = {STEERS!a}
one = Progress(Output())
one.plan((odd + "host",), 2)
one.begin(odd + "begins", odd + "host")
one.note(odd + "note")
one.end(odd + "ends", odd + "host", odd + "problem")
one.close()
"""


def test_progress(monkeypatch):
    program(monkeypatch, "-c", PROGRESS)
    shown = run_on_terminal(columns=600)
    is_shown(shown, *(rf"\ufeff\u115f\u3164\ufe0f\U000e0041{word}" for word in (
        "host", "ends", "note", "problem")), r"\x1b]0;PWNED\x07")  # fmt: skip


QUESTION = f"""
from ovirt_rdma.cli.output import Output
print(Output().ask({STEERS!a} + "right? "))
"""


def test_a_question(monkeypatch):
    program(monkeypatch, "-c", QUESTION)
    is_shown(
        run_on_terminal(columns=300, typed="y\n"), r"\x1b]52;c;AAAA", "right?yTrue"
    )


PASSWORD = """
from ovirt_rdma.cli.engine.session import completed
from ovirt_rdma.engine_sdk_tools.api.auth import Settings
settings = Settings("https://e/ovirt-engine/api", "a\\x1b[2J\\u202e")
print(len(completed(settings).password))
"""


def test_the_question_for_a_password(monkeypatch):
    program(monkeypatch, "-c", PASSWORD)
    is_shown(run_on_terminal(typed="abc\n"), r"a\x1b[2J\u202e")


TABLE = f"""
from ovirt_rdma.cli.output import Output
output, odd = Output(), {STEERS!a}
output.table((odd + "heading",), [(odd + "cell",)], below=(odd + "below",))
output.fields([(odd + "field", odd + "value")], "  ")
output.text(odd + "text", hang=odd + "hang")
output.row((odd + "a", odd + "row"), (1, 1))
output.progress(odd + "passing")
output.next(odd + "next")
output.flush()
"""


def test_a_result(monkeypatch):
    program(monkeypatch, "-c", TABLE)
    names = [
        "heading",
        "cell",
        "below",
        "field",
        "value",
        "text",
        "hang",
        "row",
        "passing",
        "next",
    ]
    is_shown(run_on_terminal(columns=300), *(rf"\U000e0041{name}" for name in names))


BUGS = """
import os, threading
from ovirt_rdma.cli.{command} import main as command, {module}
odd = {odd!a}
def bug(*words, **more):
    def in_thread():
        raise RuntimeError(odd + "thread")
    one = threading.Thread(target=in_thread)
    one.start()
    one.join()
    try:
        raise RuntimeError(odd + "first")
    except RuntimeError:
        raise RuntimeError(odd + "bug")
{module}.{verb}.run = bug
command.main({words!r})
"""


@pytest.mark.parametrize(
    ("command", "module", "verb", "words"),
    [
        ("host", "check", "Explain", ["explain"]),
        ("engine", "hosts", "ListHosts", ["hosts", "list"]),
    ],
)
def test_tracebacks_of_bugs(monkeypatch, command, module, verb, words):
    text = BUGS.format(
        command=command, module=module, verb=verb, words=words, odd=STEERS
    )
    program(monkeypatch, "-c", text)
    shown = run_on_terminal(columns=300, OVIRT_RDMA_DEBUG="1")
    is_shown(shown, *(rf"\U000e0041{name}" for name in ("thread", "first", "bug")))


def test_words_that_argparse_refuses(monkeypatch):
    odd = STEERS.replace("\x00", "")
    is_shown(run_on_terminal("nfs", odd, columns=300), "thereisnoverb")
    is_shown(run_on_terminal("explain", odd, odd, columns=300), r"\U000e0041")


@pytest.fixture
def site():
    world = sample_world(hosts=2, addon=True)
    world.host("host01").name = NAME
    with EngineDouble(world) as double:
        door = DoubleDoor(world)
        serve_hosts(double, door)
        yield double, door


@pytest.mark.engine
@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_a_push(site, monkeypatch, tmp_path, form):
    double, door = site
    door.fail_push["host02"] = f"ovirt-rdma-host: {STEERS}"
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\n")
    path = ":".join(path for path in sys.path if path)
    program(monkeypatch, "-m", "support.engine.engine_door", double.url)
    shown = run_on_terminal(
        *("policy", "push", str(policy), "--hosts", "*", "-o", form),
        columns=300, typed="y\n", **access(double), PYTHONPATH=path,
    )  # fmt: skip
    is_shown(shown, "Continue?", r"h\x9b2J\u202e01", r"\x1b]0;PWNED", r"\x9b\x9c")


def test_documents_are_whole_and_steer_nothing(capsys):
    for form in ("json", "yaml"):
        output = Output(form)
        output.document("test", {"text": STEERS, STEERS: 1})
        output.flush()
        out = capsys.readouterr().out
        is_shown(out)
        if form == "json":
            assert json.loads(out)["text"] == STEERS
    output = Output("json")
    output.json_lines = True
    Progress(output).note(STEERS)
    err = capsys.readouterr().err
    is_shown(err)
    assert json.loads(err)["sentence"] == STEERS
