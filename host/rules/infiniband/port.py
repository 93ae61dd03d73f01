# SPDX-License-Identifier: GPL-2.0-or-later
"""IB-PORT-01: an InfiniBand port that is not up, or has no subnet manager."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.facts.devices import RdmaDevice, RdmaPort
from ovirt_rdma.host.policy.model import InterfaceRule, names_port
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.infiniband.settings import lasting_addresses
from ovirt_rdma.host.rules.view import View

ID = "IB-PORT-01"

_ACTIVE, _DOWN = "ACTIVE", "DOWN"
_NO_MANAGER = (
    "start a subnet manager: on a switch that has one, or opensm on one machine of the "
    "fabric (two hosts cabled back-to-back need one too)"
)
_LINK_FIX = {
    "Polling": "check the cable, and that the port at its other end is on and of the "
    "same link layer",
    "Disabled": "someone disabled the port: reload its driver, or enable it from the "
    "switch",
    "Sleep": "wake the port: reload its driver",
    "LinkErrorRecovery": "check or replace the cable: the link keeps failing",
    "PortConfigurationTraining": "look again in some seconds; if it stays so, check "
    "the cable",
}


def decide(view: View) -> Iterator[Finding]:
    """Give a finding for each InfiniBand port."""
    none = True
    for device in view.facts.rdma_devices:
        for port in device.ports:
            if port.link_layer == "InfiniBand":
                none = False
                yield _finding(view, device, port)
    if none:
        yield Finding(ID, "host", SKIP, "this host has no InfiniBand port")


def _finding(view: View, device: RdmaDevice, port: RdmaPort) -> Finding:
    subject = f"{device.name}/{port.number}"
    if port.state == _ACTIVE and port.sm_lid != 0:
        return Finding(ID, subject, PASS, f"{subject} is ACTIVE{_details(port)}")
    verdict, who = _need(view, device, port)
    if port.state == _ACTIVE:
        sentence = f"{subject} is ACTIVE, but its subnet manager is gone (SM LID 0)"
        return Finding(ID, subject, verdict, f"{sentence}; {who}", _manager_fix(view))
    if port.state in ("INIT", "ARMED"):
        sentence = (
            f"{subject} has a link but is {port.state}: no subnet manager has "
            "configured it"
        )
        return Finding(ID, subject, verdict, f"{sentence}; {who}", _manager_fix(view))
    sentence = f"{subject} is {port.state} (link: {port.physical_state}); {who}"
    fix = _LINK_FIX.get(port.physical_state, "check the cable and the switch port")
    adapter = view.adapter(device)
    if adapter and adapter.physical_function:
        fix = (
            "it is a virtual function: let its port follow the physical one (ip link "
            f"set NETDEV vf N state auto, on {adapter.physical_function})"
        )
    return Finding(ID, subject, verdict, sentence, "" if verdict == SKIP else fix)


def _details(port: RdmaPort) -> str:
    """Return rate and LIDs as far as they are known, as the end of a sentence."""
    found = []
    if port.rate_mbps is not None:
        found.append(f"{port.rate_mbps / 1000:g} Gb/s")
    if port.lid:
        found.append(f"LID {port.lid}")
    if port.sm_lid:
        found.append(f"subnet manager at LID {port.sm_lid}")
    return "".join(f", {text}" for text in found)


def _need(view: View, device: RdmaDevice, port: RdmaPort) -> tuple[str, str]:
    """Return the verdict for a port that does not work, by who needs it."""
    for rule in view.policy.host.interfaces:
        if names_port(rule, device, port):
            other = _active_port(view, rule) if port.state == _DOWN else ""
            if other:
                return WARN, f"the policy names it and {other} ({rule.title})"
            return FAIL, f"the policy names it ({rule.title})"
    for one in view.on_port(device, port):
        if one.uses:
            return WARN, f"{one.name} is used ({one.uses[0].purpose})"
        if one.network:
            return WARN, f"{one.name} carries network {one.network.name!r}"
        addresses = lasting_addresses(one.netdev)
        if addresses:
            return WARN, f"{one.name} has the address {addresses[0]}"
    return SKIP, "nothing here needs it"


def _active_port(view: View, rule: InterfaceRule) -> str:
    """Return a port that works and for which ``rule`` is the first, or nothing: one
    rule for many ports is met where some have no cable.
    """
    for device in view.facts.rdma_devices:
        for port in device.ports:
            naming = (
                r for r in view.policy.host.interfaces if names_port(r, device, port)
            )
            if port.state == _ACTIVE and next(naming, None) == rule:
                return f"{device.name}/{port.number}"
    return ""


def _manager_fix(view: View) -> str:
    unit = view.facts.software.subnet_manager
    if unit is None:
        return _NO_MANAGER
    return (
        f"{unit} runs on this host: see its log, and whether it serves this port's "
        "fabric (GUIDS in /etc/sysconfig/opensm, guid in opensm.conf)"
    )


RULES = (
    Rule(
        ID,
        "InfiniBand port state and subnet manager",
        "Every InfiniBand port should be ACTIVE and know a subnet manager. A port "
        "whose link is up is INIT until a subnet manager gives it a LID; without a "
        "cable, or with the other end off, it is DOWN and polls.",
        "Nothing works over a port that is not ACTIVE: no IPoIB, no NFS over RDMA, no "
        "SRP. A port that loses its subnet manager keeps what it has, but no new path "
        "or multicast group can be looked up. It is a failure where the policy names "
        "the port; a warning where the port has no link, but another that the same "
        "rule names has, and where a netdev of it has an address, a network or users; "
        "and skipped where nothing here needs it.",
        "Polling: check cable and switch port. INIT: start a subnet manager, on the "
        "switch or with opensm on one host.",
        (
            "Linux Documentation/ABI/stable/sysfs-class-infiniband",
            "InfiniBand Architecture Specification, volume 1, 14.2.5.6, PortInfo",
            "opensm(8)",
        ),
        decide,
    ),
)
