# SPDX-License-Identifier: GPL-2.0-or-later
"""Test RoCE as oVirt builds it: the storage address on a bond, a VLAN, a bridge.

Soft-RoCE finds its device by the netdev that receives a packet. So it answers on a bond
or a bridge only if the RDMA device belongs to that bond (like mlx5's LAG device) or
bridge; a NIC's own device answers on the NIC and on its VLANs. The owner of the GID is
the same on all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.fitted_json import fitted

from lab import topology
from lab.guest import Guest
from lab.netdev_layers import Bond, Bridge, Layer, Vlan, stacked
from lab.topology import Topology
from lab.vdsm_daemon import VdsmDaemon, local_path
from ovirt_rdma.host.facts import model

pytestmark = pytest.mark.faults

MOUNT_FAILED = 477
SERVER, HYPERVISOR = "10.98.0.1", "10.98.0.2"
DATA = Path(__file__).parents[1] / "data" / "facts"

# The guests' first wire, eth0 and rxe0, is not changed.
POLICY = """\
version: 1
nfs:
  defaults: {readiness_timeout: 30}
  rules:
    - {name: require, server: 10.98.0.1, path: /srv/require, transport: require-rdma}
    - {name: silent, server: 10.98.0.1, path: /srv/silent, transport: require-rdma,
       readiness_timeout: 3}
    - {name: prefer, server: 10.98.0.1, path: /srv/prefer, transport: prefer-rdma,
       readiness_timeout: 3}
"""
PATHS = ("/srv/require", "/srv/silent", "/srv/prefer")

BOND = Bond("bond7", ("eth1", "eth2"))
BRIDGE = Bridge("br8", ("eth1",))
VLAN = Vlan("eth1", 100)


@dataclass(frozen=True)
class Side:
    """A guest's netdevs: the one with the address, and those with an RDMA device."""

    address_on: str
    rdma_on: tuple[str, ...]
    layers: tuple[Layer, ...] = ()


NIC = Side("eth1", ("eth1",))
ON_VLAN = Side("eth1.100", ("eth1",), (VLAN,))
ON_BRIDGE = Side("br8", ("br8",), (BRIDGE,))
ON_BOND = Side("bond7", ("bond7",), (BOND,))
ON_BOND_VLAN = Side("bond7.100", ("bond7",), (BOND, Vlan("bond7", 100)))
OVER_VLAN = Side("br8", ("br8",), (VLAN, Bridge("br8", ("eth1.100",))))
# Both of the bond's wires end in this bridge, as in a switch.
SWITCH = Side("br8", ("br8",), (Bridge("br8", ("eth1", "eth2")),))

# By name: the server's side, the hypervisor's, and the expected RDMA device.
ANSWERING = {
    "nic": (NIC, NIC, "rxe1"),
    "vlan": (ON_VLAN, ON_VLAN, "rxe1"),
    "bridge": (ON_BRIDGE, ON_BRIDGE, "rxe8"),
    "bond-vlan": (ON_BOND_VLAN, ON_BOND_VLAN, "rxe7"),
    "bridge-vlan": (ON_VLAN, OVER_VLAN, "rxe8"),
}
# The NICs' own devices below bond and bridge, as with most adapters.
SILENT_BRIDGE = replace(OVER_VLAN, rdma_on=("eth1",))
SILENT_BOND = replace(ON_BOND, rdma_on=("eth1", "eth2"))


@dataclass
class Site:
    """The lab with our class in VDSM on the hypervisor."""

    lab: Topology
    vdsmd: VdsmDaemon

    @contextmanager
    def stack(self, server: Side, hypervisor: Side) -> Iterator[None]:
        """Both guests' netdevs, with addresses; nothing mounted afterwards. With a
        hypervisor that is off at the end, neither guest can be used again.
        """
        sides = (
            (self.lab.server, server, SERVER),
            (self.lab.hypervisor, hypervisor, HYPERVISOR),
        )
        with ThreadPoolExecutor(2) as pool:
            up = [pool.submit(self._bring_up, *side) for side in sides]
            wait(up)
            built = [side.result() for side in up if not side.exception()]
            try:
                for side in up:
                    side.result()
                yield
            finally:
                if self.lab.hypervisor.running:
                    self.shell(
                        "umount -a -t nfs,nfs4 -f -l; rm -rf /rhev/data-center/mnt/*"
                    )
                    list(pool.map(ExitStack.close, built))

    def _bring_up(self, guest: Guest, side: Side, address: str) -> ExitStack:
        with ExitStack() as stack:
            stack.enter_context(stacked(guest, *side.layers))
            for netdev in side.rdma_on:
                self.lab.fabric.bring_up(guest, netdev, [])
                stack.callback(self.lab.fabric.take_down, guest, netdev)
            lines = f"ip link set {side.address_on} up"
            lines += f" && ip address add {address}/24 dev {side.address_on}"
            guest.run(lines, check=True)
            stack.callback(guest.run, f"ip address flush dev {side.address_on}")
            return stack.pop_all()

    def shell(self, line: str) -> str:
        return self.lab.hypervisor.run(line, check=True).stdout

    def check(self, path: str) -> tuple[int, str]:
        """Run ``nfs check``; return its exit code and output."""
        result = self.vdsmd.command("nfs", "check", f"{SERVER}:{path}")
        return result.exit_code, result.stdout

    def connect(self, *paths: str) -> tuple[list[int], str]:
        """Connect; return the engine's status and the lines of vdsm.log."""
        exports = [{"connection": f"{SERVER}:{path}"} for path in paths]
        outcome = self.vdsmd.connect(*exports)
        return outcome.statuses, "\n".join(outcome.log)

    def transports(self, path: str) -> list[str]:
        """Return mountinfo of the mounts at the export's path."""
        place = re.escape(local_path(f"{SERVER}:{path}"))
        info = self.shell("cat /proc/self/mountinfo")
        return re.findall(rf" {place} .* - nfs4 .*,proto=(\w+),", info)


