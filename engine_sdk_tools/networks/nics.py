# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the NIC of each host for a network. Pure.

Which of a host's nics are meant: by name, by port GUID or by PCI address. Pure.

A GUID needs no facts from the host: the last 8 of an IPoIB address's 20 bytes are its
port's (RFC 4391, 9.1.1).

Where a network goes on a host: a nic, a bond that is there, or a new one. Pure.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Host, Nic
from ovirt_rdma.engine_sdk_tools.networks.ipoib_mtu import pci_of
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.policy.validate_nfs import glob_mistake

_GUID = re.compile(
    r"(?:0x)?([0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3}|[0-9a-f]{2}(?::[0-9a-f]{2}){7})"
)
_PCI = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_GUID_DIGITS = 16
_IPOIB_DIGITS = 40


@dataclass(frozen=True)
class NicMatch:
    """``text`` as written: alternatives with commas between them."""

    text: str
    names: tuple[str, ...] = ()
    guids: tuple[str, ...] = ()
    pcis: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> NicMatch:
        """Read ``ib*``, ``0002:c903:00fb:1231``, ``0000:04:00.0``, or several.

        Raises UsageProblem where there is nothing in it, or a glob that cannot be.
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
                f"--nic-match {text!r} names no nic",
                "give a name or glob (ib*), a port GUID or a PCI address",
            )
        return cls(text, tuple(names), tuple(guids), tuple(pcis))

    def means(self, name: str, mac: Optional[str], pci: Optional[str]) -> bool:
        """Whether a nic is meant; ``mac`` and ``pci`` None: not known."""
        digits = (mac or "").replace(":", "").lower()
        guid = digits[-_GUID_DIGITS:] if len(digits) == _IPOIB_DIGITS else None
        return (
            any(fnmatch.fnmatchcase(name, glob) for glob in self.names)
            or guid in self.guids
            or pci in self.pcis
        )


# More nics are not listed in a sentence.
_MOST_NAMED = 6


@dataclass(frozen=True)
class Chosen:
    """Where the network goes on a host: ``target`` is the nic's or bond's name,
    ``ports`` are the nics of a bond, and ``new_bond`` says that it has to be made.
    """

    target: str
    ports: tuple[str, ...] = ()
    new_bond: bool = False


def choose_nics(
    host: Host, match: NicMatch, report: Optional[HostReport], bond: bool
) -> tuple[Optional[Chosen], str]:
    """Return where ``match`` puts a network on ``host``, or why that is not clear.

    With ``bond``: an active-backup bond of all nics that are meant; one that they are
    in already, and no others, is used.
    """
    facts = report.facts if report else None
    problem = _unclear(host, match, facts is not None)
    if problem:
        return None, problem
    pcis = pci_of(facts) if facts else {}
    # A VLAN has its nic's MAC address and a name that begins like it, and a network is
    # never put on it.
    nics = tuple(nic for nic in host.nics or () if not nic.vlan_of)
    meant = [nic for nic in nics if match.means(nic.name, nic.mac, pcis.get(nic.name))]
    bonds = [nic for nic in nics if nic.bond_ports]
    if not bond:
        # A bond has its active port's MAC address, so that a GUID names both.
        above = [nic for nic in meant if nic.bond_ports]
        ports = {port for nic in above for port in nic.bond_ports}
        meant = [nic for nic in meant if nic.name not in ports]
        if len(meant) == 1:
            return Chosen(meant[0].name, meant[0].bond_ports), ""
        return None, _not_one(host, match, meant)
    meant = [nic for nic in meant if not nic.bond_ports]
    names = tuple(nic.name for nic in meant)
    for one in bonds:
        if set(one.bond_ports) == set(names):
            return Chosen(one.name, one.bond_ports), ""
    if len(names) < 2:
        return None, _not_one(host, match, meant, least=2)
    taken = {nic.name for nic in host.nics or ()}
    free = next(f"bond{n}" for n in range(len(taken) + 1) if f"bond{n}" not in taken)
    return Chosen(free, names, new_bond=True), ""


def _unclear(host: Host, match: NicMatch, with_facts: bool) -> str:
    """Say which word of ``match`` names nothing that a network can go on."""
    if match.pcis and not with_facts:
        return (
            f"{host.name}: a PCI address says nothing without its facts; give "
            "--facts-dir, a name or a port GUID"
        )
    for nic in host.nics or ():
        if nic.vlan_of and nic.name in match.names:
            return (
                f"{host.name}: {nic.name} is a VLAN on {nic.vlan_of}, which the engine "
                f"makes for a network with a VLAN tag: name {nic.vlan_of}"
            )
    return ""


def _not_one(host: Host, match: NicMatch, meant: Sequence[Nic], least: int = 1) -> str:
    names = ", ".join(nic.name for nic in meant)
    if len(meant) > 1:
        return (
            f"{host.name}: {match.text} names {names}; narrow it, or ask for "
            "--bond active-backup"
        )
    if meant:
        return f"{host.name}: {match.text} names {names} only; a bond takes {least}"
    shown = [nic.name for nic in host.nics or () if not nic.vlan_of]
    more = ", ..." if len(shown) > _MOST_NAMED else ""
    there = ", ".join(shown[:_MOST_NAMED]) or "none"
    return f"{host.name}: no nic is called for by {match.text} (it has {there}{more})"
