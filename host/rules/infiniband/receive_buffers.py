# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MTU-03: receive buffers of more than a page, and the port MTU of mlx4, which
decides how large they are.
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
    without_port_mtu,
)
from ovirt_rdma.host.rules.view import Interface, View, is_kept

ID = "IPOIB-MTU-03"
SOURCE = "Linux mlx4/main.c, set_port_ib_mtu; ulp/ipoib/ipoib_ib.c, IPOIB_UD_BUF_SIZE"

# What fits a page of 4096 with the 40 bytes of a GRH and the kernel's own 320 at its
# end (SKB_WITH_OVERHEAD) and 64 in front: an IB MTU of 2048 does, 4096 does not.
_PAGE_MTU = 2048
_LARGE = 4096


def decide(view: View) -> Iterator[Outcome]:
    """Give findings for InfiniBand ports with IPoIB, and steps for port_mtu."""
    none = True
    for device in view.facts.rdma_devices:
        for port in device.ports:
            rule = _rule(view, device, port)
            if rule and rule.port_mtu:
                none = False
                yield from _wanted(view, device, port, rule.port_mtu)
            elif any(one.is_ipoib for one in view.on_port(device, port)):
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
        sentence = f"{subject}: mlx5 sizes its receive buffers by the netdev's MTU"
        return Finding(ID, subject, PASS, sentence)
    if port.max_mtu is None:
        sentence = f"{subject}: the port's largest MTU is not known"
        return Finding(ID, subject, SKIP, sentence, without_port_mtu(device))
    if port.max_mtu < _LARGE:
        sentence = (
            f"{subject} has port MTU {port.max_mtu}: its receive buffers fit a page"
        )
        return Finding(ID, subject, PASS, sentence)
    lever = ""
    if not no_port_mtu(device, view.adapter(device), port):
        lever = ", which port_mtu: 2048 in the policy would end"
    return Finding(
        ID,
        subject,
        PASS,
        f"{subject} has port MTU {port.max_mtu}: each receive buffer takes two pages "
        f"in one piece{lever}",
    )


def _wanted(
    view: View, device: RdmaDevice, port: RdmaPort, wanted: int
) -> Iterator[Outcome]:
    subject = f"{device.name}/{port.number}"
    adapter = view.adapter(device)
    before = port_mtu_of(adapter, port)
    refused = no_port_mtu(device, adapter, port)
    if not refused and before == wanted:
        sentence = f"{subject} has port MTU {wanted}, as the policy says"
        yield Finding(ID, subject, PASS, sentence)
        return
    shown = f"{subject} has port MTU {before or port.max_mtu or 'unknown'}"
    if refused:
        fix = "take port_mtu out of the policy for this port"
        if is_mlx5(device):
            fix += ", and write mtu: the netdev's MTU is mlx5's lever"
        sentence = f"{shown}, and the policy's {wanted} is not possible: {refused}"
        yield Finding(ID, subject, FAIL, sentence, fix)
    else:
        sentence = f"{shown}, and the policy wants {wanted}"
        yield Finding(ID, subject, FAIL, sentence)
    address = device.pci.address if device.pci else "unknown"
    target = f"/sys/bus/pci/devices/{address}/mlx4_port{port.number}_mtu"
    here = [one for one in view.interfaces if one.device is device]
    everybody = [user for one in here for user in one.users]
    lost = ", ".join(one.name for one in here if _would_be_lost(one))
    undo = f"writes {before} again" if before else "there is nothing to undo"
    known = str(before) if before else None
    yield Step(
        ID,
        subject,
        f"the port MTU of {subject}; all netdevs of {device.name} go and come back"
        + (f", but for {lost}, which no profile keeps" if lost else ""),
        known or "unknown",
        str(wanted),
        LINK_DOWN,
        "the policy's port_mtu: receive buffers are made for the port's MTU"
        + (", and then fit a page" if wanted <= _PAGE_MTU else ""),
        SOURCE,
        undo + (f", which does not bring back {lost}" if lost else ""),
        () if refused else (Change(SYSFS, target, known, str(wanted)),),
        refused=refused,
        users=tuple(dict.fromkeys(everybody)),
    )


def _would_be_lost(interface: Interface) -> bool:
    """Whether it is a P_Key child that nobody makes again with its parent."""
    profile = interface.profile
    return interface.is_child and not (profile and is_kept(profile))


RULES = (
    Rule(
        ID,
        "IPoIB receive buffers and the port MTU",
        "In datagram mode ib_ipoib makes each receive buffer as large as the largest "
        "MTU that the port can do, plus 40 bytes, whatever MTU the netdev has. With "
        "4096 that is more than a page, so that the kernel needs two pages in one "
        "piece for each; with 2048 it is less.",
        "When memory is fragmented, pages in one piece run out, and packets are "
        "dropped. Years ago people patched ib_ipoib to stop at 3072 bytes so that a "
        "buffer fitted a page. InfiniBand has no MTU between 2048 and 4096, so that "
        "was a patch to the buffer only, and today's kernels cannot be told so: since "
        "Linux 4.0 a buffer is one linear piece made for the port's MTU, and a smaller "
        "MTU of the netdev does not change it.",
        "Today's lever is the port's own MTU, on mlx4 (ConnectX-3 and older): "
        "port_mtu: 2048 in the policy writes mlx4_portN_mtu, which takes all netdevs "
        "of the adapter down and makes them anew, and their MTU is 2044 then. It is "
        "not there on virtual functions, with SR-IOV on, and on Ethernet ports. mlx5 "
        "(ConnectX-4 and later) sizes its buffers by the netdev's MTU: use mtu there. "
        "If memory is not short, leave it: 4092 costs less CPU.",
        (
            "Linux drivers/infiniband/ulp/ipoib/ipoib_ib.c, IPOIB_UD_BUF_SIZE; commit "
            "a44878d10063 (4.0)",
            "Linux drivers/net/ethernet/mellanox/mlx4/main.c, set_port_ib_mtu",
            "Linux drivers/net/ethernet/mellanox/mlx5/core/ipoib/ipoib.c",
        ),
        decide,
    ),
)
