# SPDX-License-Identifier: GPL-2.0-or-later
"""Reports of many hosts, some at a time.

Facts of a host are some hundred kilobytes in memory, and a matrix needs a row of it:
who takes the reports one by one, and keeps none, stays small at hundreds of hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_rdma.engine_sdk_tools.engine_facts import Host
from ovirt_rdma.engine_sdk_tools.host_report import HostDone, HostDoor, HostReport

# Some rounds of Ansible's forks (20), so that few of them wait at a round's end.
AT_ONCE = 60


def reports_of(
    hosts: Sequence[Host],
    door: HostDoor,
    done: Optional[HostDone] = None,
    at_once: int = AT_ONCE,
) -> Iterator[tuple[Host, HostReport]]:
    """Yield each host with its report, in the order of ``hosts``."""
    for start in range(0, len(hosts), at_once):
        some = hosts[start : start + at_once]
        reports = door.reports(some, done)
        for host in some:
            report = reports.pop(host.name, None)
            if report is None:
                sentence = f"nothing came back from {host.name}"
                report = HostReport(host.name, problem=sentence)
            yield host, report
