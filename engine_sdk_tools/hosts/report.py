# SPDX-License-Identifier: GPL-2.0-or-later
"""Define a host's report and the access to hosts, and read the reports of many hosts.

A report is the output of ``ovirt-rdma-host`` on the host. It comes over SSH
(:mod:`ovirt_rdma.engine_sdk_tools.hosts.ansible`) or from a folder of dumps
(:mod:`ovirt_rdma.engine_sdk_tools.hosts.dumps`). A host without a report is unknown.

The facts of a host take some hundred kilobytes of memory. :func:`reports_of` yields the
reports one by one, so that a caller who keeps only its own rows needs little memory for
hundreds of hosts.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Protocol, TypeVar, Union

from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.drop_ins import NO_FILES, PolicyFiles
from ovirt_rdma.host.policy.load import is_drop_in

# Limit for a host's whole report. The facts of a host with 16 adapters, 128 P_Keys per
# port and 508 virtual functions have 0.8 MB (bench/large_host.py), most have 30 kB.
MOST_BYTES = 4_000_000
# Limit for policy.yaml. The script that contains it is one argument of a command, which
# has at most 128 KiB on Linux (MAX_ARG_STRLEN), and base64 makes 4 bytes of 3.
MOST_POLICY_BYTES = 60_000
POLICY_TOO_LONG_FIX = "shorten it: name exports by globs and networks"
_MOST_SHOWN = 200

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class HostReport:
    """The report of one host.

    ``host`` is its name in the engine. If there is no report, ``facts`` is None and
    ``problem`` is the reason, with ``fix``. ``status`` is the document of
    ``ovirt-rdma-host status -o json``, None if the host did not report it.
    ``policy_text`` is its /etc/ovirt-rdma/policy.yaml, None if it was not requested,
    cannot be read or does not exist.
    ``read_at`` is in seconds since 1970. ``history`` is the document of
    ``ovirt-rdma-host history -o json``, None if it was not requested or not reported.
    """

    host: str
    facts: Optional[Facts] = None
    status: Optional[Mapping[str, Any]] = None
    policy_text: Optional[str] = None
    read_at: Optional[float] = None
    problem: str = ""
    fix: str = ""
    history: Optional[Mapping[str, Any]] = None

    @property
    def policy_digest(self) -> Optional[str]:
        """The digest of the policy that is loaded there, None for none or unknown."""
        status = self.status if isinstance(self.status, Mapping) else {}
        policy = status.get("policy")
        digest = policy.get("digest") if isinstance(policy, Mapping) else None
        return digest if isinstance(digest, str) else None

    @property
    def drop_ins(self) -> Optional[dict[str, str]]:
        """The drop-ins of its policy; None if it reported none in a valid form."""
        policy = self.status.get("policy") if isinstance(self.status, Mapping) else None
        found = policy.get("drop_ins") if isinstance(policy, Mapping) else None
        if not isinstance(found, dict):
            return None
        valid = all(is_drop_in(n) and isinstance(t, str) for n, t in found.items())
        return dict(found) if valid else None

    @property
    def policy(self) -> PolicyFiles:
        """Its policy.yaml and drop-ins; without files also if they are unknown."""
        if self.policy_text is None and self.problem:
            return NO_FILES
        return PolicyFiles(self.policy_text, self.drop_ins or {})


@dataclass(frozen=True)
class Pushed:
    """The result of a push to one host.

    ``digest`` is what the host reports after ``policy load``, ``before`` the earlier
    policy.yaml (None: none). ``problem`` is "" for success.
    """

    host: str
    digest: Optional[str] = None
    before: Optional[str] = None
    problem: str = ""
    fix: str = ""


def policy_too_long(policy: Union[str, PolicyFiles, None]) -> str:
    """Return a sentence if a policy.yaml, or that with its drop-ins, is too long to
    send to a host, else "".

    The policy that a host has must not be longer either: it could not be restored. That
    is checked before any change.
    """
    size = (policy if isinstance(policy, PolicyFiles) else PolicyFiles(policy)).size
    if size <= MOST_POLICY_BYTES:
        return ""
    return f"the policy has {size} bytes; at most {MOST_POLICY_BYTES} can be sent"


def bug_report(host: str, error: Exception) -> tuple[str, str]:
    """Return the sentence and the fix for a host whose report makes our own code fail,
    so that the bug is visible and does not affect other hosts.
    """
    message = traceback.format_exception_only(type(error), error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return (
        f"the report of {host} could not be processed, which is a bug of ovirt-rdma: "
        f"{message[:_MOST_SHOWN]}{place}",
        "please report it, with the output of 'ovirt-rdma-host facts -o json' on the "
        "host",
    )


def with_own_bugs_caught(
    report: HostReport, work: Callable[[HostReport], _Result]
) -> _Result:
    """Return ``work`` of one host's report. If that fails because of a bug of ours,
    return ``work`` of a report with that problem. A Problem is raised to the caller.
    """
    try:
        return work(report)
    except Problem:
        raise
    except Exception as error:  # noqa: BLE001  (one host must not end the verb)
        sentence, fix = bug_report(report.host, error)
        return work(HostReport(report.host, problem=sentence, fix=fix))


NO_ACCESS = (
    Sentence("hosts-no-access", "the hosts were not asked: there is no access to them"),
    "give --ssh-key, or --facts-dir with their reports; root on the engine machine "
    "needs neither; a program gives connect an AnsibleHosts",
)


# Called with a host's name as soon as it is done.
HostDone = Callable[[str], None]


class HostAccess(Protocol):
    """Access to hypervisors. No method raises for a single host: its report has the
    problem.
    """

    def reports(
        self, hosts: Sequence[Host], done: Optional[HostDone] = None
    ) -> dict[str, HostReport]:
        """Return a report for each host, by its name in the engine."""

    def push_policy(
        self,
        hosts: Sequence[Host],
        policy: Union[str, PolicyFiles, None],
        done: Optional[HostDone] = None,
    ) -> dict[str, Pushed]:
        """Replace policy.yaml on each host and load it; None removes it. It must not be
        too long (see policy_too_long).

        A text leaves each host its drop-ins; PolicyFiles replace them all.
        """


# Three rounds of Ansible's forks (20), so that few forks are idle at the end.
AT_ONCE = 60


def reports_of(
    hosts: Sequence[Host],
    door: HostAccess,
    done: Optional[HostDone] = None,
    at_once: int = AT_ONCE,
) -> Iterator[tuple[Host, HostReport]]:
    """Yield each host with its report, in the order of ``hosts``."""
    for start in range(0, len(hosts), at_once):
        batch = hosts[start : start + at_once]
        reports = door.reports(batch, done)
        for host in batch:
            report = reports.pop(host.name, None)
            if report is None:
                sentence = f"no answer from {host.name}"
                report = HostReport(host.name, problem=sentence)
            yield host, report
