# SPDX-License-Identifier: GPL-2.0-or-later
"""Test how modules run ovirt-rdma-host, and the sentences of what fails."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host import __version__

_SOURCE = (
    Path(__file__).resolve().parents[2]
    / "host_deploy/plugins/module_utils/host_command.py"
)
_SPEC = importlib.util.spec_from_file_location("host_command", _SOURCE)
host_command = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(host_command)
Failed, HostCommand = host_command.Failed, host_command.HostCommand


class Ended(Exception):
    """AnsibleModule.exit_json and fail_json end the process."""


class Module:
    """What AnsibleModule offers to HostCommand; ``answers`` are those of commands."""

    def __init__(self, *answers: tuple[int, str, str], path: Any = "/usr/bin/it"):
        self.answers, self.path = list(answers), path
        self.ran: list[list[str]] = []
        self.result: dict[str, Any] = {}

    def get_bin_path(self, name, opt_dirs=()):
        assert name == "ovirt-rdma-host"
        return self.path

    def run_command(self, argv, **_):
        self.ran.append(argv)
        return self.answers.pop(0)

    def exit_json(self, **result):
        self.result = result
        raise Ended

    def fail_json(self, msg, **result):
        self.result = {"failed": True, "msg": msg, **result}
        raise Ended


def answer(code: int = 0, **document: Any) -> tuple[int, str, str]:
    return code, json.dumps(document), ""


def error(code: int, *sentences: str, fix: str = "") -> tuple[int, str, str]:
    about = {"kind": "error", "id": "it-failed", "exit_code": code}
    return answer(code, **about, sentences=sentences, fix=fix)


def test_a_result_is_the_document():
    module = Module(answer(kind="facts", hostname="hv1"))
    code, document = HostCommand(module).run("facts")
    assert (code, document["hostname"]) == (0, "hv1")
    assert module.ran == [["/usr/bin/it", "facts", "-o", "json"]]


@pytest.mark.parametrize(
    ("given_answer", "what", "fix"),
    [
        (error(4, "ib0 is in use", fix="wait"), "ib0 is in use", "wait"),
        (error(1, "one", "two"), "one; two", ""),
        (
            (2, "", "usage: it\nit: error: no such verb"),
            "ovirt-rdma-host apply failed with exit code 2: it: error: no such verb",
            "update the package ovirt-rdma-host on the host",
        ),
        (
            (-9, "", ""),
            "ovirt-rdma-host apply failed with exit code -9: it printed nothing",
            "run it on the host: ovirt-rdma-host apply",
        ),
        (
            (0, "[]", ""),
            "ovirt-rdma-host apply failed with exit code 0: []",
            "run it on the host: ovirt-rdma-host apply",
        ),
        (
            answer(6, kind="apply", sentence="run 3 was rolled back", left=[]),
            "run 3 was rolled back",
            "",
        ),
        (
            answer(
                1,
                kind="apply",
                sentence="run 3 failed",
                left=[{"step": "A-01/ib0", "why": "no", "fix": "do"}],
            ),
            "run 3 failed: A-01/ib0: no; fix: do",
            "",
        ),
        (answer(3, kind="status"), "apply ended with exit code 3", ""),
    ],
)
def test_what_fails_is_a_sentence_with_a_fix(given_answer, what, fix):
    with pytest.raises(Failed) as failed:
        HostCommand(Module(given_answer)).run("apply")
    assert (failed.value.what, failed.value.fix) == (what, fix)


def test_other_exit_codes_can_be_results():
    assert HostCommand(Module(answer(3, kind="check"))).run("check", also=(3,))[0] == 3


def test_another_run_is_waited_for(monkeypatch):
    slept = []
    monkeypatch.setattr(host_command.time, "sleep", slept.append)
    module = Module(error(75, "locked"), error(75, "locked"), answer(kind="apply"))
    HostCommand(module).run("apply")
    assert len(slept) == 2


def test_another_run_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(host_command.time, "sleep", lambda seconds: None)
    with pytest.raises(Failed, match="locked"):
        HostCommand(Module(error(75, "locked")), lock_timeout=0).run("apply")


def test_a_missing_command_is_a_sentence():
    with pytest.raises(Failed, match="the command ovirt-rdma-host is missing"):
        HostCommand(Module(path=None))


@pytest.mark.parametrize(
    "version", [__version__, host_command.OLDEST, "0.10.0", "1.0rc1"]
)
def test_a_version_is_accepted(version):
    module = Module((0, f"ovirt-rdma-host {version}\n", ""))
    assert HostCommand(module).version() == version


@pytest.mark.parametrize("version", ["0.0.9", "0.0.10"])
def test_an_old_version_is_refused(version):
    with pytest.raises(Failed, match=f"ovirt-rdma-host {version} .* is older"):
        HostCommand(Module((0, f"ovirt-rdma-host {version}\n", ""))).version()


def test_something_else_with_the_name_is_refused():
    with pytest.raises(Failed, match="failed with exit code 0: hello"):
        HostCommand(Module((0, "hello", ""))).version()


def work_that_fails(module):
    raise Failed("it is\nbroken.", "repair it", "it-broke", exit_code=4)


def test_a_module_fails_with_one_line():
    module = Module()
    with pytest.raises(Ended):
        host_command.carry_out(module, work_that_fails)
    message = "it is broken; fix: repair it"
    about = {"id": "it-broke", "exit_code": 4}
    assert module.result == {"failed": True, "msg": message, **about}


def test_a_module_ends_with_printable_sentences():
    module = Module()
    with pytest.raises(Ended):
        host_command.carry_out(module, lambda module: {"attention": ["a\tb\x1b[31m"]})
    assert module.result == {"attention": ["a b [31m"]}


@given(st.text())
def test_a_sentence_is_one_line_that_has_no_severity_of_the_engine(text):
    line = host_command.one_line(text)
    assert not re.search("[\n\r\u0085\u2028\u2029\x00]", line)
    assert len(line) <= 900
    assert not re.search(r"\[(NORMAL|WARNING|ERROR|ALERT)\]", line)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Cannot read http://u:pw@repo.example.com/x", "http://***@repo.example.com/x"),
        (
            "from https://u:p@ss@repo/x, https://b:c@d/",
            "https://***@repo/x, https://***@d/",
        ),
        ("look at https://repo.example.com/a@b", "https://repo.example.com/a@b"),
    ],
)
def test_a_sentence_has_no_password_of_a_repository(text, shown):
    """Everybody who sees the host in the engine sees its events."""
    assert host_command.sentence(text).endswith(shown)
