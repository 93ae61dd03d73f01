# SPDX-License-Identifier: GPL-2.0-or-later
"""Tools that print without end, or keep their pipes open, are ended."""

from __future__ import annotations

import contextlib
import gc
import sys
from pathlib import Path

import pytest

from ovirt_rdma.host.system import commands
from ovirt_rdma.host.system.commands import CommandFailed, CommandTimeout, run_command

ENDLESS = "import os\nwhile True: os.write({}, b'x' * 65536)"


@pytest.mark.parametrize("stream", [1, 2])
def test_a_tool_that_prints_without_end_is_ended(monkeypatch, stream, tmp_path):
    monkeypatch.setattr(commands, "MOST_BYTES", 1_000_000)
    pid = tmp_path / "pid"
    program = f"open({str(pid)!r}, 'w').write(str(__import__('os').getpid()))\n"
    with pytest.raises(CommandFailed) as caught:
        run_command([sys.executable, "-c", program + ENDLESS.format(stream)], 60)
    assert str(caught.value) == "it prints more than 1000000 bytes"
    assert not isinstance(caught.value, CommandTimeout)
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_more_than_a_tool_may_print_is_a_failure(monkeypatch):
    monkeypatch.setattr(commands, "MOST_BYTES", 1000)
    assert len(run_command([sys.executable, "-c", "print('x' * 999)"])) == 1000
    with pytest.raises(CommandFailed, match="prints more than 1000 bytes"):
        run_command([sys.executable, "-c", "print('x' * 1000)"])


def test_what_a_tool_may_print_is_returned_whole():
    most = 3 * commands._PART + 1
    program = f"import os; os.write(2, b'e'); print('x' * {most}, end='')"
    assert run_command([sys.executable, "-c", program]) == "x" * most


def test_what_failed_has_both_of_its_streams():
    program = "import sys; print('said'); sys.exit('a\\nlast line')"
    with pytest.raises(CommandFailed) as caught:
        run_command([sys.executable, "-c", program])
    failed = caught.value
    assert (failed.returncode, failed.stdout) == (1, "said\n")
    assert (str(failed), failed.stderr) == ("last line", "a\nlast line")
    with pytest.raises(CommandFailed, match=r"^exit status 3$"):
        run_command(["sh", "-c", "exit 3"])


@pytest.mark.parametrize("closed", [True, False])
def test_a_tool_that_does_not_end_is_ended(closed):
    program = "import os,time\n" + "os.close(1); os.close(2)\n" * closed
    with pytest.raises(CommandTimeout) as caught:
        run_command([sys.executable, "-c", f"{program}time.sleep(600)"], 0.3)
    assert str(caught.value) == "no answer within 0.3 s"


def test_no_descriptor_stays_open():
    gc.collect()  # What earlier tests left open is closed at any time, now among them.
    before = _descriptors()
    for program in ("", "import sys; sys.exit(1)"):
        with contextlib.suppress(CommandFailed):
            run_command([sys.executable, "-c", program])
    with pytest.raises(commands.NotInstalled):
        run_command(["/no/such/tool"])
    assert _descriptors() == before


def _descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))
