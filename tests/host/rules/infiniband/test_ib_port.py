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


@pytest.mark.parametrize(
    ("state", "verdict", "words"),
    [
        ({}, "PASS", "is ACTIVE, 40 Gb/s, LID 3, subnet manager at LID 1"),
        (
            {"rate_mbps": None, "lid": None, "sm_lid": None},
            "SKIP",
            "mlx4_0/1 is ACTIVE; its subnet manager is unknown |",
        ),
        (
            {"rate_mbps": None, "lid": None},
            "PASS",
            "mlx4_0/1 is ACTIVE, subnet manager at LID 1 |",
        ),
        (
            {"sm_lid": 0},
            "FAIL",
            "is ACTIVE, but has lost its subnet manager (SM LID 0)",
        ),
        (
            {"state": "INIT", "sm_lid": 0},
            "FAIL",
            "has a link, but is INIT: no subnet manager",
        ),
        (
            {"state": "DOWN", "physical_state": "Polling"},
            "FAIL",
            "is DOWN (link: Polling); the policy names it (interface 1) | check the "
            "cable",
        ),
        (
            {"state": "DOWN", "physical_state": "Disabled"},
            "FAIL",
            "is DOWN (link: Disabled); the policy names it (interface 1) | reload the "
            "port's driver",
        ),
        (
            {"state": "unknown", "physical_state": "odd"},
            "FAIL",
            "is unknown (link: odd",
        ),
    ],
)
def test_states(state, verdict, words):
    text = finding(host(ports=(port(**state),)), NAMED, ID, PORT)
    assert text.startswith(f"{verdict} mlx4_0/1 ")
    assert words in text


DOWN = {"ports": (port(state="DOWN", physical_state="Polling"),)}


@pytest.mark.parametrize(
    ("facts", "wanted", "verdict", "need"),
    [
        (host(**DOWN), NAMED, "FAIL", "the policy names it (interface 1)"),
        (host(uses=("ib0",), **DOWN), None, "WARN", "ib0 is in use (nfs)"),
        (
            host(networks=[network()], **DOWN),
            None,
            "WARN",
            "ib0 is in use (network 'storage')",
        ),
        (
            host(netdev(addresses=("10.0.0.1/24",)), **DOWN),
            None,
            "WARN",
            "ib0 is in use (10.0.0.1/24)",
        ),
        (host(**DOWN), None, "SKIP", "nothing on this host needs it"),
        (host(**DOWN), policy(port=2), "SKIP", "nothing on this host needs it"),
    ],
)
def test_it_matters_only_to_who_needs_the_port(facts, wanted, verdict, need):
    text = finding(facts, wanted, ID, PORT)
    assert text.startswith(f"{verdict} ")
    assert need in text


TWO_PORTS = (
    port(1, state="DOWN", physical_state="Polling"),
    port(2),
)


@pytest.mark.parametrize(
    ("ports", "wanted", "verdict", "who"),
    [
        (TWO_PORTS, NAMED, "WARN", "the policy names it and mlx4_0/2 (interface 1)"),
        (TWO_PORTS, policy(port=1), "FAIL", "the policy names it (interface 1)"),
        (
            (replace(TWO_PORTS[0], state="INIT"), TWO_PORTS[1]),
            NAMED,
            "FAIL",
            "the policy names it (interface 1)",
        ),
        (
            (TWO_PORTS[0], replace(TWO_PORTS[1], state="DOWN")),
            NAMED,
            "FAIL",
            "the policy names it (interface 1)",
        ),
    ],
)
def test_one_rule_for_many_ports_is_met_where_one_has_no_cable(
    ports, wanted, verdict, who
):
    text = finding(host(ports=ports), wanted, ID, PORT)
    assert text.startswith(f"{verdict} mlx4_0/1 ")
    assert who in text


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
