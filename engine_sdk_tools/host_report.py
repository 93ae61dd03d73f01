# SPDX-License-Identifier: GPL-2.0-or-later
"""What a hypervisor says of itself, as it reaches the engine machine.

A report is made of what ``ovirt-rdma-host`` prints on the host. It may come over SSH
(:mod:`ovirt_rdma.engine_sdk_tools.ansible_hosts`) or from a folder of dumps
(:mod:`ovirt_rdma.engine_sdk_tools.facts_folder`). A host without one is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.engine_facts import Host
from ovirt_rdma.host.facts import Facts


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
        policy = (self.status or {}).get("policy") or {}
        return policy.get("digest")


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
        """Put policy.yaml there, whole, and load it; None takes it away again."""
