# SPDX-License-Identifier: GPL-2.0-or-later
"""Read ``--nic-match``, and say which NICs it matches. Pure.

A text is words and conditions with commas. Words are alternatives: a name or glob, a
port GUID or a PCI address. Conditions are KEY=VALUE, and all of them must hold, besides
one of the words. The keys are those of ``ovirt-rdma-host facts --interfaces -o json``,
and ``partition``, the name that a partition has in the host's policy.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Callable, Optional

from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.facts.interfaces import ETHERNET, INFINIBAND, Interface
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.policy.texts import glob_mistake

_GUID = re.compile(
    r"(?:0x)?([0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3}|[0-9a-f]{2}(?::[0-9a-f]{2}){7})"
)
_PCI = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_MOST_DIGITS = 9

Read = Callable[[str], Optional[str]]
"""Returns the normal form of a condition's value; None if the value is invalid."""


def _guid(text: str) -> Optional[str]:
    found = _GUID.fullmatch(text.lower())
    return found.group(1).replace(":", "") if found else None


def _pci(text: str) -> Optional[str]:
    found = _PCI.fullmatch(text.lower())
    return f"{found.group(1) or '0000'}:{found.group(2)}" if found else None


def _link_layer(text: str) -> Optional[str]:
    names = (INFINIBAND, ETHERNET)
    return next((name for name in names if name.lower() == text.lower()), None)


def _number(text: str) -> Optional[str]:
    digits = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return str(int(text)) if digits else None


def _partition(text: str) -> Optional[str]:
    """Return the partition: a netdev's P_Key has the bit of full members, or not."""
    partition = partition_of(text)
    return None if partition is None else f"0x{partition:04x}"


def _glob(text: str) -> Optional[str]:
    return None if not text or glob_mistake(text) else text


# The keys that can be given, how their values are read, and what a value is.
KEYS: Mapping[str, tuple[Read, str]] = {
    "name": (_glob, "a name or glob"),
    "link_layer": (_link_layer, f"{INFINIBAND} or {ETHERNET}"),
    "driver": (_glob, "a name or glob"),
    "bus_info": (_pci, "a PCI address, as 0000:04:00.0"),
    "device": (_glob, "the name of an RDMA device, or a glob"),
    "port": (_number, "a number"),
    "guid": (_guid, "a port GUID, as 0002:c903:00fb:1231"),
    "parent": (_glob, "a name or glob"),
    "pkey": (_partition, "a P_Key, as 0x8064"),
    "pkey_vlan": (_number, "a number"),
    "speed_mbps": (_number, "a number"),
    "roles": (_glob, "a role, as storage, or a glob"),
}
# In place of ``pkey``: the host's policy says which P_Key that is.
_PARTITION = "partition"
# What the engine knows of a NIC: its name and MAC address.
_OF_ENGINE = frozenset({"name", "guid", "link_layer"})
# By these a P_Key child is chosen; other conditions mean the netdev of a port.
_OF_CHILDREN = frozenset({"name", "parent", "pkey", "pkey_vlan"})


