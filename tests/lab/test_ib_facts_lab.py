# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the facts of a host with InfiniBand with the output of that host's tools.

Each tool is run separately, and parsed in another way than in ``ovirt_rdma.host``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.fitted_json import fitted

from lab import modules
from lab.guest import Guest
from lab.infiniband import InfiniBand, PciFunction
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.devices import Netdev
from ovirt_rdma.host.facts.model import Facts

DATA = Path(__file__).parents[1] / "data" / "facts"
NET = "/sys/class/net"

# Two ConnectX-2 of two ports; the second's second port has no cable.
FABRIC = InfiniBand(
    ports=2,
    active_mtu=2048,
    group_mtu=2048,
    pkeys=(0xFFFF, 0x8001, 0x0005),
    pci=PciFunction(revision=0xB0, driver="mlx4_core"),
    board_id="MT_0A30110009",
)
# Children of both kinds, each mode, an offload that is off, a bond, a netdev that is
# down, addresses.
SCENE = f"""
set -e
cd {NET}
echo 0x8001 > ib0/create_child
ip link set ib0.8001 up
ip address add 10.97.0.2/24 dev ib0.8001
ethtool -K ib0.8001 tx-tcp-segmentation off
ip link add link ib0 name storage type ipoib pkey 0x0005 mode connected umcast 1
ip link set storage up
echo 0x8007 > ib0/create_child
echo connected > ib1/mode
ip link add bond0 type bond mode active-backup miimon 100
for port in ib2 ib3; do ip link set $port down; ip link set $port master bond0; done
ip link set bond0 mtu 2044 up
ip address add fd00:97::2/64 dev bond0 nodad
until grep -q ib2 bond0/bonding/active_slave; do sleep 0.1; done
for netdev in ib0.8001 storage; do until grep -q 1 $netdev/carrier; do :; done; done
# Until nothing changes any more: each has its link-local address.
until [ $(ip -6 address | grep -c 'scope link *$') = 5 ]; do sleep 0.1; done
"""
TYPES = {"infiniband": 32, "loopback": 772}


@dataclass(frozen=True)
class Site:
    """A guest with the devices, and the facts that were read there."""

    guest: Guest
    facts: Facts

    def shell(self, line: str) -> str:
        return self.guest.run(line, check=True).stdout

    def netdev(self, name: str) -> Netdev:
        return next(one for one in self.facts.netdevs if one.name == name)


def facts_of(guest: Guest) -> Facts:
    """Read them with the command, as a user does."""
    words = [sys.executable, "-m", "ovirt_rdma.cli.host.main", "facts", "-o", "json"]
    shown = guest.run(words, check=True)
    assert shown.stderr == ""
    return model.from_json_dict(json.loads(shown.stdout), "the guest")


@pytest.fixture(scope="module")
def site(guest: Guest) -> Site:
    FABRIC.load(guest)
    FABRIC.port_down(guest, "mlx4_1", 2)
    modules.load(guest, "bonding")
    guest.run(SCENE, check=True)
    return Site(guest, facts_of(guest))


def test_everything_could_be_read(site: Site) -> None:
    assert site.facts.problems == ()
    assert [device.name for device in site.facts.rdma_devices] == ["mlx4_0", "mlx4_1"]
    children = ["ib0.8001", "ib0.8007", "storage"]
    assert [
        one.name for one in site.facts.netdevs if one.ipoib and one.ipoib.parent
    ] == children


