# SPDX-License-Identifier: GPL-2.0-or-later
"""Read netdevs: type, MTU, addresses, stack and RDMA port; for RDMA netdevs also IPoIB,
offloads, bond and data center bridging. What RDMA ports are cabled to, as the other end
says it. NetworkManager's state and profiles, and the engine's logical networks.

/sys/class/net has most; ``ip -j -d addr show`` adds addresses and virtual kinds. P_Key
children that ``ip link`` created have no files of IPoIB in sysfs
(drivers/infiniband/ulp/ipoib/ipoib_vlan.c); ``ip`` shows theirs. The forms of ``dcb
-j`` are those of iproute2 5.18 to 7.1 (dcb/dcb_pfc.c, dcb/dcb_app.c), those of ethtool
of 6.1 (netlink/features.c, netlink/pause.c).

The other end: on InfiniBand, ``smpquery`` asks by a directed route of one link, which
needs no subnet manager. On Ethernet, ``lldptool`` shows what lldpad has last received;
VDSM requires lldpad, and lets it listen on all NICs (VDSM, network/initializer.py).
Nothing is enabled or started here. Mostly nothing is found: without root privileges or
a tool, behind a switch that sends no LLDP. So a failure is no problem of the facts. The
forms are those of rdma-core (infiniband-diags/smpquery.c, libibmad/dump.c and fields.c)
and of lldpad (lldp_mand_clif.c, lldp_basman_clif.c). The texts are those of another
machine: nothing but their length is limited here, and whoever shows them escapes them.

NetworkManager is asked with ``nmcli -t``: the forms are those of NetworkManager 1.42 to
1.56 (src/nmcli/utils.c). In a table, the fields of a line are separated by colons, and
a backslash escapes a colon or backslash in a value. Profiles are lines
``SETTING.PROPERTY:VALUE`` without escapes, with an empty line between two profiles.
VDSM's network/netconfpersistence.py writes one JSON file per logical network, with the
network's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional, TypeVar

from ovirt_rdma.host.collect.rdma import RDMA_CLASS, read_pci
from ovirt_rdma.host.collect.tools import Link, Tools, read_each
from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    HOST,
    ROUTER,
    SWITCH,
    TSO_FEATURES,
    Bond,
    Buffer,
    Dcb,
    Guid,
    Ipoib,
    Neighbour,
    Netdev,
    NetdevGraph,
    NetworkManager,
    Offload,
    OvirtNetwork,
    PriorityOf,
    Profile,
    Property,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.json_codec import Records, WrongRecord, json_value
from ovirt_rdma.host.system.tree import ROOT, FileTree, runs


def concerned(netdevs: Sequence[Netdev]) -> set[str]:
    """Return the names of the netdevs of RDMA ports and of what is stacked on them."""
    ports = (netdev.name for netdev in netdevs if netdev.rdma_device)
    return set(NetdevGraph(netdevs).above(*ports))


def read_netdevs(
    tree: FileTree, links: Mapping[str, Link], problems: list[str]
) -> tuple[Netdev, ...]:
    """Return all netdevs by name; ``links`` has addresses and virtual kinds, and the
    IPoIB settings that are in no file.

    A netdev that disappears during the read, or whose type or MTU cannot be read, is
    left out, with a sentence in ``problems``.
    """

    def read(name: str, failures: list[str]) -> Optional[Netdev]:
        # bonding_masters is a file.
        if not tree.is_folder(f"{NET_CLASS}/{name}"):
            return None
        return _netdev(tree, name, links.get(name, Link()), failures)

    names = tree.names(NET_CLASS, problems)
    return tuple(read_each(tree, NET_CLASS, names, problems, read))


def _netdev(
    tree: FileTree, name: str, link: Link, problems: list[str]
) -> Optional[Netdev]:
    folder = f"{NET_CLASS}/{name}"
    kind = tree.number(f"{folder}/type", problems)
    mtu = tree.number(f"{folder}/mtu", problems)
    if kind is None or mtu is None:
        return None
    entries = tree.names(folder)
    lowers = _stacked(entries, "lower_")

    ipoib = None
    # A bond has the type and address of its members (bond_main.c).
    if kind == ARPHRD_INFINIBAND and not lowers:
        mode, pkey, parent = (
            tree.text(f"{folder}/{key}", problems) if key in entries else shown
            for key, shown in zip(("mode", "pkey", "parent"), link.ipoib)
        )
        ipoib = Ipoib(mode, pkey, parent, sysfs="mode" in entries)
    return Netdev(
        name=name,
        type=kind,
        mtu=mtu,
        address=tree.text(f"{folder}/address") or "",
        operstate=tree.text(f"{folder}/operstate", problems) or UNKNOWN,
        driver=tree.link_name(f"{folder}/device/driver") or link.kind,
        pci=read_pci(tree, folder),
        uppers=_stacked(entries, "upper_"),
        lowers=lowers,
        addresses=link.addresses,
        egress=link.egress,
        ipoib=ipoib,
    )


def _stacked(entries: list[str], prefix: str) -> tuple[str, ...]:
    return tuple(e[len(prefix) :] for e in entries if e.startswith(prefix))


PortOf = tuple[str, int]
"""An RDMA device and the number of its port, from 1."""

_TYPES = {"InfiniBand": ARPHRD_INFINIBAND, "Ethernet": ARPHRD_ETHER}
# Kinds that are stacked on other netdevs: never a port's own netdev.
_STACKED = ("bond", "bridge", "vlan", "macvlan", "team")
# phys_port_name of a switchdev representor, which represents a VF or sub-function
# (Documentation/networking/switchdev.rst).
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:(?:vf|sf)\d+)?")


def read_netdev_ports(
    tree: FileTree, netdevs: tuple[Netdev, ...], devices: tuple[RdmaDevice, ...]
) -> dict[str, PortOf]:
    """Return the port of each netdev, by netdev name.

    A port's netdev is on the same bus device. If that has several, ``dev_port`` decides
    (an HCA with an InfiniBand and an Ethernet port). For a device without a netdev on
    its bus device, GID and MAC address are compared. P_Key children belong to the port
    of their parent. The second port of an mlx5 bond belongs to the first port, because
    the driver creates one RDMA device for both.
    """
    by_name = {netdev.name: netdev for netdev in netdevs}
    ports_of: dict[str, PortOf] = {}
    for device in devices:
        bus = _of_bus_device(tree, device, by_name)
        for port in device.ports:
            names = bus.get(port.number) or _of_virtual_device(
                tree, device, port, by_name
            )
            ports_of.update((name, (device.name, port.number)) for name in names)
    for netdev in netdevs:
        if netdev.ipoib and netdev.name not in ports_of:
            parent = netdev.ipoib.parent or ""
            place = ports_of.get(parent) or _of_guid(netdev, devices)
            if place:
                ports_of[netdev.name] = place
    for netdev in netdevs:
        if netdev.driver == "mlx5_core" and netdev.name not in ports_of:
            place = _of_bond(netdev, by_name, ports_of)
            if place:
                ports_of[netdev.name] = place
    return ports_of


def _of_bus_device(
    tree: FileTree, device: RdmaDevice, by_name: Mapping[str, Netdev]
) -> dict[int, list[str]]:
    """Return the netdevs of the bus device of ``device``, by port."""
    ports = {port.number: _TYPES.get(port.link_layer) for port in device.ports}
    by_port: dict[int, list[str]] = {}
    for name in tree.names(f"{RDMA_CLASS}/{device.name}/device/net"):
        netdev = by_name.get(name)
        if netdev is None or (netdev.ipoib and netdev.ipoib.parent):
            continue
        number = next(iter(ports)) if len(ports) == 1 else port_on_device(tree, name)
        if ports.get(number) == netdev.type:
            by_port.setdefault(number, []).append(name)
    for number, names in by_port.items():
        if len(names) > 1:
            own = [name for name in names if not _is_representor(tree, name)]
            by_port[number] = own or names
    return by_port


def port_on_device(tree: FileTree, name: str) -> int:
    """Return which port of its bus device a netdev is, from 1: ``dev_port`` and 1."""
    return (tree.number(f"{NET_CLASS}/{name}/dev_port") or 0) + 1


def port_of(
    tree: FileTree, name: str, devices: tuple[RdmaDevice, ...]
) -> Optional[PortOf]:
    """Return the RDMA port of the Ethernet netdev ``name``, if it is not known by a
    bond; None if there is none, or none yet. Of ``devices``, one GID a port is enough.
    """
    netdev = _netdev(tree, name, Link(), [])
    if netdev is None or netdev.type != ARPHRD_ETHER:
        return None
    return read_netdev_ports(tree, (netdev,), devices).get(name)


def _is_representor(tree: FileTree, name: str) -> bool:
    path = f"{NET_CLASS}/{name}/phys_port_name"  # an error for many
    return tree.match(path, _REPRESENTOR, "a representor's") is not None


def _of_virtual_device(
    tree: FileTree, device: RdmaDevice, port: RdmaPort, by_name: Mapping[str, Netdev]
) -> list[str]:
    """Return the Ethernet netdev of a port without one on its bus device: Soft-RoCE,
    Soft-iWARP, and devices whose netdev is a separate PCI function.
    """
    if not port.is_ethernet:
        return []
    parent = tree.text(f"{RDMA_CLASS}/{device.name}/parent") or ""  # rxe's
    if parent in by_name:
        return [parent]
    owners = {gid.netdev for gid in port.gids if gid.netdev}
    if device.is_iwarp:
        macs = {gid.gid.replace(":", "")[:12] for gid in port.gids}
        owners |= {n for n in by_name if by_name[n].address.replace(":", "") in macs}
    return sorted(
        name
        for name in owners
        if name in by_name
        and by_name[name].type == ARPHRD_ETHER
        and by_name[name].driver not in _STACKED
    )


def _of_guid(netdev: Netdev, devices: tuple[RdmaDevice, ...]) -> Optional[PortOf]:
    """Return the port whose GUID is at the end of an IPoIB netdev's address."""
    guid = Guid.of_address(netdev.address)
    for device in devices if guid and guid.assigned else ():
        for port in device.ports:
            base = next((gid.gid for gid in port.gids if gid.index == 0), "")
            if guid == Guid.of_gid(base):
                return device.name, port.number
    return None


