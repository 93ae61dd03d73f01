# SPDX-License-Identifier: GPL-2.0-or-later
"""Bash completion offers what the parsers accept, in a real bash with a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.man_page import verbs

from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.host.rules.registry import RULES
from tools import completion
from tools.verbs import PARSERS, walk

LIMIT_S = 60


@pytest.mark.parametrize("program", PARSERS)
def test_the_file_is_what_the_parser_gives(program):
    """WRITE_GOLDEN=1 writes it again after a change of the parser."""
    file = completion.FOLDER / program
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(completion.completion(program))
    assert file.read_text() == completion.completion(program)


class Bash:
    """A bash with a terminal, in which the commands only print their arguments.

    ``started`` has a line for each program that bash started.
    """

    def __init__(self, folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._answers, answer = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            pass_fds=(answer,),
            start_new_session=True,
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "TERM": "dumb", "PS1": "$ ", "LC_ALL": "C"},
        )
        os.close(theirs)
        os.close(answer)
        self.screen = b""
        say = f"{{ printf '%s|' \"$@\"; echo; }} >&{answer}"
        for line in (
            "bind '\"\\e*\": insert-completions'",
            "bind 'set bell-style none'",
            "bind 'set enable-bracketed-paste off'",
            *(f". {completion.FOLDER / program}" for program in PARSERS),
            *(f"{program}() {say};" for program in PARSERS),
        ):
            self._type(f"{line}\n")
        # What the set-up itself prints, such as a syntax error, is seen here.
        assert self.completed("ovirt-rdma-host ready") == ["ready"]

    def completed(self, line: str) -> list[str]:
        """Return the arguments of ``line`` after all completions were inserted."""
        self._type(f"{line}\x1b*\n")
        answer = b""
        end = time.monotonic() + LIMIT_S
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self._answers, self._ours], [], [], 1)
            if self._answers in ready:
                answer += os.read(self._answers, 65536)
            if self._ours in ready:
                self.screen += os.read(self._ours, 65536)
            assert time.monotonic() < end, self.screen.decode()
        return answer.decode().strip("\n").split("|")[:-1]

    def _type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def close(self) -> None:
        os.close(self._ours)
        os.close(self._answers)
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def bash(tmp_path_factory) -> Iterator[Bash]:
    folder = tmp_path_factory.mktemp("here")
    (folder / "dumps of hv1").mkdir()
    (folder / "policy.yaml").touch()
    bash = Bash(folder)
    yield bash
    bash.close()
    assert b"bash: " not in bash.screen, bash.screen.decode()


@pytest.mark.parametrize("program", PARSERS)
def test_each_verb_and_option_is_offered(bash, program):
    groups = {words: one.verbs for words, one in walk(PARSERS[program]()) if one.verbs}
    assert len(groups) > 2
    for words, expected in groups.items():
        typed = words.split()
        shown = bash.completed(" ".join([program, *typed, ""]))
        assert shown[len(typed) :] == sorted(expected), words
    for words, expected in verbs(PARSERS[program]()).items():
        typed = words.split()
        shown = bash.completed(" ".join([program, *typed, "-"]))
        assert set(shown[len(typed) :]) == expected, words


RULE_IDS = sorted({rule.id for rule in RULES})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ovirt-rdma-host st", ["status"]),
        ("ovirt-rdma-host unit", ["unit"]),  # hidden
        ("ovirt-rdma-host status -o js", ["status", "-o", "json"]),
        ("ovirt-rdma-host status --output=y", ["status", "--output=yaml"]),
        ("ovirt-rdma-host status --output=", [
            "status", "--output=json", "table", "yaml"]),
        ("ovirt-rdma-host check --all --skip NFS", [
            "check", "--all", "--skip", *(i for i in RULE_IDS if i.startswith("NFS"))]),
        # The value of an option is not taken for a verb.
        ("ovirt-rdma-host policy show --export load --p", [
            "policy", "show", "--export", "load", "--policy"]),
        ("ovirt-rdma-host explain ROCE-PFC-01 ", ["explain", "ROCE-PFC-01"]),
        ("ovirt-rdma-host enable --mode h", ["enable", "--mode", "host"]),
        ("ovirt-rdma-host policy load pol", ["policy", "load", "policy.yaml"]),
        ("ovirt-rdma-host policy load policy.yaml ", ["policy", "load", "policy.yaml"]),
        ("ovirt-rdma-host check --policy=pol", ["check", "--policy=policy.yaml"]),
        ("ovirt-rdma hosts check --facts-dir ", [
            "hosts", "check", "--facts-dir", "dumps of hv1"]),
        # A name in the engine is no file here.
        ("ovirt-rdma domain convert pol", ["domain", "convert", "pol"]),
        ("ovirt-rdma domain convert d1 d2 --to r", [
            "domain", "convert", "d1", "d2", "--to", "rdma"]),
    ],
)  # fmt: skip
def test_words_and_files_are_completed(bash, line, expected):
    assert bash.completed(line) == expected


def test_arguments_that_repeat_are_completed_again():
    parser = Parser()
    parser.add_argument("one", choices=("a", "b"))
    parser.add_argument("more", nargs="*", metavar="FILE")
    (words,) = completion.words_of(parser)
    assert (words.arguments, words.repeated) == (("a b", "@file"), True)
    assert words.options == {"-h": None, "--help": None}
