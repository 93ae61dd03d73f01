# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's report, and reports of many hosts as a stream.

What a hypervisor says of itself, as it reaches the engine machine.

A report is made of what ``ovirt-rdma-host`` prints on the host. It may come over SSH
(:mod:`ovirt_rdma.engine_sdk_tools.hosts.ansible`) or from a folder of dumps
(:mod:`ovirt_rdma.engine_sdk_tools.hosts.dumps`). A host without one is unknown.

Reports of many hosts, some at a time.

Facts of a host are some hundred kilobytes in memory, and a matrix needs a row of it:
who takes the reports one by one, and keeps none, stays small at hundreds of hosts.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Protocol, TypeVar

from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import Facts

# Of all that a host tells of itself. The facts of a host with 16 adapters, 128 P_Keys a
# port and 508 virtual functions have 0.8 MB (bench/large_host.py), most have 30 kB.
MOST_BYTES = 4_000_000
# Of a policy.yaml: the script with it is one word of a command line, which has 128 KiB
# on Linux (MAX_ARG_STRLEN), and base64 makes four bytes of three.
MOST_POLICY_BYTES = 60_000
MAKE_SHORTER = "let globs and networks name the exports, so that it is shorter"
_MOST_SHOWN = 200

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class HostReport:
    """What one host told.

    ``host`` is the engine's name of it. ``facts`` is None, and ``problem`` says why
    in a sentence with ``fix``, where there is no report. ``status`` is the document of
    ``ovirt-rdma-host status -o json``, None where the host did not give it.
    ``policy_text`` is its /etc/ovirt-rdma/policy.yaml, None where it was not asked
    for or is not there. ``read_at`` in seconds since 1970.
    """

    host: str
    facts: Optional[Facts] = None
    status: Optional[Mapping[str, Any]] = None
    policy_text: Optional[str] = None
    read_at: Optional[float] = None
    problem: str = ""
    fix: str = ""

    @property
    def policy_digest(self) -> Optional[str]:
        """The digest of the policy that is loaded there, None for none or unknown."""
        status = self.status if isinstance(self.status, Mapping) else {}
        policy = status.get("policy")
        found = policy.get("digest") if isinstance(policy, Mapping) else None
        return found if isinstance(found, str) else None


@dataclass(frozen=True)
class Pushed:
    """What became of a policy that was sent to a host.

    ``digest`` is what the host says after ``policy load``, ``before`` the policy.yaml
    that stood there (None: none). ``problem`` is "" where it went well.
    """

    host: str
    digest: Optional[str] = None
    before: Optional[str] = None
    problem: str = ""
    fix: str = ""


def policy_too_long(text: Optional[str]) -> str:
    """Say that a policy.yaml is too long to be sent to a host; "" where it is not.

    What a host has is held against the same limit, before anything is changed there:
    it could not be put back.
    """
    size = len((text or "").encode("utf-8"))
    if size <= MOST_POLICY_BYTES:
        return ""
    return f"the policy has {size} bytes, {MOST_POLICY_BYTES} can be sent"


def bug_of(host: str, error: Exception) -> tuple[str, str]:
    """Return the sentence and the fix for a host whose report our own code fails on, so
    that a bug is seen, and the other hosts do not suffer from it.
    """
    said = traceback.format_exception_only(type(error), error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return (
        f"what {host} told cannot be used, and this is a bug of ovirt-rdma: "
        f"{said[:_MOST_SHOWN]}{place}",
        "please report it, with what the host prints: ovirt-rdma-host facts -o json",
    )


def judged(report: HostReport, work: Callable[[HostReport], _Result]) -> _Result:
    """Return ``work`` of one host's report. Where that fails by a bug of ours, return
    ``work`` of a report that says so. Problems are raised on.
    """
    try:
        return work(report)
    except Problem:
        raise
    except Exception as error:  # noqa: BLE001  (one host must not end the verb)
        sentence, fix = bug_of(report.host, error)
        return work(HostReport(report.host, problem=sentence, fix=fix))


# Called with a host's name as soon as it is done.
HostDone = Callable[[str], None]


class HostDoor(Protocol):
    """The way to hypervisors. Nothing here raises for one host: its report says so."""

    def reports(
        self, hosts: Sequence[Host], done: Optional[HostDone] = None
    ) -> dict[str, HostReport]:
        """Return a report for each host, by the engine's name."""

    def push_policy(
        self,
        hosts: Sequence[Host],
        text: Optional[str],
        done: Optional[HostDone] = None,
    ) -> dict[str, Pushed]:
        """Put policy.yaml there, whole, and load it; None takes it away again. Texts
        have MOST_POLICY_BYTES at most (see policy_too_long).
        """


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
