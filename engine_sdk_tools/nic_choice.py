# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a network goes on a host: a nic, a bond that is there, or a new one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.engine_facts import Host, Nic
from ovirt_rdma.engine_sdk_tools.host_report import HostReport
from ovirt_rdma.engine_sdk_tools.ipoib_mtu import pci_of
from ovirt_rdma.engine_sdk_tools.nic_match import NicMatch

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
