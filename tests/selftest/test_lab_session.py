# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the recorded pages, and how a story becomes Markdown; no guest boots here.

The recorders of an SRP target and of opensm are played against their pages: what they
run, say and expect is what the page has.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.command_line import COMMAND

from lab import record_block_session, record_fabric, simulated_fabric
from lab.record_session import DOCUMENT
from ovirt_rdma.cli.host.main import PROGRAM, parser
from ovirt_rdma.cli.parser import parse
from tools.verbs import verbs

pytestmark = pytest.mark.selftest


def test_the_page_says_when_and_shows_the_whole_way():
    page = DOCUMENT.read_text()
    assert re.search(r" Recorded on 20\d\d-\d\d-\d\d ", page)
    verbs = re.findall(r"^\$ ovirt-rdma-host (\w+)", page, re.MULTILINE)
    way = ["check", "plan", "apply", "confirm", "status", "history", "revert"]
    shown = iter(verbs)
    assert all(verb in shown for verb in way), verbs


@pytest.mark.parametrize(
    "words",
    sorted(
        set(re.findall(r"^\$ ovirt-rdma-host ([^|\n]+)", DOCUMENT.read_text(), re.M))
    ),
)
def test_its_commands_are_still_such(words):
    """Check that the command has this verb and accepts its options."""
    verb, *_ = given = shlex.split(words)
    found, _ = parse(parser(given), given)
    ours = verbs(PROGRAM)
    assert found in [ours[name].verb for name in ours if name.split()[0] == verb]


class Page:
    """A recorded page, which answers its recorder: each call has to be what comes next.

    It stands for a Story and for a Session.
    """

    def __init__(self, module):
        self.text = module.DOCUMENT.read_text()
        start = re.split(r"{\w+}", module._OPENING)
        at = [self.text.find(part) for part in start]
        assert at == sorted(at), "the opening is another"
        assert at[0] == 0
        self.rest = self.text[at[-1] + len(start[-1]) :]
        # What the host itself says between two commands.
        self.guest = SimpleNamespace(run=self._behind)

    def _next(self, pattern):
        found = re.match(rf"\s*(?:```\s*)?{pattern}", self.rest)
        assert found, (pattern, self.rest[:300])
        self.rest = self.rest[found.end() :]
        return found

    def chapter(self, title):
        self._next(rf"## {re.escape(title.rstrip('.'))}\n")

    def say(self, sentence):
        self._next(rf"{re.escape(sentence)}\n")

    def shell(self, line):
        told = rf"(?:```text\n)?\$ {re.escape(line)}\n((?:(?!\$ |```).*\n)*)"
        return self._next(told)[1].strip("\n")

    def command(self, line, expected=0):
        return self.shell(f"ovirt-rdma-host {line}")

    def run(self, line, code=0, *, seen=""):
        assert seen in self.shell(line), line

    def _behind(self, line, check):
        told = {
            "multipath -ll": "active ready running",
            "echo /dev/mapper/3*": re.search(r"/dev/mapper/3\w+", self.text)[0],
        }
        return SimpleNamespace(stdout=told.get(line, ""))


def test_the_page_of_an_srp_target_is_what_its_recorder_tells():
    page = Page(record_block_session)
    record_block_session._tell(page)
    page._next("$")
    assert record_block_session._POLICY in page.text


def test_the_page_of_opensm_is_what_its_recorder_tells(monkeypatch):
    first, names = record_fabric._FIRST, record_fabric.HOSTS
    page = Page(record_fabric)
    signals = SimpleNamespace(send_signal=lambda _: None)
    page.fabric = SimpleNamespace(
        folder=Path("x"),
        guids={name: first + 16 * n + 1 for n, name in enumerate(names)},
        manager=lambda *_: nullcontext(signals),
    )
    monkeypatch.setattr(simulated_fabric, "wait", lambda _: None)
    for part in (record_fabric._render, record_fabric._mistake, record_fabric._serve):
        part(page)
    page._next("$")


def test_our_commands_on_the_page_of_opensm_still_say_so(tmp_path):
    """Those that need no fabric are run again, with their files."""
    page = record_fabric.DOCUMENT.read_text()
    (tmp_path / "policy.yaml").write_text(record_fabric._POLICY)
    blocks = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    again = re.compile(r"ovirt-rdma-host|cat (?:policy|part)|sed ")
    ran = []
    for block in blocks:
        for line, output in re.findall(
            r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE
        ):
            if not again.match(line):
                continue
            whole = line.replace("ovirt-rdma-host", shlex.join(COMMAND))
            done = subprocess.run(
                ["bash", "-c", whole],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert done.stdout.expandtabs() == output, line
            ran.append(line)
    assert len(ran) == 8
