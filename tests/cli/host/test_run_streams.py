# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the output of a run in a process, on a terminal and without a reader."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.command_line import run_on_terminal, run_process
from support.fakes.fake_hosts import soft_roce

from ovirt_rdma.host.changes.journal import DONE, Journal

pytestmark = pytest.mark.hypervisor

FILE = "etc/modprobe.d/ovirt-rdma.conf"
POLICY = "version: 1\nhost: {module_options: {rdma_rxe: {add: eth9}}}\n"
WIPE = "\r\x1b[K"


@pytest.fixture
def root(tmp_path):
    """A host that needs no tools to apply its policy."""
    soft_roce(tmp_path)
    (tmp_path / "etc/modprobe.d").mkdir(parents=True, exist_ok=True)
    (tmp_path / "p.yaml").write_text(POLICY)
    loaded = run_process("policy", "load", f"{tmp_path}/p.yaml", "--root", tmp_path)
    assert loaded.code == 0, loaded.err
    return tmp_path


def done(root: Path) -> bool:
    return Journal(root).ledger().runs[-1].outcome == DONE and (root / FILE).exists()


def but_notes(text: str) -> str:
    """Remove the notes about tools, which are not run below this root."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("note: "))


def test_a_terminal_shows_what_goes_on_and_keeps_what_was_done(root):
    shown = run_on_terminal("apply", "--root", str(root))
    assert shown.startswith(f"{WIPE}reading the host{WIPE}")
    assert f"{WIPE}MODOPT-02/boot: write /{FILE}{WIPE}" in shown
    assert f"verifying: reading the host again{WIPE}1 step applied on " in shown
    # The output without the lines that were erased.
    left = re.sub(r"\r\x1b\[K[^\r\n]*(?=\r)", "", shown).replace(WIPE, "")
    assert but_notes(left).startswith(
        "\x1b[32mdone   \x1b[0m  MODOPT-02/boot  none -> "
    )
    assert "reading" not in left


def test_colours_and_lines_that_pass_are_for_terminals_that_can(root):
    shown = run_on_terminal("apply", "--root", str(root), TERM="dumb")
    assert "\x1b" not in shown
    assert but_notes(shown).startswith("done     MODOPT-02/boot  none -> ")


def test_a_pipe_gets_lines_only(root):
    result = run_process("apply", "--root", str(root))
    assert (result.code, but_notes(result.err)) == (0, "")
    assert result.out.startswith("done     MODOPT-02/boot  none -> ")


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_a_reader_that_is_gone_stops_nothing(root, verb):
    if verb == "revert":
        assert run_process("apply", "--root", str(root)).code == 0
    reading, writing = os.pipe()
    os.close(reading)
    result = run_process(verb, "--root", str(root), stdout=writing, stderr=writing)
    os.close(writing)
    assert result.code == 0
    assert done(root) == (verb == "apply")


def test_a_full_disk_under_stdout_stops_nothing(root):
    with Path("/dev/full").open("wb") as full:
        run_process("apply", "--root", str(root), stdout=full)
    assert done(root)
