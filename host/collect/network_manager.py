# SPDX-License-Identifier: GPL-2.0-or-later
"""Read NetworkManager's state and profiles, and the engine's logical networks.

NetworkManager is asked with ``nmcli -t``: the forms are those of NetworkManager 1.42 to
1.56 (src/nmcli/utils.c). In a table, the fields of a line are separated by colons, and
a backslash escapes a colon or backslash in a value. Profiles are lines
``SETTING.PROPERTY:VALUE`` without escapes, with an empty line between two profiles.

VDSM's network/netconfpersistence.py writes one JSON file per logical network, with the
network's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.collect.netdevs import concerned
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import (
    Netdev,
    NetworkManager,
    OvirtNetwork,
    Profile,
    Property,
)
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.json_codec import Records, WrongRecord, json_value
from ovirt_rdma.host.system.tree import FileTree

_NMCLI = ("nmcli", "-t", "-f")
# nmcli(1): "8 NetworkManager is not running."
_NOT_RUNNING = 8
_INFINIBAND = "infiniband"
# NetworkManager's folder for in-memory profiles, which include those that it generates
# from a netdev's present settings.
_IN_MEMORY = "/run/"
_SETTINGS = "connection,infiniband,802-3-ethernet,bond,ethtool"


def read_network_manager(
    tools: Tools, netdevs: tuple[Netdev, ...], problems: list[str]
) -> Optional[NetworkManager]:
    """Return NetworkManager's state and profiles; None if it is not installed or
    ``nmcli`` fails.

    ``nmcli`` is run four times at most. Secrets are not requested.
    """
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
        return None
    if text.strip() != "running":
        return NetworkManager(running=False)
    devices: dict[bool, list[str]] = {True: [], False: []}
    text = tools.text([*_NMCLI, "DEVICE,STATE", "device"], problems)
    for name, word in table(text or "", 2):
        devices[word != "unmanaged"].append(name)
    return NetworkManager(
        running=True,
        managed=tuple(sorted(devices[True])),
        unmanaged=tuple(sorted(devices[False])),
        profiles=_profiles(tools, concerned(netdevs), problems),
    )


def _profiles(
    tools: Tools, names: set[str], problems: list[str]
) -> tuple[Profile, ...]:
    """Return the profiles for RDMA netdevs, by name, with their properties."""
    fields = "UUID,TYPE,DEVICE,FILENAME,NAME"
    text = tools.text([*_NMCLI, fields, "connection"], problems)
    candidates = [
        # A profile in memory does not survive a boot.
        Profile(
            name, uuid, kind, active_on=on, file=None if in_memory else file or None
        )
        for uuid, kind, device, file, name in table(text or "", 5)
        for on in (_active_on(device, names),)
        for in_memory in (file.startswith(_IN_MEMORY),)
        if kind == _INFINIBAND or on in names
    ]
    if not candidates:
        return ()
    candidates.sort(key=lambda profile: (profile.name, profile.uuid))
    ids = [word for profile in candidates for word in ("uuid", profile.uuid)]
    text = tools.text([*_NMCLI, _SETTINGS, "connection", "show", *ids], problems)
    properties = profiles(text or "")
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


_FIELD = re.compile(r":((?:\\.?|[^:\\])*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)


def fields(line: str) -> tuple[str, ...]:
    """Return the fields of a line of a table: ``a:b`` is two, ``a\\:b`` is one."""
    found = _FIELD.findall(f":{line}")
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
