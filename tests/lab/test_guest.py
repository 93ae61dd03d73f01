# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the guest and its command agent, as lab tests use them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.guest import Guest
from lab.problem import CommandFailed, CommandTimeout, GuestDied

pytestmark = pytest.mark.selftest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    with Guest("plain", memory_mb=512) as booted:
        yield booted


@pytest.mark.kernels("6.1", "6.12")
def test_the_kernel_is_the_one_asked_for(kernel: str) -> None:
    with Guest("asked", memory_mb=512) as guest:
        assert guest.run("uname -r").stdout.startswith(f"{kernel}.")


def test_a_command_gives_its_output_and_status(guest: Guest) -> None:
    result = guest.run("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert result.seconds > 0


def test_check_raises_with_command_and_output(guest: Guest) -> None:
    with pytest.raises(CommandFailed, match=r"(?s)plain: echo why >&2.*code 4.*why"):
        guest.run("echo why >&2; exit 4", check=True)


def test_a_death_by_signal_shows_as_a_negative_status(guest: Guest) -> None:
    assert guest.run("kill -TERM $$").exit_code == -signal.SIGTERM


def test_an_argument_vector_is_not_a_shell_line(guest: Guest) -> None:
    assert guest.run(["echo", "$HOME", "a  b"]).stdout == "$HOME a  b\n"


def test_a_command_that_does_not_exist_says_so(guest: Guest) -> None:
    with pytest.raises(CommandFailed, match="No such file"):
        guest.run(["/nowhere/nothing"])


def test_input_user_folder_and_environment(guest: Guest) -> None:
    result = guest.run(
        "cat; echo $(id -u):$(id -g):$(id -G) $PWD $COLOUR",
        input="héllo\n",
        uid=36,
        cwd="/usr",
        environment={"COLOUR": "blue"},
        check=True,
    )
    assert result.stdout == "héllo\n36:36:36 /usr blue\n"


def test_output_that_is_not_utf8_can_still_be_read(guest: Guest) -> None:
    assert guest.run(r"printf 'a\377b'").stdout == r"a\xffb"


def test_large_output_and_input_arrive_whole(guest: Guest) -> None:
    size = 8 << 20
    assert guest.run("wc -c", input=b"x" * size).stdout.strip() == str(size)
    assert len(guest.run(f"head -c {size} /dev/zero | tr '\\0' x").stdout) == size


def test_processes_that_write_at_once_lose_nothing(guest: Guest) -> None:
    # A lost line once looked like a refused probe.
    writers = "for w in 1 2 3; do sh -c 'echo ready; sleep 0.02; echo done' & done"
    said = guest.run(f"for round in $(seq 20); do {writers}; wait; done", timeout=60)
    assert sorted(said.stdout.split()) == ["done"] * 60 + ["ready"] * 60


def test_commands_run_side_by_side(guest: Guest) -> None:
    waiting = guest.start("until [ -e /tmp/go ]; do sleep 0.1; done; echo gone")
    assert guest.run("echo quick").stdout == "quick\n"
    assert not waiting.ended
    guest.run("touch /tmp/go", check=True)
    assert waiting.wait(60).stdout == "gone\n"


def test_a_background_command_can_be_signalled(guest: Guest) -> None:
    process = guest.start(["sleep", "1000"])
    process.signal(signal.SIGINT)
    assert process.wait(60).exit_code == -signal.SIGINT


def test_a_daemon_left_behind_holds_nothing_up(guest: Guest) -> None:
    started = time.monotonic()
    assert guest.run("sleep 1000 & echo started").stdout == "started\n"
    assert time.monotonic() - started < 900  # it sleeps for 1000


def test_a_timeout_kills_the_whole_group_and_shows_what_was_said(guest: Guest) -> None:
    with pytest.raises(CommandTimeout, match=r"(?s)more than 2 s.*last words"):
        guest.run("echo last words; sleep 4321 | cat", timeout=2)
    assert guest.run("pgrep -f 'sleep [4]321'").stdout == ""


def test_the_machine_is_visible_and_safe_from_the_guest(
    guest: Guest, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("machine")
    result = guest.run(f"cat {mine}; echo guest > {mine}; cat {mine}", check=True)
    assert result.stdout == "machineguest\n"
    assert mine.read_text() == "machine"


def test_the_checkout_runs_in_the_guest(guest: Guest) -> None:
    line = "import ovirt_rdma.host as h; print(h.__file__)"
    result = guest.run([sys.executable, "-c", line], check=True)
    assert result.stdout.strip() == str(CHECKOUT / "host/__init__.py")


def test_no_network_is_reachable(guest: Guest) -> None:
    assert guest.run("ls /sys/class/net").stdout.split() == ["lo"]


def test_power_cut_mid_command_and_on_again() -> None:
    with Guest("doomed", memory_mb=512) as guest:
        guest.run("touch /etc/written", check=True)
        process = guest.start("sleep 1000")
        guest.kill()
        with pytest.raises(GuestDied, match="doomed ended while it ran: sleep 1000"):
            process.wait(30)
        with pytest.raises(GuestDied, match="doomed is off"):
            guest.run("true")
        guest.power_on()
        guest.wait_ready()
        assert guest.run("test -e /etc/written").exit_code == 1


def test_a_disk_outlives_a_power_cut(tmp_path: Path) -> None:
    with Guest("lasting", memory_mb=512, disk=tmp_path / "disk.img") as guest:
        guest.run("echo synced > /etc/written; sync; echo late > /etc/late", check=True)
        guest.kill()
        guest.power_on()
        guest.wait_ready()
        assert guest.run("cat /etc/written", check=True).stdout == "synced\n"
        # At most its name exists: the kernel writes a file after half a minute.
        assert guest.run("cat /etc/late").stdout == ""


def test_a_panic_shows_the_console() -> None:
    with Guest("panics", memory_mb=512) as guest:
        crash = "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger"
        with pytest.raises(GuestDied, match=r"(?s)panics ended while.*sysrq triggered"):
            guest.run(crash)
        assert not guest.running


def test_a_guest_that_does_not_boot_shows_the_console() -> None:
    broken = Guest("broken", memory_mb=512, kernel_arguments="rdinit=/nowhere")
    with (
        pytest.raises(GuestDied, match=r"(?s)broken did not boot.*Kernel panic"),
        broken,
    ):
        pass
    assert not broken.running


RUNNER = """
import sys, time
from lab.guest import Guest
from lab.qemu import Wire
with Guest("orphan", memory_mb=512, nics=[Wire().a]) as guest:
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind_when_the_runner_goes(how: int, tmp_path: Path) -> None:
    # Longer than the maximum path of a unix socket, which must not matter.
    temporary = tmp_path / ("long" * 30)
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER],
        cwd=CHECKOUT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
        assert list(temporary.iterdir())
        assert _qemu_in(temporary)
        runner.send_signal(how)
    _eventually(lambda: not list(temporary.iterdir()))
    _eventually(lambda: not _qemu_in(temporary))


def _qemu_in(folder: Path) -> list[str]:
    """Return the QEMU processes (ids) that run in ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            here = (process / "cwd").readlink() == folder
        except OSError:
            continue
        if words[0].endswith(b"qemu-system-x86_64") and here:
            found.append(process.name)
    return found


def _eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline, "still there after 300 s"
        time.sleep(0.1)
