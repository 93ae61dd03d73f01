# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a hypervisor guest with our package, a policy and one IPoIB netdev.

The tests of ``apply``, ``confirm`` and ``revert`` use it: it runs the operator's
commands, reads the host with its own tools, and sends signals at a chosen state of the
journal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import installed_host
from lab.command import Process, Result
from lab.guest import Guest
from lab.infiniband import InfiniBand, PciFunction
from lab.installed_host import COMMAND
from lab.network_manager import add_infiniband_profile, start_network_manager

# The first ConnectX, on which TSO must be off in connected mode.
FABRIC = InfiniBand(hcas=1, pci=PciFunction(driver="mlx4_core"))
ADDRESSES = ["10.97.0.2/24"]
CONNECTED = """\
version: 1
host:
  interfaces:
    - name: storage
      match: {link_layer: infiniband}
      transport_mode: connected
      mtu: auto
  module_options:
    ib_ipoib: {recv_queue_size: 512}
"""
CONNECTED_AND_TSO = CONNECTED.replace("mtu: auto\n", "mtu: auto\n      tso: auto\n")
KILLED = 128 + 9
JOURNAL = "/var/lib/ovirt-rdma/journal.json"
POLICY = "/etc/ovirt-rdma/policy.yaml"
# Signals for a command, each as soon as the journal shows for its run a number of
# changes that are done, or being undone: "done 1 KILL". inotify wakes this script when
# the journal is replaced, while the command still waits for the disk.
_SIGNAL_AT = r"""
import ctypes, json, os, select, signal, subprocess, sys

folder, name = os.path.split(sys.argv[1])
orders = [order.split() for order in sys.argv[2].split(",")]
KEYS = {"done": "found", "undoing": "undoing"}


def newest():
    try:
        with open(f"{folder}/{name}", "rb") as file:
            return json.load(file)["runs"][-1]
    except FileNotFoundError:
        return {"number": 0, "acts": []}


def count(kind):
    run = newest()
    acts = run["acts"] if run["number"] > earlier else []
    return sum(act[KEYS[kind]] is not None for act in acts)


earlier = newest()["number"]
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
moved_to = 0x80
assert libc.inotify_add_watch(watch, folder.encode(), moved_to) > 0
command = subprocess.Popen(sys.argv[3:])
with open("/run/signalled", "w") as file:
    file.write(str(command.pid))
while command.poll() is None:
    while orders:
        kind, wanted, name_of = orders[0]
        if count(kind) < int(wanted):
            break
        command.send_signal(getattr(signal, "SIG" + name_of))
        orders.pop(0)
        print("sent", name_of, flush=True)
    if select.select([watch], [], [], 0.2)[0]:
        os.read(watch, 65536)
sys.exit(command.returncode if command.returncode >= 0 else 128 - command.returncode)
"""
# The values of the profile, the kernel and our files, in lines to compare.
_LOOK = r"""
cd /sys/class/net
for netdev in ib*; do
    for file in mode mtu; do echo "$netdev $file $(cat $netdev/$file)"; done
    echo "$netdev tso $(ethtool -k $netdev | grep -o 'tx-tcp-segmentation: o[a-z]*')"
done
cd /etc
for file in NetworkManager/system-connections/* modprobe.d/*rdma* modules-load.d/*; do
    # NetworkManager leaves a setting that has become empty, which says nothing.
    [ -e "$file" ] && sed "s|^|$file |" "$file" | grep -v -e timestamp= -e ' \[' -e ' $'
done
ls /var/lib/ovirt-rdma | grep -v -e journal -e policy
true
"""


@contextmanager
def changed_host(
    policy: str, *, network_manager: bool = True, disk: Path | None = None
) -> Iterator[ChangedHost]:
    """Boot a guest with FABRIC and our package; ``policy`` is loaded and not applied.

    With ``network_manager`` NetworkManager is running, and has a profile for ib0.
    """
    with Guest("hypervisor", systemd=True, disk=disk) as guest:
        FABRIC.load(guest)
        if network_manager:
            start_network_manager(guest)
            add_infiniband_profile(guest, "ib0", ADDRESSES)
        installed_host.install(guest)
        host = ChangedHost(guest)
        host.load_policy(policy)
        yield host


@dataclass
class ChangedHost:
    """The hypervisor ``guest``; our package is installed in it."""

    guest: Guest

    def run(self, *words: str, timeout: float = 300.0) -> Result:
        """Run ``ovirt-rdma-host``."""
        return self.guest.run([COMMAND, *words], timeout=timeout)

    def must(self, *words: str, code: int = 0) -> str:
        """Run it and return its output; fails with any other exit code."""
        result = self.run(*words)
        assert result.exit_code == code, result
        return result.stdout + result.stderr

    def signalled(self, orders: str, *words: str) -> Result:
        """Run it and send it signals: ``done 1 TERM, undoing 1 KILL``."""
        return self.start_signalled(orders, *words).wait(300)

    def start_signalled(self, orders: str, *words: str) -> Process:
        """The same, in the background."""
        program = ["/usr/bin/python3", "-c", _SIGNAL_AT, JOURNAL, orders]
        return self.guest.start([*program, COMMAND, *words])

    def wait_until_stopped(self) -> None:
        """Wait until the command has received STOP; a busy machine starts it late."""
        stopped = "grep -qs '^State:.T' /proc/$(cat /run/signalled)/status"
        self.wait_until(stopped, 400)

    def go_on(self) -> None:
        """Let the command continue after its STOP."""
        self.said("kill -CONT $(cat /run/signalled)")

    def load_policy(self, text: str) -> None:
        """Load a policy."""
        write = f"mkdir -p /etc/ovirt-rdma && cat > {POLICY}"
        self.guest.run(write, input=text, check=True)
        self.must("policy", "load", "-y")

    def look(self) -> list[str]:
        """Return the state of the host, read with its own tools."""
        return self.said(_LOOK).splitlines()

    def said(self, line: str, input: str = "") -> str:
        """Run a shell line that must succeed; return its output."""
        return self.guest.run(line, input=input, check=True).stdout.strip()

    def wait_until(self, condition: str, seconds: int = 60) -> None:
        """Wait until a shell condition holds."""
        tries = f"for i in {{1..{seconds * 5}}}; do {condition} && exit 0; sleep 0.2"
        result = self.guest.run(f"{tries}; done; exit 1", timeout=seconds + 60)
        assert result.exit_code == 0, f"not within {seconds} s: {condition}"

    def runs(self) -> list[dict[str, Any]]:
        """Return the runs of the history, the newest first."""
        document = json.loads(self.must("history", "-o", "json"))
        runs: list[dict[str, Any]] = document["runs"]
        return runs

    def newest(self) -> tuple[int, str, str]:
        """Return number, outcome and sentence of the newest run."""
        run = self.runs()[0]
        return run["run"], run["outcome"], run["sentence"]

    def held(self) -> list[str]:
        """Return the steps that can be reverted, the oldest first."""
        return [
            act["step"]
            for run in reversed(self.runs())
            for act in run["acts"]
            if act["held"]
        ]