@dataclass(frozen=True)
class NicMatch:
    """A parsed ``--nic-match``; ``text`` is as written.

    ``conditions`` are the values by key; one of the values of each key must hold.
    ``partitions`` are names of partitions; :meth:`with_pkeys` makes conditions of them.
    """

    text: str
    names: tuple[str, ...] = ()
    guids: tuple[str, ...] = ()
    pcis: tuple[str, ...] = ()
    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> NicMatch:
        """Read ``ib*``, ``0002:c903:00fb:1231``, ``0000:04:00.0``,
        ``link_layer=InfiniBand``, or several.

        Raises UsageProblem if it is empty, has an invalid glob, an unknown key or an
        invalid value.
        """
        names, guids, pcis, partitions = [], [], [], []
        conditions: dict[str, tuple[str, ...]] = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            guid, pci = _guid(word), _pci(word)
            if "=" in word:
                key, value = _condition(word)
                if key == _PARTITION:
                    partitions.append(value)
                else:
                    conditions[key] = (*conditions.get(key, ()), value)
            elif guid:
                guids.append(guid)
            elif pci:
                pcis.append(pci)
            elif mistake := glob_mistake(word):
                raise UsageProblem("nic-match-invalid", f"--nic-match: {mistake}")
            else:
                names.append(word)
        if not (names or guids or pcis or conditions or partitions):
            raise UsageProblem(
                "nic-match-empty",
                f"--nic-match {text!r} names no NIC",
                "give a name or glob (ib*), a port GUID, a PCI address, or conditions "
                "(link_layer=InfiniBand,port=1)",
            )
        words = (tuple(names), tuple(guids), tuple(pcis))
        return cls(text, *words, conditions, tuple(partitions))

    def with_pkeys(self, pkeys: Sequence[str]) -> NicMatch:
        """Return it with the P_Keys of its partitions as conditions."""
        found = filter(None, map(_partition, pkeys))
        wanted = (*self.conditions.get("pkey", ()), *found)
        return replace(self, conditions={**self.conditions, "pkey": wanted})

    @property
    def for_facts(self) -> tuple[str, ...]:
        """The conditions, and ``a PCI address``, that only a host's facts can show."""
        keys = [key for key in self.conditions if key not in _OF_ENGINE]
        keys += [_PARTITION] if self.partitions else []
        return (*keys, "a PCI address") if self.pcis else tuple(keys)

    @property
    def children(self) -> bool:
        """Whether P_Key children can match."""
        return bool(self.names or self.conditions.keys() & _OF_CHILDREN)

    def means(self, nic: Interface) -> bool:
        """Whether the NIC matches. What is not known of it does not match."""
        if nic.pkey is not None and nic.parent is not None and not self.children:
            return False
        words = self.names or self.guids or self.pcis
        return (not words or self._is_named(nic)) and not self.lacks(nic)

    def _is_named(self, nic: Interface) -> bool:
        return (
            any(fnmatch.fnmatchcase(nic.name, glob) for glob in self.names)
            or plain_guid(nic) in self.guids
            or nic.bus_info in self.pcis
        )

    def lacks(self, nic: Interface) -> dict[str, str]:
        """Return the conditions that do not hold, with the value that the NIC has."""
        return {
            key: shown_value(nic, key)
            for key, wanted in self.conditions.items()
            if not any(_holds(nic, key, value) for value in wanted)
        }


def plain_guid(nic: Interface) -> Optional[str]:
    """Return the GUID of a NIC as 16 hex digits; None if it has none."""
    return nic.guid.replace(":", "") if nic.guid else None


def shown_value(nic: Interface, key: str) -> str:
    """Return the value of a key for a sentence: ``none`` if there is none."""
    value = getattr(nic, key)
    return (
        "+".join(value) or "none" if isinstance(value, tuple) else str(value or "none")
    )


def _condition(word: str) -> tuple[str, str]:
    key, _, text = (part.strip() for part in word.partition("="))
    if key == _PARTITION and text:
        return key, text
    if key not in KEYS:
        raise UsageProblem(
            "nic-match-key-unknown",
            f"--nic-match has no key {key!r}",
            f"give one of {', '.join((*KEYS, _PARTITION))}",
        )
    read, form = KEYS[key]
    value = read(text)
    if value is None:
        raise UsageProblem(
            "nic-match-value-invalid",
            f"--nic-match: {key}={text} is not {form}",
        )
    return key, value


def _holds(nic: Interface, key: str, wanted: str) -> bool:
    value = getattr(nic, key)
    if key == "roles":
        return any(fnmatch.fnmatchcase(role, wanted) for role in value)
    if value is None:
        return False
    read, _ = KEYS[key]
    if read is _glob:
        return fnmatch.fnmatchcase(value, wanted)
    return read(str(value)) == wanted
