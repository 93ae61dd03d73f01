# SPDX-License-Identifier: GPL-2.0-or-later
"""Check all verbs of ovirt-rdma: help, usage errors, packages, streams."""

from __future__ import annotations

import io
import json
import re
import sys
from argparse import Namespace
from pathlib import Path
from unittest import mock

import pytest
from engine_double import EngineDouble, sample_world
from support.command_line import run_on_terminal
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor

from ovirt_rdma.cli import parser
from ovirt_rdma.cli.engine import login, session
from ovirt_rdma.cli.engine import main as engine
from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.cli.engine.session import (
    Progress,
    matrix_document,
    show_matrix,
)
from ovirt_rdma.cli.output import Output
from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.model import (
    FAIL,
    NONE,
    OK,
    UNKNOWN,
    Axis,
    Cell,
    Matrix,
)
from tools.verbs import verbs

pytestmark = pytest.mark.hypervisor


@pytest.mark.parametrize("verb", verbs("ovirt-rdma"))
def test_help_of_each_verb(capsys, verb):
    shown = run_engine(capsys, None, None, *verb.split(), "--help")
    assert shown.code == 0
    for part in ("exit codes:", "examples:", f"ovirt-rdma {verb}"):
        assert part in shown.out
    # These are run on the engine's machine, and ask no engine.
    assert ("--engine-url URL" in shown.out) is not verb.startswith("deploy-hook ")
    assert "--password " not in shown.out  # never on a command line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "verbs: login, domain, network, hosts, deploy-hook, policy, report"),
        ("domain", "verbs: list, create, convert, revert, heal, verify"),
        ("domains", "there is no verb 'domains'"),
        ("domain convert", "required: NAME, --to"),
        ("domain convert d --to ib", "'ib' is none of rdma, tcp"),
        ("domain convert d --to rdma --batch 0", "'0' is not a number from 1 to 100"),
        ("domain convert d --to rdma --batch x", "'x' is not a number from 1 to 100"),
        ("domain create d --datacenter a", "required: --export"),
        ("network create n", "required: --datacenter"),
        (
            "network create n --datacenter a --mtu 99999",
            "is not a number from 68 to 65520",
        ),
        ("network attach n --hosts a,,b", "'a,,b' has an empty name"),
        ("hosts list --password x", "unknown arguments: --password x"),
        ("hosts list --config-file", "expected one argument"),
        ("hosts list --root /x", "unknown arguments: --root /x"),
        ("login --fingerprint x", "--fingerprint needs --fetch-ca"),
    ],
)
def test_wrong_words(capsys, words, said):
    run_engine(capsys, None, None, *words.split()).refused(2, said)


def test_what_a_verb_is_given(capsys, monkeypatch):
    seen = {}

    def verb(self, context):
        seen.update(access=context.access, url=self.engine_url, root=context.root)
        context.at_end.callback(lambda: seen.update(ended=True))
        return 5

    monkeypatch.setattr(login.Login, "run", verb)
    assert main(["login", "--engine-url", "e"], access="the door") == 5
    assert seen == {"access": "the door", "url": "e", "root": "/", "ended": True}


@pytest.mark.parametrize("words", ["hosts list", "domain list", "login"])
def test_without_an_engine(capsys, words):
    run_engine(capsys, None, None, *words.split()).refused(1, "no engine is named")


def test_without_a_user_or_a_password(capsys, monkeypatch):
    monkeypatch.setenv("OVIRT_URL", "engine.example.com")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    run_engine(capsys, None, None, "login").refused(1, "the user for engine")
    words = ("login", "--username", "a@internal")
    found = run_engine(capsys, None, None, *words)
    found.refused(1, "no password for a@internal at engine", "--password-file")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "the first line of"), ("\nsecret", "the first line of"), (None, "cannot be")],
)
def test_a_password_file_that_is_none(capsys, tmp_path, text, said):
    file = tmp_path / "pw"
    if text is not None:
        file.write_text(text)
    words = ("login", "--password-file", str(file), "--engine-url", "e")
    found = run_engine(capsys, None, None, *words)
    found.refused(1, said)
    assert "secret" not in found.err


