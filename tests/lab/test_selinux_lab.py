# SPDX-License-Identifier: GPL-2.0-or-later
"""A host that enforces SELinux: nothing that the package does is denied.

The policy is Debian's reference policy, or that of ``OVIRT_RDMA_LAB_SELINUX``, compiled
from the sources of EL's (docs/lab.md). Units are started by systemd and vdsmd by its
unit, so that all have the domains that they have on a host; an administrator's commands
have those of a shell. VDSM's hooks run where VDSM runs them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hooked_host import Called, HookedHost, asking

from lab.infiniband import InfiniBand, PciFunction
from lab.labelled_root import denials
from lab.network_manager import add_infiniband_profile, start_network_manager
from lab.topology import NETDEV, Topology, two_guests
from lab.vdsm_daemon import VdsmDaemon, local_path
from lab.vdsm_packages import LIBEXEC, UNITS

pytestmark = [pytest.mark.faults, pytest.mark.kernels("6.1", "6.12")]

FABRIC = InfiniBand(hcas=1, pkeys=(0xFFFF, 0x8001), pci=PciFunction(driver="mlx4_core"))
METRICS = "/var/lib/node_exporter"
POLICY = f"""\
version: 1
nfs:
  health_interval: 10
  defaults: {{readiness_timeout: 30}}
  rules: [{{name: store, server: 10.99.0.1, transport: require-rdma}}]
host:
  metrics_folder: {METRICS}
  interfaces:
    - {{match: {{device: mlx4_0}}, transport_mode: connected, mtu: auto, tso: auto,
       pkey_children: [0x8001]}}
  module_options: {{ib_ipoib: {{send_queue_size: 256}}}}
"""
# What our package and its runs leave, but for /sys.
FOLDERS = (
    *("/etc/ovirt-rdma", "/etc/modprobe.d", "/etc/modules-load.d"),
    *("/etc/NetworkManager", "/etc/systemd/system", "/usr/bin", "/usr/libexec"),
    *("/usr/lib/systemd", "/usr/lib/udev", "/usr/lib/tmpfiles.d", "/usr/lib/python3"),
    *("/usr/share/ovirt-rdma", "/var/lib/ovirt-rdma", "/run/ovirt-rdma"),
)
# With Debian 12's policy `ip` would change its domain; NoNewPrivileges= of our units
# keeps that of the unit (check_nnp_nosuid, security/selinux/hooks.c), and it runs.
EXPLAINED = (
    '{ nnp_transition } for  comm="ovirt-rdma-host"'
    " scontext=system_u:system_r:initrc_t:s0 tcontext=system_u:system_r:ifconfig_t:s0"
    " tclass=process2 permissive=0"
)
# As VDSM's own programs do it, in the domain that daemonAdapter gives them.
CALL = f"{LIBEXEC}/call-hooks"
CALLER = """\
#!/usr/bin/python3
import json
from vdsm.common import hooks
point, data = json.load(open("/run/hooks.in"))
call = getattr(hooks, point)
try:
    answer = [call() if data is None else call(data), None]
except Exception as error:
    answer = [data, str(error)]
json.dump(answer, open("/run/vdsm/hooks.out", "w"))
"""
CALL_UNIT = f"""\
[Service]
Type=oneshot
User=%i
Nice=-20
Environment=PYTHONPATH={LIBEXEC}
ExecStart={LIBEXEC}/daemonAdapter "{CALL}"
"""


class Host(HookedHost):
    """A hypervisor, with VDSM and our package, labelled as rpm labels them."""

    def __init__(self, lab: Topology) -> None:
        super().__init__(lab.hypervisor)
        FABRIC.load(self.guest)
        start_network_manager(self.guest, [NETDEV])
        add_infiniband_profile(self.guest, "ib0", [])
        # EL's systemd-tmpfiles makes it before the first mount.
        self.said("restorecon -RF /run/mount")
        self.before = set(self.denied())
        self.vdsmd = VdsmDaemon(self.guest)
        self.limit(300.0)
        self.said(f"cat > {CALL} && chmod 755 {CALL}", CALLER)
        self.said(f"cat > {UNITS}/hooks@.service", CALL_UNIT)
        # Guests are emulated: the daemon's start takes long.
        self.said(
            "mkdir -p /etc/systemd/system/ovirt-rdmad.service.d && cat >"
            " /etc/systemd/system/ovirt-rdmad.service.d/patient.conf",
            "[Service]\nTimeoutStartSec=300\n",
        )
        self.said(f"mkdir {METRICS} && restorecon -RF {METRICS} {' '.join(FOLDERS)}")
        self.said("systemctl daemon-reload")

    def said(self, line: str, input: str = "") -> str:
        """As in a terminal: programs of other domains may not write to the files that
        the lab gives a command.
        """
        piped = f"set -o pipefail; cat | {{ {line}\n}} 2> >(cat >&2) | cat"
        return super().said(piped, input)

    def calls(self, point: str, data: list[Any], *, uid: int = 0) -> list[Called]:
        """Let VDSM run its hooks at ``point``, for each of ``data``."""
        answers = []
        for one in data:
            self.said("cat > /run/hooks.in", json.dumps([point, one]))
            unit = f"hooks@{'vdsm' if uid else 'root'}"
            self.said(f"systemctl start {unit} || {{ journalctl -u {unit}; exit 1; }}")
            answer = self.said("cat /run/vdsm/hooks.out; rm /run/vdsm/hooks.out")
            answers.append(Called(*json.loads(answer), 0.0))
        return answers

    def context(self, name: str) -> str:
        """Return the context of the process of a unit."""
        pid = self.said(f"systemctl show -p MainPID --value {name}")
        return self.said(f"tr -d '\\0' < /proc/{pid}/attr/current")

    def denied(self) -> list[str]:
        """Return what was denied since the guest's boot."""
        return denials(self.guest.run("dmesg", check=True).stdout)


