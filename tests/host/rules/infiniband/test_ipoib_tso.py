# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-TSO-01 and -02: TSO where it must be off, and as the policy says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.ipoib_host import (
    A0,
    MLX5,
    TSO,
    child,
    finding,
    host,
    netdev,
    policy,
    port,
    profile,
    shown,
    steps,
)

from ovirt_rdma.host.facts.devices import NetworkManager, Offload

ID = "IPOIB-TSO-01"
OPPOSED = "uuid-ib0 ethtool.feature-tso on>off"
OFF_BOTH = [
    "ib0 tx-tcp-segmentation on>off",
    "ib0 tx-tcp6-segmentation on>off",
]


@pytest.mark.parametrize(
    ("chip", "revision"),
    [
        (A0, "PCI id 15b3:634a, PCI revision a0, hw_rev a0"),
        ({**A0, "hw_rev": None}, "PCI revision a0, hw_rev unknown"),
        # The driver uses NodeInfo's revision, which is hw_rev.
        ({**A0, "revision": "0x00"}, "PCI revision 00, hw_rev a0"),
        ({**A0, "hw_rev": "0xA0", "pci_id": "0x6732"}, "PCI id 15b3:6732"),
    ],
)
def test_revision_a0_is_told_by_id_and_revision(chip, revision):
    text = finding(host(**chip), None, ID)
    assert text.startswith("FAIL ib0 is on a ConnectX of revision a0")
    assert revision in text


@pytest.mark.parametrize(
    "chip",
    [
        {**A0, "hw_rev": "b0"},
        {**A0, "hw_rev": None, "revision": "0xb0"},
        {**A0, "hw_rev": "0"},
        {**A0, "pci_id": "0x1003"},
        {**A0, "vendor": "0x8086"},
        MLX5,
    ],
)
def test_no_other_card_is_taken_for_it(chip):
    text = finding(host(**chip), policy(tso="auto"), ID, "host")
    assert text.startswith("SKIP no IPoIB netdev is on a ConnectX of revision a0")


@pytest.mark.parametrize(
    ("tso", "mode", "verdict", "words"),
    [
        (
            "on",
            "datagram",
            "FAIL",
            "TSO is on (tx-tcp-segmentation, tx-tcp6-segmentation) |",
        ),
        ("fixed", "datagram", "PASS", "TSO is off [fixed] |"),
        ("off", "datagram", "PASS", "TSO is off |"),
        (
            "asked",
            "connected",
            "WARN",
            "TSO is off, but requested (connected mode has no TSO), and datagram mode "
            "turns it on |",
        ),
        (None, "datagram", "WARN", "its TSO state is unknown"),
    ],
)
def test_it_says_which_it_found(tso, mode, verdict, words):
    text = finding(host(netdev(mode=mode, tso=tso), **A0), None, ID)
    assert text.startswith(verdict)
    assert words in text


@pytest.mark.parametrize("choice", ["auto", "off"])
def test_it_acts_where_tso_is_really_on_children_too(choice):
    other = netdev("ib1", tso="fixed", port=2)
    facts = host(netdev(), child(), other, ports=(port(), port(2)), **A0)
    plan = steps(facts, policy(tso=choice))
    ours = [name for name in plan if name.startswith(ID)]
    assert ours == [f"{ID}/ib0", f"{ID}/ib0.8001"]
    step = plan[f"{ID}/ib0"]
    assert shown(step) == OFF_BOTH
    assert (step.before, step.after, step.effect) == ("on", "off", "live")


@pytest.mark.parametrize(
    ("profiles", "changes", "effect"),
    [
        ((profile(),), OFF_BOTH, "live"),
        ((profile(tso="off"),), OFF_BOTH, "live"),
        ((profile(tso="on"),), [OPPOSED, *OFF_BOTH], "link-down"),
        ((profile(tso="on", active=False),), [OPPOSED, *OFF_BOTH], "live"),
    ],
)
@pytest.mark.parametrize("chip", [A0, {}], ids=["a0", "other"])
def test_a_profile_is_left_alone_unless_it_would_turn_it_on_again(
    profiles, changes, effect, chip
):
    facts = host(profiles=profiles, uses=("ib0",), **chip)
    plan = steps(facts, policy(tso="off"))
    (step,) = [step for name, step in plan.items() if "TSO" in name]
    assert shown(step) == changes
    assert (step.effect, bool(step.users)) == (effect, effect == "link-down")


@pytest.mark.parametrize("wanted", [policy(), policy(mtu="auto")])
def test_without_a_word_in_the_policy_it_only_says_which_word(wanted):
    text = finding(host(**A0), wanted, ID)
    assert 'match: {guid: "0002:c903:00fb:1231"}, tso: auto' in text
    assert not any(name.startswith(ID) for name in steps(host(**A0), wanted))


