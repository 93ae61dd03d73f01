# SPDX-License-Identifier: GPL-2.0-or-later
"""ROCE-MTU-01: the Ethernet MTU below RoCE, and the IB MTU that it allows.

``auto`` leaves an Ethernet MTU as it is: what the switch passes cannot be told from a
host, and a larger one than that loses packets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.devices import Netdev
from ovirt_rdma.host.policy.model import AUTO
from ovirt_rdma.host.rules.base import (
    LINK_DOWN,
    LIVE,
    PASS,
    SKIP,
    WARN,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
)
from ovirt_rdma.host.rules.infiniband.settings import write
from ovirt_rdma.host.rules.reapply import ETHERNET_MTU
from ovirt_rdma.host.rules.roce.ports import (
    RocePort,
    kept_value,
    profile_change,
    roce_ports,
    without_profile,
    without_roce,
)
from ovirt_rdma.host.rules.view import Interface, View

ID = "ROCE-MTU-01"

# include/rdma/ib_addr.h, iboe_get_mtu: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28,
# ICRC 4.
_HEADERS = 96
_IB_MTUS = (4096, 2048, 1024, 512, 256)
LARGEST = _IB_MTUS[0]
# The usual round number that is enough for LARGEST with its headers (4192).
ENOUGH = 4200


def ib_mtu(mtu: int) -> Optional[int]:
    """Return the IB MTU in bytes that an Ethernet MTU allows; None: too small."""
    return next((ib for ib in _IB_MTUS if ib + _HEADERS <= mtu), None)


def decide(view: View) -> Iterator[Outcome]:
    """Give a finding for each netdev that carries RoCE, and steps for the policy."""
    ports = list(roce_ports(view))
    if not ports:
        yield without_roce(view, ID)
    said = set()
    for port in ports:
        carriers = port.with_address or tuple(base.netdev for base in port.bases)
        if not carriers:
            yield Finding(ID, port.name, SKIP, f"{port.name} has no netdev")
        for netdev in carriers:
            if netdev.name not in said and not _mended(port, netdev):
                said.add(netdev.name)
                yield _finding(view, port, netdev)
    for port in ports:
        for interface in port.bases:
            if interface.wanted and interface.wanted.mtu is not None:
                yield from _wanted(view, interface, interface.wanted.mtu)


def _mended(port: RocePort, netdev: Netdev) -> bool:
    """Whether the policy's own number for this netdev is enough, so that one finding
    will do.
    """
    for base in port.bases:
        wanted = base.wanted.mtu if base.wanted else None
        if base.netdev == netdev and isinstance(wanted, int):
            most = port.port.max_mtu or LARGEST
            return netdev.mtu != wanted and (ib_mtu(wanted) or 0) >= most
    return False


def _finding(view: View, port: RocePort, netdev: Netdev) -> Finding:
    lowest = min([netdev, *_below(view, port, netdev)], key=lambda one: one.mtu)
    found, most = ib_mtu(lowest.mtu), port.port.max_mtu or LARGEST
    which = f"{lowest.name} has MTU {lowest.mtu}"
    if found is None:
        sentence = f"{which}, too small for RoCE"
        return Finding(ID, netdev.name, WARN, sentence, _fix(view, lowest, most))
    gives = f"{which}, which gives an IB MTU of {found}"
    if port.is_soft:
        return Finding(ID, netdev.name, PASS, f"{gives} (Soft-RoCE)")
    if found >= most:
        return Finding(ID, netdev.name, PASS, gives)
    sentence = f"{gives}; the port can do {most}"
    return Finding(ID, netdev.name, WARN, sentence, _fix(view, lowest, most))


def _below(view: View, port: RocePort, netdev: Netdev) -> Iterator[Netdev]:
    """Yield the netdevs between the port and ``netdev``."""
    for base in port.bases:
        for name in view.carriers(base.name):
            one = view.netdev(name)
            if one and netdev.name in view.carriers(name):
                yield one


def _fix(view: View, netdev: Netdev, most: int) -> str:
    enough = ENOUGH if most == LARGEST else most + _HEADERS
    both = (
        f"{enough} or more (9000) is enough for {most}, also at the switch and server"
    )
    above = view.carriers(netdev.name)
    for network in view.facts.ovirt_networks:
        if network.southbound in above:
            return f"set the MTU of the logical network {network.name}; {both}"
    return f"set the MTU of {netdev.name}; {both}"


def _wanted(view: View, interface: Interface, wanted: object) -> Iterator[Outcome]:
    """Give what becomes of the policy's MTU for a port's own netdev."""
    name, mtu = interface.name, interface.netdev.mtu
    if wanted == AUTO or not isinstance(wanted, int):
        sentence = f"auto leaves the MTU of {name} at {mtu}: what the switch passes "
        fix = "give a number"
        yield Finding(ID, name, SKIP, f"{sentence}cannot be told here", fix)
        return
    differs = f"{name} has MTU {mtu}, the policy wants {wanted}"
    refused = _refusal(view, interface, wanted)
    changes = () if refused else _changes(interface, wanted)
    if mtu == wanted and (interface.network or not changes):
        yield Finding(ID, name, PASS, f"{name} has the policy's MTU {wanted}")
        return
    if interface.network:
        network = interface.network.name
        sentence = f"{differs}; the engine's network {network} sets it"
        fix = f"set the MTU of {network} to {wanted} in the engine"
        yield Finding(ID, name, WARN, sentence, fix)
        return
    if mtu == wanted:
        differs = f"{name} has the policy's MTU {wanted}, and its profile does not say"
    yield Finding(ID, name, WARN, differs, refused or "ovirt-rdma-host plan")
    yield _step(interface, wanted, changes, refused)


def _changes(interface: Interface, wanted: int) -> tuple[Change, ...]:
    """Return what has to change in the profile, then at once: NetworkManager reads a
    profile when it activates it.
    """
    kept = profile_change(interface, ETHERNET_MTU, str(wanted))
    if interface.netdev.mtu == wanted:
        return kept
    return (*kept, write(interface, "mtu", str(wanted)))


def _step(
    interface: Interface, wanted: int, changes: tuple[Change, ...], refused: str
) -> Step:
    mtu = interface.netdev.mtu
    live = mtu != wanted
    return Step(
        rule=ID,
        subject=interface.name,
        sentence=f"set the MTU of {interface.name} to {wanted}",
        before=str(mtu) if live else f"profile {kept_value(interface, ETHERNET_MTU)}",
        after=str(wanted) if live else f"profile {wanted}",
        effect=LINK_DOWN if live else LIVE,
        reason=(
            f"the policy wants it: an IB MTU of {ib_mtu(wanted) or 'none'} instead of "
            f"{ib_mtu(mtu) or 'none'}; drivers restart their queues"
        )
        if live
        else "the policy wants it, also after a boot",
        source="include/rdma/ib_addr.h, iboe_get_mtu; nm-settings-nmcli(5)",
        undo="the profile gets its earlier value, and the netdev with it",
        changes=changes,
        refused=refused,
        users=interface.users if live else (),
    )


def _refusal(view: View, interface: Interface, wanted: int) -> str:
    for name in interface.netdev.uppers:
        upper = view.netdev(name)
        if upper and upper.driver == "bond":
            return f"{name} sets the MTU of its ports: set it there"
        # The kernel lowers a VLAN with its netdev, and never raises it again.
        if upper and upper.driver == "vlan" and upper.mtu > wanted:
            return f"{name} above it has MTU {upper.mtu}: lower that first"
    return without_profile(view, interface)


RULE = Rule(
    id=ID,
    title="MTU below RoCE",
    what=(
        "The netdevs below RoCE, and the VLAN, bond or bridge that has the storage "
        "address, should have an MTU that allows the port's largest IB MTU: 4200 or "
        "more for 4096."
    ),
    why=(
        "RoCE takes the largest IB MTU that fits the Ethernet MTU less 96 bytes of "
        "headers: 1500 gives 1024, 2144 gives 2048, 4192 gives 4096. With 1024 the "
        "adapter sends four times as many packets for the same data. More than 4200 "
        "is of use to TCP only. Both ends and every switch between them must pass it; "
        "where one does not, large transfers hang although ping works."
    ),
    fix=(
        "Set the MTU of the logical network in the engine (VDSM sets it on the netdev, "
        "1500 if the network says default). Where no logical network owns the netdev, "
        "mtu in the policy's interface rule sets it, at once and in the NetworkManager "
        "profile."
    ),
    sources=(
        "Linux include/rdma/ib_addr.h, iboe_get_mtu; drivers/infiniband/core/cma.c",
        "VDSM lib/vdsm/network/nmstate (the network's MTU, else 1500)",
    ),
    decide=decide,
)

RULES = (RULE,)
