# SPDX-License-Identifier: GPL-2.0-or-later
"""ROCE-MTU-01: check the Ethernet MTU below RoCE and the IB MTU that it allows. Pure.

``auto`` does not change an Ethernet MTU: the switch's limit is unknown to the host, and
packets above it are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.errors import Sentence
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
    profile_change,
    profile_value,
    roce_ports,
    why_no_profile,
    without_roce,
)
from ovirt_rdma.host.rules.view import Interface, View

ID = "ROCE-MTU-01"

# include/rdma/ib_addr.h, iboe_get_mtu: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28,
# ICRC 4.
_HEADERS = 96
_IB_MTUS = (4096, 2048, 1024, 512, 256)
LARGEST = _IB_MTUS[0]
# The usual round number that is sufficient for LARGEST with its headers (4192).
ENOUGH = 4200


def ib_mtu(mtu: int) -> Optional[int]:
    """Return the IB MTU in bytes that an Ethernet MTU allows; None if it has none."""
    return next((ib for ib in _IB_MTUS if ib + _HEADERS <= mtu), None)


def decide(view: View) -> Iterator[Outcome]:
    """Yield a finding for each netdev that carries RoCE, and steps for the policy."""
    ports = list(roce_ports(view))
    if not ports:
        yield without_roce(view, ID)
    reported = set()
    for port in ports:
        carriers = port.with_address or tuple(base.netdev for base in port.bases)
        if not carriers:
            yield Finding(ID, port.name, SKIP, f"{port.name} has no netdev")
        for netdev in carriers:
            if netdev.name not in reported and not _is_fixed_by_policy(port, netdev):
                reported.add(netdev.name)
                yield _finding(view, port, netdev)
    for port in ports:
        for interface in port.bases:
            if interface.wanted and interface.wanted.mtu is not None:
                yield from _wanted(view, interface, interface.wanted.mtu)


def _is_fixed_by_policy(port: RocePort, netdev: Netdev) -> bool:
    """Whether the policy's MTU for this netdev is sufficient: one finding is enough."""
    for base in port.bases:
        wanted = base.wanted.mtu if base.wanted else None
        if base.netdev == netdev and isinstance(wanted, int):
            most = port.port.max_mtu or LARGEST
            return netdev.mtu != wanted and (ib_mtu(wanted) or 0) >= most
    return False


def _finding(view: View, port: RocePort, netdev: Netdev) -> Finding:
    lowest = min([netdev, *_below(view, port, netdev)], key=lambda lower: lower.mtu)
    allowed, most = ib_mtu(lowest.mtu), port.port.max_mtu or LARGEST
    mtu = f"{lowest.name} has MTU {lowest.mtu}"
    if allowed is None:
        sentence = f"{mtu}, which is too small for RoCE"
        return Finding(ID, netdev.name, WARN, sentence, _fix(view, lowest, most))
    allows = f"{mtu}, which allows an IB MTU of {allowed}"
    if port.is_soft:
        return Finding(ID, netdev.name, PASS, f"{allows} (Soft-RoCE)")
    if allowed >= most:
        return Finding(ID, netdev.name, PASS, allows)
    sentence = f"{allows}; the port supports {most}"
    return Finding(ID, netdev.name, WARN, sentence, _fix(view, lowest, most))


def _below(view: View, port: RocePort, netdev: Netdev) -> Iterator[Netdev]:
    """Yield the netdevs between the port and ``netdev``."""
    for base in port.bases:
        for name in view.carriers(base.name):
            lower = view.netdev(name)
            if lower and netdev.name in view.carriers(name):
                yield lower


def _fix(view: View, netdev: Netdev, most: int) -> str:
    enough = ENOUGH if most == LARGEST else most + _HEADERS
    size = f"{most} needs {enough} or more (9000), also on the switch and the server"
    above = view.carriers(netdev.name)
    for network in view.facts.ovirt_networks:
        if network.southbound in above:
            return f"set the MTU of the logical network {network.name}; {size}"
    return f"set the MTU of {netdev.name}; {size}"


def _wanted(view: View, interface: Interface, wanted: object) -> Iterator[Outcome]:
    """Yield how the policy's MTU for a port's own netdev is applied."""
    name, mtu = interface.name, interface.netdev.mtu
    if wanted == AUTO or not isinstance(wanted, int):
        sentence = f"auto does not change the MTU {mtu} of {name}: the switch's limit"
        fix = "set mtu to a number"
        yield Finding(ID, name, SKIP, f"{sentence} is unknown", fix)
        return
    differs = f"{name} has MTU {mtu}, the policy requires {wanted}"
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
        differs = f"{name} has the policy's MTU {wanted}, but its profile does not"
    yield Finding(ID, name, WARN, differs, refused or "ovirt-rdma-host plan")
    users = view.users.of_mtu(name)
    yield _step(interface, wanted, changes, refused, users)


def _changes(interface: Interface, wanted: int) -> tuple[Change, ...]:
    """Return the Changes of the profile, then of sysfs: NetworkManager reads a profile
    only when it activates it.
    """
    profile = profile_change(interface, ETHERNET_MTU, str(wanted))
    if interface.netdev.mtu == wanted:
        return profile
    return (*profile, write(interface, "mtu", str(wanted)))


def _step(
    interface: Interface,
    wanted: int,
    changes: tuple[Change, ...],
    refused: str,
    users: tuple[str, ...],
) -> Step:
    mtu = interface.netdev.mtu
    live = mtu != wanted
    return Step(
        rule=ID,
        subject=interface.name,
        sentence=f"set the MTU of {interface.name} to {wanted}",
        before=str(mtu)
        if live
        else f"profile {profile_value(interface, ETHERNET_MTU)}",
        after=str(wanted) if live else f"profile {wanted}",
        effect=LINK_DOWN if live else LIVE,
        reason=(
            f"the policy requires it: an IB MTU of {ib_mtu(wanted) or 'none'} instead "
            f"of {ib_mtu(mtu) or 'none'}; drivers restart their queues"
        )
        if live
        else "the policy requires it, also after a reboot",
        source="include/rdma/ib_addr.h, iboe_get_mtu; nm-settings-nmcli(5)",
        undo="restores the earlier values of netdev and profile"
        if live
        else "restores the profile's earlier value",
        changes=changes,
        refused=refused,
        users=users if live else (),
    )


def _refusal(view: View, interface: Interface, wanted: int) -> str:
    for name in interface.netdev.uppers:
        upper = view.netdev(name)
        if upper and upper.driver == "bond":
            return Sentence(
                "mtu-of-bond", f"{name} sets the MTU of its ports: set it there"
            )
        # The kernel lowers a VLAN's MTU with its netdev's, and never raises it again.
        if upper and upper.driver == "vlan" and upper.mtu > wanted:
            return Sentence(
                "mtu-below-vlan",
                f"{name} above it has MTU {upper.mtu}: lower that first",
            )
    return why_no_profile(view, interface)


RULE = Rule(ID, decide)

RULES = (RULE,)
