# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual functions on the fabric: made, given GUIDs, set again at boot, and reverted.

The GUIDs are read with ip, from the PF, and from the VFs' own devices.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from changed_host import ChangedHost
from prepared_host import PreparedHost
from test_power_cut_lab import DRIVER, power_cut

from lab import installed_host
from lab.guest import Guest
from lab.infiniband import InfiniBand, PciFunction
from ovirt_rdma.host.errors import ExitCode

FABRIC = InfiniBand(
    hcas=1,
    max_vfs=16,
    device_name="mlx5_%d",
    pci=PciFunction(device=0x1017, revision=0, pci_class=0x020700, driver="mlx5_core"),
)
PF = "/sys/bus/pci/devices/001b:00:00.0"
UUID = "3c2ee5a2-1b1e-4c35-b2a5-6a56fd8f8f14"
POLICY = """\
version: 1
host:
  virtual_functions:
    - match: {device: mlx5_0}
      count: COUNT
      guests: 0-GUESTS
      link_state: enable
"""
# What the PF has set, and each port with its state, sorted by GUID.
_VFS = "ip link show dev ib0 | grep -o 'NODE_GUID.*link-state [a-z]*'"
_PORTS = """
cd /sys/class/infiniband
for device in *; do
    echo $(cut -d: -f5- $device/ports/1/gids/0) $(cut -d' ' -f2 $device/ports/1/state)
done | sort
"""
_AS_FOUND = f"""
cd {PF}
cat sriov_numvfs sriov_drivers_autoprobe
ls | grep virtfn
ls /sys/class/infiniband /sys/class/net /var/lib/ovirt-rdma
ip link show dev ib0 | grep 'vf '
true
"""


# For what takes half a minute on a machine that does nothing else.
SLOW_S = 900.0

_TO_GUEST = (
    f"echo vfio-pci > {PF}/virtfn0/driver_override; "
    "echo 001b:00:10.0 > /sys/bus/pci/drivers_probe"
)
_FROM_GUEST = "echo 001b:00:10.0 > /sys/bus/pci/drivers/vfio-pci/unbind"


def prepared(guest: Guest, count: int, guests: int) -> ChangedHost:
    """Install our package, and load a policy for ``count`` VFs."""
    FABRIC.load(guest)
    installed_host.install(guest)
    host = ChangedHost(guest)
    host.said(f"mkdir -p /etc/vdsm; echo {UUID} > /etc/vdsm/vdsm.id")
    text = POLICY.replace("COUNT", str(count)).replace("GUESTS", str(guests - 1))
    host.load_policy(text)
    return host


def derived(node_guid: str, number: int, part: str) -> str:
    """Return a GUID of a VF as docs/virtual-functions.md says, in the form of ip."""
    lines = ("ovirt_rdma VF 1", UUID, node_guid, str(number), part)
    guid = bytearray(hashlib.sha256("\n".join(lines).encode()).digest()[:8])
    guid[0] = guid[0] & 0xFE | 0x02
    return guid.hex(":")


def two_wanted(guest: Guest) -> PreparedHost:
    """Load a policy for two VFs, without our package and without systemd."""
    FABRIC.load(guest)
    host = PreparedHost(guest, ("ib0",))
    host.said(f"mkdir -p /etc/vdsm; echo {UUID} > /etc/vdsm/vdsm.id")
    host.load_policy("  virtual_functions: [{match: {device: mlx5_0}, count: 2}]")
    return host


@pytest.mark.kernels("6.1", "6.12")
def test_made_and_reverted() -> None:
    """The GUIDs are the derived ones, and the revert leaves what was there."""
    with Guest("hypervisor") as guest:
        host = two_wanted(guest)
        found = host.said(_AS_FOUND)
        assert host.command("apply").exit_code == 0
        own = host.said("cat /sys/class/infiniband/mlx5_0/node_guid")
        guids = re.findall("[0-9a-f:]{23}", host.said(_VFS))
        parts = [(number, part) for number in (0, 1) for part in ("node", "port 1")]
        assert guids == [derived(own, number, part) for number, part in parts]
        assert host.command("revert").exit_code == 0
        after = host.said(_AS_FOUND).splitlines()
        assert [line for line in after if line != "journal.json"] == found.splitlines()


@pytest.mark.faults
def test_made_set_again_and_reverted() -> None:
    """The test does what the unit of the PF's netdev does."""
    with Guest("hypervisor") as guest:
        host = two_wanted(guest)
        assert host.command("apply").exit_code == 0
        vfs = host.said(_VFS)

        # The driver is loaded again, as at a boot.
        FABRIC.unbind(guest, 0)
        FABRIC.bind(guest, 0)
        assert host.said(f"cat {PF}/sriov_numvfs") == "0"
        assert host.command("unit", "netdev", "ib0").exit_code == 0
        assert host.said(_VFS) == vfs

        # libvirt gives a VF to a virtual machine.
        host.said(f"{_TO_GUEST}; [ -e {PF}/virtfn0/driver ]")
        kept = host.command("revert")
        assert kept.exit_code == ExitCode.REFUSED
        assert "takes the link down for vm: VF 0 " in kept.stderr
        # Whatever the operator allows.
        kept = host.command("revert", "--allow-link-down")
        assert kept.exit_code == ExitCode.FAILED
        assert "is in use by a virtual machine" in kept.stdout + kept.stderr
        assert host.said(_VFS) == vfs
        host.said(_FROM_GUEST)
        assert host.command("revert").exit_code == 0
        assert host.said(f"cat {PF}/sriov_numvfs") == "0"


