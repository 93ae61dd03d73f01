# SPDX-License-Identifier: GPL-2.0-or-later
"""Asking hosts for a verb that only reads: which ones, how far it has come, and what is
said where there is no way to them.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.domain_transport import no_report
from ovirt_rdma.engine_sdk_tools.engine_facts import Host
from ovirt_rdma.engine_sdk_tools.host_report import HostDoor, HostReport
from ovirt_rdma.engine_sdk_tools.report_stream import reports_of
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy_file import PolicyFile, load_policy_file

NO_WAY = (
    "the hosts were not asked: there is no way to them",
    "give --ssh-key, or --facts-dir with what they printed; root on the engine machine "
    "needs neither",
)


def asked(
    hosts: Sequence[Host], door: Optional[HostDoor], screen: Screen
) -> Iterator[tuple[Host, HostReport]]:
    """Yield each host with its report; with one that says so, where nobody asks.

    Shows how many have answered on a terminal.
    """
    if door is None:
        for host in hosts:
            yield host, no_report(host)
        return
    answered = 0

    def done(_: str) -> None:
        nonlocal answered
        answered += 1
        screen.passing(f"{answered} of {len(hosts)} hosts have answered")

    screen.passing(f"asking {len(hosts)} hosts")
    yield from reports_of(hosts, door, done)
    screen.passing("")


def say_no_way(door: Optional[HostDoor], screen: Screen) -> None:
    """Say on stderr that no host is asked, and what to do, where that is so."""
    if door is None:
        sentence, fix = NO_WAY
        screen.message(f"note: {sentence}")
        screen.message(f"fix: {fix}")


def own_policy(words: Namespace) -> Optional[tuple[PolicyFile, Path]]:
    """Return the policy of --policy, or this machine's; None where it has none.

    Raises PolicyProblem.
    """
    if words.policy is not None:
        path = Path(words.policy)
        return load_policy_file(path), path
    path = Path(POLICY_YAML)
    return (load_policy_file(path), path) if path.exists() else None