def _of_bond(
    netdev: Netdev, by_name: Mapping[str, Netdev], ports_of: Mapping[str, PortOf]
) -> Optional[PortOf]:
    for upper in netdev.uppers:
        bond = by_name.get(upper)
        for name in bond.lowers if bond and bond.driver == "bond" else ():
            other = by_name.get(name)
            if name in ports_of and other and _slot(other) == _slot(netdev):
                return ports_of[name]
    return None


def _slot(netdev: Netdev) -> Optional[str]:
    """Return the PCI address without the function, which identifies the adapter."""
    return netdev.pci.address.partition(".")[0] if netdev.pci else None


# The message of the kernel if a driver does not support a setting (EOPNOTSUPP), and of
# dcb if the kernel's answer lacks it (dcb/dcb.c), as for qede without DCBX.
_UNSUPPORTED = ("not supported", "Attribute not found")
# The two ends of RoCE's congestion control: reaction point and notification point.
_ECN_ENDS = ("roce_rp", "roce_np")

_Read = TypeVar("_Read")


def read_dcb(
    tree: FileTree, tools: Tools, netdev: Netdev, problems: list[str]
) -> Optional[Dcb]:
    """Return the DCB settings of ``netdev``; None if all are unknown.

    Virtual netdevs and VFs are skipped: the physical function has these settings.
    """
    folder = f"{NET_CLASS}/{netdev.name}"
    if netdev.pci is None or tree.is_folder(f"{folder}/device/physfn"):
        return None
    name = netdev.name
    pause = _asked(tools, ["ethtool", "-a", name], pause_frames, problems)
    by_dscp = _asked(tools, dcb_show("app", name), dscp_priorities, problems)
    trust = None
    # No file or attribute shows it: both drivers trust the DSCP while there is an entry
    # for one (mlx5e_dcbnl_ieee_setapp, ice_dcbnl_setapp), otherwise the VLAN's PCP.
    if netdev.driver in ("mlx5_core", "ice") and by_dscp is not None:
        trust = "dscp" if by_dscp else "pcp"
    dcb = Dcb(
        _asked(tools, dcb_show("pfc", name), pfc_priorities, problems),
        _ecn_priorities(tree, folder),
        trust,
        *(pause or (None, None)),
        by_dscp,
        _asked(tools, dcb_show("buffer", name), buffers, problems),
    )
    return None if dcb == Dcb() else dcb