@pytest.mark.parametrize(
    ("mode", "text", "warned"),
    [(0o644, "password = x", True), (0o600, "password = x", False), (0o644, "", False)],
)
def test_a_password_that_others_may_read_is_a_warning(
    capsys, tmp_path, mode, text, warned
):
    file = tmp_path / "mine.conf"
    file.write_text(f"[a]\n{text}\n")
    file.chmod(mode)
    found = run_engine(capsys, None, None, "hosts", "list", "--config-file", str(file))
    assert (f"in {file}: chmod 600 {file}" in found.err) == warned


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_ca_file_that_is_none(capsys, tmp_path, text):
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    words = ("login", "--ca-file", str(file), "--engine-url", "e", "--username", "u")
    run_engine(capsys, None, None, *words).refused(1, str(file))


def test_nobody_is_asked_without_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(parser.Declined, match="no terminal") as caught:
        parser.approve(Namespace(assume_yes=False), Output(), ["a plan"])
    assert caught.value.exit_code == 4
    parser.approve(Namespace(assume_yes=True), Output(), ["a plan"])


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("answer", "goes"),
    [
        *(("y\n", True), ("YES\n", True), ("\n", False), ("", False)),
        *(("n\n", False), ("yep\n", False)),
    ],
)
def test_the_question_before_a_change(monkeypatch, capsys, answer, goes):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    ask = Namespace(assume_yes=False)
    if goes:
        parser.approve(ask, Output(), ["host01 goes down"])
    else:
        with pytest.raises(parser.Declined, match="declined"):
            parser.approve(ask, Output(), ["host01 goes down"])
    out, err = capsys.readouterr()
    assert (out, err) == ("", "host01 goes down\nContinue? [y/N] ")