@pytest.mark.faults
def test_made_used_and_reverted() -> None:
    """Two of three VFs are for guests; one of these has a virtual machine."""
    with Guest("hypervisor", systemd=True) as guest:
        host = prepared(guest, 3, 2)
        found = host.said(_AS_FOUND)
        host.must("apply")
        vfs = host.said(_VFS).splitlines()
        assert len(set(vfs)) == 3
        assert all(line.endswith("link-state enable") for line in vfs)
        # The driver of the third was bound after it had its GUID.
        own = [line.split("PORT_GUID ")[1][:23].replace(":", "") for line in vfs]
        ports = host.said(_PORTS).splitlines()
        guids = [line.split()[0].replace(":", "") for line in ports]
        assert [guid for guid in guids if guid in own] == [own[2]]
        assert all(line.endswith("ACTIVE") for line in ports)
        assert host.must("apply").startswith("Nothing to do")

        # The same after the driver was loaded again, as after a boot.
        FABRIC.unbind(guest, 0)
        FABRIC.bind(guest, 0)
        host.wait_until(f"[ $({_VFS} | grep -c enable) = 3 ]", 120)
        host.wait_until("[ $(ls /sys/class/infiniband | wc -l) = 2 ]", 120)
        assert host.said(_VFS).splitlines() == vfs
        assert host.said(_PORTS).splitlines() == ports

        # libvirt gives a VF to a virtual machine.
        host.said(_TO_GUEST)
        host.must("check", "--all", code=0)
        kept = host.run("revert")
        assert kept.exit_code == ExitCode.REFUSED, kept
        assert "vm: VF 0 (" in kept.stdout + kept.stderr
        kept = host.run("revert", "--allow-link-down")
        assert kept.exit_code == ExitCode.FAILED, kept
        assert "is in use by a virtual machine" in kept.stdout + kept.stderr
        assert host.said(f"cat {PF}/sriov_numvfs") == "3"
        host.said(_FROM_GUEST)
        host.must("revert")
        after = host.said(_AS_FOUND).splitlines()
        assert [line for line in after if line != "journal.json"] == found.splitlines()


@pytest.fixture(scope="module")
def rebooted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChangedHost]:
    disk = tmp_path_factory.mktemp("disk") / "hypervisor.img"
    with Guest("hypervisor", systemd=True, disk=Path(disk)) as guest:
        # Each netdev on the host starts our unit at boot, which is slow to emulate.
        host = prepared(guest, 16, 15)
        unit = DRIVER.format(
            modules=" ".join(FABRIC.modules),
            parameters=" ".join(FABRIC.parameters()).replace("%", "%%"),
        )
        write = "cat > /etc/systemd/system/driver.service"
        guest.run(write, input=unit, check=True)
        host.said("cp /usr/lib/modules/$(uname -r)/ib_fabric.ko /var/lib")
        # 16 VFs are some 150 programs, each of which takes seconds on a busy machine.
        limit = "/etc/systemd/system/ovirt-rdma-netdev@.service.d/limit.conf"
        host.said(f"mkdir -p {limit.rpartition('/')[0]}")
        guest.run(
            f"cat > {limit}", input="[Service]\nTimeoutStartSec=900\n", check=True
        )
        host.said("systemctl daemon-reload; systemctl enable driver.service; sync")
        yield host


@pytest.mark.faults
def test_sixteen_over_three_boots(rebooted: ChangedHost) -> None:
    host = rebooted
    found = host.said(_AS_FOUND)
    applied = host.run("apply", timeout=SLOW_S)
    assert applied.exit_code == 0, applied
    vfs, ports = host.said(_VFS), host.said(_PORTS)
    assert len(set(vfs.splitlines())) == 16
    assert len(ports.splitlines()) == 2  # the PF, and VF 15
    for _ in range(3):
        power_cut(host, SLOW_S)
        host.wait_until("[ $(ls /sys/class/infiniband | wc -l) = 2 ]", 400)
        assert (host.said(_VFS), host.said(_PORTS)) == (vfs, ports)
        # No step; while tools do not answer in time, what they would show is unknown.
        plans = (host.run("plan", "--exit-code", timeout=SLOW_S) for _ in range(3))
        assert any(plan.exit_code == 0 for plan in plans)
    reverted = host.run("revert", timeout=SLOW_S)
    assert reverted.exit_code == 0, reverted
    after = host.said(_AS_FOUND).splitlines()
    assert [line for line in after if line != "journal.json"] == found.splitlines()
