# SPDX-License-Identifier: GPL-2.0-or-later
"""Group equal hosts, so that a picture or a list of hundreds is readable. Pure.

Hosts are equal for the picture if their cluster, their devices and ports, and their
ways to storage are; for plans, if their steps are. What a port is cabled to is no
difference: each rack has switches of its own, so that 250 equal hosts would be as many
groups as there are racks, and most of those beyond MOST_GROUPS, where no port is drawn.
Lines from the group lead to all its switches instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.report.model import PlanStep, Report, ReportHost

# Up to this many hosts, each is drawn alone.
MOST_ALONE = 12
# More groups of one cluster are drawn as one, "other hosts".
MOST_GROUPS = 8


@dataclass(frozen=True)
class HostGroup:
    """Hosts that are equal; the first stands for all. ``others``: they are not equal,
    but too few of a kind to be drawn.
    """

    hosts: tuple[ReportHost, ...]
    others: bool = False

    @property
    def first(self) -> ReportHost:
        """The host that stands for all."""
        return self.hosts[0]


def groups_of(report: Report) -> tuple[HostGroup, ...]:
    """Return the groups of the picture, cluster by cluster, the largest first."""
    alone = len(report.hosts) <= MOST_ALONE
    clusters: dict[tuple[str, str], dict[object, list[ReportHost]]] = {}
    for host in report.hosts:
        cluster = clusters.setdefault((host.data_center or "", host.cluster or ""), {})
        cluster.setdefault(host.id or host.name if alone else _kind(host), []).append(
            host
        )
    found: list[HostGroup] = []
    for key in sorted(clusters, key=lambda key: tuple(map(natural, key))):
        groups = [tuple(sorted_hosts(hosts)) for hosts in clusters[key].values()]
        if alone:
            groups.sort(key=lambda hosts: natural(hosts[0].name))
        else:
            groups.sort(key=lambda hosts: (-len(hosts), natural(hosts[0].name)))
        most = len(groups)
        if not alone and most > MOST_GROUPS:
            most = MOST_GROUPS - 1
        found += [HostGroup(hosts) for hosts in groups[:most]]
        rest = [host for hosts in groups[most:] for host in hosts]
        if rest:
            found.append(HostGroup(tuple(sorted_hosts(rest)), others=True))
    return tuple(found)


def _kind(host: ReportHost) -> object:
    """Return what equal hosts have in common."""
    if host.devices is None:
        return "no report"
    devices = tuple(
        replace(
            device,
            firmware=None,
            ports=tuple(replace(port, neighbours=()) for port in device.ports),
        )
        for device in host.devices
    )
    return devices, host.paths


@dataclass(frozen=True)
class PlanGroup:
    """Hosts with the same plan."""

    hosts: tuple[ReportHost, ...]
    steps: tuple[PlanStep, ...]


def plans_of(report: Report) -> tuple[PlanGroup, ...]:
    """Return the plans that have steps, each once with its hosts; the one of the most
    hosts first.
    """
    plans: dict[tuple[PlanStep, ...], list[ReportHost]] = {}
    for host in report.hosts:
        if host.steps:
            plans.setdefault(host.steps, []).append(host)
    groups = [
        PlanGroup(tuple(sorted_hosts(hosts)), steps) for steps, hosts in plans.items()
    ]
    return tuple(
        sorted(groups, key=lambda one: (-len(one.hosts), natural(one.hosts[0].name)))
    )


def sorted_hosts(hosts: Sequence[ReportHost]) -> list[ReportHost]:
    """Return the hosts by name, with hv2 before hv10."""
    return sorted(hosts, key=lambda host: natural(host.name))


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts names with their numbers: hv2 before hv10."""
    return tuple(
        # int() refuses numbers of more than 4300 digits.
        (0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part)
        for part in re.split(r"([0-9]{1,18})", text)
        if part
    )


def names_of(hosts: Iterable[ReportHost], most: Optional[int] = None) -> str:
    """Return the names of hosts as :func:`in_order` does."""
    return in_order((host.name for host in hosts), most)


def in_order(names: Iterable[str], most: Optional[int] = None) -> str:
    """Return names in order: ``hv1 to hv4, hv6``.

    Names that differ by consecutive numbers are shown as first and last, from three on.
    Of more than ``most`` such parts, only the number of the remaining names is shown.
    """
    runs: list[list[str]] = []
    for name in sorted(names, key=natural):
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    parts: list[tuple[str, int]] = []
    for run in runs:
        if len(run) > 2:
            parts.append((f"{run[0]} to {run[-1]}", len(run)))
        else:
            parts += [(name, 1) for name in run]
    shown = parts if most is None or len(parts) <= most else parts[:most]
    text = ", ".join(part for part, _ in shown)
    left = sum(map(len, runs)) - sum(number for _, number in shown)
    return f"{text} and {left} more" if left else text


def _follows(before: str, name: str) -> bool:
    """Whether ``name`` is ``before`` with the next number in one place."""
    one, other = re.split(r"([0-9]{1,18})", before), re.split(r"([0-9]{1,18})", name)
    if len(one) != len(other):
        return False
    differ = [(a, b) for a, b in zip(one, other) if a != b]
    if len(differ) != 1:
        return False
    ((a, b),) = differ
    number = a.isascii() and a.isdigit() and b.isascii() and b.isdigit()
    return number and int(b) == int(a) + 1 and (len(a) == len(b) or a[0] != "0")
