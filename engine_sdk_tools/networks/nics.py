# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the NIC or bond of each host for a network. Pure.

What a NIC is comes from the host's facts. Without them the engine's own data say two
things: the last 8 of the 20 bytes of an IPoIB address are the port's GUID (RFC 4391,
9.1.1), and no other link layer has such addresses. The engine passes nothing else on
that a host reports of a NIC (docs/engine.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional, Union

from ovirt_rdma.engine_sdk_tools.hosts.policy import loaded_policy
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Host, Nic
from ovirt_rdma.engine_sdk_tools.networks.nic_match import NicMatch, shown_value
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import Guid
from ovirt_rdma.host.facts.interfaces import (
    ETHERNET,
    INFINIBAND,
    Interface,
    interfaces_of,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.pkeys import full_member, partition_of, pkey_of_vlan

# A sentence lists no more NICs than this.
_MOST_NAMED = 6


@dataclass(frozen=True)
class Chosen:
    """The NIC for a network: ``target`` is the name of the NIC or bond, ``ports`` are
    the NICs of the bond. ``new_bond``: the bond must be made. ``interface`` is what
    the NIC is, as far as that is known.
    """

    target: str
    ports: tuple[str, ...] = ()
    new_bond: bool = False
    interface: Optional[Interface] = field(default=None, compare=False)


def choose_nics(
    host: Host, match: NicMatch, report: Optional[HostReport], bond: bool
) -> Union[Chosen, Sentence]:
    """Return the NIC of ``host`` that ``match`` selects, or why there is none.

    With ``bond``: an active-backup bond of all NICs that match, or the existing bond
    that has exactly these ports.
    """
    facts = report.facts if report else None
    found = _unclear(host, match, report) or in_partitions(host, match, report)
    if isinstance(found, Sentence):
        return found
    match = found
    seen = seen_nics(host, facts)
    # No network is attached to a VLAN. It has the MAC address of its NIC, and its name
    # begins with that of the NIC.
    nics = tuple(nic for nic in host.nics or () if not nic.vlan_of)
    meant = [nic for nic in nics if match.means(seen[nic.name])]
    bonds = [nic for nic in nics if nic.bond_ports]
    if not bond:
        # A bond has the MAC address of its active port, so that a GUID matches both.
        above = [nic for nic in meant if nic.bond_ports]
        ports = {port for nic in above for port in nic.bond_ports}
        meant = [nic for nic in meant if nic.name not in ports]
        if len(meant) == 1:
            (nic,) = meant
            return Chosen(nic.name, nic.bond_ports, interface=seen[nic.name])
        return _not_one(host, match, meant, seen, facts)
    meant = [nic for nic in meant if not nic.bond_ports]
    names = tuple(nic.name for nic in meant)
    for nic in bonds:
        if set(nic.bond_ports) == set(names):
            return Chosen(nic.name, nic.bond_ports, interface=seen[nic.name])
    if len(names) < 2:
        return _not_one(host, match, meant, seen, facts)
    taken = {nic.name for nic in host.nics or ()}
    free = next(f"bond{n}" for n in range(len(taken) + 1) if f"bond{n}" not in taken)
    return Chosen(free, names, new_bond=True)


def in_partitions(
    host: Host, match: NicMatch, report: Optional[HostReport]
) -> Union[NicMatch, Sentence]:
    """Return ``match`` with the P_Keys of the partitions that it names, by the policy
    that is loaded on ``host``, or why there is none.
    """
    if not match.partitions:
        return match
    policy, reason = loaded_policy(report or HostReport(host.name))
    if policy is None:
        return Sentence(
            "partitions-unknown",
            f"{host.name}: the partitions of its policy are unknown: {reason}",
        )
    pkeys = [policy.fabric.pkey_named(name) for name in match.partitions]
    if None in pkeys:
        missing = match.partitions[pkeys.index(None)]
        known = ", ".join(one.name for one in policy.fabric.partitions) or "none"
        return Sentence(
            "partition-unknown",
            f"{host.name}: its policy has no partition {missing!r} (fabric.partitions: "
            f"{known})",
        )
    return match.with_pkeys([pkey for pkey in pkeys if pkey is not None])


def seen_nics(host: Host, facts: Optional[Facts]) -> dict[str, Interface]:
    """Return what the NICs of ``host`` are, by name, from its facts and the engine."""
    known = {found.name: found for found in interfaces_of(facts)} if facts else {}
    return {
        nic.name: _seen(nic, known.get(nic.name, Interface(nic.name)))
        for nic in host.nics or ()
    }


def _seen(nic: Nic, known: Interface) -> Interface:
    guid = Guid.of_address(nic.mac or "")
    layer = known.link_layer or (nic.mac and ETHERNET)
    return replace(
        known,
        link_layer=INFINIBAND if nic.infiniband else layer,
        guid=guid.in_groups if guid and guid.assigned else known.guid,
    )


def _unclear(
    host: Host, match: NicMatch, report: Optional[HostReport]
) -> Optional[Sentence]:
    """Refuse what needs facts without facts, and the name of a VLAN."""
    if match.for_facts and (report is None or report.facts is None):
        why = f" ({report.problem})" if report and report.problem else ""
        return Sentence(
            "nic-match-needs-facts",
            f"{host.name}: {', '.join(match.for_facts)} can only be matched with the "
            f"host's facts{why}; give --facts-dir, or a name or port GUID instead",
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
    host: Host,
    match: NicMatch,
    meant: Sequence[Nic],
    seen: Mapping[str, Interface],
    facts: Optional[Facts],
) -> Sentence:
    if len(meant) > 1:
        names = ", ".join(_with_place(seen[nic.name], match) for nic in meant)
        return Sentence(
            "nic-ambiguous",
            f"{host.name}: {match.text!r} matches {names}; narrow it, or give --bond "
            "active-backup",
        )
    if meant:
        return Sentence(
            "bond-needs-nics",
            f"{host.name}: {match.text!r} matches {meant[0].name} only; a bond needs 2",
        )
    shown = [nic.name for nic in host.nics or () if not nic.vlan_of]
    more = ", ..." if len(shown) > _MOST_NAMED else ""
    nics = ", ".join(_with_lacks(seen[name], match) for name in shown[:_MOST_NAMED])
    return Sentence(
        "nic-unmatched",
        f"{host.name}: no NIC matches {match.text!r} (NICs: {nics or 'none'}{more})"
        f"{_missing_child(match, facts)}",
    )


def _with_place(nic: Interface, match: NicMatch) -> str:
    """Return ``ib0``, and for conditions what could tell it from the others."""
    if not match.conditions or not nic.device:
        return nic.name
    keys = ("device", "port", "parent") if nic.parent else ("device", "port")
    return f"{nic.name} ({_listed({key: shown_value(nic, key) for key in keys})})"


def _with_lacks(nic: Interface, match: NicMatch) -> str:
    """Return ``ib0``, and for conditions why it does not match."""
    if not match.conditions:
        return nic.name
    lacks = match.lacks(nic)
    if lacks:
        return f"{nic.name} ({_listed(lacks)})"
    return f"{nic.name} (a P_Key child)" if nic.parent else nic.name


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _missing_child(match: NicMatch, facts: Optional[Facts]) -> str:
    """Return what to do if no NIC is in the partition, as the end of a sentence."""
    pkeys = match.conditions.get("pkey", ())
    vlans = match.conditions.get("pkey_vlan", ())
    wanted = [full_member(int(partition, 16)) for partition in pkeys]
    wanted += [pkey_of_vlan(int(vlan)) for vlan in vlans]
    if facts is None or len(wanted) != 1:
        return ""
    (pkey,) = wanted
    table = [
        partition_of(entry.value)
        for device in facts.rdma_devices
        for port in device.ports
        for entry in port.pkeys
    ]
    children = [i.pkey for i in interfaces_of(facts) if i.parent and i.pkey]
    if partition_of(pkey) in map(partition_of, children):
        return ""
    if partition_of(pkey) in table:
        return (
            f"; add {pkey} to pkey_children in the host's policy, and run "
            "'ovirt-rdma-host apply' there"
        )
    return f"; the subnet manager has given {pkey} to none of its ports"
