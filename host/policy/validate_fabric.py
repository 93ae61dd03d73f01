# SPDX-License-Identifier: GPL-2.0-or-later
"""Validate the ``fabric:`` part beyond its form, and make a FabricPolicy of it. Pure.

The functions that get the data of the file skip values of the wrong type, which their
form refuses.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.pkeys import (
    DEFAULT_NAME,
    DEFAULT_PARTITION,
    FIRST_VLAN,
    FULL,
    LAST_VLAN,
    LONGEST_NAME,
    MEMBERSHIPS,
    PORT_WORDS,
    full_member,
    partition_of,
    pkey_of_vlan,
)
from ovirt_rdma.host.policy.diagnostics import KeyPath, Mistake
from ovirt_rdma.host.policy.fabric import (
    ALL,
    FabricHost,
    FabricPolicy,
    PartitionRule,
    SubnetManagerRule,
)
from ovirt_rdma.host.policy.forms import Check
from ovirt_rdma.host.policy.model import OFF, ON
from ovirt_rdma.host.policy.validate_host import FormError, pkey, port_guid, refusal
from ovirt_rdma.host.policy.validate_nfs import each

PARTITION_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


def member(text: str) -> tuple[str, Optional[str]]:
    """Return who is named in ``WHO`` or ``WHO=MEMBERSHIP``, and the membership.

    A GUID is in the form of the facts. Raises FormError.
    """
    who, equals, membership = text.partition("=")
    if equals and membership not in MEMBERSHIPS:
        raise FormError(
            "membership-unknown",
            f"{text!r} has no membership; allowed: {', '.join(MEMBERSHIPS)}",
        )
    if _is_guid(who):
        who = port_guid(who)
        if not who.strip("0:"):
            raise FormError("guid-zero", f"{text} is the GUID of no port")
    elif who not in PORT_WORDS and not _HOST.fullmatch(who):
        raise FormError(
            "member-invalid",
            f"{text!r} is not a member; allowed: a host of fabric.hosts, a GUID, "
            f"{', '.join(PORT_WORDS)}",
        )
    return who, membership or None


def manager_port(text: str) -> str:
    """Return ALL, or the GUID of ``text`` as the facts have it. Raises FormError."""
    if text == ALL:
        return text
    guid = port_guid(text)
    if not guid.strip("0:"):
        raise FormError("guid-zero", f"{text} is the GUID of no port")
    return guid


def _is_guid(text: str) -> bool:
    return text not in PORT_WORDS and refusal(port_guid, text) is None


def fabric_policy(fabric: Mapping[str, Any]) -> FabricPolicy:
    """Return the policy of a ``fabric:`` part without mistakes."""
    defaults = fabric.get("defaults") or {}
    return FabricPolicy(
        tuple(
            FabricHost(name, tuple(map(port_guid, guids or ())))
            for name, guids in (fabric.get("hosts") or {}).items()
        ),
        tuple(
            _partition(name, {**defaults, **keys})
            for name, keys in (fabric.get("partitions") or {}).items()
        ),
        fabric.get("pkeys_are_vlans", OFF) == ON,
        tuple(
            SubnetManagerRule(
                name,
                keys["priority"],
                tuple(map(manager_port, keys.get("ports") or ())),
                keys.get("standby", OFF) == ON,
            )
            for name, keys in (fabric.get("subnet_managers") or {}).items()
        ),
    )


def _partition(name: str, keys: Mapping[str, Any]) -> PartitionRule:
    own = keys.get("membership", FULL)
    members = (member(text) for text in keys["members"])
    return PartitionRule(
        name,
        _pkey(keys) or "",
        tuple(f"{who}={membership or own}" for who, membership in members),
        keys.get("ipoib", ON) == ON,
        keys.get("mtu"),
        keys.get("rate"),
        keys.get("vlan"),
    )


def _pkey(keys: Mapping[str, Any]) -> Optional[str]:
    """Return the P_Key that a partition has, as a full member has it."""
    vlan, text = keys.get("vlan"), keys.get("pkey")
    if isinstance(vlan, int) and FIRST_VLAN <= vlan <= LAST_VLAN:
        return pkey_of_vlan(vlan)
    try:
        return full_member(int(pkey(text), 16)) if isinstance(text, str) else None
    except FormError:
        return None


def fabric_mistakes(fabric: object) -> Iterator[Mistake]:
    """Yield every mistake in the ``fabric:`` part."""
    if not isinstance(fabric, dict):
        return
    hosts = fabric.get("hosts")
    hosts = hosts if isinstance(hosts, dict) else {}
    yield from _host_mistakes(hosts)
    yield from _manager_mistakes(fabric.get("subnet_managers"), hosts)
    partitions = fabric.get("partitions")
    names: dict[str, str] = {}
    for name, keys in (partitions if isinstance(partitions, dict) else {}).items():
        path: KeyPath = ("fabric", "partitions", name)
        if not isinstance(name, str) or not PARTITION_NAME.fullmatch(name):
            yield (
                path,
                Sentence(
                    "partition-name-invalid",
                    f"{name!r} is not a name; allowed: a letter, then letters, digits "
                    f"and _.-, up to {LONGEST_NAME} characters",
                ),
            )
        elif isinstance(keys, dict):
            yield from _key_mistakes(name, keys, path, names)
            yield from _member_mistakes(keys.get("members"), hosts, path)


def _is_host_name(name: object) -> bool:
    text = name if isinstance(name, str) else ""
    return bool(_HOST.fullmatch(text)) and text not in PORT_WORDS and not _is_guid(text)


def _host_mistakes(hosts: Mapping[Any, Any]) -> Iterator[Mistake]:
    owners: dict[str, str] = {}
    for name, guids in hosts.items():
        path: KeyPath = ("fabric", "hosts", name)
        if not _is_host_name(name):
            sentence = f"{name!r} cannot be the name of a host here"
            yield path, Sentence("host-name-invalid", sentence)
            continue
        for position, guid in enumerate(guids if isinstance(guids, list) else ()):
            if not isinstance(guid, str) or not _is_guid(guid):
                continue
            owner = owners.setdefault(port_guid(guid), name)
            if owner != name:
                yield (
                    (*path, position),
                    Sentence("guid-repeated", f"{guid} is already a port of {owner}"),
                )


def _manager_mistakes(managers: object, hosts: Mapping[Any, Any]) -> Iterator[Mistake]:
    owners: dict[str, tuple[str, int]] = {}
    for name, keys in (managers if isinstance(managers, dict) else {}).items():
        path: KeyPath = ("fabric", "subnet_managers", name)
        if not _is_host_name(name):
            yield (
                path,
                Sentence(
                    "host-name-invalid", f"{name!r} cannot be the name of a host here"
                ),
            )
            continue
        ports = keys.get("ports") if isinstance(keys, dict) else None
        ports = ports if isinstance(ports, list) else []
        guids = hosts.get(name)
        guids = guids if isinstance(guids, list) else []
        known = [port_guid(g) for g in guids if isinstance(g, str) and _is_guid(g)]
        for position, text in enumerate(ports):
            if not isinstance(text, str) or refusal(manager_port, text):
                continue
            place, port = (*path, "ports", position), manager_port(text)
            if port == ALL:
                if len(ports) > 1:
                    yield place, Sentence("all-not-alone", "ALL is all ports already")
                continue
            first = owners.setdefault(port, (name, position))
            if first != (name, position):
                yield (
                    place,
                    Sentence(
                        "guid-repeated", f"{text} is already a port of {first[0]}"
                    ),
                )
            elif known and port not in known:
                yield (
                    place,
                    Sentence(
                        "guid-of-another-host",
                        f"{text} is not a port of {name} in fabric.hosts",
                    ),
                )


def _key_mistakes(
    name: str, keys: Mapping[str, Any], path: KeyPath, names: dict[str, str]
) -> Iterator[Mistake]:
    if ("pkey" in keys) == ("vlan" in keys):
        yield path, Sentence("pkey-or-vlan", "must have either pkey or vlan")
        return
    key = _pkey(keys)
    if key is None:
        return
    where = (*path, "pkey" if "pkey" in keys else "vlan")
    first = names.setdefault(key, name)
    if first != name:
        sentence = f"{key} is already the partition {first!r}"
        yield where, Sentence("pkey-repeated", sentence)
    if (name == DEFAULT_NAME) != (partition_of(key) == DEFAULT_PARTITION):
        yield (
            where,
            Sentence(
                "pkey-default-partition",
                f"{key} does not go with the name {name!r}; the default partition is "
                f"{DEFAULT_NAME}, with 0x{DEFAULT_PARTITION:04x}",
            ),
        )


def _member_mistakes(
    members: object, hosts: Mapping[Any, Any], path: KeyPath
) -> Iterator[Mistake]:
    if isinstance(members, list) and not members:
        sentence = "is empty; opensm removes a partition without members"
        yield (*path, "members"), Sentence("partition-empty", sentence)
    # Each port with the position of the member that names it first.
    ports: dict[str, int] = {}
    members = members if isinstance(members, list) else []
    for position, text in enumerate(members):
        if not isinstance(text, str) or refusal(member, text):
            continue
        place = (*path, "members", position)
        who, _ = member(text)
        if who in PORT_WORDS or _is_guid(who):
            named = [who]
        elif who not in hosts:
            sentence = f"{who!r} is not one of fabric.hosts"
            yield place, Sentence("host-unknown", sentence)
            continue
        else:
            guids = hosts[who] if isinstance(hosts[who], list) else []
            named = [port_guid(g) for g in guids if isinstance(g, str) and _is_guid(g)]
            if not guids:
                sentence = f"{who!r} has no GUID in fabric.hosts"
                yield place, Sentence("host-without-guid", sentence)
        for port in named:
            first = ports.setdefault(port, position)
            if first != position:
                sentence = f"{text} is already a member, by {members[first]!r}"
                yield place, Sentence("member-repeated", sentence)
                break


# The checks of texts, by the names in the table of fields.
FABRIC_CHECKS: dict[str, Check] = {
    name: each(functools.partial(refusal, form))
    for name, form in (("member", member), ("manager_port", manager_port))
}
