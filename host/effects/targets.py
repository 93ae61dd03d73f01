# SPDX-License-Identifier: GPL-2.0-or-later
"""What our rules change on a host, as a small grammar: whatever else a journal or a
plan file asks for is refused. And the netdev that a change is about. Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.ethtool_output import KEPT
from ovirt_rdma.host.own_files import OWN_FILES
from ovirt_rdma.host.rules.ipoib_children import PARENT_LENGTH
from ovirt_rdma.host.rules.ipoib_settings import (
    CONNECTION_ID,
    CONNECTION_TYPE,
    INFINIBAND_TYPE,
    INTERFACE_NAME,
    MTU,
    NEW,
    P_KEY,
    PARENT,
    TRANSPORT_MODE,
    TSO,
)
from ovirt_rdma.host.rules.rule import (
    FILE,
    MODULE,
    OFFLOAD,
    PROFILE,
    SYSFS,
    UNIT,
    Change,
)

CREATE_CHILD = "create_child"
MODE_FILE = "mode"
MTU_FILE = "mtu"

# The kernel's dev_valid_name: no white space, "/" or ":", at most 15 bytes.
_NETDEV = r"(?!\.{1,2}(?:/|$))[^\s/:]{1,15}"
_NUMBER = r"[0-9]{1,6}"
_PKEY = r"0x[0-9a-fA-F]{1,4}"
_MODE = r"datagram|connected"
_SWITCH = r"on|off"
_METHOD = r"disabled|auto|manual|link-local|shared|ignore|dhcp"

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NEW_PROFILE = re.compile(re.escape(NEW) + _NETDEV)
_NET_FILE = re.compile(
    rf"/sys/class/net/({_NETDEV})/({MODE_FILE}|{MTU_FILE}|{CREATE_CHILD})"
)
_PORT_MTU = re.compile(
    r"/sys/bus/pci/devices/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
    r"/mlx4_port([12])_mtu"
)
_MODULE = re.compile(r"[a-z0-9][a-z0-9_-]{0,55}")
_UNIT = re.compile(r"ovirt-rdma-[a-z]+\.(?:service|timer)")

# What a value may be, by sysfs file, and by the profile's property.
_SYSFS_VALUES = {MODE_FILE: _MODE, MTU_FILE: _NUMBER, CREATE_CHILD: _PKEY}
_PROPERTIES = {
    CONNECTION_TYPE: INFINIBAND_TYPE,
    CONNECTION_ID: _NETDEV,
    INTERFACE_NAME: _NETDEV,
    TRANSPORT_MODE: _MODE,
    MTU: _NUMBER,
    P_KEY: _PKEY,
    PARENT: _NETDEV,
    TSO: _SWITCH,
    "802-3-ethernet.mtu": _NUMBER,
    "ipv4.method": _METHOD,
    "ipv6.method": _METHOD,
}


def why_refused(change: Change) -> str:
    """Say, as a sentence without a full stop, why ``change`` is nothing that our rules
    give; else "".
    """
    wanted = _value_pattern(change)
    if wanted is None:
        return (
            f"{change.kind} {' '.join(filter(None, (change.target, change.name)))!a} "
            "is nothing that ovirt-rdma changes"
        )
    for value in (change.before, change.after):
        if value is not None and not re.fullmatch(wanted, value, re.DOTALL):
            shown = f"{change.target} {change.name}".strip()
            return f"{value[:60]!a} is no value for {shown}"
    if change.after is None and change.kind not in (FILE, PROFILE):
        return f"{change.target} cannot be set to nothing"
    return ""


def _value_pattern(change: Change) -> Optional[str]:
    """Return what ``before`` and ``after`` may be; None for a target not of ours."""
    pattern = _PATTERNS.get(change.kind)
    if pattern is None or (change.name and change.kind not in _NAMED):
        return None
    return pattern(change)


def _profile_values(change: Change) -> Optional[str]:
    target = change.target
    known = _UUID.fullmatch(target) or _NEW_PROFILE.fullmatch(target)
    return _PROPERTIES.get(change.name) if known else None


def _offload_values(change: Change) -> Optional[str]:
    known = re.fullmatch(_NETDEV, change.target) and change.name in KEPT.values()
    return _SWITCH if known else None


def _sysfs_values(change: Change) -> Optional[str]:
    file = _NET_FILE.fullmatch(change.target)
    if file:
        return _SYSFS_VALUES[file[2]]
    return _NUMBER if _PORT_MTU.fullmatch(change.target) else None


def _file_values(change: Change) -> Optional[str]:
    return r"[^\0]*" if change.target in OWN_FILES else None


def _module_values(change: Change) -> Optional[str]:
    return r"loaded" if _MODULE.fullmatch(change.target) else None


def _unit_values(change: Change) -> Optional[str]:
    # Before it was ours a unit may be whatever systemctl says: "static".
    known = _UNIT.fullmatch(change.target) and change.name == "enabled"
    return r"[a-z-]+" if known else None


_NAMED = (PROFILE, OFFLOAD, UNIT)
_PATTERNS = {
    PROFILE: _profile_values,
    OFFLOAD: _offload_values,
    SYSFS: _sysfs_values,
    FILE: _file_values,
    MODULE: _module_values,
    UNIT: _unit_values,
}


def netdev_file(change: Change) -> Optional[tuple[str, str]]:
    """Return the netdev and file (``mode``, ``mtu``, ``create_child``) of a SYSFS
    change; None for others.
    """
    file = _NET_FILE.fullmatch(change.target) if change.kind == SYSFS else None
    return (file[1], file[2]) if file else None


def makes_child(change: Change) -> bool:
    """Whether ``change`` is a write to ``create_child``."""
    file = netdev_file(change)
    return file is not None and file[1] == CREATE_CHILD


def port_mtu_of(change: Change) -> Optional[tuple[str, int]]:
    """Return the PCI address and port of a change of an mlx4 port's MTU, else None."""
    file = _PORT_MTU.fullmatch(change.target) if change.kind == SYSFS else None
    return (file[1], int(file[2])) if file else None


def netdev_of(change: Change) -> Optional[str]:
    """Return the netdev that ``change`` is about: in sysfs, of an offload, or that a
    new profile is for; None for others.
    """
    file = netdev_file(change)
    if file:
        return file[0]
    if change.kind == OFFLOAD:
        return change.target
    if change.kind == PROFILE and change.target.startswith(NEW):
        return change.target[len(NEW) :]
    return None


def with_netdev(change: Change, name: str) -> Change:
    """Return a change of sysfs or an offload about the netdev ``name`` instead."""
    file = netdev_file(change)
    if file:
        return replace(change, target=f"/sys/class/net/{name}/{file[1]}")
    return replace(change, target=name) if change.kind == OFFLOAD else change


def child_name(parent: str, pkey: str) -> str:
    """Return the name that ``create_child`` gives: the parent's, cut to ten letters,
    and the P_Key as it is written (Linux ulp/ipoib/ipoib_vlan.c).
    """
    return f"{parent[:PARENT_LENGTH]}.{int(pkey, 16):04x}"
