# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion offers what the parsers accept, in a real bash or zsh with a terminal."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.man_page import verbs

from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.host.collect.storage import MOUNTINFO
from ovirt_rdma.host.rules.registry import RULES, SERVER_RULES
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

    It finds no program, so none is started. ``mountinfo`` is read instead of the
    kernel's; ``set_up`` are more lines for bash.
    """

    COMMAND = ("bash", "--norc", "--noprofile", "-i")
    SET_UP: tuple[str, ...] = (
        "bind '\"\\e*\": insert-completions'",
        "bind 'set bell-style none'",
        "bind 'set enable-bracketed-paste off'",
    )
    KEY = "\x1b*"

    def __init__(self, folder: Path, mountinfo: Path, *set_up: str) -> None:
        shell = shutil.which(self.COMMAND[0])
        assert shell
        self._ours, theirs = pty.openpty()
        self._answers, answer = os.pipe()
        self._process = subprocess.Popen(
            [shell, *self.COMMAND[1:]],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            pass_fds=(answer,),
            start_new_session=True,
            cwd=folder,
            env={"PATH": "/nowhere", "TERM": "dumb", "PS1": "$ ", "LC_ALL": "C"},
        )
        os.close(theirs)
        os.close(answer)
        self.screen = b""
        say = f"{{ printf '%s|' \"$@\"; echo; }} >&{answer}"
        for line in (
            *self.SET_UP,
            *(f". {_with_mounts(program, mountinfo)}" for program in PARSERS),
            *(f"{program}() {say};" for program in PARSERS),
            *set_up,
        ):
            self._type(f"{line}\n")
        # What the set-up itself prints, such as a syntax error, is seen here.
        assert self.completed("ovirt-rdma-host ready") == ["ready"]

    def completed(self, line: str) -> list[str]:
        """Return the arguments of ``line`` after all completions were inserted."""
        self._type(f"{line}{self.KEY}\n")
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


class Zsh(Bash):
    """The same with zsh, which inserts what all completions begin with."""

    COMMAND = ("zsh", "-f", "-i")
    SET_UP = (
        "autoload -U compinit bashcompinit && compinit -u -D && bashcompinit",
        "unset zle_bracketed_paste",
        "unsetopt beep",
    )
    KEY = "\t"


def _with_mounts(program: str, mountinfo: Path) -> Path:
    """Return a copy of a completion that reads ``mountinfo``."""
    text = (completion.FOLDER / program).read_text()
    assert text.count(f"done <{MOUNTINFO}\n") == 1
    copy = mountinfo.with_name(program)
    copy.write_text(text.replace(MOUNTINFO, str(mountinfo)))
    return copy


# As in the kernel, with an export that is mounted twice, and mounts that are not NFS.
MOUNTS = r"""
22 1 253:0 / / rw,relatime shared:1 - xfs /dev/mapper/onn-root rw,attr2
41 22 0:39 / /rhev/data-center/mnt/nas1:_vm rw shared:9 - nfs4 nas1:/vm rw,vers=4.2
42 22 0:39 / /mnt rw - nfs4 nas1:/vm rw,vers=4.2
43 22 0:40 /sub /mnt/a\040b rw shared:9 master:2 - nfs nas1:/iso rw,vers=3
44 22 0:41 / /rhev/data-center/mnt/v6 rw - nfs4 [fd00::21]:/vm rw,vers=4.2
45 22 0:42 / /mnt/odd rw - nfs4 odd:/my\040$(touch\040x).vm rw,vers=4.2
46 22 0:43 / /mnt/cifs rw - cifs nas1:/cifs rw
47 22 0:44 / /proc/fs/nfsd rw - nfsd nas1:/nfsd rw
"""


def _shell(kind: type[Bash], folder: Path, *set_up: str) -> Iterator[Bash]:
    here = folder / "here"
    here.mkdir()
    (here / "dumps of hv1").mkdir()
    (here / "policy.yaml").touch()
    mountinfo = folder / "mountinfo"
    mountinfo.write_text(MOUNTS)
    bash = kind(here, mountinfo, *set_up)
    yield bash
    bash.close()
    assert b"bash: " not in bash.screen, bash.screen.decode()
    assert sorted(file.name for file in here.iterdir()) == [
        "dumps of hv1",
        "policy.yaml",
    ]


@pytest.fixture(scope="module")
def bash(tmp_path_factory) -> Iterator[Bash]:
    yield from _shell(Bash, tmp_path_factory.mktemp("bash"))


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


RULE_IDS = sorted({rule.id for rule in (*RULES, *SERVER_RULES)})


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
        ("ovirt-rdma-host policy show --policy load --o", [
            "policy", "show", "--policy", "load", "--output"]),
        ("ovirt-rdma-host explain ROCE-PFC-01 ", ["explain", "ROCE-PFC-01"]),
        ("ovirt-rdma-host enable --mode h", ["enable", "--mode", "host"]),
        ("ovirt-rdma-host policy load pol", ["policy", "load", "policy.yaml"]),
        ("ovirt-rdma-host policy load policy.yaml ", ["policy", "load", "policy.yaml"]),
        ("ovirt-rdma-host check --policy=pol", ["check", "--policy=policy.yaml"]),
        ("ovirt-rdma hosts check --facts-dir ", [
            "hosts", "check", "--facts-dir", "dumps of hv1"]),
        ("ovirt-rdma-host metrics --write dum", [
            "metrics", "--write", "dumps of hv1"]),
        # A name in the engine is no file here.
        ("ovirt-rdma domain convert pol", ["domain", "convert", "pol"]),
        ("ovirt-rdma domain convert d1 d2 --to r", [
            "domain", "convert", "d1", "d2", "--to", "rdma"]),
    ],
)  # fmt: skip
def test_words_and_files_are_completed(bash, line, expected):
    assert bash.completed(line) == expected


ODD = "odd:/my $(touch x).vm"
EXPORTS = [
    (r"ovirt-rdma-host nfs health ", ["[fd00::21]:/vm", "nas1:/iso", "nas1:/vm", ODD]),
    (r"ovirt-rdma-host nfs check nas", ["nas1:/iso", "nas1:/vm"]),
    (r"ovirt-rdma-host nfs mount-options nas1:/v", ["nas1:/vm"]),
    (r"ovirt-rdma-host bench [f", ["[fd00::21]:/vm"]),
    (r"ovirt-rdma-host bench [fd00::2", ["[fd00::21]:/vm"]),
    (r"ovirt-rdma-host bench [fd00::21]:", ["[fd00::21]:/vm"]),
    (r"ovirt-rdma-host bench odd:/my\ $", [ODD]),
    (r"ovirt-rdma domain create d1 --export odd", ["--export", ODD]),
    (r"ovirt-rdma domain create d1 --export=nas1:/i", ["--export=nas1:/iso"]),
    (r"ovirt-rdma domain create d1 --export nas1:/i", ["d1", "--export", "nas1:/iso"]),
    # An export is one argument, and one value, although ":" separates words.
    (r"ovirt-rdma-host bench nas1:/vm ", ["nas1:/vm"]),
    (r"ovirt-rdma-host bench nas1: ", ["nas1:"]),
    (r"ovirt-rdma-host nfs check nas1:/vm --nfs-version a", [
        "nas1:/vm", "--nfs-version", "auto"]),
    (r"ovirt-rdma domain create d1 --export nas1:/vm --datac", [
        "--export", "nas1:/vm", "--datacenter"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), EXPORTS)
def test_mounted_exports_are_completed(bash, line, expected):
    assert bash.completed(line)[-len(expected) :] == expected


def test_exports_where_a_colon_separates_no_words(tmp_path):
    for bash in _shell(Bash, tmp_path, "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}"):
        for line, expected in EXPORTS:
            assert bash.completed(line)[-len(expected) :] == expected, line


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_with_the_same_file(tmp_path):
    """By its bashcompinit, as docs/packages.md says."""
    for zsh in _shell(Zsh, tmp_path):
        for line, expected in (
            ("ovirt-rdma-host stat", ["status"]),
            ("ovirt-rdma-host status -o js", ["status", "-o", "json"]),
            ("ovirt-rdma-host explain ROCE-PF", ["explain", "ROCE-PFC-01"]),
            ("ovirt-rdma-host policy load pol", ["policy", "load", "policy.yaml"]),
            ("ovirt-rdma domain convert pol", ["domain", "convert", "pol"]),
            ("ovirt-rdma domain convert d1 --to r", [
                "domain", "convert", "d1", "--to", "rdma"]),
            ("ovirt-rdma-host nfs check nas1:/i", ["nfs", "check", "nas1:/iso"]),
            ("ovirt-rdma-host bench odd", ["bench", ODD]),
        ):  # fmt: skip
            assert zsh.completed(line) == expected, line
        assert b"not found" not in zsh.screen, zsh.screen.decode()


def test_arguments_that_repeat_are_completed_again():
    parser = Parser()
    parser.add_argument("one", choices=("a", "b"))
    parser.add_argument("more", nargs="*", metavar="FILE")
    (words,) = completion.words_of(parser)
    assert (words.arguments, words.repeated) == (("a b", "@file"), True)
    assert words.options == {"-h": None, "--help": None}
