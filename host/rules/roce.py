# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about RoCE ports and the Ethernet below them. Pure.

Without flow control and congestion notification the network below RoCE may lose
packets; rules about them only warn, because it depends on switches and adapters if a
fabric needs them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Callable, Optional

from ovirt_rdma.host.facts.adapter_models import MLX5
from ovirt_rdma.host.facts.devices import CELL, Buffer, Dcb, Netdev, buffers_text
from ovirt_rdma.host.policy.model import TCP, RoceClass
from ovirt_rdma.host.policy.texts import ON
from ovirt_rdma.host.rules.base import (
    DCB,
    LINK_DOWN,
    LIVE,
    ROCE_TOS,
    SYSFS,
    About,
    Change,
    Finding,
    Interface,
    Outcome,
    Port,
    Rule,
    View,
    each,
    once_per_view,
)
from ovirt_rdma.host.rules.ipoib import (
    ETHERNET_MTU,
    manager_unknown,
    parsed_address,
    settings_of,
    static_addresses,
    write,
)


@dataclass(frozen=True)
class RocePort(Port):
    """A RoCE port; ``bases`` are its own netdevs, ``netdevs`` these and all above: the
    GID table of a port includes every bond, VLAN and bridge above its netdev
    (drivers/infiniband/core/roce_gid_mgmt.c), so the address may be on any of them.
    """

    bases: tuple[Interface, ...] = ()
    netdevs: tuple[Netdev, ...] = ()

    @property
    def with_address(self) -> tuple[Netdev, ...]:
        """The netdevs that have an address; link-local ones do not count."""
        return tuple(filter(static_addresses, self.netdevs))


@once_per_view
def roce_ports(view: View) -> tuple[RocePort, ...]:
    """Return the ports with an Ethernet link layer, except iWARP's."""
    ports = []
    for place in view.ports:
        if place.device.is_iwarp or not place.port.is_ethernet:
            continue
        bases = tuple(one for one in view.on_port(place) if not one.is_ipoib)
        names = [name for base in bases for name in view.carriers(base.name)]
        names += [gid.netdev for gid in place.port.gids if gid.netdev]
        found = tuple(filter(None, map(view.netdev, dict.fromkeys(names))))
        ports.append(RocePort(**vars(place), bases=bases, netdevs=found))
    return tuple(ports)


_WITHOUT = "this host has no RoCE port"


def gid_of(address: str) -> Optional[str]:
    """Return the GID of an IP address, in the kernel's form; None if it is not valid.

    An IPv4 address is at the end of ``::ffff:0:0/96`` (rdma_ip2gid).
    """
    parsed = parsed_address(address)
    if parsed is None:
        return None
    # .exploded of a mapped address differs from 3.13 on.
    mapped = b"\xff\xff" + parsed.packed if parsed.version == 4 else parsed.packed
    return mapped.rjust(16, b"\0").hex(":", 2)


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


def _mtu(view: View) -> Iterator[Outcome]:
    ports = roce_ports(view)
    reported: set[str] = set()
    for port in ports:
        most = port.port.max_mtu or LARGEST
        carriers = port.with_address or tuple(base.netdev for base in port.bases)
        # The policy's MTU for a netdev is judged below.
        reported |= {
            base.name
            for base in port.bases
            if isinstance(wanted := base.policy.mtu, int)
            and base.netdev.mtu != wanted
            and (ib_mtu(wanted) or 0) >= most
        }
        if not carriers:
            yield About(MTU.id, port.name).skips(f"{port.name} has no netdev")
        for netdev in carriers:
            if netdev.name not in reported:
                reported.add(netdev.name)
                yield _carrier(view, port, netdev, most)
    for interface in (base for port in ports for base in port.bases):
        wanted = interface.policy.mtu
        if isinstance(wanted, int):
            yield from _policys_mtu(view, interface, wanted)
        elif wanted is not None:
            yield About(MTU.id, interface.name).skips(
                f"auto does not change the MTU {interface.netdev.mtu} of "
                f"{interface.name}: the switch's limit is unknown",
                "set mtu to a number",
            )


