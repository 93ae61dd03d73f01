# SPDX-License-Identifier: GPL-2.0-or-later
"""Refused network requests: id and arguments. tests/vdsm_hooks has the whole way."""

from __future__ import annotations

import pytest
from support.host.hook_host import network, setup

from ovirt_rdma.host.services.network_request import (
    NO_REFUSAL,
    Link,
    parsed,
    refusal,
)

LINKS = {
    "ib0": Link("ib0", True, "datagram", 2044),
    "ib1": Link("ib1", True, "datagram", 2044),
    "ib2": Link("ib2", True, "connected", 65520),
    "eth0": Link("eth0", False, None, 1500),
    "bond9": Link("bond9", False, None, 2044, ("ib0", "ib1"), "802.3ad"),
}
ACTIVE_BACKUP = "mode=1 miimon=100"


@pytest.mark.parametrize(
    ("request_data", "id", "arguments"),
    [
        (
            setup({"storage": network("ib0", bridged=True)}),
            "network-is-bridged",
            ("network storage", "ib0", "VM network"),
        ),
        (
            setup({"storage": network("ib0", vlan=7)}),
            "network-has-vlan",
            ("network storage", "ib0", "ib0.8001"),
        ),
        (
            setup({"storage": network("ib0", switch="ovs", bridged=True)}),
            "network-on-ovs",
            ("network storage", "ib0", "Linux Bridge"),
        ),
        (
            setup({"storage": network("ib0", custom={"ipoib_mode": "Connected"})}),
            "ipoib-mode-invalid",
            ("network storage", "'Connected'", "auto, datagram, connected"),
        ),
        (
            setup({"storage": network("ib2", mtu=65521)}),
            "mtu-too-large",
            ("network storage", "ib2", "65521", "65520"),
        ),
        (
            setup({"storage": network("ib0", mtu=65520)}),
            "mtu-too-large",
            ("network storage", "ib0", "65520", "10236", "ipoib_mode"),
        ),
        (
            setup({}, {"bond0": {"nics": ["ib0", "ib1"]}}),
            "bond-mode-unsupported",
            ("bond bond0", "ib0, ib1", "balance-rr", ACTIVE_BACKUP),
        ),
        (
            setup({"storage": network(bonding="bond9")}),
            "bond-mode-unsupported",
            ("bond bond9", "ib0, ib1", "802.3ad", ACTIVE_BACKUP),
        ),
        (
            setup({}, {"bond0": {"nics": ["eth0", "ib0"], "options": ACTIVE_BACKUP}}),
            "bond-mixed",
            ("bond bond0", "ib0", "eth0"),
        ),
        (
            setup({"storage": network("ib0", bridged=True, vlan=7)}),
            "network-has-vlan",
            ("network storage", "ib0", "1 more"),
        ),
    ],
)
def test_a_refusal_has_an_id_and_names_what_it_is_about(request_data, id, arguments):
    request = parsed(request_data)
    assert request is not None
    refused = refusal(request, LINKS)
    assert refused.id == id
    for argument in arguments:
        assert argument in refused


def test_the_limit_of_the_port_is_named():
    request = parsed(setup({"storage": network("ib0", mtu=4000)}))
    assert request is not None
    refused = refusal(request, LINKS, {"ib0": 2044})
    assert refused.id == "mtu-too-large"
    assert "2044" in refused
    assert refusal(request, LINKS, {"ib0": 4092}) == NO_REFUSAL == ""
