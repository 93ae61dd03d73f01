# SPDX-License-Identifier: GPL-2.0-or-later
"""The MTU that all hosts of a network can have, and the hosts that cannot. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.engine_facts import Host
from ovirt_rdma.engine_sdk_tools.host_report import HostReport
from ovirt_rdma.engine_sdk_tools.ipoib_mtu import NetdevMtu, ipoib_mtus
from ovirt_rdma.engine_sdk_tools.names import listed
from ovirt_rdma.engine_sdk_tools.nic_match import NicMatch

_NO_REPORT = "nothing is known of it: give --facts-dir, or let it be reached over SSH"


@dataclass(frozen=True)
class AutoMtu:
    """``mtu`` in bytes, 0 where there are ``offenders``, and ``because``, a sentence.

    ``offenders`` are sentences on hosts that do not tell, ``remarks`` on those for
    which the others get less than they could.
    """

    mtu: int
    because: str
    offenders: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def auto_mtu(
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    nic_match: Optional[str] = None,
) -> AutoMtu:
    """Return the largest MTU that the IPoIB netdevs of all ``hosts`` can have."""
    limits: list[tuple[str, NetdevMtu, int]] = []
    offenders = []
    for host in hosts:
        found, problem = netdevs_of(host, reports.get(host.name), nic_match)
        if problem:
            offenders.append(problem)
        for one in found:
            if one.mtu is None:
                offenders.append(
                    f"{host.name}: {one.netdev} has no MTU to go by, as {one.because}"
                )
            else:
                limits.append((host.name, one, one.mtu))
    if offenders or not limits:
        return AutoMtu(0, "", tuple(offenders))
    name, least, mtu = min(limits, key=lambda limit: limit[2])
    most = max(limit for _, _, limit in limits)
    because = f"{least.netdev} of {name} sets it: {least.because}"
    remarks = []
    if most > mtu:
        low = [f"{host} {one.netdev}" for host, one, limit in limits if limit == mtu]
        remarks.append(
            f"some could have {most}; {mtu} is for the sake of {listed(low)}"
        )
    return AutoMtu(mtu, because, (), tuple(remarks))


def mtu_offenders(
    mtu: int,
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    nic_match: Optional[str] = None,
) -> tuple[list[str], list[str]]:
    """Return sentences on hosts that cannot have ``mtu`` on any of their netdevs, and
    the names of those that do not tell.
    """
    offenders, unknown = [], []
    for host in hosts:
        report = reports.get(host.name)
        found, problem = netdevs_of(host, report, nic_match)
        if report is None or report.facts is None:
            unknown.append(host.name)
        elif problem:
            offenders.append(problem)
        elif any(one.mtu is None for one in found):
            unknown.append(host.name)
        elif all(one.mtu < mtu for one in found if one.mtu is not None):
            offenders += [
                f"{host.name}: {one.netdev} can have at most {one.mtu}, not {mtu}: "
                f"{one.because}"
                for one in found
            ]
    return offenders, unknown


def netdevs_of(
    host: Host, report: Optional[HostReport], nic_match: Optional[str]
) -> tuple[list[NetdevMtu], str]:
    """Return the limits of a host's IPoIB netdevs that are meant, or why there is none.

    Without ``nic_match``: those of its ports, no P_Key children.
    """
    if report is None or report.facts is None:
        why = (report.problem if report else "") or _NO_REPORT
        return [], f"{host.name}: {why}"
    macs = {netdev.name: netdev.address for netdev in report.facts.netdevs}
    match = NicMatch.parse(nic_match) if nic_match else None
    found = [
        one
        for one in ipoib_mtus(report.facts).values()
        if (
            match.means(one.netdev, macs.get(one.netdev), one.pci)
            if match
            else not one.child
        )
    ]
    if found:
        return found, ""
    which = f" that {nic_match} names" if nic_match else ""
    return [], f"{host.name} has no IPoIB netdev{which}"
