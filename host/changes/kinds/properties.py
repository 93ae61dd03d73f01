# SPDX-License-Identifier: GPL-2.0-or-later
"""Describe the properties of a host that changes set. Pure.

A small grammar describes all changes that our rules make; anything else in a journal or
a plan file is refused. Further, this module finds the netdev of a change and the object
that a change makes, compares values as the host's tools write them (``on`` and ``yes``,
``0x8001`` and ``32769``, ``auto`` and nothing), and gives the command with which an
operator restores a value.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.changes.kinds.model import AtomicChange
from ovirt_rdma.host.collect.parsers.ethtool import KEPT
from ovirt_rdma.host.paths import JOURNAL
from ovirt_rdma.host.policy.model import FULL_MEMBER
from ovirt_rdma.host.rules.base import (
    FILE,
    MODULE,
    OFFLOAD,
    PROFILE,
    SYSFS,
    UNIT,
    Change,
)
from ovirt_rdma.host.rules.infiniband.children import PARENT_LENGTH
from ovirt_rdma.host.rules.infiniband.partitions import ID as PKEY_RULE
from ovirt_rdma.host.rules.infiniband.settings import (
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
    UNSET,
)
from ovirt_rdma.host.system.own_files import OWN_FILES

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

# Patterns of allowed values, by sysfs file and by property of a profile.
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
    """Return, as a sentence without a full stop, why none of our rules makes such a
    change; else "".
    """
    wanted = _value_pattern(change)
    if wanted is None:
        return (
            f"{change.kind} {' '.join(filter(None, (change.target, change.name)))!a} "
            "is not something that ovirt-rdma changes"
        )
    for value in (change.before, change.after):
        if value is not None and not re.fullmatch(wanted, value, re.DOTALL):
            describe = f"{change.target} {change.name}".strip()
            return f"{value[:60]!a} is not a valid value for {describe}"
    if change.after is None and change.kind not in (FILE, PROFILE):
        return f"{change.target} needs a value"
    return ""


def _value_pattern(change: Change) -> Optional[str]:
    """Return the pattern of allowed values; None for a target that is not ours."""
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
    # Before our change a unit may have any state of systemctl: "static".
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
    """Return the netdev of ``change``: of a sysfs file, an offload or a new profile;
    None for others.
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
    """Return a change of sysfs or an offload with the netdev ``name`` instead."""
    file = netdev_file(change)
    if file:
        return replace(change, target=f"/sys/class/net/{name}/{file[1]}")
    return replace(change, target=name) if change.kind == OFFLOAD else change


def child_name(parent: str, pkey: str) -> str:
    """Return the name that ``create_child`` gives: the parent's, cut to ten characters,
    and the P_Key that is written (Linux ulp/ipoib/ipoib_vlan.c).
    """
    return f"{parent[:PARENT_LENGTH]}.{int(pkey, 16):04x}"


@dataclass(frozen=True)
class Property:
    """A property of the host, which has one value. ``target`` is a profile's UUID if
    the change has ``new:NETDEV``.
    """

    kind: str
    target: str
    name: str


def property_of(change: Change, uuid: Optional[str] = None) -> Property:
    """Return the property of ``change``; ``uuid`` is that of a new profile."""
    target = change.target
    if target.startswith(NEW) and uuid:
        target = uuid
    # It is one file, but each child is a property of its own.
    name = (change.after or "") if makes_child(change) else change.name
    return Property(change.kind, target, name)


def is_volatile(change: Change) -> bool:
    """Whether the kernel forgets the value at a boot."""
    return change.kind in (SYSFS, OFFLOAD)


def makes_profile(act: AtomicChange) -> bool:
    """Whether ``act`` makes a new profile, and does not change an existing one."""
    return any(
        change.kind == PROFILE
        and change.name == CONNECTION_TYPE
        and change.target.startswith(NEW)
        for change in act.changes
    )


def is_maker(act: AtomicChange) -> bool:
    """Whether ``act`` makes something that other changes can set."""
    return makes_profile(act) or makes_child(act.changes[0])


def made_netdev(act: AtomicChange) -> Optional[str]:
    """Return the P_Key child that ``act`` makes, by its profile or in sysfs."""
    first = act.changes[0]
    file = netdev_file(first)
    if file and makes_child(first):
        return child_name(file[0], first.after) if first.after else None
    # IPOIB-PROFILE-01 makes a profile for a child that already exists and stays.
    if makes_profile(act) and act.step.startswith(f"{PKEY_RULE}/"):
        return _value(act, INTERFACE_NAME)
    return None


def file_of(change: Change) -> str:
    """Return the name of the netdev's sysfs file that ``change`` writes, or ""."""
    file = netdev_file(change)
    return file[1] if file else ""


