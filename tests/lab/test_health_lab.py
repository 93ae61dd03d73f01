# SPDX-License-Identifier: GPL-2.0-or-later
"""Break real mounts, and see that ``nfs health`` names the right cause.

Emulated guests are some 15 times slower than hosts, and the command alone takes 20 s to
start there, so no time is asserted: the 15 s of the promise are those of the unit.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import pytest

from lab import topology
from lab.topology import Topology

pytestmark = pytest.mark.kernels("6.12")

EXPORT_PATH = "/srv/health"
# As VDSM mounts; the fields of a rule that asks for more connections.
OPTIONS = "soft,nosharecache,timeo=100,retrans=3"
POLICY = """\
version: 1
nfs:
  rules:
    - {name: nas, server: 10.99.0.1, path: "*", transport: require-rdma,
       options: nconnect=4}
"""
_POLICY_FILE = "/run/health-policy.yaml"
_PATIENT_S = 400.0
# The guests see the machine's files.
_BIN = Path(sys.executable).parent


class Mounted:
    """A mount of EXPORT_PATH on the hypervisor, as VDSM would make it."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab
        self.export = f"{lab.address}:{EXPORT_PATH}"
        self.place = f"/rhev/data-center/mnt/{self.export.replace('/', '_')}"

    def shell(self, line: str) -> str:
        return self.lab.hypervisor.run(line, check=True, timeout=_PATIENT_S).stdout

    def mount(self, more: str = "rdma,port=20049", version: str = "4.2") -> None:
        options = f"vers={version},{OPTIONS},{more}"
        self.shell(
            f"mkdir -p {self.place} && mount -t nfs -o {options} {self.export} "
            f"{self.place}"
        )

    def unmount(self) -> None:
        self.shell(f"! mountpoint -q {self.place} || umount -f -l {self.place}")

    def health(self, *words: str) -> Any:
        """Return what ``nfs health`` says of the mount."""
        command = (
            f"{_BIN}/ovirt-rdma-host nfs health {self.export} -o json {' '.join(words)}"
        )
        done = self.lab.hypervisor.run(command, timeout=_PATIENT_S)
        (mount,) = json.loads(done.stdout)["mounts"]
        assert done.exit_code == (0 if mount["state"] == "ok" else 3)
        return mount

    def calls(self) -> Counter[str]:
        """Return the calls of the mount, without those that renew its lease: they are
        more on a slow machine.
        """
        lines = self.shell("cat /proc/self/mountstats").split("device ")
        text = next(one for one in lines if f" {self.place} " in one)
        calls = [
            line.split() for line in text.split("per-op statistics")[1].split("\n")
        ]
        counts = Counter({one[0]: int(one[1]) for one in calls if len(one) > 8})
        del counts["SEQUENCE:"]
        return counts


@pytest.fixture
def mounted(two_guests: Topology) -> Iterator[Mounted]:
    two_guests.nfs.add_export(EXPORT_PATH)
    made = Mounted(two_guests)
    made.mount()
    yield made
    made.unmount()


Act = Callable[[Topology], Any]


@dataclass(frozen=True)
class Fault:
    """How to break the mount, and to repair it; what ``nfs health`` must say."""

    begin: Act
    end: Act
    cause: str
    reason: str
    states: tuple[str, ...]


FAULTS = {
    "server frozen": Fault(
        lambda lab: lab.server.monitor.freeze(),
        lambda lab: lab.server.monitor.thaw(),
        "server",
        "server-silent",
        ("stalled",),
    ),
    "listener gone": Fault(
        lambda lab: lab.nfs.restart(rdma_port=None),
        lambda lab: lab.nfs.restart(),
        "server",
        "listener-gone",
        ("dead",),
    ),
    "NFS service stopped": Fault(
        lambda lab: lab.nfs.stop(),
        lambda lab: lab.nfs.start(),
        "server",
        "service-down",
        ("dead",),
    ),
    "cable out": Fault(
        lambda lab: lab.hypervisor.monitor.pull_cable(),
        lambda lab: lab.hypervisor.monitor.plug_cable(),
        "path",
        "link-down",
        ("dead",),
    ),
}


def named(mounted: Mounted, fault: Fault) -> None:
    try:
        fault.begin(mounted.lab)
        # Of a fault that the kernel sees later, such as a connection that ends.
        mounted.shell("sleep 1")
        found = mounted.health()
        assert (found["cause"], found["reason"]) == (fault.cause, fault.reason), found
        assert found["state"] in fault.states
    finally:
        fault.end(mounted.lab)


def test_a_question_is_one_call_to_the_server(mounted: Mounted, kernel: str) -> None:
    """After the first one, which asks for access too, as 6.12 does each time."""
    program = (
        "from ovirt_rdma.storage.health.signs import Probes\n"
        f"place, probes = {mounted.place!r}, Probes()\n"
        "for _ in range(6):\n"
        "    assert probes.ask([place], timeout_s=60)[place].seconds\n"
    )
    mounted.shell(f"{_BIN}/python - <<'END'\n{program}END")
    before = mounted.calls()
    mounted.shell(f"{_BIN}/python - <<'END'\n{program}END")
    made = mounted.calls() - before
    assert made.pop("LOOKUP:") == 6
    assert made.pop("ACCESS:", 0) == (6 if kernel == "6.12" else 0)
    # The client also asks for attributes that have become old.
    assert made.total() <= 2


def test_a_sound_mount_is_ok_and_a_listener_that_is_gone_is_named(
    mounted: Mounted,
) -> None:
    mounted.lab.hypervisor.run(f"cat > {_POLICY_FILE}", input=POLICY, check=True)
    found = mounted.health("--policy", _POLICY_FILE)
    assert found["state"] == "ok"
    assert found["transport"] == "rdma"
    named(mounted, FAULTS["listener gone"])


@pytest.mark.faults
@pytest.mark.parametrize("name", FAULTS)
def test_the_cause_is_named(mounted: Mounted, name: str) -> None:
    named(mounted, FAULTS[name])


@pytest.mark.faults
def test_a_device_that_is_gone_is_named() -> None:
    """Its removal may wait in the kernel for the mount, so it has guests of its own."""
    with topology.two_guests() as lab:
        lab.nfs.add_export(EXPORT_PATH)
        mounted = Mounted(lab)
        mounted.mount()
        lab.hypervisor.start("rdma link delete rxe0")
        mounted.shell("sleep 1")
        found = mounted.health()
        assert (found["cause"], found["reason"]) == ("host", "host-not-ready"), found
        assert re.search("no RDMA (device|port owns)", found["sentence"]), found
        assert found["state"] == "dead"