WANTED = "IPOIB-TSO-02"


OFF, KEPT_OFF = [profile()], [profile(tso="off")]
ON_BOTH = ["ib0 tx-tcp-segmentation off>on", "ib0 tx-tcp6-segmentation off>on"]
ASKED = netdev(mode="connected", mtu=65520, tso="asked")


@pytest.mark.parametrize(
    ("facts", "choice", "verdict", "changes"),
    [
        (host(), "auto", "PASS", []),
        (host(tso="off"), "auto", "FAIL", ON_BOTH),
        (host(tso="fixed"), "auto", "PASS", []),
        (host(ASKED), "auto", "PASS", []),
        (host(), "off", "FAIL", OFF_BOTH),
        # Off manually, and off for good.
        (host(tso="off", profiles=OFF), "off", "PASS", []),
        (host(tso="off", profiles=KEPT_OFF), "off", "PASS", []),
        # The profile has another value.
        (
            host(profiles=KEPT_OFF),
            "auto",
            "WARN",
            ["uuid-ib0 ethtool.feature-tso off>on"],
        ),
        (host(), None, "PASS", []),
        (host(tso=None), "on", "SKIP", []),
    ],
)
def test_tso_as_the_policy_says(facts, choice, verdict, changes):
    wanted = policy(tso=choice)
    assert finding(facts, wanted, WANTED).startswith(verdict)
    plan = steps(facts, wanted)
    assert [text for step in plan.values() for text in shown(step)] == changes


@pytest.mark.parametrize(
    ("choice", "verdict"), [("on", "FAIL"), ("auto", "SKIP"), ("off", "SKIP")]
)
def test_without_an_answer_of_nmcli_it_is_not_turned_on(choice, verdict):
    """The profile may have it off, and would be planned afterwards."""
    facts = replace(host(tso="off"), network_manager=NetworkManager(None))
    assert finding(facts, policy(tso=choice), WANTED).startswith(verdict)
    plan = steps(facts, policy(tso=choice))
    assert [text for step in plan.values() for text in shown(step)] == []


@pytest.mark.parametrize(
    ("facts", "rule", "why"),
    [
        (
            host(tso="fixed"),
            {"tso": "on"},
            "the driver does not support TSO (off [fixed])",
        ),
        (
            host(),
            {"tso": "on", "transport_mode": "connected"},
            "the plan sets connected mode, and connected mode has no TSO",
        ),
        (
            host(**A0),
            {"tso": "on"},
            "a ConnectX of revision a0 must not use TSO over IPoIB",
        ),
    ],
)
def test_tso_that_cannot_be_is_refused(facts, rule, why):
    text = finding(facts, policy(**rule), WANTED)
    plan = steps(facts, policy(**rule))
    mode = ["IPOIB-MODE-01/ib0"] if "transport_mode" in rule else []
    assert list(plan) == [*mode, f"{WANTED}/ib0"]
    step = plan[f"{WANTED}/ib0"]
    assert text.startswith("FAIL ") and why in text
    assert (step.refused, step.changes) == (why, ())


def test_back_in_datagram_mode_tso_comes_by_itself_or_is_turned_on():
    wanted = policy(transport_mode="datagram", tso="on")
    assert list(steps(host(ASKED), wanted)) == ["IPOIB-MODE-01/ib0"]
    off = host(netdev(mtu=65520, mode="connected", tso="off"))
    assert list(steps(off, wanted)) == ["IPOIB-MODE-01/ib0", "IPOIB-TSO-02/ib0"]


def test_ib_ipoib_has_tso_for_ipv4_only():
    # What ethtool -k shows for the kernel's own ib_ipoib; mlx5 has both.
    features = (
        Offload("tx-tcp-segmentation", on=True),
        Offload("tx-tcp6-segmentation", on=False, fixed=True),
    )
    facts = host(replace(netdev(), offloads=features), **A0)
    assert "TSO is on (tx-tcp-segmentation) |" in finding(facts, None, ID)
    step = steps(facts, policy(tso="auto"))[f"{ID}/ib0"]
    assert shown(step) == ["ib0 tx-tcp-segmentation on>off"]
    ordinary = replace(facts, rdma_devices=host().rdma_devices)
    assert finding(ordinary, policy(tso="on"), WANTED).startswith("PASS TSO of ib0 is")


def test_tso_that_a_driver_keeps_on_behind_a0_has_a_way_out():
    fixed = replace(
        netdev(), offloads=tuple(Offload(n, on=True, fixed=True) for n in TSO)
    )
    facts = host(fixed, **A0)
    text = finding(facts, policy(tso="auto"), "IPOIB-TSO-01")
    assert text.startswith("FAIL ")
    assert "transport_mode: connected" in text
    assert steps(facts, policy(tso="auto")) == {}