def _carrier(view: View, port: RocePort, netdev: Netdev, most: int) -> Finding:
    """Return the finding about the lowest MTU from the port to ``netdev``; the port's
    largest IB MTU is ``most``.
    """
    about = About(MTU.id, netdev.name)
    names = (name for base in port.bases for name in view.carriers(base.name))
    below = [name for name in names if netdev.name in view.carriers(name)]
    lowest = min(
        (netdev, *filter(None, map(view.netdev, below))), key=lambda one: one.mtu
    )
    allowed, above = ib_mtu(lowest.mtu), view.carriers(lowest.name)
    sentence = f"{lowest.name} has MTU {lowest.mtu}, which allows "
    sentence += f"an IB MTU of {allowed}" if allowed else "no IB MTU"
    if allowed and (allowed >= most or port.device.is_soft_roce):
        return about.passes(sentence)
    networks = view.facts.ovirt_networks
    of = [f"the logical network {n.name}" for n in networks if n.southbound in above]
    return about.warns(
        f"{sentence}; the port supports {most}",
        f"set the MTU of {(*of, lowest.name)[0]}; {most} needs "
        f"{ENOUGH if most == LARGEST else most + _HEADERS} or more (9000), also on the "
        "switch and the server",
    )


def _policys_mtu(view: View, interface: Interface, wanted: int) -> Iterator[Outcome]:
    name, mtu, network = interface.name, interface.netdev.mtu, interface.network
    about, settings = About(MTU.id, name), settings_of(view, interface)
    live = mtu != wanted
    refused = _bond_or_vlan(view, interface, wanted) or settings.blocked
    # NetworkManager reads a profile only when it activates it.
    changes = settings.change(ETHERNET_MTU, str(wanted))
    if live:
        changes = (*changes, write(interface, "mtu", str(wanted)))
    elif network or refused or not changes:
        unknown, shown = manager_unknown(view), f"{name} has the policy's MTU {wanted}"
        if unknown and refused == unknown and not network:
            yield about.skips(f"{shown}: {unknown}")
        else:
            yield about.passes(shown)
        return
    differs = f"{name} has MTU {mtu}, the policy requires {wanted}"
    if network:
        yield about.warns(
            f"{differs}; the engine's network {network.name} sets it",
            f"set the MTU of {network.name} to {wanted} in the engine",
        )
        return
    stored = f"profile {settings.value(ETHERNET_MTU)}"
    kept = f"{name} has the policy's MTU {wanted}, but its profile does not"
    yield about.warns(differs if live else kept)
    yield about.step(
        f"set the MTU of {name} to {wanted}",
        str(mtu) if live else stored,
        str(wanted) if live else f"profile {wanted}",
        LINK_DOWN if live else LIVE,
        undo="restores the earlier values",
        changes=changes,
        refused=refused,
        users=view.users.of_mtu(name),
    )


def _bond_or_vlan(view: View, interface: Interface, wanted: int) -> str:
    """Return why a netdev above does not allow the MTU; empty if they allow it."""
    for upper in filter(None, map(view.netdev, interface.netdev.uppers)):
        if upper.driver == "bond":
            return f"{upper.name} sets the MTU of its ports: set it there"
        # The kernel lowers a VLAN's MTU with its netdev's, and never raises it again.
        if upper.driver == "vlan" and upper.mtu > wanted:
            return f"{upper.name} above it has MTU {upper.mtu}: lower that first"
    return ""


V1, V2 = "IB/RoCE v1", "RoCE v2"


def _gids(view: View, about: About, port: RocePort) -> Iterator[Finding]:
    name = port.name
    types = {gid.type for gid in port.port.gids}
    default = port.port.default_gid_type
    sysfs = f"/sys/class/infiniband/{port.device.name}/ports/{port.port.number}"
    show = f"grep . {sysfs}/gids/* shows the table"
    if not types - {None}:
        yield about.skips(f"{name} shows no GID with a type", show)
        return
    if V2 not in types:
        yield about.warns(
            f"{name} supports RoCE v1 only, which is limited to one Ethernet segment "
            "and to servers that support v1",
            "use ConnectX-3 Pro or later: many NFS servers support RoCE v2 only",
        )
    elif default == V1:
        folder = shlex.quote(f"/sys/kernel/config/rdma_cm/{port.device.name}")
        file = f"{folder}/ports/{port.port.number}/default_roce_mode"
        yield about.warns(
            f"RDMA CM uses RoCE v1 on {name}, although the port supports v2",
            f"mkdir -p {folder}; echo 'RoCE v2' > {file}",
        )
    else:
        used = "" if default is None else f", and RDMA CM uses {default}"
        yield about.passes(f"{name} supports RoCE v2{used}")
    gids = {gid.gid.lower() for gid in port.port.gids}
    if not port.with_address:
        names = ", ".join(base.name for base in port.bases) or name
        yield about.skips(
            f"neither {names} nor a netdev above has an address",
            "assign an address to the storage network: RDMA CM finds the port by it",
        )
    elsewhere = _at_another_member(view, port)
    for netdev in port.with_address:
        addresses = () if netdev.name in elsewhere else static_addresses(netdev)
        missing = [
            one.partition("/")[0] for one in addresses if gid_of(one) not in gids
        ]
        if missing:
            yield About(GIDS.id, netdev.name).warns(
                f"{', '.join(missing)} of {netdev.name} is not in the GID table of "
                f"{name}: RDMA CM cannot use it there",
                f"ip link set {netdev.name} up; {show}",
            )