def test_netdevs_are_as_ip_says(site: Site) -> None:
    links = json.loads(site.shell("ip -d -j address show"))
    assert {one.name for one in site.facts.netdevs} == {n["ifname"] for n in links}
    for link in links:
        netdev = site.netdev(link["ifname"])
        assert (netdev.mtu, netdev.type) == (link["mtu"], TYPES[link["link_type"]])
        assert (netdev.address, netdev.operstate) == (
            link["address"],
            link["operstate"].lower(),
        )
        shown = [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"]]
        assert list(netdev.addresses) == shown
        up = "UP" in link["flags"]
        if netdev.name != "lo":
            assert netdev.carrier == ("LOWER_UP" in link["flags"] if up else None)
        assert netdev.uppers == ((link["master"],) if "master" in link else ())


def test_ipoib_is_as_ip_says(site: Site) -> None:
    links = json.loads(site.shell("ip -d -j link show type ipoib"))
    assert len(links) == 7
    for link in links:
        data = link["linkinfo"]["info_data"]
        ipoib = site.netdev(link["ifname"]).ipoib
        assert ipoib is not None
        assert (ipoib.mode, ipoib.pkey) == (data["mode"], data["key"])
        assert ipoib.parent == link.get("link")
        there = f"test -e {NET}/{link['ifname']}/mode"
        assert ipoib.sysfs == (site.guest.run(there).exit_code == 0)
    assert [one["ifname"] for one in links if not one["flags"].count("UP")] == [
        "ib0.8007"
    ]


def test_the_bond_is_as_ip_says(site: Site) -> None:
    links = json.loads(site.shell("ip -d -j link show"))
    (shown,) = (one for one in links if one["ifname"] == "bond0")
    data = shown["linkinfo"]["info_data"]
    bond = site.netdev("bond0").bond
    assert bond is not None
    assert (bond.mode, bond.active) == (data["mode"], data["active_slave"])
    assert bond.fail_over_mac == data["fail_over_mac"] == "active"
    members = [one["ifname"] for one in links if one.get("master") == "bond0"]
    assert list(site.netdev("bond0").lowers) == members == ["ib2", "ib3"]


def test_offloads_are_as_ethtool_says(site: Site) -> None:
    seen = set()
    for netdev in site.facts.netdevs:
        if netdev.name == "lo":
            assert netdev.offloads == ()
            continue
        shown = site.shell(f"ethtool -k {netdev.name}")
        features = dict(re.findall(r"^\s*(\S+): (.*)$", shown, re.MULTILINE))
        for offload in netdev.offloads:
            text = "on" if offload.on else "off"
            if offload.fixed:
                text += " [fixed]"
            elif offload.requested is not None:
                text += f" [requested {'on' if offload.requested else 'off'}]"
            assert text == features[offload.name], (netdev.name, offload.name)
            seen.add((offload.name, text))
    tso = "tx-tcp-segmentation"
    assert {(tso, "on"), (tso, "off"), (tso, "off [requested on]")} <= seen
    assert ("tx-tcp6-segmentation", "off [fixed]") in seen


def test_devices_and_ports_are_as_ibstat_says(site: Site) -> None:
    shown = site.shell("ibstat")
    lines = []
    for device in site.facts.rdma_devices:
        lines += [
            f"CA '{device.name}'",
            f"CA type: {device.hca_type}",
            f"Number of ports: {len(device.ports)}",
            f"Firmware version: {device.firmware}",
            f"Hardware version: {device.hw_rev}",
            f"Node GUID: {_hex(device.node_guid)}",
        ]
        for port in device.ports:
            assert port.guid is not None
            assert port.rate_mbps is not None
            lines += [
                f"Port {port.number}:",
                f"State: {port.state.capitalize()}",
                f"Physical state: {port.physical_state}",
                f"Rate: {port.rate_mbps // 1000}",
                f"Base lid: {port.lid}",
                f"SM lid: {port.sm_lid}",
                f"Port GUID: {_hex(port.guid)}",
                f"Link layer: {port.link_layer}",
            ]
    others = ("System image GUID", "LMC", "Capability mask")
    told = [line.strip() for line in shown.splitlines()]
    assert [line for line in told if not line.startswith(others)] == lines
    assert "State: Down" in lines


def test_mtus_and_revisions_are_as_ibv_devinfo_says(site: Site) -> None:
    shown = site.shell("ibv_devinfo").split("hca_id:")[1:]
    assert len(shown) == len(site.facts.rdma_devices)
    for text, device in zip(shown, site.facts.rdma_devices):
        head, *ports = re.split(r"\n\s+port:\s+", text)
        assert head.split()[0] == device.name
        assert re.findall(r"hw_ver:\s+0x(\S+)", head) == [(device.hw_rev or "").upper()]
        for port, fields in zip(device.ports, ports):
            mtus = re.findall(r"(?:max|active)_mtu:\s+(\d+)", fields)
            assert [str(port.max_mtu), str(port.active_mtu)] == mtus == ["4096", "2048"]


def test_devices_and_ports_are_as_rdma_says(site: Site) -> None:
    devices = {one["ifname"]: one for one in json.loads(site.shell("rdma -j dev"))}
    links = json.loads(site.shell("rdma -j link"))
    told = {(one["ifname"], one["port"]): one for one in links}
    assert len(told) == 4
    for device in site.facts.rdma_devices:
        shown = devices.pop(device.name)
        assert shown["node_type"] == device.node_type.lower()
        assert shown["fw"] == device.firmware
        assert shown["node_guid"] == device.node_guid
        for port in device.ports:
            link = told.pop((device.name, port.number))
            assert (link["lid"], link["sm_lid"]) == (port.lid, port.sm_lid)
            assert link["state"] == port.state
            physical = link["physical_state"].replace("_", "").lower()
            assert physical == port.physical_state.lower()
    assert not devices
    assert not told


def test_tables_of_a_port_are_as_sysfs_has_them(site: Site) -> None:
    listed = site.shell(
        "cd /sys/class/infiniband; grep . */ports/*/pkeys/* | grep -v :0x0000$;"
        " grep . */ports/*/gids/* | grep -v :0000:0000:0000:0000$;"
        " grep . */ports/*/gid_attrs/types/0"
    )
    lines = set()
    for device in site.facts.rdma_devices:
        for port in device.ports:
            folder = f"{device.name}/ports/{port.number}"
            lines |= {f"{folder}/pkeys/{p.index}:{p.value}" for p in port.pkeys}
            lines |= {f"{folder}/gids/{g.index}:{g.gid}" for g in port.gids}
            lines |= {f"{folder}/gid_attrs/types/{g.index}:{g.type}" for g in port.gids}
    assert set(listed.splitlines()) == lines
    assert len(lines) == 4 * (3 + 1 + 1)


ADAPTER_OF = """
cd {NET}
for n in ib0 ib1 ib2 ib3; do
    echo $(
        echo $n; cat $n/dev_port; ethtool -i $n | sed -n 's/bus-info: //p'; cd $n/device
        cat vendor device revision; basename $(realpath driver); ls infiniband
    )
done
"""


def test_adapters_are_what_the_netdevs_stand_on(site: Site) -> None:
    adapters = {one.pci.address: one for one in site.facts.adapters}
    shown = site.shell(ADAPTER_OF.replace("{NET}", NET)).splitlines()
    assert len(shown) == 4
    for words in (line.split() for line in shown):
        netdev = site.netdev(words[0])
        assert netdev.pci is not None
        adapter = adapters[netdev.pci.address]
        assert netdev.pci == adapter.pci
        assert netdev.rdma_port is not None
        assert words[1:] == [
            str(netdev.rdma_port - 1),
            netdev.pci.address,
            netdev.pci.vendor,
            netdev.pci.device,
            netdev.pci.revision,
            adapter.driver,
            netdev.rdma_device,
        ]


def test_children_are_on_their_parents_port(site: Site) -> None:
    parent = site.netdev("ib0")
    for name in ("ib0.8001", "ib0.8007", "storage"):
        child = site.netdev(name)
        assert (child.rdma_device, child.rdma_port) == ("mlx4_0", 1)
        first, guid = child.address[:12], child.address[12:]
        assert first != parent.address[:12]  # its own queue pair
        assert guid == parent.address[12:]


def _hex(guid: str) -> str:
    return f"0x{guid.replace(':', '')}"


@pytest.mark.skipif(
    not os.environ.get("WRITE_GOLDEN"), reason="WRITE_GOLDEN=1 writes tests/data/facts"
)
def test_facts_for_unit_tests(site: Site) -> None:
    write_facts(site.facts, "ib-fabric-children-and-bond")
    FABRIC.unload(site.guest)
    InfiniBand(hcas=1, pci=PciFunction(driver="mlx4_core")).load(site.guest)
    write_facts(facts_of(site.guest), "ib-fabric-unprepared")


def write_facts(facts: Facts, name: str) -> None:
    """Write them without values that differ between boots."""
    fixed: dict[str, Any] = {"hostname": "hv1", "uptime_s": 3600.0}
    facts = replace(facts, **fixed, booted_at=1763694000)
    (DATA / f"{name}.json").write_text(fitted(model.to_json(facts)))
