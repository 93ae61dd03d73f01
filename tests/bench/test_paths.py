# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyperf", reason="make selftest has it")

from bench import paths_program
from bench.paths import judged, skipped
from bench.paths_runs import OURS, OUT, RETURN, STOCK, WINDOW_S, Cost, Measured, Writes
from bench.report import broken_limits
from lab.two_paths import CLIENT, ENDS, SERVER

pytestmark = pytest.mark.selftest

# A Python's start in the guest.
SLOW = (0.150, 0.150)
EVENTS = [what.format(end) for what in (OUT, RETURN) for end in ENDS]


def writes(seconds, error=None, differences=0):
    return Writes(seconds, seconds / 0.002, error, differences)


def measured(**changes):
    """Return measurements with which every limit holds."""
    found = Measured(
        {(event, OURS): [writes(0.4), writes(0.6)] for event in EVENTS},
        [0.45, 0.55],
        [0.002, 0.002],
        {
            True: Cost((0.04 * WINDOW_S, 0.06 * WINDOW_S), (24e6, 25e6), SLOW),
            False: Cost((0.01 * WINDOW_S, 0.02 * WINDOW_S), (15e6, 16e6), SLOW),
        },
        python=0.010,
    )
    for end in ENDS:
        eio = writes(9.0, "EIO", None)
        found.writes[OUT.format(end), STOCK] = [eio, eio]
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_limits_that_hold():
    section = judged(measured())
    assert len(section.verdicts) == 7
    assert broken_limits([section]) == []
    assert "(stock: EIO after 9.00 s)" in section.verdicts[0].sentence
    assert "stock" not in section.verdicts[2].sentence


@pytest.mark.parametrize(
    ("event", "seconds"),
    [
        (OUT.format(CLIENT), 3.1),
        (OUT.format(SERVER), 8.1),
        (RETURN.format(CLIENT), 1.1),
        (RETURN.format(SERVER), 1.1),
    ],
)
def test_the_longest_write_counts(event, seconds):
    found = measured()
    found.writes[event, OURS] = [writes(0.5), writes(seconds)]
    (sentence,) = broken_limits([judged(found)])
    assert sentence.startswith(f"{event}: writes failed in 0 of 2 rounds")
    found.writes[event, OURS] = [writes(0.5), writes(seconds - 0.2)]
    assert broken_limits([judged(found)]) == []


@pytest.mark.parametrize("bad", [writes(0.5, "EIO", None), writes(0.5, None, 1)])
def test_a_write_that_fails_or_is_lost_breaks_a_limit(bad):
    event = OUT.format(CLIENT)
    found = measured()
    found.writes[event, OURS] = [writes(0.5), bad]
    (sentence,) = broken_limits([judged(found)])
    assert "writes failed in 1 of 2 rounds" in sentence
    waits, _ = judged(found).tables
    (row,) = (row for row in waits.rows if row[:2] == (event, OURS))
    assert row[-2:] == ("1 of 2", bad.error or "")


@pytest.mark.parametrize(
    ("share", "holds"), [(0.41, True), (0.39, False), (0.61, False)]
)
def test_both_paths_carry_the_bytes(share, holds):
    broken = broken_limits([judged(measured(shares=[0.5, share]))])
    assert [("61%" in one, "of the bytes" in one) for one in broken] == (
        [] if holds else [(True, True)]
    )


def test_cpu_is_told_in_starts_of_python_and_as_this_machines():
    _, costs = judged(measured()).tables
    worst, calm = (
        ("6.0%", "0.40", "0.40%", "25.0 MB"),
        ("2.0%", "0.13", "0.13%", "16.0 MB"),
    )
    assert costs.rows == (
        ("with paths", "5.0%", "0.33", "0.33%", "24.5 MB", *worst),
        ("without", "1.5%", "0.10", "0.10%", "15.5 MB", *calm),
        ("paths add", "3.5%", "0.23", "0.23%", "9.0 MB", *[""] * 4),
    )
    (sentence,) = broken_limits([judged(measured(python=0.026))])
    assert "costs 1.04% of a CPU of this machine (6.0% of an emulated one" in sentence


def test_memory_is_that_of_the_largest_window():
    found = measured()
    found.costs[True] = Cost((0.1, 0.1), (25e6, 31e6), SLOW)
    (sentence,) = broken_limits([judged(found)])
    assert sentence == "it needs 31.0 MB; promised: under 30.0 MB."


def test_without_the_lab_nothing_is_claimed():
    assert skipped().tables == ()
    assert "--without-lab" in skipped().left_out


def test_processes_are_weighed_with_their_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that ended meanwhile counts, and so does the memory of one that runs."""
    busy = "import time\nwhile time.process_time() < 0.4: pass"
    large = "x = b'x' * 60000000; print(flush=True); input()"
    ended = tmp_path / "ended"
    line = (
        "import pathlib, subprocess, sys\n"
        f"command = [sys.executable, '-c', {large!r}]\n"
        "child = subprocess.Popen(command, stdin=subprocess.PIPE)\n"
        "sys.stdin.readline()\n"
        f"subprocess.run([sys.executable, '-c', {busy!r}])\n"
        f"pathlib.Path({str(ended)!r}).touch()\n"
        "sys.stdin.readline()\n"
        "child.communicate(b'')"
    )
    # The window of two seconds is over when the busy child is, however long it took.
    monkeypatch.setattr(paths_program.time, "monotonic", lambda: 2.0 * ended.exists())
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", line]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as parent:
        assert parent.stdin
        assert parent.stdout
        parent.stdout.readline()
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        found = paths_program.processes(parent.pid, 2.0, 1)
        parent.stdin.write(b"\n")
    assert 0.3 <= found["cpu"][0] < 2.0
    assert 60e6 < found["memory"][0] < 200e6


def test_a_process_that_is_gone_is_an_error():
    done = subprocess.Popen(["true"])
    done.wait()
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        paths_program.processes(done.pid, 0.1, 1)