def test_nothing_is_denied_on_a_host_that_enforces(kernel: str) -> None:
    with two_guests(labelled=True) as lab:
        host = Host(lab)
        try:
            lives(host, lab.export)
        finally:
            known = {*host.before, EXPLAINED}
            denied = [line for line in host.denied() if line not in known]
            print("\n".join(denied))
    assert denied == []


def lives(host: Host, export: str) -> None:
    """From the policy to ``disable``."""
    said, must, vdsmd = host.said, host.must, host.vdsmd
    assert said("getenforce") == "Enforcing"
    said("cat > /etc/ovirt-rdma/policy.yaml", POLICY)
    must("policy", "load", "-y")
    assert host.said("stat -c %C /var/lib/ovirt-rdma").split(":")[2] == "var_lib_t"
    must("enable")

    # vdsmd, by the drop-in and the launcher; and a mount over RDMA.
    vdsmd.start()
    assert host.context("vdsmd") == host.context("supervdsmd")
    assert "SELinux" not in said("ovirt-rdma-host status || :")
    assert vdsmd.connect({"connection": export}).statuses == [0]
    mount = local_path(export)
    assert "proto=rdma" in said(f"grep {mount} /proc/mounts")
    said(f"dd if=/dev/zero of={mount}/f bs=64k count=4 conv=fsync")
    assert '"rdma"' in must("nfs", "list", "-o", "json")

    # The daemon, with all of its tasks.
    said("until ovirt-rdma-host daemon status; do sleep 2; done")
    said("until ! ovirt-rdma-host daemon status | grep waits; do sleep 2; done")
    tasks = json.loads(must("daemon", "status", "-o", "json"))["tasks"]
    states = {task["name"]: task["state"] for task in tasks}
    assert {states[name] for name in ("health", "metrics", "capabilities")} == {"ok"}

    # The hooks, where VDSM runs them.
    features = host.call("after_get_caps", {"additionalFeatures": []}, uid=36)
    assert features.data == {"additionalFeatures": ["NFS_RDMA"]}
    assert host.ask(asking("connected")) == [None]
    assert host.mode() == "connected"
    assert host.call("after_network_setup", asking("connected")).refused is None
    assert host.call("before_vdsm_start").refused is None

    # apply and revert, by a shell and by the unit.
    must("apply", "--allow-link-down")
    assert host.said("ls -d /sys/class/net/ib0.8001")
    said("systemctl start ovirt-rdma-netdev@ib0.service")
    assert must("history")
    # What is written has the type that the policy gives its place, or what vdsmd and
    # hooks write there (docs/host-preparation.md).
    labels = said(f"restorecon -nRv {' '.join(FOLDERS)}")
    others = [line for line in labels.splitlines() if "Would relabel" in line]
    assert [line for line in others if ":virt_var_" not in line] == []
    assert vdsmd.disconnect({"connection": export}).statuses == [0]
    must("revert", "--allow-link-down")
    assert host.mode() == "datagram"

    vdsmd.stop()
    must("disable")
    vdsmd.start()
    assert host.context("vdsmd") == host.context("supervdsmd")
    vdsmd.stop()
