# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-BOND-01: bonds, bridges and VLANs on IPoIB netdevs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.ipoib_host import (
    bond,
    child,
    finding,
    host,
    netdev,
    network,
    port,
)

ID = "IPOIB-BOND-01"
TWO = (port(1), port(2))


def bonded(second="datagram", **parts):
    """ib0 and ib1 in bond0."""
    return host(
        netdev("ib0", uppers=("bond0",)),
        netdev("ib1", mode=second, port=2, uppers=("bond0",)),
        bond(**parts),
        ports=TWO,
    )


@pytest.mark.parametrize(
    ("facts", "verdict", "words"),
    [
        (bonded(), "PASS", "bond0 of ib0, ib1 is in mode active-backup"),
        (bonded(fail_over_mac=None), "SKIP", "its fail_over_mac could not be read"),
        (bonded(None), "SKIP", "its members' modes could not be read"),
        (bonded(mode="balance-rr"), "FAIL", "in mode balance-rr, but IPoIB supports"),
        (bonded(fail_over_mac="none"), "FAIL", "fail_over_mac none instead of active"),
        (bonded("connected"), "WARN", "different transport modes"),
    ],
)
def test_bonds(facts, verdict, words):
    text = finding(facts, None, ID, "bond0")
    assert text.startswith(f"{verdict} ")
    assert words in text


@pytest.mark.parametrize(
    ("made", "words", "fix"),
    [
        (network(bridged=True), "is a VM network on ib0", "non-VM network"),
        (
            network(southbound="ib0.100", vlan=100),
            "has VLAN 100 on ib0",
            "P_Key child",
        ),
        (network(southbound="ib0.8001", bridged=True), "on ib0.8001", "non-VM"),
    ],
)
def test_networks_that_cannot_be_attached(made, words, fix):
    facts = host(netdev(), child(), networks=[made])
    text = finding(facts, None, ID, made.southbound)
    assert text.startswith("FAIL network 'storage' ")
    assert words in text
    assert fix in text


def test_a_bridge_on_a_bond_of_ipoib_is_found_too():
    facts = replace(bonded(), ovirt_networks=(network("vm", "bond0", bridged=True),))
    assert any("VM network on bond0" in text for text in _texts(facts))


@pytest.mark.parametrize(
    "networks",
    [(), (network(),), (network(southbound="eth0", bridged=True, vlan=5),)],
)
def test_networks_that_can(networks):
    facts = host(networks=networks)
    text = finding(facts, None, ID, "host")
    assert text == "SKIP no bond, bridge or VLAN is on an IPoIB netdev | "


def _texts(facts):
    from support.host.ipoib_host import found

    return [text for (rule, _), all_ in found(facts).items() for text in all_]
