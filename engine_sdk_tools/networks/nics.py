# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the NIC or bond of each host for a network. Pure.

``--nic-match`` selects NICs by name, port GUID or PCI address. A GUID needs no facts
from the host: the last 8 of the 20 bytes of an IPoIB address are the port's GUID (RFC
4391, 9.1.1).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Host, Nic
from ovirt_rdma.engine_sdk_tools.networks.ipoib_mtu import pci_of
from ovirt_rdma.host.errors import Sentence, UsageProblem
from ovirt_rdma.host.facts.devices import Guid
from ovirt_rdma.host.policy.validate_nfs import glob_mistake

_GUID = re.compile(
    r"(?:0x)?([0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3}|[0-9a-f]{2}(?::[0-9a-f]{2}){7})"
)
_PCI = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


@dataclass(frozen=True)
class NicMatch:
    """A parsed ``--nic-match``; ``text`` is as written: alternatives with commas."""

    text: str
    names: tuple[str, ...] = ()
    guids: tuple[str, ...] = ()
    pcis: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> NicMatch:
        """Read ``ib*``, ``0002:c903:00fb:1231``, ``0000:04:00.0``, or several.

        Raises UsageProblem if it is empty or has an invalid glob.
        """
        names, guids, pcis = [], [], []
        for word in filter(None, (part.strip() for part in text.split(","))):
            lowered = word.lower()
            guid, pci = _GUID.fullmatch(lowered), _PCI.fullmatch(lowered)
            if guid:
                guids.append(guid.group(1).replace(":", ""))
            elif pci:
                pcis.append(f"{pci.group(1) or '0000'}:{pci.group(2)}")
            elif mistake := glob_mistake(word):
                raise UsageProblem("nic-match-invalid", f"--nic-match: {mistake}")
            else:
                names.append(word)
        if not (names or guids or pcis):
            raise UsageProblem(
                "nic-match-empty",
                f"--nic-match {text!r} names no NIC",
                "give a name or glob (ib*), a port GUID or a PCI address",
            )
        return cls(text, tuple(names), tuple(guids), tuple(pcis))

    def means(self, name: str, mac: Optional[str], pci: Optional[str]) -> bool:
        """Whether the NIC matches; ``mac`` and ``pci`` are None if unknown."""
        return (
            any(fnmatch.fnmatchcase(name, glob) for glob in self.names)
            or Guid.of_address(mac or "") in self.guids
            or pci in self.pcis
        )


# A sentence lists no more NICs than this.
_MOST_NAMED = 6


@dataclass(frozen=True)
class Chosen:
    """The NIC for a network: ``target`` is the name of the NIC or bond, ``ports`` are
    the NICs of the bond. ``new_bond``: the bond must be made.
    """

    target: str
    ports: tuple[str, ...] = ()
    new_bond: bool = False


def choose_nics(
    host: Host, match: NicMatch, report: Optional[HostReport], bond: bool
) -> Union[Chosen, Sentence]:
    """Return the NIC of ``host`` that ``match`` selects, or why there is none.

    With ``bond``: an active-backup bond of all NICs that match, or the existing bond
    that has exactly these ports.
    """
    facts = report.facts if report else None
    refusal = _unclear(host, match, facts is not None)
    if refusal:
        return refusal
    pcis = pci_of(facts) if facts else {}
    # No network is attached to a VLAN. It has the MAC address of its NIC, and its name
    # begins with that of the NIC.
    nics = tuple(nic for nic in host.nics or () if not nic.vlan_of)
    meant = [nic for nic in nics if match.means(nic.name, nic.mac, pcis.get(nic.name))]
    bonds = [nic for nic in nics if nic.bond_ports]
    if not bond:
        # A bond has the MAC address of its active port, so that a GUID matches both.
        above = [nic for nic in meant if nic.bond_ports]
        ports = {port for nic in above for port in nic.bond_ports}
        meant = [nic for nic in meant if nic.name not in ports]
        if len(meant) == 1:
            return Chosen(meant[0].name, meant[0].bond_ports)
        return _not_one(host, match, meant)
    meant = [nic for nic in meant if not nic.bond_ports]
    names = tuple(nic.name for nic in meant)
    for nic in bonds:
        if set(nic.bond_ports) == set(names):
            return Chosen(nic.name, nic.bond_ports)
    if len(names) < 2:
        return _not_one(host, match, meant, least=2)
    taken = {nic.name for nic in host.nics or ()}
    free = next(f"bond{n}" for n in range(len(taken) + 1) if f"bond{n}" not in taken)
    return Chosen(free, names, new_bond=True)


def _unclear(host: Host, match: NicMatch, with_facts: bool) -> Optional[Sentence]:
    """Refuse a PCI address without facts, and the name of a VLAN."""
    if match.pcis and not with_facts:
        return Sentence(
            "nic-match-needs-facts",
            f"{host.name}: a PCI address can only be matched with the host's facts; "
            "give --facts-dir, or a name or port GUID instead",
        )
    for nic in host.nics or ():
        if nic.vlan_of and nic.name in match.names:
            return Sentence(
                "nic-is-vlan",
                f"{host.name}: {nic.name} is a VLAN on {nic.vlan_of}; the engine makes "
                f"VLANs itself, for networks with a VLAN tag: give {nic.vlan_of}",
            )
    return None


def _not_one(
    host: Host, match: NicMatch, meant: Sequence[Nic], least: int = 1
) -> Sentence:
    names = ", ".join(nic.name for nic in meant)
    if len(meant) > 1:
        return Sentence(
            "nic-ambiguous",
            f"{host.name}: {match.text!r} matches {names}; narrow it, or give --bond "
            "active-backup",
        )
    if meant:
        return Sentence(
            "bond-needs-nics",
            f"{host.name}: {match.text!r} matches {names} only; a bond needs {least}",
        )
    shown = [nic.name for nic in host.nics or () if not nic.vlan_of]
    more = ", ..." if len(shown) > _MOST_NAMED else ""
    nics = ", ".join(shown[:_MOST_NAMED]) or "none"
    return Sentence(
        "nic-unmatched",
        f"{host.name}: no NIC matches {match.text!r} (NICs: {nics}{more})",
    )
