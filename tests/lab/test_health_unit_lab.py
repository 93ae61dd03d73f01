# SPDX-License-Identifier: GPL-2.0-or-later
"""ovirt-rdma-health.service and ovirt-rdma-metrics.timer under systemd, with a mount.

``apply`` enables and starts them, and ``revert`` ends that. In their sandboxes they see
the mount, and a server that is frozen.
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

HEALTH = "ovirt-rdma-health.service"
METRICS = "ovirt-rdma-metrics.timer"
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
PATIENT = "/etc/systemd/system/ovirt-rdma-metrics.service.d/patient.conf"


class Host:
    """The hypervisor, with our package."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab
        installed_host.install(lab.hypervisor)
        self.said(f"mkdir -p {PATIENT.rpartition('/')[0]}")
        self.said(f"cat > {PATIENT}", "[Service]\nTimeoutStartSec=120\n")
        self.said("systemctl daemon-reload")

    def said(self, line: str, input: str = "") -> str:
        """Run a shell line and return its output."""
        done = self.lab.hypervisor.run(line, input=input, timeout=600, check=True)
        return done.stdout.strip()

    def command(self, *words: str) -> Any:
        """Run ``ovirt-rdma-host``, and return its document."""
        return json.loads(self.said(f"ovirt-rdma-host {' '.join(words)} -o json"))

    def shown(self, what: str, unit: str = HEALTH) -> str:
        """Return a property of a unit."""
        return self.said(f"systemctl show -p {what} --value {unit}")

    def enabled(self, unit: str) -> str:
        """Return what systemd says of the unit's enablement."""
        return self.said(f"systemctl is-enabled {unit} || true")

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


def test_health_and_metrics_under_systemd(host: Host) -> None:
    server = host.lab.server.monitor
    for unit in (HEALTH, METRICS):
        assert (host.enabled(unit), host.shown("ActiveState", unit)) == (
            "disabled",
            "inactive",
        )
    host.said(f"mkdir -p {FOLDER} {PLACE}")
    host.said(f"mount -t nfs -o {OPTIONS} {host.lab.export} {PLACE}")
    host.said("cat > /etc/ovirt-rdma/policy.yaml", POLICY)
    host.command("policy", "load", "-y")
    assert host.command("apply")["outcome"] == "done"
    for unit in (HEALTH, METRICS):
        assert (host.enabled(unit), host.shown("ActiveState", unit)) == (
            "enabled",
            "active",
        )
    host.waits_for_state("ok")
    _has_its_sandbox(host)

    try:
        server.freeze()
        frozen_s = float(host.said("date +%s.%N"))
        host.waits_for_state("stalled")
        told = host.said(
            f"journalctl --sync; journalctl -u {HEALTH} -o json --no-pager"
        )
    finally:
        server.thaw()
    entries = [json.loads(line) for line in told.splitlines()]
    cause = re.compile(r"is stalled \(cause(, probably)?: server\)")
    (entry,) = (one for one in entries if cause.search(one["MESSAGE"]))
    print(f"seen after {int(entry['__REALTIME_TIMESTAMP']) / 1e6 - frozen_s:.1f} s")
    host.waits_for_state("ok")

    # After a kill, systemd starts it again.
    host.said(f"kill -KILL {host.shown('MainPID')}")
    host.waits_for(f"[ $(systemctl show -p NRestarts --value {HEALTH}) = 1 ]")
    host.said(f"rm -f {STATE}")
    host.waits_for_state("ok")

    assert host.command("revert")["outcome"] == "done"
    for unit in (HEALTH, METRICS):
        assert (host.enabled(unit), host.shown("ActiveState", unit)) == (
            "disabled",
            "inactive",
        )
    assert host.said(f"ls {STATE} 2> /dev/null || true") == ""
    assert host.said(f"mountpoint -q {PLACE} && echo mounted") == "mounted"


def _has_its_sandbox(host: Host) -> None:
    """The kernel's own view of the process."""
    status = dict(
        line.split(":\t", 1)
        for line in host.said(f"cat /proc/{host.shown('MainPID')}/status").splitlines()
    )
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    kill, setgid, setuid, search = 5, 6, 7, 2
    bound = sum(1 << one for one in (kill, setgid, setuid, search))
    assert int(status["CapBnd"], 16) == bound
