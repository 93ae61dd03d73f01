# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that ``make demo`` reports what is not as expected; no guest boots here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import demo_nfs
from lab.command import Result
from lab.guest import Guest
from lab.problem import LabProblem
from lab.story import Story

pytestmark = pytest.mark.selftest


class Answering(Guest):
    """A guest that is off, but answers every command with the same result."""

    def __init__(self, stdout: str, exit_code: int = 0) -> None:
        super().__init__("answering")
        self.ran: list[Any] = []
        self._result = Result(exit_code, stdout, "", 0.1)

    def run(self, command: Any, **_: Any) -> Result:
        self.ran.append(command)
        return self._result


def test_a_story_shows_what_it_runs_and_goes_on_counting(capsys):
    story = Story(Answering("one\ntwo\n"), chapters=7)
    story.chapter("Next.")
    assert story.shell("cat here") == "one\ntwo\n"
    assert capsys.readouterr().out == "\n8. Next.\n   $ cat here\n     one\n     two\n"


def test_what_a_terminal_shows_for_a_moment_is_not_told(capsys):
    said = "\r\x1b[Kreading the host\r\x1b[KX-01: TSO goes off\r\x1b[Kdone  X-01\n"
    story = Story(Answering(f"{said}\r\x1b[Kreading the host\r\x1b[Kmade.\n"))
    assert story.command("apply") == "done  X-01\nmade.\n"
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["   $ ovirt-rdma-host apply", "     done  X-01", "     made."]


def test_another_exit_code_than_told_ends_the_story():
    with pytest.raises(LabProblem, match="exit code is 3"):
        Story(Answering("", exit_code=0)).command("check", expected=3)


# The second mount of an export, without nosharecache: TCP is requested, RDMA is used.
@pytest.mark.parametrize(
    ("transport", "as_told"), [("rdma", True), ("tcp", False), ("udp", False)]
)
def test_a_mount_over_another_transport_than_told_ends_the_story(transport, as_told):
    shown = (
        "58 30 / /mnt/x rw - nfs4 s:/d rw,proto=rdma,port=20049\n\txprt:\trdma 0 0\n"
    )
    story = Story(Answering(shown))
    if as_told:
        story.mounted_over("/mnt/x", transport)
        return
    with pytest.raises(LabProblem, match=f"mountinfo says proto={transport}"):
        story.mounted_over("/mnt/x", transport)


def test_the_summary_is_six_lines_of_what_was_seen():
    proven = demo_nfs.Proven(31.2, 25.4e6, 3.04, 2.1)
    _, title, *rows = proven.table().splitlines()
    assert title.split() == ["WHAT", "WAS", "PROVEN", "OVIRT-RDMA", "STOCK", "VDSM"]
    assert len(rows) == 6
    shown = "\n".join(rows)
    for figure in ("31 s from", "25 MB/s", "TCP after 3.0 s", "refused after 2.1 s"):
        assert figure in shown
    assert all(len(row) <= 80 for row in (title, *rows))


def test_the_tour_says_what_the_summary_says():
    """Its seconds are of a quiet machine; the rest is as the demo has it now."""
    page = (Path(__file__).parents[2] / "docs/tour.md").read_text()
    [said] = [line for line in page.splitlines() if line.startswith("The demo ends")]
    table = demo_nfs.Proven(41.0).table()
    for words in (
        "over RDMA, by policy",
        "41 s from the start",
        "transport, by the kernel",
        "3 of 3 signals",
        "data read back",
        "32 MiB equal",
        "still tries after 15 s",
    ):
        assert (words in table, words in said) == (True, True), words
