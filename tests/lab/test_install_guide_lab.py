# SPDX-License-Identifier: GPL-2.0-or-later
"""Follow docs/install.md on a hypervisor, with the command lines of the page itself.

The packages' files are installed as the packages do it (lab/installed_host.py). What
the page does on the engine machine, tests/cli/engine/test_install_guide.py follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.guide import blocks

from lab.guest import Guest
from lab.ib_pair import IbPair, ib_pair
from lab.infiniband import InfiniBand, PciFunction
from lab.problem import CommandTimeout
from lab.vdsm_daemon import VdsmDaemon
from lab.vdsm_daemon_main import LOG, PORT

pytestmark = pytest.mark.faults

EXPORT = "nas1:/exports/data2"
# Of an old ConnectX: the page's policy has something to apply.
FABRIC = InfiniBand(pci=PciFunction(driver="mlx4_core"))
# check reports what it finds: exit code 3 is no mistake of the reader.
MAY_FIND = {"ovirt-rdma-host check\n": 3}
# systemctl returns before vdsmd answers.
ANSWERS = f"until (exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>&-; do sleep 0.5; done"
# What tells why a mount hangs.
EVIDENCE = f"tail -n 30 {LOG}; journalctl -k -n 30; ps -eo stat,args | grep -v '\\]$'"
# An emulated server needs longer than the 2 s that the page's policy leaves it.
PATIENT = ("  rules:\n", "  defaults: {readiness_timeout: 30}\n  rules:\n")
KEPT = """
find /etc/ovirt-rdma /etc/systemd/system /etc/modprobe.d /etc/modules-load.d \
  /etc/NetworkManager -type f -o -type l | sort
nmcli -t -f infiniband connection show ib0
cat /sys/class/net/ib0/mode /sys/class/net/ib0/mtu
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[IbPair]:
    guest = Guest("hypervisor", systemd=True)
    with ib_pair(FABRIC, guest=guest, network_manager=True) as booted:
        guest.run("cat >> /etc/hosts", input=f"{booted.address} nas1\n", check=True)
        booted.nfs.add_export("/exports/data2")
        yield booted


@pytest.fixture(scope="module")
def vdsmd(pair: IbPair) -> VdsmDaemon:
    return VdsmDaemon(pair.hypervisor)


def follow(guest: Guest, section: str) -> str:
    """Run the section's blocks; return what they print."""
    told = []
    for block in blocks(section):
        script = block.replace(*PATIENT)
        result = guest.run(["bash", "-e", "-c", script], timeout=1200)
        assert result.exit_code in (0, MAY_FIND.get(block, 0)), (block, result)
        told.append(result.stdout)
    return "\n".join(told)


def connect(vdsmd: VdsmDaemon) -> list[int]:
    """Connect the export when vdsmd answers; return its status."""
    vdsmd.guest.run(["bash", "-c", ANSWERS], timeout=300, check=True)
    try:
        return vdsmd.connect({"connection": EXPORT}).statuses
    except CommandTimeout as hangs:
        raise AssertionError(vdsmd.guest.run(EVIDENCE).stdout) from hangs


def listed(guest: Guest) -> list[str]:
    line = f"ovirt-rdma-host nfs list | grep {EXPORT}"
    return guest.run(line, check=True).stdout.split()


def test_from_the_packages_to_a_proven_mount_and_back(
    pair: IbPair, vdsmd: VdsmDaemon
) -> None:
    guest = pair.hypervisor
    before = guest.run(KEPT, check=True).stdout

    shown = follow(guest, "One hypervisor")
    assert f"{EXPORT} is ready for RDMA." in shown
    assert re.search(r"steps? applied on hypervisor and verified", shown)
    assert guest.run(KEPT, check=True).stdout != before
    assert connect(vdsmd) == [0]
    assert listed(guest)[:5] == [EXPORT, "rdma", "4.2", "data2", "ok"]
    assert vdsmd.disconnect({"connection": EXPORT}).statuses == [0]

    follow(guest, "Remove")
    guest.run("rm /etc/ovirt-rdma/policy.yaml", check=True)
    assert guest.run(KEPT, check=True).stdout == before
    assert connect(vdsmd) == [0]
    assert listed(guest)[1] == "tcp"