def _at_another_member(view: View, port: RocePort) -> set[str]:
    """Return the bonds whose active member is another port's, and what is on them: only
    the active one has their GIDs (roce_gid_mgmt.c, REQUIRED_BOND_STATES).
    """
    here = {base.name for base in port.bases}
    uppers = (view.netdev(name) for base in port.bases for name in base.netdev.uppers)
    return {
        name
        for one in uppers
        if one and one.bond and one.bond.active not in (None, *here)
        for name in view.carriers(one.name)
    }


def _bonds(view: View) -> Iterator[Finding]:
    bases = {
        base.name: (port, base)
        for port in roce_ports(view)
        if not port.device.is_soft_roce
        for base in port.bases
    }
    routes = {
        route.netdev for route, rule in view.wanted_routes if rule.transport != TCP
    }
    for bond in view.facts.netdevs:
        with_rdma = [name for name in bond.lowers if name in bases]
        about = About(LAG.id, bond.name)
        if not bond.bond or not with_rdma:
            continue
        if routes & {*view.carriers(bond.name)} or any(
            bases[name][1].policy.roce for name in with_rdma
        ):
            ports = {name: bases[name][0].name for name in with_rdma}
            yield _bond(about, bond.bond.mode, [*bond.lowers], ports)
        else:
            yield about.skips(f"no export of the policy goes over {bond.name}")


def _bond(
    about: About, mode: str, members: list[str], ports: dict[str, str]
) -> Finding:
    shown = f"{about.subject} of {', '.join(members)} is in mode {mode}"
    without = [member for member in members if member not in ports]
    devices = sorted({*ports.values()})
    if without:
        return about.warns(
            f"{shown}, and {', '.join(without)} has no RoCE: with the link there, "
            "nothing uses RDMA",
            "bond ports with RoCE only",
        )
    if len(devices) == 1:
        return about.passes(f"{shown}, and it is one RoCE port")
    if mode == "active-backup":
        return about.passes(
            f"{shown}: RoCE is at the active port, and connections begin again at the "
            "other one if that fails"
        )
    return about.warns(
        f"{shown}, but {' and '.join(devices)} are RoCE ports of their own: the switch "
        "sends answers to either, so that connections hang",
        "give each port a network and an address of its own, or use mode 1; mlx5 and "
        "mlx4 make one RoCE port of all ports of one adapter in mode 1, 2 or 4",
    )


# dcb and sysfs, with the semantics of this driver. The others that take a DSCP want
# traffic classes besides: ice_dcbnl_setapp gives all bandwidth to class 0, and
# bnxt_hwrm_queue_pfc_cfg refuses PFC without them. mlx4 has none (en_dcb_nl.c): the
# kernel keeps entries that the adapter never sees.
_SET_BY_DCB = "mlx5_core"
_WITH_DSCP = (_SET_BY_DCB, "ice", "bnxt_en")


_SOFT = "it has no flow control of its own"


def _classes(view: View, about: About, base: Interface) -> Iterator[Outcome]:
    wanted, driver = base.policy.roce, base.netdev.driver
    if not wanted:
        return
    if base.device.is_soft_roce:
        yield about.skips(f"{base.name} carries Soft-RoCE: {_SOFT}")
    elif base.adapter and base.adapter.physical_function:
        sentence = f"{base.name} is a virtual function: it has the class of its"
        yield about.skips(f"{sentence} physical one")
    elif driver not in _WITH_DSCP:
        yield about.warns(
            f"{base.name} cannot have the policy's lossless class: "
            f"{driver or 'its driver'} is not known to take the priority from the DSCP",
            "leave roce out for this port; a VLAN with egress-qos-map gives its tag a "
            "priority",
        )
    else:
        yield from _class(view, about, base, wanted)


