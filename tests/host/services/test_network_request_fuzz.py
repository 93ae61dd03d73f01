# SPDX-License-Identifier: GPL-2.0-or-later
"""No network request raises an exception; tests/vdsm_hooks has what is refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.services.network_request import (
    Link,
    NetworkRequest,
    concerns_ipoib,
    parsed,
    read_links,
    refusal,
    undecided_netdevs,
    wanted_modes,
    without_auto,
)

NAMES = st.sampled_from(["ib0", "ib1", "eth0", "bond0", "gone", "", "..", "a/b", "a\0"])
WORDS = st.sampled_from(
    ["auto", "connected", "mode=1", "mode=4 x", "=", "mode", "true", "ovs", "legacy"]
)
KEYS = st.sampled_from(
    [
        *("nic", "bonding", "nics", "options", "mtu", "vlan", "bridged", "custom"),
        *("switch", "remove", "ipoib_mode", "_inRollback"),
    ]
)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | NAMES, inner, max_size=4)
    ),
    max_leaves=10,
)
REQUESTS = st.fixed_dictionaries(
    {
        "request": st.fixed_dictionaries(
            {},
            optional={
                key: ODD | st.dictionaries(NAMES, st.dictionaries(KEYS, ODD) | ODD)
                for key in ("networks", "bondings", "options")
            },
        )
    }
)
LINKS = {
    "ib0": Link("ib0", True, "datagram", 2044),
    "ib1": Link("ib1", True, None, None),
    "eth0": Link("eth0", False, None, 1500),
    "bond0": Link("bond0", False, None, 2044, ("ib0", "gone"), "balance-rr"),
    "gone": Link("gone"),
}


@given(REQUESTS | ODD, st.dictionaries(NAMES, st.integers(0, 65520)))
def test_no_request_is_too_odd(data, limits):
    request = parsed(data)
    if request is None:
        return
    links = {n: LINKS[n] for n in request.netdevs if n in LINKS}
    links |= {n: LINKS[n] for link in tuple(links.values()) for n in link.members}
    text = refusal(request, links, limits)
    assert "\n" not in text
    assert set(undecided_netdevs(request, links)) <= set(links)
    if not concerns_ipoib(links):
        assert (text, wanted_modes(request, links)) == ("", ())
    assert not any(n.mode == "auto" for n in without_auto(request).networks)
    if not text:
        # Unknown limits must not lead to a refusal.
        assert refusal(request, links) == ""


@given(REQUESTS)
def test_the_netdevs_that_are_read_are_those_below_sys(data):
    request = parsed(data)
    assert isinstance(request, NetworkRequest)
    read = read_links("/nonexistent", request.netdevs)
    assert not {"", "..", "a/b"} & set(read)
    assert all(link.ipoib is None for link in read.values())


def test_the_limit_of_the_port_is_named():
    network = {"nic": "ib0", "bridged": False, "mtu": 4000}
    request = parsed({"request": {"networks": {"storage": network}}})
    refused = refusal(request, LINKS, {"ib0": 2044})
    assert refused == (
        "network storage: MTU 4000 is too large for ib0 in datagram mode (at most 2044 "
        "bytes): lower the network's MTU, or set its ipoib_mode to connected if the "
        "adapter supports it"
    )
    assert refusal(request, LINKS, {"ib0": 4092}) == ""
