# SPDX-License-Identifier: GPL-2.0-or-later
"""ovirt-rdmad.service under systemd, with a mount.

``enable`` starts it, and ``disable`` ends it. In its sandbox it sees the mount, and a
server that is frozen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lab import installed_host
from lab.topology import Topology, two_guests

pytestmark = pytest.mark.faults

DAEMON = "ovirt-rdmad.service"
STATE = "/run/ovirt-rdma/health.json"
FOLDER = "/var/lib/prometheus/node-exporter"
SAMPLES = f"{FOLDER}/ovirt_rdma.prom"
PLACE = "/rhev/data-center/mnt/10.99.0.1:_srv_data"
OPTIONS = "vers=4.2,soft,nosharecache,timeo=100,retrans=3,rdma,port=20049"
POLICY = f"""\
version: 1
nfs:
  health_interval: 10
  rules: [{{server: 10.99.0.1, path: "*", transport: require-rdma}}]
host: {{metrics_folder: {FOLDER}}}
"""
# Guests are emulated: a start of Python alone takes seconds.
PATIENT = f"/etc/systemd/system/{DAEMON}.d/patient.conf"


class Host:
    """The hypervisor, with our package."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab
        installed_host.install(lab.hypervisor)
        self.said(f"mkdir -p {PATIENT.rpartition('/')[0]}")
        self.said(f"cat > {PATIENT}", "[Service]\nTimeoutStartSec=300\n")
        self.said("systemctl daemon-reload")

    def said(self, line: str, input: str = "") -> str:
        """Run a shell line and return its output."""
        done = self.lab.hypervisor.run(line, input=input, timeout=600, check=True)
        return done.stdout.strip()

    def command(self, *words: str) -> Any:
        """Run ``ovirt-rdma-host``, and return its document."""
        return json.loads(self.said(f"ovirt-rdma-host {' '.join(words)} -o json"))

    def shown(self, what: str) -> str:
        """Return a property of the unit."""
        return self.said(f"systemctl show -p {what} --value {DAEMON}")

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Return the tasks of the daemon."""
        done = self.lab.hypervisor.run("ovirt-rdma-host daemon status -o json")
        return {task["name"]: task for task in json.loads(done.stdout)["tasks"]}

    def waits_for(self, line: str) -> None:
        """Wait until a shell line succeeds."""
        self.said(f"until {line}; do sleep 0.5; done")

    def waits_for_state(self, name: str) -> None:
        """Wait until the unit, and then the exporter's file, shows a state."""
        self.waits_for(f'grep -q \'"state": *"{name}"\' {STATE} 2> /dev/null')
        sample = f'^ovirt_rdma_mount_health{{.*state="{name}"}} 1'
        self.waits_for(f"grep -q '{sample}' {SAMPLES} 2> /dev/null")


@pytest.fixture
def host() -> Iterator[Host]:
    with two_guests(systemd=True) as lab:
        yield Host(lab)


def test_the_daemon_under_systemd(host: Host) -> None:
    server = host.lab.server.monitor
    # Before it is enabled.
    host.said(f"systemctl start {DAEMON}")
    assert (host.shown("ActiveState"), host.shown("ConditionResult")) == (
        "inactive",
        "no",
    )
    host.said(f"mkdir -p {FOLDER} {PLACE}")
    host.said(f"mount -t nfs -o {OPTIONS} {host.lab.export} {PLACE}")
    host.said("cat > /etc/ovirt-rdma/policy.yaml", POLICY)
    host.command("policy", "load", "-y")
    host.command("enable", "--mode", "host")
    host.waits_for(f"systemctl is-active {DAEMON}")
    host.waits_for_state("ok")
    _has_its_sandbox(host)
    _lets_a_process_mount(host)
    tasks = host.tasks()
    assert {tasks[name]["state"] for name in ("health", "metrics", "capabilities")} == {
        "ok"
    }
    assert tasks["partitions"]["state"] == "off"

    try:
        server.freeze()
        frozen_s = float(host.said("date +%s.%N"))
        host.waits_for_state("stalled")
        told = host.said(
            f"journalctl --sync; journalctl -u {DAEMON} -o json --no-pager"
        )
        # The mount hangs, the daemon does not.
        assert host.tasks()["health"]["state"] == "ok"
        assert host.shown("NRestarts") == "0"
    finally:
        server.thaw()
    entries = [json.loads(line) for line in told.splitlines()]
    cause = re.compile(r"is stalled \(cause(, probably)?: server\)")
    (entry,) = (one for one in entries if cause.search(one["MESSAGE"]))
    print(f"seen after {int(entry['__REALTIME_TIMESTAMP']) / 1e6 - frozen_s:.1f} s")
    host.waits_for_state("ok")

    # After a kill, systemd starts it again; as after a loop that turns no more.
    for number, signal in ((1, "KILL"), (2, "STOP")):
        host.said(f"kill -{signal} {host.shown('MainPID')}")
        host.waits_for(
            f"[ $(systemctl show -p NRestarts --value {DAEMON}) = {number} ]"
        )
        host.said(f"rm -f {STATE}")
        host.waits_for_state("ok")

    # Another policy.
    host.said("cat > /etc/ovirt-rdma/policy.yaml", "version: 1\n")
    host.command("policy", "load", "-y")
    host.waits_for(f"[ ! -e {STATE} ] && [ ! -e {SAMPLES} ]")
    host.command("disable")
    host.waits_for(f"[ $(systemctl show -p ActiveState --value {DAEMON}) = inactive ]")
    assert host.said("ls /run/ovirt-rdma/daemon.json 2> /dev/null || true") == ""
    assert host.said(f"mountpoint -q {PLACE} && echo mounted") == "mounted"


def _has_its_sandbox(host: Host) -> None:
    """The kernel's own view of the process."""
    # Linux 6.12 has keys without a value.
    text = host.said(f"cat /proc/{host.shown('MainPID')}/status")
    status = dict(re.findall(r"^(\w+):\t(.*)$", text, re.M))
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    # linux/capability.h
    bits = {
        "CAP_DAC_OVERRIDE": 1,
        "CAP_DAC_READ_SEARCH": 2,
        "CAP_KILL": 5,
        "CAP_SETGID": 6,
        "CAP_SETUID": 7,
        "CAP_NET_ADMIN": 12,
        "CAP_SYS_MODULE": 16,
        "CAP_SYS_PTRACE": 19,
        "CAP_SYS_ADMIN": 21,
        "CAP_SYSLOG": 34,
    }
    assert int(status["CapBnd"], 16) == sum(1 << bit for bit in bits.values())


def _lets_a_process_mount(host: Host) -> None:
    """In a mount namespace of its own, as the proof of an address does."""
    unit = host.said(f"systemctl cat {DAEMON}")
    unit = re.sub(r"(?m)^(ExecStopPost|Restart|RestartSec|WatchdogSec)=.*\n", "", unit)
    mounts = "/usr/bin/unshare --mount mount -t tmpfs none /mnt"
    for key, value in {"Type": "oneshot", "ExecStart": mounts}.items():
        unit = re.sub(rf"(?m)^{key}=.*$", f"{key}={value}", unit)
    host.said("cat > /run/systemd/system/proof.service", unit)
    host.said("systemctl daemon-reload && systemctl start proof.service")