def _class(
    view: View, about: About, base: Interface, wanted: RoceClass
) -> Iterator[Outcome]:
    name, dcb, priority = base.name, base.netdev.dcb or Dcb(), wanted.priority
    dscp = f"dscp-{wanted.code_point}"
    settings = {"pause": "off", "pfc": str(priority), dscp: str(priority)}
    unknown = [one for one in settings if dcb.value(one) is None]
    if unknown:
        yield about.warns(
            f"the policy has a lossless class for {name}, but what it has now is "
            f"unknown: {' and '.join(unknown)}",
            f"dcb pfc show dev {name}; dcb app show dev {name}; ethtool -a {name}",
        )
        return
    refused = ""
    if "," in (dcb.value(dscp) or ""):
        refused = (
            f"DSCP {wanted.code_point} of {name} has the priorities {dcb.value(dscp)}: "
            f"delete all but one (dcb app del dev {name} dscp-prio)"
        )
    elif wanted.buffer is not None:
        buffers, refused = _buffers(base, dcb, priority, wanted.buffer)
        settings.update({"buffers": buffers} if buffers else {})
    differ = {one: to for one, to in settings.items() if dcb.value(one) != to}
    ends = () if wanted.ecn != ON else _ecn_files(name, dcb, priority)
    if not differ and not ends and not refused:
        buffered = "" if wanted.buffer is None else " with a buffer of its own"
        yield about.passes(
            f"{name} has PFC for priority {priority} only{buffered}, DSCP "
            f"{wanted.code_point} has that priority, and global pause is off"
        )
        return
    old = [f"{one} {dcb.value(one)}" for one in differ] + ["ecn off"] * bool(ends)
    new = [f"{one} {to}" for one, to in differ.items()] + ["ecn on"] * bool(ends)
    before = ", ".join(old) or "other buffers, or none that it shows"
    after = ", ".join(new) or f"a buffer of {wanted.buffer} bytes"
    if base.netdev.driver != _SET_BY_DCB:
        refused = (
            f"ovirt-rdma sets this for {_SET_BY_DCB} only, and {name} has "
            f"{base.netdev.driver}: set it by its vendor's guide, at each boot"
        )
    yield about.warns(f"{name} has {before}; the policy's lossless class needs {after}")
    yield about.step(
        f"make priority {priority} of {name} lossless, for DSCP {wanted.code_point}",
        before,
        after,
        LINK_DOWN if "pfc" in differ else LIVE,
        reason="the policy requires it"
        + ("; PFC takes the link down and up" if "pfc" in differ else ""),
        undo="restores the earlier values",
        changes=(
            *(Change(DCB, name, dcb.value(one), to, one) for one, to in differ.items()),
            *(Change(SYSFS, end, None, "1") for end in ends),
        ),
        refused=refused,
        users=view.users.of_port(name),
    )


_ECN = "/sys/class/net/{}/ecn"


def _ecn_files(name: str, dcb: Dcb, priority: int) -> tuple[str, ...]:
    """Return the files that switch ECN on, if the driver has them and one is off."""
    if dcb.ecn_priorities is None or priority in dcb.ecn_priorities:
        return ()
    folder = _ECN.format(name)
    return tuple(f"{folder}/{end}/enable/{priority}" for end in ("roce_np", "roce_rp"))


