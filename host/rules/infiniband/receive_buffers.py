# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MTU-03: report large IPoIB receive buffers, and set mlx4's port MTU. Pure.

On mlx4 the port MTU determines the size of the buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.devices import RdmaDevice, RdmaPort
from ovirt_rdma.host.policy.model import InterfaceRule, names_port
from ovirt_rdma.host.rules.base import (
    FAIL,
    LINK_DOWN,
    PASS,
    SKIP,
    SYSFS,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.infiniband.limits import (
    is_mlx5,
    no_port_mtu,
    port_mtu_of,
    unknown_mtu_fix,
)
from ovirt_rdma.host.rules.view import Interface, View, is_persistent

ID = "IPOIB-MTU-03"
SOURCE = "Linux mlx4/main.c, set_port_ib_mtu; ulp/ipoib/ipoib_ib.c, IPOIB_UD_BUF_SIZE"

# The IB MTU that fits a page of 4096 bytes together with the 40 bytes of a GRH, the
# kernel's own 320 at the end (SKB_WITH_OVERHEAD) and 64 in front: 2048, but not 4096.
_PAGE_MTU = 2048
_LARGE = 4096


def decide(view: View) -> Iterator[Outcome]:
    """Yield findings for InfiniBand ports with IPoIB, and steps for port_mtu."""
    none = True
    for device in view.facts.rdma_devices:
        for port in device.ports:
            rule = _rule(view, device, port)
            if rule and rule.port_mtu:
                none = False
                yield from _wanted(view, device, port, rule.port_mtu)
            elif any(interface.is_ipoib for interface in view.on_port(device, port)):
                none = False
                yield _present(view, device, port)
    if none:
        yield Finding(ID, "host", SKIP, "this host has no port with IPoIB")


def _rule(view: View, device: RdmaDevice, port: RdmaPort) -> Optional[InterfaceRule]:
    """Return the first rule that names the port itself, not a partition of it."""
    for rule in view.policy.host.interfaces:
        if rule.pkey is None and names_port(rule, device, port):
            return rule
    return None


def _present(view: View, device: RdmaDevice, port: RdmaPort) -> Finding:
    subject = f"{device.name}/{port.number}"
    if is_mlx5(device):
        sentence = f"mlx5 sizes the receive buffers of {subject} by the netdev's MTU"
        return Finding(ID, subject, PASS, sentence)
    if port.max_mtu is None:
        sentence = f"the largest MTU of {subject} is unknown"
        return Finding(ID, subject, SKIP, sentence, unknown_mtu_fix(device))
    if port.max_mtu < _LARGE:
        sentence = (
            f"{subject} has port MTU {port.max_mtu}: its receive buffers fit a page"
        )
        return Finding(ID, subject, PASS, sentence)
    hint = ""
    if not no_port_mtu(device, view.adapter(device), port):
        hint = "; port_mtu: 2048 in the policy would avoid this"
    return Finding(
        ID,
        subject,
        PASS,
        f"{subject} has port MTU {port.max_mtu}: each receive buffer needs two "
        f"contiguous pages{hint}",
    )


def _wanted(
    view: View, device: RdmaDevice, port: RdmaPort, wanted: int
) -> Iterator[Outcome]:
    subject = f"{device.name}/{port.number}"
    adapter = view.adapter(device)
    before = port_mtu_of(adapter, port)
    refused = no_port_mtu(device, adapter, port)
    if not refused and before == wanted:
        sentence = f"{subject} has port MTU {wanted}: the policy requires it"
        yield Finding(ID, subject, PASS, sentence)
        return
    shown = f"{subject} has port MTU {before or port.max_mtu or 'unknown'}"
    if refused:
        fix = "remove port_mtu for this port from the policy"
        if is_mlx5(device):
            fix += ", and set mtu instead: mlx5 sizes the buffers by the netdev's MTU"
        sentence = f"{shown}, and the policy's {wanted} is not possible: {refused}"
        yield Finding(ID, subject, FAIL, sentence, fix)
    else:
        sentence = f"{shown}, but the policy requires {wanted}"
        yield Finding(ID, subject, FAIL, sentence)
    address = device.pci.address if device.pci else "unknown"
    target = f"/sys/bus/pci/devices/{address}/mlx4_port{port.number}_mtu"
    interfaces = [
        interface for interface in view.interfaces if interface.device is device
    ]
    lost = ", ".join(interface.name for interface in interfaces if _is_lost(interface))
    exception = f", except {lost}, which no profile keeps" if lost else ""
    undo = f"restores {before}" if before else "nothing is changed"
    known = str(before) if before else None
    yield Step(
        ID,
        subject,
        f"set the port MTU of {subject}; all netdevs of {device.name} are removed and "
        f"recreated{exception}",
        known or "unknown",
        str(wanted),
        LINK_DOWN,
        "the policy requires it: receive buffers have the size of the port's MTU"
        + (", and then fit a page" if wanted <= _PAGE_MTU else ""),
        SOURCE,
        undo + (f", but does not recreate {lost}" if lost else ""),
        () if refused else (Change(SYSFS, target, known, str(wanted)),),
        refused=refused,
        users=() if refused else view.users.of_adapter(address, removed=True),
    )


def _is_lost(interface: Interface) -> bool:
    """Whether it is a P_Key child that no profile recreates with its parent."""
    profile = interface.profile
    return interface.is_child and not (profile and is_persistent(profile))


RULES = (Rule(ID, decide),)
