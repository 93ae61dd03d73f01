# SPDX-License-Identifier: GPL-2.0-or-later
"""SIGTERM and SIGHUP end a command as Ctrl-C does: it leaves nothing behind."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import access

from ovirt_rdma.engine_sdk_tools.hosts import ansible_run

pytestmark = pytest.mark.engine

LIMIT_S = 300
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlO9k2T9OTp5xF8WmyGmq7cXbyCcGEZc3X5zC0b5nBB"
# A runner that reports its start and does not end, and neither does its child, ssh.
RUNNER = f"""#!{sys.executable} -IS
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["/bin/sleep", "300"], start_new_session=True)
with open(os.environ["HOME"] + "/begun", "w") as begun:
    begun.write(sys.argv[2])
time.sleep(300)
"""
KEEPS_STOPPING_SHORT = """
import sys
import time
from ovirt_rdma.engine_sdk_tools.hosts import ansible_run
ansible_run._STOPPING_S = 0.05
from ovirt_rdma.cli.engine.main import main
sys.exit(main())
"""


@pytest.fixture
def asking(tmp_path):
    """Start ``hosts check`` with hosts that never answer; return the process and the
    folder of its run.
    """
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "key").touch(0o600)
    for name in ("ansible-runner", "ansible-playbook"):
        (tmp_path / "bin" / name).write_text(RUNNER)
        (tmp_path / "bin" / name).chmod(0o755)
    world = sample_world(hosts=2, addon=True)
    for host in world.hosts.values():
        host.public_key, host.fingerprint = KEY, None
    with EngineDouble(world) as double:
        environment = {
            **os.environ,
            **access(double),
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "TMPDIR": str(tmp_path / "tmp"),
        }

        def start(*before: str) -> tuple[subprocess.Popen[str], Path]:
            words = ("hosts", "check", "--ssh-key", str(tmp_path / "key"))
            process = subprocess.Popen(
                [*before, sys.executable, "-c", KEEPS_STOPPING_SHORT, *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            end = time.monotonic() + LIMIT_S

            def wait() -> None:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < end
                time.sleep(0.02)

            while not (begun := tmp_path / "begun").exists() or not begun.read_text():
                wait()
            folder = Path(begun.read_text())
            begun.unlink()
            # A program that is being loaded has no environment yet to identify it.
            while len(living(folder)) < 2:
                wait()
            return process, folder

        yield start


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=LIMIT_S)
    assert out == ""
    assert "Traceback" not in err
    return process.returncode, err


def living(folder: Path) -> list[int]:
    return [
        pid
        for pid in ansible_run._processes_of(folder)
        if b"State:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    ]


@pytest.mark.parametrize("signals", [("SIGTERM",), ("SIGHUP",), ("SIGHUP", "SIGTERM")])
def test_a_run_that_is_ended_leaves_nothing(asking, tmp_path, signals):
    process, folder = asking()
    for name in signals:
        process.send_signal(signal.Signals[name])
    code, _ = ended(process)
    assert code in [128 + signal.Signals[name] for name in signals]
    assert living(folder) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_run_under_nohup_goes_on(asking):
    process, folder = asking("/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 128 + signal.SIGTERM
    assert living(folder) == []


def test_the_next_run_tidies_up_after_one_that_was_killed(asking, tmp_path):
    first, folder = asking()
    first.kill()
    ended(first)
    assert (folder / "inventory" / "hosts.json").exists()
    assert len(living(folder)) == 2
    theirs = tmp_path / "tmp" / "ovirt-rdma-of-somebody"
    theirs.mkdir()
    (theirs / "ansible.cfg").touch()
    second, another = asking()
    assert (folder.exists(), living(folder)) == (False, [])
    third, _ = asking()
    assert another.exists(), "of a run that has not ended"
    assert len(living(another)) == 2
    for process in (second, third):
        process.terminate()
        ended(process)
    assert theirs.exists()


def test_what_looks_at_a_host_leaves_nothing(tmp_path):
    """For example, no temporary folder."""
    program = (
        "import os, signal, sys, tempfile\n"
        "from ovirt_rdma.cli.host import facts, main as host_command\n"
        "def verb(self, context):\n"
        "    with tempfile.TemporaryDirectory():\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        signal.pause()\n"
        "facts.ShowFacts.run = verb\n"
        "sys.exit(host_command.main(['facts']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        timeout=LIMIT_S,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, b"", b"")
    assert list(tmp_path.iterdir()) == []


LATE = """
import contextlib
import os
import signal
import sys
from ovirt_rdma.cli import command
from ovirt_rdma.cli.host import facts, main as host_command
@contextlib.contextmanager
def threads_on(output):
    yield
    os.kill(os.getpid(), signal.SIGTERM)
command._threads_on = threads_on
facts.ShowFacts.run = lambda self, context: 0
sys.exit(host_command.main(["facts"]))
"""


def test_a_signal_after_the_last_words_is_no_traceback():
    done = subprocess.run(
        [sys.executable, "-c", LATE], check=False, capture_output=True, timeout=LIMIT_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, b"", b"")


DROPPED = """
import os
import signal
import sys
import time
from ovirt_rdma.cli import command
from ovirt_rdma.cli.host import facts, main as host_command
def verb(self, context):
    now = time.monotonic()
    for later_s in (0, 1, 40):
        time.monotonic = lambda: now + later_s
        print(later_s, flush=True)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except command.Ended:
            if later_s:
                raise
    return 0
facts.ShowFacts.run = verb
sys.exit(host_command.main(["facts"]))
"""


def test_a_signal_that_was_dropped_does_not_make_deaf_to_later_ones():
    done = subprocess.run(
        [sys.executable, "-c", DROPPED],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "0\n1\n40\n", "")


GONE = """
import sys
import time
from ovirt_rdma.cli.engine.session import Progress
from ovirt_rdma.cli.output import Output
output = Output()
shown = Progress(output)
shown.plan(("host01",), 2)
print("planned", flush=True)
sys.stdin.readline()
shown.begin("a step", "host01")
shown.note("said to nobody")
shown.end("a step", "host01", "a problem")
shown.close()
output.message("the last words")
open(sys.argv[1], "w").write("tidied up")
"""


def test_a_terminal_that_is_gone_does_not_keep_from_tidying_up(tmp_path):
    """Writing to it fails with EIO."""
    ours, theirs = pty.openpty()
    said = tmp_path / "said"
    process = subprocess.Popen(
        [sys.executable, "-c", GONE, str(said)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    assert process.stdout.readline() == "planned\n"
    os.close(ours)
    process.communicate("gone\n", timeout=LIMIT_S)
    assert (process.returncode, said.read_text()) == (0, "tidied up")