def dcb_show(what: str, netdev: str) -> list[str]:
    """Return the command that shows the ``pfc``, ``app`` or ``buffer`` of a netdev."""
    return ["dcb", "-j", what, "show", "dev", netdev]


def _ecn_priorities(tree: FileTree, folder: str) -> Optional[tuple[int, ...]]:
    """Return the priorities with ECN enabled at both ends.

    Only the out-of-tree mlx5 driver has these files.
    """
    ends = []
    for end in _ECN_ENDS:
        enable = f"{folder}/ecn/{end}/enable"
        names = tree.names(enable)
        if not names:
            return None
        ends.append({n for n in names if tree.text(f"{enable}/{n}") == "1"})
    return tuple(sorted(map(int, ends[0] & ends[1])))


def _asked(
    tools: Tools,
    argv: Sequence[str],
    read: Callable[[str], _Read],
    problems: list[str],
) -> Optional[_Read]:
    """Return the tool's text as parsed by ``read``; None if there is none."""
    failures: list[str] = []
    text = tools.text(argv, failures, optional=True)
    problems += [f for f in failures if not any(part in f for part in _UNSUPPORTED)]
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as error:
        problems.append(f"{' '.join(argv)} printed unexpected text: {error}")
        return None


_CARRIER = {"0": False, "1": True}