def _buffers(base: Interface, dcb: Dcb, priority: int, size: int) -> tuple[str, str]:
    """Return the buffers with one of ``size`` bytes for ``priority`` only, which buffer
    0 gives up, and why that cannot be; the present ones if they are so already.
    """
    present = list(dcb.buffers or ())
    if len(present) < 2:
        return "", f"{base.name} shows no receive buffers"
    free = [n for n, one in enumerate(present) if n and not one.priorities]
    with_it = [n for n, one in enumerate(present) if one.priorities == (priority,)]
    at = next((n for n in with_it if n), None)
    if at is not None and 0 <= size - present[at].size < CELL:
        return buffers_text(present), ""
    at = at if at is not None else next(iter(free), None)
    rest = 0 if at is None else present[0].size + present[at].size - size
    if at is None or rest < 2 * base.netdev.mtu:
        most = sum(present[n].size for n in {0, at or 0}) - 2 * base.netdev.mtu
        return buffers_text(present), (
            f"{base.name} cannot give {size} bytes to one priority: buffer 0 has "
            f"{present[0].size}, so that it can have at most {max(most, 0)}"
        )
    others = [
        Buffer(one.size, tuple(n for n in one.priorities if n != priority))
        for one in present
    ]
    others[0] = Buffer(rest, others[0].priorities)
    others[at] = Buffer(size, (priority,))
    return buffers_text(others), ""


def _tos(view: View, about: About, port: RocePort) -> Iterator[Outcome]:
    # A bond of two netdevs has one RDMA device, on the first's bus device.
    bus = port.device.pci.address if port.device.pci else None
    addresses = ((base.netdev.pci and base.netdev.pci.address) for base in port.bases)
    first = (base for base, at in zip(port.bases, addresses) if at and at == bus)
    base = next(first, next(iter(port.bases), None))
    wanted, tos = base.policy.roce if base else None, port.port.default_tos
    name = port.name
    if base is None or wanted is None:
        return
    shown = f"{wanted.tos} (DSCP {wanted.code_point}"
    shown += ", with ECN)" if wanted.ecn == ON else ", without ECN)"
    # Only its folder shows it; without one it is 0, if nobody has removed the folder.
    known = tos is not None and port.port.default_gid_type is not None
    if known and tos == wanted.tos:
        yield about.passes(f"{_KERNELS} begin at {name} with type of service {shown}")
        return
    has = str(tos) if known else "unknown"
    yield about.warns(
        f"the type of service with which {_KERNELS} begin at {name} is {has}; the "
        f"policy needs {shown}"
    )
    yield about.step(
        f"give {_KERNELS} at {name} the type of service {wanted.tos}",
        has,
        str(wanted.tos),
        LIVE,
        reason="they set none themselves; mounts have it from their next connect",
        changes=(Change(ROCE_TOS, base.name, has if known else None, str(wanted.tos)),),
    )


def _of_netdevs(
    rule: str, judge: Callable[[About, RocePort, Interface], Finding]
) -> Rule:
    def check(view: View, about: About, port: RocePort) -> Iterator[Finding]:
        if port.device.is_soft_roce:
            yield about.skips(f"{port.name} is Soft-RoCE: {_SOFT}")
        elif not port.bases:
            yield about.skips(f"{port.name} has no netdev")
        for base in () if port.device.is_soft_roce else port.bases:
            about = About(rule, base.name)
            if base.policy.roce:
                yield about.skips(f"the policy decides that: {CLASS.id}")
            else:
                yield judge(about, port, base)

    return each(rule, roce_ports, check, _WITHOUT, rdma=True)


def _pfc(about: About, port: RocePort, base: Interface) -> Finding:
    name, dcb = base.name, base.netdev.dcb or Dcb()
    paused = bool(dcb.pause_rx or dcb.pause_tx)
    if dcb.pfc_priorities and not paused:
        return _protected(about, port, base.netdev, dcb)
    if dcb.pfc_priorities:
        return about.warns(
            f"{name} has both PFC (priority {_list(dcb.pfc_priorities)}) and global "
            "pause, but the adapter uses only one of them",
            f"ethtool -A {name} rx off tx off",
        )
    if paused:
        return about.passes(
            f"{name} has global pause, which stops all traffic of the link"
        )
    if dcb.pfc_priorities is None:
        sentence = f"the priority flow control of {name} is unknown"
        return about.skips(sentence, f"dcb pfc show dev {name}")
    return about.warns(
        f"{name} has no flow control: under congestion the switch drops RoCE packets",
        f"use the switch's setting, for example: dcb pfc set dev {name} prio-pfc 3:on, "
        "for priority 3",
    )


# The connections of the kernel: none of rpcrdma, ib_iser and ib_srp sets a type of
# service, so they have RDMA CM's default (cma_resolve_iboe_route).
_KERNELS = "connections of the kernel (NFS, iSER, SRP)"


