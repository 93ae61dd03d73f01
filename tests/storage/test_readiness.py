# SPDX-License-Identifier: GPL-2.0-or-later
"""Test local readiness on fake hosts, and the verdict from the steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fakes.fake_hosts import (
    connectx3_ib,
    connectx5_roce,
    soft_roce,
    without_rdma,
)
from support.fakes.fake_root import Pci

from ovirt_rdma.host.facts import model
from ovirt_rdma.storage.readiness import (
    NOT_READY,
    READY,
    UNKNOWN,
    Readiness,
    Step,
    local_steps,
    ports_behind,
)

SERVER = "10.77.0.1"


def ready(host, netdev=None, source=None):
    """Return local readiness of a host that reaches SERVER from source on netdev."""
    if netdev:
        host.route(SERVER, netdev, source)
    reader = host.reader()
    return Readiness(local_steps(reader.facts([SERVER]), reader.route(SERVER)))


@pytest.mark.parametrize(
    "verdicts, whole",
    [
        ([], READY),
        ([READY, READY], READY),
        ([READY, UNKNOWN], UNKNOWN),
        ([UNKNOWN, NOT_READY, READY], NOT_READY),
    ],
)
def test_verdict(verdicts, whole):
    steps = tuple(Step(str(n), v, f"seen {n}") for n, v in enumerate(verdicts))
    found = Readiness(steps)
    assert found.verdict == whole
    if whole != READY:
        assert found.reason == f"seen {verdicts.index(whole)}"


@pytest.mark.parametrize(
    ("netdev", "source", "verdict", "words"),
    [
        ("eth0", "10.0.0.2", READY, "rxe0/1 is ACTIVE and owns 10.0.0.2"),
        # Its own address goes by lo, but is found by its GID.
        ("lo", "10.0.0.2", READY, "rxe0/1 is ACTIVE and owns 10.0.0.2"),
        ("lo", "127.0.0.1", NOT_READY, "no RDMA port owns 127.0.0.1"),
        # On the port's own netdev, but in no GID: RDMA CM answers EPROTO.
        ("eth0", "10.77.0.9", NOT_READY, "no RDMA port owns 10.77.0.9 on eth0"),
        # On a netdev without RDMA.
        ("eth9", "10.9.0.2", NOT_READY, "no RDMA port owns 10.9.0.2 on eth9"),
    ],
)
def test_a_port_of_soft_roce_must_own_the_address(
    tmp_path, netdev, source, verdict, words
):
    host = soft_roce(tmp_path)
    host.netdev("eth9", addresses=("10.9.0.2/24",))
    found = ready(host, netdev, source)
    assert found.verdict == verdict
    assert words in found.steps[-1].detail
    assert bool(found.fix) is (verdict == NOT_READY)


def test_host_without_rdma(tmp_path):
    host = without_rdma(tmp_path)
    host.modules(loaded=("rpcrdma",))
    found = ready(host, "eth0", "10.0.0.2")
    assert found.reason == "this host has no RDMA device"


@pytest.mark.parametrize(
    "loaded, available, verdict",
    [
        (("rpcrdma",), (), READY),
        ((), ("rpcrdma",), READY),
        ((), ("nfs",), NOT_READY),
    ],
)
def test_module(tmp_path, loaded, available, verdict):
    host = soft_roce(tmp_path)
    host.modules(loaded=loaded, available=available)
    assert ready(host, "eth0", "10.0.0.2").steps[0].verdict == verdict


def test_without_an_rdma_device_the_route_does_not_matter(tmp_path):
    facts = without_rdma(tmp_path).reader().facts()
    found = Readiness(local_steps(facts, None))
    assert found.verdict == NOT_READY
    assert "no RDMA device" in found.reason


@pytest.mark.parametrize(
    ("loaded", "available", "words", "fix"),
    [
        ((), ("irdma",), "irdma is not loaded", "modprobe irdma"),
        (
            ("irdma",),
            ("irdma",),
            "irdma is loaded and made no",
            "ovirt-rdma-host check",
        ),
        ((), (), "irdma is missing in this kernel", "ovirt-rdma-host check"),
    ],
)
def test_a_nic_without_its_rdma_module(tmp_path, loaded, available, words, fix):
    host = without_rdma(tmp_path)
    nic = Pci("0000:3b:00.0", "0x8086", "0x1592", "ice")
    host.netdev("ens1f0", pci=nic, addresses=("10.0.0.2/24",))
    host.modules(loaded=("rpcrdma", *loaded), available=("rpcrdma", *available))
    found = ready(host, "ens1f0", "10.0.0.2")
    assert found.verdict == NOT_READY
    assert f"ens1f0 (Intel E810) can do RDMA, and {words}" in found.reason
    assert found.fix == fix


def test_no_route(tmp_path):
    host = soft_roce(tmp_path)
    host.no_route(SERVER)
    assert "Network is unreachable" in ready(host).reason


@pytest.mark.parametrize("netdev, port", [("ib0", "mlx4_0/1"), ("ib1", "mlx4_0/2")])
def test_ipoib_finds_its_port_by_guid(tmp_path, netdev, port):
    host = connectx3_ib(tmp_path)
    detail = ready(host, netdev, "10.77.0.9").steps[-1].detail
    assert f"{port} is " in detail
    assert detail.count("mlx4_0/") == 1


def test_bond_over_ipoib_needs_one_active_port(tmp_path):
    host = connectx3_ib(tmp_path)
    below = {dev.name: dev for dev in host.reader().netdevs()}
    host.netdev(
        "bond0",
        type=32,
        kind="bond",
        address="80:00:00:00" + ":00" * 16,
        lowers=("ib0", "ib1"),
    )
    assert {"ib0", "ib1"} <= set(below)
    state = "/sys/class/infiniband/mlx4_0/ports/{}/state"
    host.write(state.format(1), "1: DOWN")
    host.write(state.format(2), "4: ACTIVE")
    assert ready(host, "bond0", "10.77.0.9").steps[-1].verdict == READY
    host.write(state.format(2), "1: DOWN")
    assert ready(host, "bond0", "10.77.0.9").steps[-1].verdict == NOT_READY


def test_roce_address_on_an_upper_leads_to_the_port(tmp_path):
    host = connectx5_roce(tmp_path)
    (upper,) = [d for d in host.reader().netdevs() if "10.0.0.2/24" in d.addresses]
    assert upper.driver == "bridge"
    assert ready(host, upper.name, "10.0.0.2").verdict == READY


def test_iwarp_port_has_the_netdevs_mac_in_its_gid(tmp_path):
    host = without_rdma(tmp_path)
    host.modules(loaded=("rpcrdma",))
    host.rdma_device("irdma0", node_type="4: RNIC", parent="eth0")
    host.rdma_port("irdma0", link_layer="Ethernet", table_size=1)
    (eth0,) = [d for d in host.reader().netdevs() if d.name == "eth0"]
    mac = eth0.address.replace(":", "")
    gid = f"{mac}{'0' * 20}"
    host.gid("irdma0", 1, 0, ":".join(gid[i : i + 4] for i in range(0, 32, 4)))
    found = ready(host, "eth0", "10.0.0.2")
    assert found.verdict == READY
    other = ready(host, "lo", "127.0.0.1")
    assert other.verdict == NOT_READY


# Find the port that owns the storage address, for RoCE as oVirt builds it.


DATA = Path(__file__).parents[1] / "data" / "facts"
NAS, SOURCE = "10.98.0.1", "10.98.0.2"


def load(name):
    """Return the facts, and the readiness for NAS."""
    facts = model.load(DATA / f"roce-{name}.json")
    [route] = [one for one in facts.routes if one.destination == NAS]
    return facts, Readiness(local_steps(facts, route))


@pytest.mark.parametrize(
    "name, netdev, port",
    [
        ("nic", "eth1", "rxe1/1"),
        ("vlan", "eth1.100", "rxe1/1"),
        ("bridge", "br8", "rxe8/1"),
        ("bridge-vlan", "br8", "rxe8/1"),
        ("bridge-over-vlan", "br8", "rxe1/1"),
        ("bond", "bond7", "rxe7/1"),
        ("bond-vlan", "bond7.100", "rxe7/1"),
        # Two adapters, each with its own RDMA device, below one bond: the
        # address is in the GID table of the active slave's device.
        ("bond-of-two", "bond7", "rxe1/1"),
        ("bond-of-two-failed-over", "bond7", "rxe2/1"),
    ],
)
def test_the_port_that_owns_the_address(name, netdev, port):
    facts, readiness = load(name)
    seen = {step.name: (step.verdict, step.detail) for step in readiness.steps}
    assert seen["route"] == (READY, f"{NAS} by {netdev} from {SOURCE}")
    assert seen["port"] == (READY, f"{port} is ACTIVE and owns {SOURCE}")
    assert readiness.verdict == READY
    local = model.Route("10.99.0.2", "eth0", "10.99.0.2")
    (other,) = ports_behind(facts.rdma_devices, facts.netdevs, local)
    assert other[0].name == "rxe0"


def test_an_address_above_a_nic_without_rdma_device():
    _, readiness = load("bridge-without-rdma")
    assert readiness.verdict == NOT_READY
    assert readiness.reason == f"no RDMA port owns {SOURCE} on br8 (RDMA devices: rxe0)"
    assert readiness.fix == (
        "put the storage address on the RDMA port's netdev, or on one above it"
    )