def with_ports(
    tree: FileTree, netdevs: tuple[Netdev, ...], devices: tuple[RdmaDevice, ...]
) -> tuple[Netdev, ...]:
    """Return ``netdevs`` with their RDMA ports."""
    ports = read_netdev_ports(tree, netdevs, devices)
    found = []
    for netdev in netdevs:
        device, port = ports.get(netdev.name, (None, None))
        found.append(replace(netdev, rdma_device=device, rdma_port=port))
    return tuple(found)


def with_rdma_details(
    tree: FileTree,
    tools: Tools,
    netdevs: tuple[Netdev, ...],
    devices: tuple[RdmaDevice, ...],
    problems: list[str],
) -> tuple[Netdev, ...]:
    """Return ``netdevs``, with details of those of RDMA ports and above them.

    ``ethtool`` is run once for all netdevs, or not at all if none is of an RDMA port.
    ``dcb``, and ``ethtool`` for pause frames, are run for each physical RoCE port.
    """
    placed = with_ports(tree, netdevs, devices)
    names = concerned(placed)
    offloads = {}
    if names:
        argv = ["ethtool", "-k", "*"]  # ethtool itself expands * to all netdevs
        offloads = features(tools.text(argv, problems) or "")
    return tuple(
        replace(
            netdev,
            # None for a netdev that is down (EINVAL).
            carrier=_CARRIER.get(tree.text(f"{NET_CLASS}/{netdev.name}/carrier") or ""),
            bond=_bond(tree, netdev, problems),
            dcb=read_dcb(tree, tools, netdev, problems)
            if netdev.rdma_device and netdev.type == ARPHRD_ETHER
            else None,
            offloads=offloads.get(netdev.name, ()),
            arp_ignore=_arp_ignore(tree, netdev.name),
        )
        if netdev.name in names
        else netdev
        for netdev in placed
    )


def _arp_ignore(tree: FileTree, name: str) -> Optional[int]:
    """Return the larger value, which the kernel takes (IN_DEV_MAXCONF)."""
    conf = "/proc/sys/net/ipv4/conf"
    values = [tree.number(f"{conf}/{one}/arp_ignore") for one in (name, "all")]
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _bond(tree: FileTree, netdev: Netdev, problems: list[str]) -> Optional[Bond]:
    """Return the settings of a bond; texts as ``active-backup 1`` (bond_sysfs.c)."""
    if netdev.driver != "bond":
        return None
    folder = f"{NET_CLASS}/{netdev.name}/bonding"
    mode = tree.text(f"{folder}/mode", problems)
    if mode is None:
        return None
    fail_over_mac = tree.text(f"{folder}/fail_over_mac")
    return Bond(
        mode=mode.split()[0],
        active=tree.text(f"{folder}/active_slave"),
        fail_over_mac=fail_over_mac.split()[0] if fail_over_mac else None,
    )