def adapter_of(change: Change) -> Optional[str]:
    """Return the PCI address of the adapter whose port MTU ``change`` sets, which
    recreates all its netdevs; None for other changes.
    """
    port = port_mtu_of(change)
    return port[0] if port else None


def is_part_of(act: AtomicChange, maker: AtomicChange) -> bool:
    """Whether ``act`` has changed something that ``maker`` made."""
    change = act.changes[0]
    if act is maker:
        return False
    if change.kind == PROFILE and makes_profile(maker):
        return property_of(change, act.uuid).target == maker.uuid
    if change.kind == PROFILE:
        return False  # a profile outlives its netdev
    netdev = made_netdev(maker)
    return netdev is not None and netdev_of(change) == netdev


def describe(change: Change) -> str:
    """Return the property as text: ``mtu of ib0``."""
    file = netdev_file(change)
    if file:
        return f"{file[1]} of {file[0]}"
    if change.kind == PROFILE:
        return f"{change.name} of the profile {change.target}"
    if change.name and change.kind == OFFLOAD:
        return f"{change.name} of {change.target}"
    return change.target


def describe_atomic(act: AtomicChange) -> str:
    """Return as text what ``act`` changes: the profile or netdev that it makes, or its
    property.
    """
    if makes_profile(act):
        return f"the profile of {act.changes[0].target[len(NEW) :]}"
    if makes_child(act.changes[0]):
        return f"the netdev {made_netdev(act)}"
    return describe(act.changes[0])


def value_text(change: Change, value: Optional[str], text: str = "another text") -> str:
    """Return ``value`` for a sentence; for a file, ``text`` instead."""
    if value is None:
        return "not set" if change.kind == PROFILE else "not present"
    return text if change.kind == FILE else value.strip() or "empty"


def _value(act: AtomicChange, name: str) -> Optional[str]:
    return next((c.after for c in act.changes if c.name == name), None)


_NAMES = (CONNECTION_ID, INTERFACE_NAME, PARENT)
_SWITCHES = {"on": "on", "true": "on", "yes": "on"}
_SWITCHES.update({"off": "off", "false": "off", "no": "off"})


def same_value(change: Change, one: Optional[str], other: Optional[str]) -> bool:
    """Whether ``one`` and ``other`` mean the same for the property of ``change``."""
    return _normal(change, one) == _normal(change, other)


def is_accepted(change: Change, value: Optional[str]) -> bool:
    """Whether the host has accepted the change: ``value`` is ``change.after``, or a
    smaller number if the change is ``clamped``.
    """
    if same_value(change, change.after, value):
        return True
    wanted, present = _normal(change, change.after), _normal(change, value)
    if not (change.clamped and wanted and present):
        return False
    return wanted.isdecimal() and present.isdecimal() and int(present) < int(wanted)


def _normal(change: Change, value: Optional[str]) -> Optional[str]:
    if value is None:
        return None
    if change.kind == FILE:
        # Facts show bytes that are not UTF-8 as \x80, a reading keeps them.
        data = value.encode("utf-8", "surrogateescape")
        return data.decode("utf-8", "backslashreplace").rstrip("\n")
    text = value.strip()
    if change.kind == PROFILE:
        return _property(change.name, text)
    if makes_child(change):
        return _child_pkey(text)
    return _normal_text(text) or None


def _property(name: str, text: str) -> Optional[str]:
    if name in _NAMES:
        return None if text in ("", "--") else text
    return None if text.lower() in UNSET else _normal_text(text)


def _child_pkey(text: str) -> str:
    number = _normal_text(text)
    # The kernel sets the bit of full members itself.
    return str(int(number) | FULL_MEMBER) if number.isdecimal() else number


def _normal_text(text: str) -> str:
    """Return a whole number in decimal digits, a switch as ``on`` or ``off``, other
    text in small letters.
    """
    text = text.lower()
    try:
        return str(int(text, 16 if text.startswith("0x") else 10))
    except ValueError:
        return _SWITCHES.get(text, text)


def manual_fix(act: AtomicChange, value: Optional[str]) -> str:
    """Return the command with which an operator restores ``value``, which is None if
    there was none.
    """
    change = act.changes[0]
    target = shlex.quote(property_of(change, act.uuid).target)
    if makes_profile(act):
        return f"nmcli connection delete {target}"
    if makes_child(change):
        value, target = change.after, target.replace("create_child", "delete_child")
    if change.kind == FILE:
        text = f"write the text that {JOURNAL} has for it to {target}"
        return f"rm {target}" if value is None else text
    text = shlex.quote(value or "")
    switch = "enable" if value == "enabled" else "disable"
    return {
        SYSFS: f"echo {text} > {target}",
        OFFLOAD: f"ethtool -K {target} {change.name} {text}",
        PROFILE: f"nmcli connection modify {target} {change.name} {text}",
        UNIT: f"systemctl {switch} --now {target}",
    }.get(change.kind, "")