def _protected(about: About, port: RocePort, netdev: Netdev, dcb: Dcb) -> Finding:
    """Return the finding whether those connections have a priority with PFC."""
    lossless, tos = dcb.pfc_priorities or (), port.port.default_tos
    shown = f"{netdev.name} has PFC for priority {_list(lossless)}"
    priorities = _priorities(port, dcb)
    if priorities is None:
        return about.skips(f"{shown}; the priority of {_KERNELS} is unknown")
    have = f"{_KERNELS} have type of service {tos} and so "
    if tos is None or dcb.trust == "pcp":
        have = f"{_KERNELS} have "
    have += f"priority {_list(sorted(priorities))}"
    if dcb.trust == "pcp":
        have += ", because a VLAN's tag decides"
    if priorities <= set(lossless):
        return about.passes(f"{shown}; {have}")
    return about.warns(
        f"{shown}, but {have}: flow control does not protect them",
        f"write roce: {{priority: {lossless[0]}}} for it in the policy "
        f"({CLASS.id}, {TOS.id}), and trust the DSCP",
    )


def _priorities(port: RocePort, dcb: Dcb) -> Optional[set[int]]:
    """Return the priorities of the kernel's connections by the netdevs with an address;
    None if unknown. RDMA CM takes that of a VLAN from its egress map (iboe_tos_to_sl).
    """
    tos, by_dscp, by_tag = port.port.default_tos, None, set()
    if tos is not None:
        known = {one.value: one.priority for one in dcb.dscp_priorities or ()}
        by_dscp = {known.get(tos >> 2, tos >> 5)}
    if dcb.trust == "dscp":
        return by_dscp
    for netdev in port.with_address:
        egress = netdev.egress if netdev.driver == "vlan" else ()
        if egress is None or (egress and tos is None):
            return None
        # The kernel's priority of a type of service (ip_tos2prio).
        priority = (0, 2, 6, 4)[((tos or 0) & 0x1E) >> 3]
        by_tag.add({one.value: one.priority for one in egress}.get(priority, 0))
    by_tag = by_tag or {0}
    # Without a known source of the priority it is known only if both give the same.
    return by_tag if dcb.trust == "pcp" or by_tag == by_dscp else None


def _ecn(about: About, port: RocePort, base: Interface) -> Finding:
    name, dcb, folder = base.name, base.netdev.dcb or Dcb(), _ECN.format(base.name)
    if dcb.ecn_priorities is None:
        fix = "the vendor's tool for the adapter shows it"
        if port.device.driver == MLX5:
            fix = (
                f"with MLNX_OFED: grep . {folder}/roce_*/enable/*; with the kernel's "
                "mlx5: cc_params below /sys/kernel/debug/mlx5"
            )
        return about.skips(f"the ECN state of RoCE on {name} is unknown", fix)
    if not dcb.ecn_priorities:
        return about.warns(
            f"{name} has no ECN for RoCE: senders slow down by PFC only, if at all",
            f"enable it for the priority of RoCE in roce_np and roce_rp of {folder}",
        )
    without = sorted(set(dcb.pfc_priorities or ()) - set(dcb.ecn_priorities))
    if without:
        files = (file for one in without for file in _ecn_files(name, dcb, one))
        return about.warns(
            f"{name} has PFC but no ECN for priority {_list(without)}",
            "; ".join(f"echo 1 > {file}" for file in files),
        )
    return about.passes(f"{name} has ECN for priority {_list(dcb.ecn_priorities)}")


def _list(priorities: Iterable[int]) -> str:
    return ", ".join(map(str, priorities))


MTU = Rule("ROCE-MTU-01", _mtu, _WITHOUT, rdma=True)
GIDS = each("ROCE-GID-01", roce_ports, _gids, _WITHOUT, rdma=True)
_NO_CLASS = "the policy has no lossless class (roce) for a RoCE port of this host"
CLASS = each(
    "ROCE-CLASS-01",
    lambda view: (base for port in roce_ports(view) for base in port.bases),
    _classes,
    _NO_CLASS,
    rdma=True,
)
TOS = each("ROCE-TOS-01", roce_ports, _tos, _NO_CLASS, rdma=True)
LAG = Rule("ROCE-LAG-01", _bonds, "no bond has a RoCE port", rdma=True)
PFC = _of_netdevs("ROCE-PFC-01", _pfc)
ECN = _of_netdevs("ROCE-ECN-01", _ecn)