def pfc_priorities(text: str) -> tuple[int, ...]:
    """Return the priorities with PFC enabled, from ``dcb -j pfc show dev NETDEV``."""
    return _of_dcb(
        text,
        lambda shown: tuple(n for n, on in enumerate(shown["prio_pfc"]) if _IS_ON[on]),
    )


def dscp_priorities(text: str) -> tuple[PriorityOf, ...]:
    """Return the entries for a DSCP in ``dcb -j app show dev NETDEV``, pairs of DSCP
    and priority.
    """
    return _of_dcb(
        text,
        lambda shown: tuple(
            PriorityOf(int(dscp), int(priority))
            for dscp, priority, *_ in shown.get("dscp_prio", ())
        ),
    )


def buffers(text: str) -> tuple[Buffer, ...]:
    """Return the receive buffers in ``dcb -j buffer show dev NETDEV``."""
    return _of_dcb(
        text,
        lambda shown: tuple(
            Buffer(
                int(size),
                tuple(p for p, n in enumerate(shown["prio_buffer"]) if n == at),
            )
            for at, size in enumerate(shown["buffer_size"])
        ),
    )


def _of_dcb(text: str, read: Callable[[Any], _Read]) -> _Read:
    """Return what ``read`` makes of the object; raises ValueError for another form."""
    try:
        return read(json_value(text.encode("utf-8", "surrogateescape") or b"{}"))
    except (AttributeError, KeyError, TypeError) as odd:
        raise ValueError(str(odd)) from None


_FEATURE = re.compile(
    rf"^\s*({'|'.join(TSO_FEATURES)}): "
    r"(on|off)(?: \[(?:(fixed)|requested (on|off))\])?$",
    re.MULTILINE,
)
_ON_OFF = {"on": True, "off": False}
_IS_ON = {True: True, False: False}  # nothing else is one of them: unknown
_PAUSE = re.compile(r"^(RX|TX):\s+(on|off)$", re.MULTILINE)


def features(text: str) -> dict[str, tuple[Offload, ...]]:
    """Return the TSO_FEATURES of each netdev that ``ethtool -k '*'`` shows."""
    offloads_of: dict[str, tuple[Offload, ...]] = {}
    for block in f"\n{text}".split("\nFeatures for ")[1:]:
        head, _, lines = block.partition("\n")
        if head.endswith(":"):
            offloads_of[head[:-1]] = tuple(
                Offload(name, on == "on", bool(fixed), _ON_OFF.get(requested))
                for name, on, fixed, requested in _FEATURE.findall(lines)
            )
    return offloads_of


def pause_frames(text: str) -> tuple[Optional[bool], Optional[bool]]:
    """Return if pause frames are enabled, received and sent, from ``ethtool -a``; None
    for a value that is missing.
    """
    shown = {side: state == "on" for side, state in _PAUSE.findall(text)}
    return shown.get("RX"), shown.get("TX")


# The devices that MADs are sent with; each is of one port (drivers/infiniband/core/
# user_mad.c).
_MAD_CLASS = "/sys/class/infiniband_mad"
# lldpad's own (include/lldpad.h); it is longer than its number, padded with NULs.
_LLDPAD_PID = "/run/lldpad.pid"
# smpquery asks three times before it gives up (libibmad, MAD_DEF_RETRIES), and waits
# for a second each time by default. The answer comes over one cable.
_WAIT_MS = "300"


