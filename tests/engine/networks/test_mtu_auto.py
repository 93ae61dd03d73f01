# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from support.engine.refusals import reason

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.engine_sdk_tools.networks.create import NetworkRequest, host_mtu
from ovirt_rdma.engine_sdk_tools.networks.nics import ipoib_mtus
from ovirt_rdma.host.facts import model

pytestmark = pytest.mark.engine

DATA = Path(__file__).resolve().parents[2] / "data"
FABRIC = "facts/ib-fabric-children-and-bond"


def facts(name):
    return model.load(DATA / f"{name}.json")


@pytest.mark.parametrize(
    ("name", "netdev", "mtu", "because"),
    [
        (FABRIC, "ib0", 2044, "the link has MTU 2048"),
        (FABRIC, "ib1", 65520, "it is in connected mode"),
        (FABRIC, "ib3", 4092, "the port's largest MTU is 4096"),
        ("facts/connectx3-ib", "ib0", None, "ibv_devinfo"),
    ],
)
def test_limits(name, netdev, mtu, because):
    found = ipoib_mtus(facts(name))[netdev]

    assert found.mtu == mtu
    assert because in found.because


def test_children_are_told_from_ports():
    found = ipoib_mtus(facts(FABRIC))
    assert {name for name, one in found.items() if one.child} == {
        "ib0.8001",
        "ib0.8007",
        "storage",
    }


def test_roce_has_none():
    assert ipoib_mtus(facts("facts/roce-nic")) == {}


def limits(match=None, mtu="auto", **facts_of):
    """Return the MTU, the reason, the refusals and the warnings."""
    hosts = [Host(name, name, name, "cl1") for name in facts_of]
    reports = {name: HostReport(name, facts(which)) for name, which in facts_of.items()}
    request = NetworkRequest("storage", "dc1", mtu, nic_match=match)
    refusals, warnings = [], []
    found = host_mtu(request, hosts, reports, refusals, warnings)
    return (*found, refusals, warnings)


def test_auto_takes_the_least_of_all_ports_and_names_them():
    mtu, because, refusals, _ = limits(a=FABRIC)
    assert (mtu, refusals) == (2044, [])
    assert because.startswith("limited by ib0 of a, ib2 of a: in datagram mode, ")
    assert because.endswith(" (others: up to 65520)")


@pytest.mark.parametrize(
    ("match", "mtu"), [("ib3", 4092), ("storage", 65520), ("001b:00:01.0", 2044)]
)
def test_auto_by_pci_address_and_by_name(match, mtu):
    assert limits(match, a=FABRIC)[0] == mtu


def test_auto_does_not_guess():
    mtu, _, refusals, _ = limits(a=FABRIC, b="facts/connectx3-ib")
    assert mtu == 0
    reason(refusals, "mtu-unknown", "b: ", "ib0")


def test_a_number_is_an_offence_where_no_port_can():
    assert limits(mtu=4092, a=FABRIC) == (4092, "as requested", [], [])
    _, _, (refusal,), _ = limits("ib0", 4092, a=FABRIC)
    reason([refusal], "mtu-too-large", "a: ib0", 2044, 4092)
    _, _, refusals, (warning,) = limits(mtu=4092, a="facts/connectx3-ib")
    assert refusals == []
    assert warning == "MTU 4092 could not be verified on a"
