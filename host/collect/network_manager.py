# SPDX-License-Identifier: GPL-2.0-or-later
"""Read NetworkManager's state and profiles with ``nmcli``."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.collect.netdevs import concerned
from ovirt_rdma.host.collect.parsers import nmcli
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import Netdev, NetworkManager, Profile, RdmaDevice
from ovirt_rdma.host.system.commands import CommandFailed

_NMCLI = ("nmcli", "-t", "-f")
# nmcli(1): "8 NetworkManager is not running."
_NOT_RUNNING = 8
_INFINIBAND = "infiniband"
# NetworkManager's folder for in-memory profiles, which include those that it generates
# from a netdev's present settings.
_IN_MEMORY = "/run/"
_SETTINGS = "connection,infiniband,802-3-ethernet,bond,ethtool"


def read_network_manager(
    tools: Tools,
    netdevs: tuple[Netdev, ...],
    devices: tuple[RdmaDevice, ...],
    problems: list[str],
) -> Optional[NetworkManager]:
    """Return NetworkManager's state and profiles; None if it is not installed or
    ``nmcli`` fails.

    ``nmcli`` is run four times at most. Secrets are not requested.
    """
    try:
        text = tools.text(
            [*_NMCLI, "RUNNING,VERSION", "general"],
            problems,
            optional=True,
            raised_status=_NOT_RUNNING,
        )
    except CommandFailed:
        return NetworkManager(running=False)
    if text is None:
        return None
    state = nmcli.table(text, 2)
    if not state:
        problems.append(f"nmcli does not print NetworkManager's state: {text!a}")
        return None
    ((running, version), *_) = state
    if running != "running":
        return NetworkManager(running=False, version=version or None)
    managed, unmanaged = _devices(tools, problems)
    return NetworkManager(
        running=True,
        version=version or None,
        managed=managed,
        unmanaged=unmanaged,
        profiles=_profiles(tools, concerned(netdevs), problems),
    )


def _devices(
    tools: Tools, problems: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    text = tools.text([*_NMCLI, "DEVICE,STATE", "device"], problems)
    managed: list[str] = []
    unmanaged: list[str] = []
    for name, state in nmcli.table(text or "", 2):
        (unmanaged if state == "unmanaged" else managed).append(name)
    return tuple(sorted(managed)), tuple(sorted(unmanaged))


def _profiles(
    tools: Tools, names: set[str], problems: list[str]
) -> tuple[Profile, ...]:
    """Return the profiles for RDMA netdevs, by name, with their properties."""
    fields = "UUID,TYPE,DEVICE,FILENAME,NAME"
    text = tools.text([*_NMCLI, fields, "connection"], problems)
    candidates = [
        Profile(name=name, uuid=uuid, type=type_, active_on=on, file=_kept_in(file))
        for uuid, type_, device, file, name in nmcli.table(text or "", 5)
        for on in (_active_on(device, names),)
        if type_ == _INFINIBAND or on in names
    ]
    candidates.sort(key=lambda profile: (profile.name, profile.uuid))
    if not candidates:
        return ()
    ids = [word for profile in candidates for word in ("uuid", profile.uuid)]
    text = tools.text([*_NMCLI, _SETTINGS, "connection", "show", *ids], problems)
    properties = nmcli.profiles(text or "")
    known = (replace(p, properties=properties.get(p.uuid, ())) for p in candidates)
    return tuple(
        replace(profile, interface_name=profile.value("connection.interface-name"))
        for profile in known
    )


def _kept_in(file: str) -> Optional[str]:
    """Return the file, or None for a profile that does not survive a boot."""
    return None if file.startswith(_IN_MEMORY) else file or None


def _active_on(device: str, names: set[str]) -> Optional[str]:
    """Return the netdev in nmcli's column DEVICE; of several, one of ``names`` if
    possible.
    """
    active = [device, *device.split(",")]
    return next((name for name in active if name in names), active[-1]) or None