def with_neighbours(
    tree: FileTree,
    tools: Tools,
    devices: tuple[RdmaDevice, ...],
    netdevs: tuple[Netdev, ...],
) -> tuple[RdmaDevice, ...]:
    """Return ``devices`` with the neighbours of their active ports.

    ``smpquery`` is run twice for an InfiniBand port, ``lldptool`` once for a physical
    netdev of an Ethernet port. Virtual functions are left out: their cable is that of
    the physical function, and they may not ask.
    """
    # Those from which management datagrams can be sent; none without ib_umad.
    mads = {
        tuple(tree.text(f"{_MAD_CLASS}/{name}/{key}") for key in ("ibdev", "port"))
        for name in tree.names(_MAD_CLASS)
        if name.startswith("umad")
    }
    lldpad, graph = _lldpad_runs(tree), NetdevGraph(netdevs)

    def found(device: RdmaDevice, port: RdmaPort) -> Iterator[Optional[Neighbour]]:
        number = str(port.number)
        if port.is_infiniband and (device.name, number) in mads:
            ask = ("smpquery", "-t", _WAIT_MS, "-C", device.name, "-P", number, "-D")
            at = f"0,{number}"
            info = tools.text((*ask, "nodeinfo", at), optional=True)
            if info is not None:
                description = tools.text((*ask, "nodedesc", at), optional=True)
                yield infiniband_neighbour(info, description)
        elif port.is_ethernet and lldpad:
            place = device.name, port.number
            own = [n.name for n in netdevs if (n.rdma_device, n.rdma_port) == place]
            below = {name for one in own for name in graph.below(one)}
            for one in netdevs:
                if one.name in below and one.pci and one.type == ARPHRD_ETHER:
                    argv = ("lldptool", "get-tlv", "-n", "-i", one.name)
                    yield lldp_neighbour(
                        tools.text(argv, optional=True) or "", one.name
                    )

    return tuple(
        device
        if tree.is_folder(f"{RDMA_CLASS}/{device.name}/device/physfn")
        else replace(
            device,
            ports=tuple(
                replace(port, neighbours=tuple(filter(None, found(device, port))))
                if port.is_active
                else port
                for port in device.ports
            ),
        )
        for device in devices
    )


def _lldpad_runs(tree: FileTree) -> bool:
    """Whether lldpad is running. If it is not, lldptool would start it: systemd listens
    at its socket (lldpad.socket), and lldpad configures DCB.
    """
    pid = (tree.text(_LLDPAD_PID) or "").strip("\0\n ")
    # A stale number may be any process's by now.
    return (
        pid.isdecimal()
        and tree.text(f"/proc/{pid}/comm") == "lldpad"
        and runs(tree, pid, ROOT, "lldpad")
    )


# LLDP's longest text (IEEE 802.1AB, 8.5); a node description has 64 bytes.
_MOST = 255
# NodeType:........................Switch
_FIELD = re.compile(r"(\w+):\.+(.+)")
_NODE_TYPES = {"Switch": SWITCH, "Router": ROUTER, "Channel Adapter": HOST}
_GUID = re.compile(r"0x([0-9a-f]{16})")
_PORT = re.compile(r"[0-9]{1,3}")
_DESCRIPTION = re.compile(r"Node Description:\.*(.*)")


def infiniband_neighbour(info: str, description: Optional[str]) -> Optional[Neighbour]:
    """Return the node at the other end of an InfiniBand cable.

    ``info`` is what ``smpquery nodeinfo`` prints of it, ``description`` what ``smpquery
    nodedesc`` does. None if ``info`` lacks the GUID or the port.
    """
    found = filter(None, map(_FIELD.fullmatch, info.split("\n")))
    fields = {match[1]: match[2] for match in found}
    guid = _GUID.fullmatch(fields.get("Guid", ""))
    # The port that has received the question (InfiniBand Architecture, 14.2.5.3).
    port = _PORT.fullmatch(fields.get("LocalPort", ""))
    if guid is None or port is None:
        return None
    name = _DESCRIPTION.match(description or "")
    return Neighbour(
        kind=_NODE_TYPES.get(fields.get("NodeType", "")),
        id=Guid(guid[1]).in_groups,
        name=_text(name[1]) if name else None,
        port=port[0],
        description=None,
        netdev=None,
    )


def lldp_neighbour(text: str, netdev: str) -> Optional[Neighbour]:
    """Return the neighbour of ``netdev`` in what ``lldptool get-tlv -n`` prints; None
    if it shows none, or one without a name and an id.
    """
    fields: dict[str, list[str]] = {}
    for block in re.split(r"\n(?!\t)", text):
        head, *lines = block.split("\n\t")
        fields.setdefault(head, lines)  # the standard allows no second
    first = {head: lines[0] for head, lines in fields.items() if lines}
    chassis = _of_kind(first.get("Chassis ID TLV"))
    name = _text(first.get("System Name TLV"))
    if chassis is None and name is None:
        return None
    return Neighbour(
        kind=_capable(fields.get("System Capabilities TLV", [])),
        id=chassis,
        name=name,
        port=_of_kind(first.get("Port ID TLV")),
        description=_text(first.get("Port Description TLV")),
        netdev=netdev,
    )


