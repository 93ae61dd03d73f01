# SPDX-License-Identifier: GPL-2.0-or-later
"""IB-PORT-01: InfiniBand ports that are not up, and missing subnet managers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.ipoib_host import finding, host, netdev, network, policy, port

from ovirt_rdma.host.facts.devices import Adapter, PciIdentity
from ovirt_rdma.host.facts.model import Software, Unit

ID = "IB-PORT-01"
PORT = "mlx4_0/1"
NAMED = policy(mtu="auto")
BY_NAME = "the policy names it (interface 1)"
CABLE = (
    "| check the cable, and that the port at its other end is on and has the same link "
    "layer; if it is Disabled or Sleep, reload the port's driver"
)
UNKNOWN = {"rate_mbps": None, "lid": None, "sm_lid": None}
NO_LID = {"rate_mbps": None, "lid": None}
POLLING = {"state": "DOWN", "physical_state": "Polling"}
DISABLED = {"state": "DOWN", "physical_state": "Disabled"}


@pytest.mark.parametrize(
    ("state", "verdict", "words"),
    [
        ({}, "PASS", "is ACTIVE, 40 Gb/s, LID 3, subnet manager at LID 1"),
        (UNKNOWN, "SKIP", "mlx4_0/1 is ACTIVE; its subnet manager is unknown |"),
        (NO_LID, "PASS", "mlx4_0/1 is ACTIVE, subnet manager at LID 1 |"),
        ({"sm_lid": 0}, "FAIL", "is ACTIVE: it has lost its subnet manager (SM LID 0)"),
        (
            {"state": "INIT", "sm_lid": 0},
            "FAIL",
            "is INIT: it has a link, but no subnet manager has configured it",
        ),
        (POLLING, "FAIL", f"is DOWN (link: Polling); {BY_NAME} {CABLE}"),
        (DISABLED, "FAIL", f"is DOWN (link: Disabled); {BY_NAME} {CABLE}"),
        (
            {"state": "unknown", "physical_state": "odd"},
            "FAIL",
            "is unknown (link: odd)",
        ),
    ],
)
def test_states(state, verdict, words):
    text = finding(host(ports=(port(**state),)), NAMED, ID, PORT)
    assert text.startswith(f"{verdict} mlx4_0/1 ")
    assert words in text


DOWN = {"ports": (port(**POLLING),)}
ADDRESS = netdev(addresses=("10.0.0.1/24",))
TWO = (port(1, **POLLING), port(2))
IN_NETWORK = "ib0 is in use (network 'storage')"
BY_BOTH = "the policy names it and mlx4_0/2 (interface 1)"


@pytest.mark.parametrize(
    ("facts", "wanted", "verdict", "need"),
    [
        (host(**DOWN), NAMED, "FAIL", BY_NAME),
        (host(uses=("ib0",), **DOWN), None, "WARN", "ib0 is in use (nfs)"),
        (host(networks=[network()], **DOWN), None, "WARN", IN_NETWORK),
        (host(ADDRESS, **DOWN), None, "WARN", "ib0 is in use (10.0.0.1/24)"),
        (host(**DOWN), None, "SKIP", "nothing on this host needs it"),
        (host(**DOWN), policy(port=2), "SKIP", "nothing on this host needs it"),
        # A rule for several ports is satisfied even if some have no cable.
        (host(ports=TWO), NAMED, "WARN", BY_BOTH),
        (host(ports=TWO), policy(port=1), "FAIL", BY_NAME),
        (host(ports=(replace(TWO[0], state="INIT"), TWO[1])), NAMED, "FAIL", BY_NAME),
        (host(ports=(TWO[0], replace(TWO[1], state="DOWN"))), NAMED, "FAIL", BY_NAME),
    ],
)
def test_it_matters_only_to_who_needs_the_port(facts, wanted, verdict, need):
    text = finding(facts, wanted, ID, PORT)
    assert text.startswith(f"{verdict} mlx4_0/1 ")
    assert need in text


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (None, "opensm on one machine of the fabric"),
        ("opensm.service", "opensm.service is running on this host: see its log"),
    ],
)
def test_what_to_do_for_a_subnet_manager(unit, words):
    units = (Unit(unit, "loaded", "active"),) if unit else ()
    facts = host(ports=(port(state="INIT", sm_lid=0),), software=Software(units=units))
    assert words in finding(facts, NAMED, ID, PORT)


def test_a_virtual_functions_port_follows_the_physical_one():
    pci = PciIdentity("0000:04:00.0", "0x15b3", "0x1018", "0x00")
    virtual = Adapter(pci, physical_function="0000:03:00.0")
    text = finding(host(adapter=virtual, **DOWN), NAMED, ID, PORT)
    assert "on 0000:03:00.0, set the link state of the VF to auto" in text


def test_a_host_without_infiniband():
    facts = replace(host(ports=(port(link_layer="Ethernet"),)), netdevs=())
    assert finding(facts, NAMED, ID, "host").startswith("SKIP ")