@contextmanager
def running_site(lab: Topology) -> Iterator[Site]:
    for path in PATHS:
        lab.nfs.add_export(path)
    vdsmd = VdsmDaemon(lab.hypervisor)
    vdsmd.load_policy(POLICY)
    vdsmd.start()
    yield Site(lab, vdsmd)
    if lab.hypervisor.running:
        vdsmd.stop()


@pytest.fixture(scope="module")
def site(two_guests: Topology) -> Iterator[Site]:
    with running_site(two_guests) as site:
        yield site


@pytest.fixture
def bonded(kernel: str) -> Iterator[Site]:
    """A hypervisor on a bond, in guests for one test: Linux 6.12 keeps the connection
    of before a fail-over, and removing its RDMA device hangs (docs/kernels.md).
    """
    with (
        topology.two_guests(spare_wires=2) as lab,
        running_site(lab) as site,
        site.stack(SWITCH, ON_BOND),
    ):
        yield site
        lab.hypervisor.kill()


def assert_ready_and_mounted(site: Site, device: str) -> None:
    code, printed = site.check("/srv/require")
    assert code == 0, printed
    assert f"{device}/1 is ACTIVE and owns {HYPERVISOR}" in printed
    assert printed.splitlines()[-1] == f"{SERVER}:/srv/require is ready for RDMA."
    statuses, log = site.connect("/srv/require")
    assert statuses == [0], log
    assert "mounted over rdma, proven" in log
    assert site.transports("/srv/require") == ["rdma"]


# All other lab tests use the plain NIC.
@pytest.mark.parametrize("name", ["vlan", "bridge", "bond-vlan", "bridge-vlan"])
def test_ready_and_mounted(site: Site, name: str) -> None:
    server, hypervisor, device = ANSWERING[name]
    with site.stack(server, hypervisor):
        assert_ready_and_mounted(site, device)


def test_a_bond_stays_ready_when_its_active_slave_fails(bonded: Site) -> None:
    note = f"{local_path(f'{SERVER}:/srv/require')}/note"
    assert_ready_and_mounted(bonded, "rxe7")
    bonded.shell(f"echo before > {note}")
    assert fail_over(bonded) == "eth2"
    assert bonded.shell(f"cat {note}") == "before\n"
    export = {"connection": f"{SERVER}:/srv/require"}
    assert bonded.vdsmd.disconnect(export).statuses == [0]
    assert_ready_and_mounted(bonded, "rxe7")


def test_a_port_that_owns_the_address_but_gets_no_answer(site: Site) -> None:
    with site.stack(SILENT_BRIDGE, SILENT_BRIDGE):
        code, printed = site.check("/srv/silent")
        assert code == 3, printed
        assert f"rxe1/1 is ACTIVE and owns {HYPERVISOR}" in printed
        no_answer = f"{SERVER} did not answer an RDMA connection within 3 s"
        assert no_answer in printed
        statuses, log = site.connect("/srv/silent", "/srv/prefer")
        assert statuses == [MOUNT_FAILED, 0], log
        assert log.count(no_answer) >= 2
        assert site.transports("/srv/silent") == []
        assert "FALLING BACK TO TCP" in log
        assert site.transports("/srv/prefer") == ["tcp"]


def test_an_address_above_a_nic_without_rdma_device(site: Site) -> None:
    without = replace(ON_BRIDGE, rdma_on=())
    with site.stack(without, without):
        code, printed = site.check("/srv/require")
        assert code == 3, printed
        no_port = f"no RDMA port owns {HYPERVISOR} on br8 (RDMA devices: rxe0)"
        assert no_port in printed
        statuses, log = site.connect("/srv/require")
    assert statuses == [MOUNT_FAILED], log
    assert no_port in log
    assert "on the RDMA port's netdev, or on one above it" in log


@pytest.mark.skipif(
    not os.environ.get("WRITE_GOLDEN"), reason="WRITE_GOLDEN=1 writes tests/data/facts"
)
def test_facts_for_unit_tests(site: Site) -> None:
    hypervisors = {name: sides[1] for name, sides in ANSWERING.items()}
    hypervisors |= {"bond": ON_BOND, "bond-of-two": SILENT_BOND}
    hypervisors |= {"bridge-over-vlan": SILENT_BRIDGE}
    hypervisors |= {"bridge-without-rdma": replace(ON_BRIDGE, rdma_on=())}
    for name, side in hypervisors.items():
        with site.stack(NIC, side):
            write_facts(site, f"roce-{name}")
            if name == "bond-of-two":
                fail_over(site)
                write_facts(site, "roce-bond-of-two-failed-over")


def fail_over(site: Site) -> str:
    """Take down the active slave's link; return the slave that becomes active."""
    active = "/sys/class/net/bond7/bonding/active_slave"
    was = site.shell(f"cat {active}").strip()
    site.shell(f"ip link set {was} down; until grep -qvx {was} {active}; do :; done")
    return site.shell(f"cat {active}").strip()


def write_facts(site: Site, name: str) -> None:
    shown = site.vdsmd.command("facts", "--route-to", SERVER, "-o", "json")
    (DATA / "new.json").write_text(shown.stdout)
    facts = model.load(DATA / "new.json")
    facts = replace(facts, hostname="hv1", uptime_s=3600.0, booted_at=1763694000)
    (DATA / "new.json").unlink()
    (DATA / f"{name}.json").write_text(fitted(model.to_json(facts)))