def _of_kind(line: Optional[str]) -> Optional[str]:
    """Return the id in ``MAC: 01:23:45:67:89:ab`` or ``Ifname: Ethernet1/7``."""
    kind, colon, value = (line or "").partition(": ")
    # What lldptool itself cannot read is "Bad Port ID: HEX".
    return _text(value) if colon and not kind.startswith("Bad ") else None


def _capable(lines: list[str]) -> Optional[str]:
    """Return what the neighbour is by the capabilities that are enabled there."""
    for line in lines:
        head, _, words = line.partition(":")
        if head == "Enabled capabilities":
            enabled = {word.strip() for word in words.split(",")}
            if enabled & {"Bridge", "Router"}:
                return SWITCH
            return HOST if "Station Only" in enabled else None
    return None


def _text(text: Optional[str]) -> Optional[str]:
    return (text or "").strip("\0 \t\r")[:_MOST] or None


_NMCLI = ("nmcli", "-t", "-f")
# nmcli(1): "8 NetworkManager is not running."
_NOT_RUNNING = 8
_PROFILE_TYPE = "infiniband"
# NetworkManager's folder for in-memory profiles, which include those that it generates
# from a netdev's present settings.
_IN_MEMORY = "/run/"
_SETTINGS = "connection,infiniband,802-3-ethernet,bond,ethtool"


def read_network_manager(
    tools: Tools, netdevs: tuple[Netdev, ...], problems: list[str]
) -> Optional[NetworkManager]:
    """Return NetworkManager's state and profiles; None if it is not installed.

    ``nmcli`` is run four times at most. Secrets are not requested.
    """
    earlier = len(problems)
    try:
        text = tools.text(
            [*_NMCLI, "RUNNING", "general"],
            problems,
            optional=True,
            raised_status=_NOT_RUNNING,
        )
    except CommandFailed:
        return NetworkManager(running=False)
    if text is None:
        return NetworkManager(None) if problems[earlier:] else None
    state = text.strip()
    if state not in ("running", "not running"):
        problems.append(f"nmcli does not print NetworkManager's state: {text!a}")
        return NetworkManager(None)
    if state != "running":
        return NetworkManager(running=False)
    devices: dict[bool, list[str]] = {True: [], False: []}
    text = tools.text([*_NMCLI, "DEVICE,STATE", "device"], problems)
    for name, word in table(text or "", 2):
        devices[word != "unmanaged"].append(name)
    found = _profiles(tools, concerned(netdevs), problems)
    return NetworkManager(
        running=None if problems[earlier:] else True,
        managed=tuple(sorted(devices[True])),
        unmanaged=tuple(sorted(devices[False])),
        profiles=found,
    )


def _profiles(
    tools: Tools, names: set[str], problems: list[str]
) -> tuple[Profile, ...]:
    """Return the profiles for RDMA netdevs, by name, with their properties."""
    fields = "UUID,TYPE,DEVICE,FILENAME,NAME"
    text = tools.text([*_NMCLI, fields, "connection"], problems)
    candidates = []
    for uuid, kind, device, file, name in table(text or "", 5):
        on = _active_on(device, names)
        if kind == _PROFILE_TYPE or on in names:
            # A profile in memory does not survive a boot.
            kept = None if file.startswith(_IN_MEMORY) else file or None
            candidates.append(Profile(name, uuid, kind, active_on=on, file=kept))
    if not candidates:
        return ()
    candidates.sort(key=lambda profile: (profile.name, profile.uuid))
    ids = [word for profile in candidates for word in ("uuid", profile.uuid)]
    text = tools.text([*_NMCLI, _SETTINGS, "connection", "show", *ids], problems)
    properties = profiles(text or "")
    unseen = [profile.uuid for profile in candidates if profile.uuid not in properties]
    if unseen and text is not None:
        problems.append(f"nmcli does not show the profile {unseen[0]}")
    known = (replace(p, properties=properties.get(p.uuid, ())) for p in candidates)
    return tuple(
        replace(profile, interface_name=profile.value("connection.interface-name"))
        for profile in known
    )


def _active_on(device: str, names: set[str]) -> Optional[str]:
    """Return the netdev in nmcli's column DEVICE; of several, one of ``names`` if
    possible.
    """
    active = [device, *device.split(",")]
    return next((name for name in active if name in names), active[-1]) or None