def test_long_lines_are_folded_at_words(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(parser, "terminal_width", lambda stream: 30)
    plan = ["host01, host02, host03, one by one: policy", "  host01  10.20.0.11/24"]
    parser.approve(Namespace(assume_yes=False), Output(), plan)
    assert capsys.readouterr().err.splitlines() == [
        "host01, host02, host03, one by",
        "  one: policy",
        "  host01  10.20.0.11/24",
        "Continue? [y/N] ",
    ]


def test_ctrl_c_at_the_question(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(session, "conversion_states", lambda: StateFolder(tmp_path))
    monkeypatch.setattr(Output, "ask", mock.Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(sys, "stdin", Terminal())
    with EngineDouble(sample_world(hosts=2, domains=("data1",), addon=True)) as double:
        words = ("domain", "convert", "data1", "--to", "rdma", "--rolling")
        done = run_engine(capsys, double, DoubleDoor(double.world), *words)
        assert double.changes() == []
    assert done.code == 130
    assert done.err.endswith("\n\nNothing was changed.\n")


CALLS = (
    Call("hosts/7", "deactivate", "moving h to maintenance", {"reason": "a"}, "h"),
)


def test_the_calls_of_a_dry_run(capsys):
    output = Output()
    session.show_calls(output, CALLS)
    session.show_calls(output, ())
    output.flush()
    assert capsys.readouterr().out.splitlines() == [
        "1. moving h to maintenance",
        "   POST /hosts/7/deactivate",
        "   <action>",
        "     <reason>a</reason>",
        "   </action>",
        "Nothing would be sent to the engine.",
    ]


def test_the_calls_as_a_document(capsys):
    output = Output("json")
    session.show_calls(output, CALLS, hosts=["h"])
    output.flush()
    found = json.loads(capsys.readouterr().out)
    (call,) = found.pop("calls")
    assert found == {
        "schema_version": 1,
        "kind": "calls",
        "dry_run": True,
        "hosts": ["h"],
    }
    assert (call["method"], call["path"], call["about"]) == (
        "POST",
        "/hosts/7/deactivate",
        "h",
    )


def a_matrix():
    good, bad = Cell(OK, "rdma"), Cell(FAIL, "tcp", "it is on TCP", "heal it")
    silent = Cell(UNKNOWN, "", "no report")
    hosts = ("h1", "h2", "h3", "h4", "h5", "h6")
    rows = [(good, bad), *[(bad, silent)] * 4, (good, Cell(NONE, ""))]
    return Matrix(
        "domains",
        tuple(map(Axis, hosts)),
        (Axis("data1", "7"), Axis("data2")),
        tuple(rows),
        ("Read from facts.",),
    )


def test_a_matrix_as_a_table(capsys):
    output = Output()
    show_matrix(output, a_matrix())
    output.flush()
    assert capsys.readouterr().out.splitlines() == [
        "HOST  data1     DATA2",
        "h1    rdma      FAIL tcp",
        *[f"h{number}    FAIL tcp  ?" for number in (2, 3, 4, 5)],
        "h6    rdma      -",
        "",
        "FAIL h1, h2, h3, h4 and 1 more: it is on TCP",
        "fix: heal it",
        "",
        "? h2, h3, h4, h5: no report",
        "",
        "Read from facts.",
    ]


def test_a_matrix_as_a_document():
    found = matrix_document(a_matrix())
    assert found["worst"] == "fail"
    assert found["columns"] == [
        {"name": "data1", "id": "7"},
        {"name": "data2", "id": ""},
    ]
    assert found["cells"][0][1] == {
        "verdict": "fail",
        "text": "tcp",
        "sentence": "it is on TCP",
        "fix": "heal it",
        "source": "host",
    }


def work(listener):
    listener.plan(("h1", "h2"), 3)
    listener.begin("maintenance", "h1")
    listener.note("the engine is away")
    listener.end("maintenance", "h1", "it has [x] machines")
    listener.begin("the row")
    listener.end("the row")
    listener.close()


def test_progress_as_json_lines(capsys):
    output = Output("json")
    output.json_lines = True
    work(Progress(output))
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in err.splitlines()]
    assert out == ""
    assert all(event.pop("at") for event in events)
    assert events[0] == {"event": "plan", "hosts": ["h1", "h2"], "steps": 3}
    assert events[1] == {"event": "begin", "step": "maintenance", "host": "h1"}
    assert events[3]["problem"] == "it has [x] machines"
    assert [one["event"] for one in events][4:] == ["begin", "end"]


PROGRESS = """
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.engine.session import Progress
one = Progress(Output())
one.plan(("host01",), 2)
one.begin("maintenance", "host01")
one.end("maintenance", "host01", "it has [x] machines")
one.close()
"""


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_progress_on_a_terminal(monkeypatch, terminal):
    monkeypatch.setattr(
        "support.command_line.COMMAND", (sys.executable, "-c", PROGRESS)
    )
    begins = ["[0/2] host01: maintenance"] * (terminal == "xterm")
    lines = run_on_terminal(TERM=terminal).replace("\r\x1b[K", "\r\n").splitlines()
    assert list(filter(None, lines)) == [
        *begins,
        "[1/2] host01: maintenance: failed: it has [x] machines",
    ]


def test_progress_in_lines_counts_steps_beyond_the_plan(capsys):
    work(Progress(Output()))
    one = Progress(Output())
    one.plan(("h1",), 1)
    one.end("maintenance", "h1")
    one.end("activation", "h1")
    assert capsys.readouterr().err.splitlines() == [
        "note: the engine is away",
        "[1/3] h1: maintenance: failed: it has [x] machines",
        "[2/3] the row",
        "[1/1] h1: maintenance",
        "[2] h1: activation",
    ]


TOP = Path(__file__).parents[3]
KIND = re.compile(
    r'(?:output\.document\(\s*|_KIND = |(?:context|heal, output),\s+)"([a-z-]+)"'
)
VERBS = re.compile(r'"engine\.(\w+)\.\w+"')
# docs/host-preparation.md has its verbs.
OTHERS = {"deploy_hook"}


def test_every_kind_of_document_is_told():
    folder = Path(engine.__file__).parent
    modules = set(VERBS.findall(Path(engine.__file__).read_text()))
    assert modules >= OTHERS
    names = {*modules - OTHERS, "session"}
    text = "".join((folder / f"{name}.py").read_text() for name in names)
    _, _, section = (TOP / "docs/matrix.md").read_text().partition("## The other ")
    rows = re.findall(r"^\| (`.+?`) \|", section, re.M)
    told = {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)}
    assert told - {"kind"} == set(KIND.findall(text))
