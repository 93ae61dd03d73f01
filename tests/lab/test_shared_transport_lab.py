# SPDX-License-Identifier: GPL-2.0-or-later
"""Test exports of one server with different transports, on a real kernel.

NFS 4 mounts share one connection, which we report; NFS 3 mounts do not.
"""

from __future__ import annotations

import json

import pytest

from lab.vdsm_daemon import Outcome, VdsmDaemon

pytestmark = pytest.mark.faults

NAS, NAS6 = "10.99.0.1", "[fd00:99::1]"
MOUNT_FAILED = 477
VM, ISO = f"{NAS}:/srv/vm", f"{NAS}:/srv/iso"
POLICY = """\
version: 1
nfs:
  defaults: {readiness_timeout: 30}    # emulated guests are slow
  rules:
    - {name: vm, server: 10.99.0.1, path: /srv/vm, transport: require-rdma}
    - {name: vm6, server: "fd00:99::1", path: /srv/vm, transport: prefer-rdma}
    - {name: iso, server: 10.99.0.1, path: /srv/iso, transport: tcp}
"""
# The policy with which the fixture vdsmd starts.
EXPORT_PATHS = ("/srv/vm", "/srv/iso")


def connect(vdsmd: VdsmDaemon, export: str, version: str = "4.2") -> Outcome:
    return vdsmd.connect({"connection": export, "protocol_version": version})


def transports(vdsmd: VdsmDaemon) -> dict[str, str]:
    listed = vdsmd.command("nfs", "list", "-o", "json").stdout
    return {m["export"]: m["transport"] for m in json.loads(listed)["mounts"]}


def one_connection(export: str, transport: str) -> str:
    return (
        f"{export} is mounted over {transport}, and the kernel uses one connection for "
        "all NFS 4.2 mounts of a server"
    )


def test_nfs_4_2_shares_what_stands_over_tcp(vdsmd: VdsmDaemon) -> None:
    assert connect(vdsmd, ISO).statuses == [0]
    because = one_connection(ISO, "TCP")

    # Reported before the mount, and again after it.
    checked = vdsmd.command("nfs", "check", VM, "--nfs-version", "4.2")
    assert checked.exit_code == 3
    assert (
        f"FAIL    others    {because}: this export would be mounted" in checked.stdout
    )
    outcome = connect(vdsmd, VM)
    assert outcome.statuses == [MOUNT_FAILED]
    assert f"because {because}; unmounted again; fix: " in outcome.log[-1]

    # With the server's other address too, but not with another minor version, which the
    # fix suggests.
    vm6 = f"{NAS6}:/srv/vm"
    outcome = vdsmd.connect(
        {"connection": vm6, "protocol_version": "4.2"},
        {"connection": VM, "protocol_version": "4.1"},
    )
    assert outcome.statuses == [0, 0]
    assert f"because {because}; this mount is degraded" in "".join(outcome.log)
    assert transports(vdsmd) == {ISO: "tcp", vm6: "tcp", VM: "rdma"}


def test_nfs_4_2_shares_what_stands_over_rdma(vdsmd: VdsmDaemon) -> None:
    assert connect(vdsmd, VM).statuses == [0]
    outcome = connect(vdsmd, ISO)
    assert outcome.statuses == [0]
    because = one_connection(VM, "RDMA")
    assert f"because {because}; this mount is degraded; fix: " in "".join(outcome.log)
    listed = vdsmd.command("nfs", "list")
    assert f"{ISO} runs over rdma, but rule 'iso' says tcp; since " in listed.stdout
    assert f"because {because}.\nfix: choose one transport" in listed.stdout


def test_a_mount_that_is_gone_but_in_use_keeps_its_connection(
    vdsmd: VdsmDaemon,
) -> None:
    assert connect(vdsmd, ISO).statuses == [0]
    place = "/rhev/data-center/mnt/10.99.0.1:_srv_iso"
    user = vdsmd.guest.start(f"cd {place} && exec sleep 60")
    vdsmd.guest.run(f"until ls -l /proc/[0-9]*/cwd | grep -q {place}; do :; done")
    vdsmd.disconnect({"connection": ISO})
    outcome = connect(vdsmd, VM)
    user.signal(9)
    assert outcome.statuses == [MOUNT_FAILED]
    assert "such as one that was unmounted while in use" in outcome.log[-1]
    # It ends with its last user.
    outcome = connect(vdsmd, VM)
    assert outcome.statuses == [0]
    assert f"{VM}: mounted over rdma, proven" in outcome.log[-1]


def test_nfs_3_mounts_have_each_its_own(vdsmd: VdsmDaemon) -> None:
    exports = ({"connection": each, "protocol_version": "3"} for each in (ISO, VM))
    assert vdsmd.connect(*exports).statuses == [0, 0]
    assert transports(vdsmd) == {ISO: "tcp", VM: "rdma"}