# nmcli shows these among the properties, but they are not settings.
_LEFT_OUT = ("connection.timestamp", "connection.read-only")
_SECRET = "password"  # noqa: S105  (Wake-on-LAN's is shown without --show-secrets)
_PROPERTY = re.compile(r"([a-z0-9-]+\.[A-Za-z0-9_.-]+):(.+)")


def table(text: str, columns: int) -> list[tuple[str, ...]]:
    """Return the rows that have ``columns`` fields, without escapes."""
    rows = (fields(line) for line in text.split("\n"))
    return [row for row in rows if len(row) == columns]


_COLUMN = re.compile(r":((?:\\.?|[^:\\])*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)


def fields(line: str) -> tuple[str, ...]:
    """Return the fields of a line of a table: ``a:b`` is two, ``a\\:b`` is one."""
    found = _COLUMN.findall(f":{line}")
    return tuple(_ESCAPED.sub(r"\1", field) for field in found)


def profiles(text: str) -> dict[str, tuple[Property, ...]]:
    """Return the properties that have a value, by the profile's UUID.

    Secrets are left out, and so is the time of the last activation.
    """
    properties = {}
    for block in text.split("\n\n"):
        matches = map(_PROPERTY.fullmatch, block.split("\n"))
        shown = {match[1]: match[2] for match in matches if match}
        uuid = shown.get("connection.uuid")
        if uuid:
            properties[uuid] = tuple(
                Property(name, value)
                for name, value in shown.items()
                if name not in _LEFT_OUT and _SECRET not in name
            )
    return properties


# The present networks, and those that VDSM restores at boot; each ``netconf`` is a
# link.
STAGING = "/var/lib/vdsm/staging/netconf/nets"
PERSISTENCE = "/var/lib/vdsm/persistence/netconf/nets"
# Owned by the user vdsm (vdsm.spec.in, %defattr before _localstatedir/lib/vdsm).
_OTHERS = "/var/lib/vdsm"
# The limit for all files together: 4094 VLANs of 1 kB.
_MOST_BYTES = 4 << 20


def read_ovirt_networks(
    tree: FileTree, problems: list[str]
) -> tuple[OvirtNetwork, ...]:
    """Return the networks by name; none on a host without VDSM's files.

    They are the present ones; if VDSM has no list of these, the persistent ones.
    """
    folders = (f for f in (STAGING, PERSISTENCE) if tree.has(f, others=_OTHERS))
    folder = next(folders, None)
    if folder is None:
        return ()
    networks, left = [], _MOST_BYTES
    for name in tree.names(folder, problems, others=_OTHERS):
        data = tree.data(f"{folder}/{name}", problems, others=_OTHERS)
        left -= len(data or b"")
        if left < 0:
            problems.append(
                f"{folder} has more than {_MOST_BYTES} bytes of networks: those from "
                f"{name} on are not read"
            )
            break
        try:
            if data is not None:
                config = _FORM.read(_Config, json_value(data))
                networks.append(_network(name, config))
        except WrongRecord as error:
            problems.append(f"{folder}/{name} is not a network of VDSM: {error}")
    return tuple(networks)


@dataclass(frozen=True)
class _Custom:
    ipoib_mode: Optional[str]  # MODE_PROPERTY


@dataclass(frozen=True)
class _Config:
    """What we read of VDSM's NetworkConfig (network/nmstate/bridge_util.py)."""

    nic: Optional[str]
    bonding: Optional[str]
    vlan: Optional[int]
    bridged: Optional[bool]
    mtu: Optional[int]
    defaultRoute: Optional[bool]
    custom: Optional[_Custom]


_FORM = Records("a network", any_keys=True)


def _network(name: str, config: _Config) -> OvirtNetwork:
    below, vlan = config.nic or config.bonding, config.vlan
    return OvirtNetwork(
        name=name,
        southbound=f"{below}.{vlan}" if below and vlan is not None else below or None,
        bridged=bool(config.bridged),
        vlan=vlan,
        mtu=config.mtu,
        default_route=bool(config.defaultRoute),
        ipoib_mode=config.custom.ipoib_mode if config.custom else None,
    )
