# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that before_network_setup only refuses what InfiniBand cannot do."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.host.hook_host import network, setup

pytestmark = pytest.mark.hypervisor

_AB = "mode=1 miimon=100"


@pytest.fixture
def host(host):
    host.only("before_network_setup")
    host.enable()
    host.ethernet("eth0")
    host.ethernet("eth1")
    host.ipoib("ib0")
    host.ipoib("ib1")
    host.ipoib("ib2", mode="connected", mtu=65520)
    return host


# A request that cannot work, and the sentence for the engine's event log.
REFUSED = {
    "VM network": (
        setup({"storage": network("ib0", bridged=True)}),
        "network storage: ib0 is InfiniBand, which cannot be a bridge port: clear "
        "'VM network' for it",
    ),
    "VLAN": (
        setup({"storage": network("ib0", vlan=7)}),
        "network storage: ib0 is InfiniBand, which does not support VLANs: clear the "
        "network's VLAN tag (a P_Key child such as ib0.8001 does the same)",
    ),
    "Open vSwitch": (
        setup({"storage": network("ib0", switch="ovs", bridged=True)}),
        "network storage: ib0 is InfiniBand, which cannot be a port of Open vSwitch: "
        "use switch type Linux Bridge",
    ),
    "bond without options": (
        setup({}, {"bond0": {"nics": ["ib0", "ib1"], "switch": "legacy"}}),
        "bond bond0: ib0, ib1 are InfiniBand, which can only be bonded in mode "
        "active-backup (1), but the mode is balance-rr, VDSM's default: choose the "
        "custom bonding mode 'mode=1 miimon=100'",
    ),
    "bond by number": (
        setup({}, {"bond0": {"nics": ["ib0"], "options": "miimon=100 mode=4"}}),
        "bond bond0: ib0 is InfiniBand, which can only be bonded in mode active-backup "
        "(1), but the mode is 4: choose the custom bonding mode 'mode=1 miimon=100'",
    ),
    "mixed bond": (
        setup({}, {"bond0": {"nics": ["eth0", "ib0"], "options": _AB}}),
        "bond bond0: ib0 is InfiniBand and eth0 is not; a bond cannot have both: "
        "remove one kind",
    ),
    "VM network on a bond": (
        setup(
            {"storage": network(bonding="bond0", bridged=True)},
            {"bond0": {"nics": ["ib0", "ib1"], "options": _AB}},
        ),
        "network storage: ib0, ib1 are InfiniBand, which cannot be a bridge port: "
        "clear 'VM network' for it",
    ),
    "MTU of connected mode": (
        setup({"storage": network("ib0", mtu=65520)}),
        "network storage: MTU 65520 is too large for ib0 in datagram mode (at most "
        "10236 bytes): lower the network's MTU, or set its ipoib_mode to connected if "
        "the adapter supports it",
    ),
    "MTU of nothing": (
        setup({"storage": network("ib2", mtu=65521)}),
        "network storage: MTU 65521 is too large for ib2: the limit of InfiniBand is "
        "65520 bytes",
    ),
    "bad mode": (
        setup({"storage": network("ib0", custom={"ipoib_mode": "Connected"})}),
        "network storage: ipoib_mode 'Connected' is invalid; allowed: auto, datagram, "
        "connected",
    ),
    "two things": (
        setup({"storage": network("ib0", bridged=True, vlan=7)}),
        "network storage: ib0 is InfiniBand, which does not support VLANs: clear the "
        "network's VLAN tag (a P_Key child such as ib0.8001 does the same) (and 1 "
        "more)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_one_sentence(case, vdsm, host, hook_error):
    request, sentence = REFUSED[case]
    with pytest.raises(hook_error) as caught:
        vdsm.before_network_setup(request)
    assert caught.value.value == (f"{sentence}\n".encode(),)


def test_a_refusal_loads_neither_rules_nor_changes(vdsm, host, hook_error):
    """VDSM waits for the hook, and their import takes most of its time (make bench)."""
    host.without_rooms("changes", "policy", "rules")
    request, sentence = REFUSED["VM network"]
    with pytest.raises(hook_error) as caught:
        vdsm.before_network_setup(request)
    assert caught.value.value == (f"{sentence}\n".encode(),)


GOES_ON = {
    "non-VM network": setup({"storage": network("ib0", mtu=2044)}),
    "MTU default": setup({"storage": network("ib0")}),
    "connected": setup({"storage": network("ib2", mtu=65520)}),
    "Ethernet VM network": setup({"vms": network("eth0", bridged=True, vlan=7)}),
    "Ethernet bond": setup({}, {"bond0": {"nics": ["eth0", "eth1"]}}),
    "active-backup by number": setup(
        {"storage": network(bonding="bond0")},
        {"bond0": {"nics": ["ib0", "ib1"], "options": _AB}},
    ),
    "active-backup by name": setup(
        {}, {"bond0": {"nics": ["ib0", "ib1"], "options": "mode=active-backup"}}
    ),
    "no such NIC": setup({"storage": network("ib9", bridged=True)}),
    "no NIC": setup({"vms": network(bridged=True)}),
    "odd names": setup({"storage": network("../../../etc", bridged=True)}),
    "removal": setup({"storage": {"remove": True}}, {"bond0": {"remove": True}}),
    "removal with leftovers": setup(
        {"storage": {"remove": True, "nic": "ib0", "bridged": True}}
    ),
    "rollback": setup({"storage": network("ib0", bridged=True)}, _inRollback=True),
    "rollback as text": setup(
        {"storage": network("ib0", bridged=True)}, _inRollback="true"
    ),
    "nothing": setup(),
}


@pytest.mark.parametrize("case", GOES_ON)
def test_it_goes_on_and_the_request_is_as_it_was(case, vdsm, host):
    assert vdsm.before_network_setup(GOES_ON[case]) == GOES_ON[case]


def test_a_rollback_is_never_refused(vdsm, host):
    """The setup at boot has the same mark, and is not refused either."""
    networks, bonds = {}, {}
    for number, (request, _) in enumerate(REFUSED.values()):
        for name, fields in request["request"]["networks"].items():
            networks[f"{name}{number}"] = fields
        bonds.update(request["request"]["bondings"])
    all_of_them = setup(networks, bonds, _inRollback=True)
    assert vdsm.before_network_setup(all_of_them) == all_of_them


def test_without_the_marker_nothing_is_refused(vdsm, host):
    (host.root / "etc/ovirt-rdma/enabled").unlink()
    request, _ = REFUSED["VM network"]
    assert vdsm.before_network_setup(request) == request


@pytest.mark.parametrize(
    "members, mode, sentence",
    [
        (("ib0", "ib1"), "active-backup", None),
        (
            ("ib0", "ib1"),
            "802.3ad",
            "bond bond0: ib0, ib1 are InfiniBand, which can only be bonded in mode "
            "active-backup (1), but the mode is 802.3ad: choose the custom bonding "
            "mode 'mode=1 miimon=100'\n",
        ),
        (("eth0", "eth1"), "802.3ad", None),
    ],
)
def test_a_bond_that_is_there_counts_as_it_is(
    vdsm, host, hook_error, members, mode, sentence
):
    host.bond("bond0", mode, *members)
    request = setup({"storage": network(bonding="bond0")})
    if sentence is None:
        assert vdsm.before_network_setup(request) == request
        return
    with pytest.raises(hook_error) as caught:
        vdsm.before_network_setup(request)
    assert caught.value.value == (sentence.encode(),)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"request": None},
        {"request": []},
        {"request": {"networks": [], "bondings": None, "options": 7}},
        {"request": {"networks": {"a": None, "b": {"nic": 7, "mtu": "x"}}}},
        {"request": {"networks": {"a": {"nic": "ib0", "mtu": True, "custom": []}}}},
        {"request": {"bondings": {"b": {"nics": "ib0"}, "c": {"nics": [None, 7]}}}},
        [],
        7,
        None,
    ],
)
def test_an_odd_request_goes_on(vdsm, host, data):
    assert vdsm.before_network_setup(data) == data


def test_a_setup_without_infiniband_waits_for_few_imports():
    """Each setup of a network on the host waits for this hook."""
    code = (
        "import sys, ovirt_rdma.vdsm_hooks.network; "
        "print(*(m for m in sys.modules if m.startswith('ovirt_rdma.host.')))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout
    packages = {name.split(".")[2] for name in shown.split()}
    assert packages == {"facts", "services", "system"}
