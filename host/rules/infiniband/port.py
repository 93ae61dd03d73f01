# SPDX-License-Identifier: GPL-2.0-or-later
"""IB-PORT-01: check that InfiniBand ports are up and have a subnet manager. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.facts.devices import RdmaDevice, RdmaPort
from ovirt_rdma.host.policy.model import InterfaceRule, names_port
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.infiniband.settings import static_addresses
from ovirt_rdma.host.rules.view import View

ID = "IB-PORT-01"

_NO_MANAGER = (
    "start a subnet manager: on a switch that has one, or opensm on one machine of the "
    "fabric (two hosts connected back-to-back need one too)"
)
_LINK_FIX = {
    "Polling": "check the cable, and that the port at its other end is on and has the "
    "same link layer",
    "Disabled": "reload the port's driver, or enable the port from the switch",
    "Sleep": "reload the port's driver",
    "LinkErrorRecovery": "the link keeps failing: check or replace the cable",
    "PortConfigurationTraining": "check again in some seconds; if it does not change, "
    "check the cable",
}


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each InfiniBand port."""
    none = True
    for device in view.facts.rdma_devices:
        for port in device.ports:
            if port.is_infiniband:
                none = False
                yield _finding(view, device, port)
    if none:
        yield Finding(ID, "host", SKIP, "this host has no InfiniBand port")


def _finding(view: View, device: RdmaDevice, port: RdmaPort) -> Finding:
    subject = f"{device.name}/{port.number}"
    if port.is_active and port.sm_lid != 0:
        return Finding(ID, subject, PASS, f"{subject} is ACTIVE{_details(port)}")
    verdict, need = _need(view, device, port)
    if port.is_active:
        sentence = f"{subject} is ACTIVE, but has lost its subnet manager (SM LID 0)"
        return Finding(ID, subject, verdict, f"{sentence}; {need}", _manager_fix(view))
    if port.state in ("INIT", "ARMED"):
        sentence = (
            f"{subject} has a link, but is {port.state}: no subnet manager has "
            "configured it"
        )
        return Finding(ID, subject, verdict, f"{sentence}; {need}", _manager_fix(view))
    sentence = f"{subject} is {port.state} (link: {port.physical_state}); {need}"
    fix = _LINK_FIX.get(port.physical_state, "check the cable and the switch port")
    adapter = view.adapter(device)
    if adapter and adapter.physical_function:
        fix = (
            "the port of this virtual function must follow the physical one's: on "
            f"{adapter.physical_function}, set the link state of the VF to auto"
        )
    return Finding(ID, subject, verdict, sentence, "" if verdict == SKIP else fix)


def _details(port: RdmaPort) -> str:
    """Return rate and LIDs, as far as they are known, for the end of a sentence."""
    details = []
    if port.rate_mbps is not None:
        details.append(f"{port.rate_mbps / 1000:g} Gb/s")
    if port.lid:
        details.append(f"LID {port.lid}")
    if port.sm_lid:
        details.append(f"subnet manager at LID {port.sm_lid}")
    return "".join(f", {text}" for text in details)


def _need(view: View, device: RdmaDevice, port: RdmaPort) -> tuple[str, str]:
    """Return the verdict for a port that does not work, and a clause about who needs
    it.
    """
    for rule in view.policy.host.interfaces:
        if names_port(rule, device, port):
            other = _active_port(view, rule) if port.state == "DOWN" else ""
            if other:
                return WARN, f"the policy names it and {other} ({rule.title})"
            return FAIL, f"the policy names it ({rule.title})"
    for interface in view.on_port(device, port):
        name = interface.name
        if interface.uses:
            return WARN, f"{name} is in use ({interface.uses[0].purpose})"
        if interface.network:
            return WARN, f"{name} has network {interface.network.name!r}"
        addresses = static_addresses(interface.netdev)
        if addresses:
            return WARN, f"{name} has the address {addresses[0]}"
    return SKIP, "nothing on this host needs it"


def _active_port(view: View, rule: InterfaceRule) -> str:
    """Return an ACTIVE port for which ``rule`` is the first; empty if there is none.

    A rule for several ports is satisfied even if some have no cable.
    """
    for device in view.facts.rdma_devices:
        for port in device.ports:
            naming = (
                r for r in view.policy.host.interfaces if names_port(r, device, port)
            )
            if port.is_active and next(naming, None) == rule:
                return f"{device.name}/{port.number}"
    return ""


def _manager_fix(view: View) -> str:
    unit = view.facts.software.subnet_manager
    if unit is None:
        return _NO_MANAGER
    return (
        f"{unit} is running on this host: see its log, and check that it serves this "
        "port's fabric (GUIDS in /etc/sysconfig/opensm, guid in opensm.conf)"
    )


RULES = (Rule(ID, decide),)
