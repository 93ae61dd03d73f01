# SPDX-License-Identifier: GPL-2.0-or-later
"""Record the preparation of a data center's hosts as plain data.

As for a conversion, the state says what was found and started; engine and hosts say
what is. So a run that was killed at any point is continued by the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

# Ways to prepare a host.
SSH = "ssh"
REINSTALL = "reinstall"
# The host needs nothing.
NOTHING = "nothing"
# With --by.
AUTO = "auto"

# Stages of the whole.
PREPARING = "preparing"
# A host failed: the next batch was not started.
STOPPED = "stopped"
PREPARED = "prepared"

# Stages of a host. ENTERING, INSTALLING and LEAVING are stored before the request.
TODO = "todo"
ENTERING = "entering"
INSTALLING = "installing"
# It is installed, or was left to be as before: it has to be activated.
LEAVING = "leaving"
# By SSH, the role has run; by reinstall, the host is up: its report has to agree.
CHECKING = "checking"
DONE = "done"
# Nothing was loaded, because the host has no RDMA hardware.
NO_HARDWARE = "no RDMA hardware"
FAILED = "failed"
# It was not up, so it was not started.
LEFT_OUT = "left out"

OVER = frozenset({DONE, NO_HARDWARE, FAILED, LEFT_OUT})
IN_PROGRESS = frozenset({ENTERING, INSTALLING, LEAVING, CHECKING})


@dataclass(frozen=True)
class HostRecord:
    """A host.

    - ``found``: its status at the start; with it, a host in maintenance stays there.
    - ``way``: SSH, REINSTALL or NOTHING, because of ``reason``.
    - ``reboot``: a reinstall restarts it.
    - ``batch``: the number of its batch; 0 is the canary's.
    - ``event``: id of the engine's newest event before the last request.
    - ``sentinel``: the name of the role's last task, as reported; the proof.
    - ``problem``, ``fix``: why it failed.
    - ``left``: the number of steps of its plan that need a maintenance.
    """

    id: str
    name: str
    found: Optional[str]
    way: str
    reason: str = ""
    reboot: bool = False
    batch: int = 0
    stage: str = TODO
    event: int = 0
    sentinel: str = ""
    problem: str = ""
    fix: str = ""
    left: int = 0


@dataclass(frozen=True)
class PreparationState:
    """The preparation of the hosts of one data center.

    - ``by``: what the operator asked for: AUTO, SSH or REINSTALL.
    - ``reboot``: ``auto``, ``yes`` or ``no``.
    - ``digest``: of the policy that the hosts get; None: they keep theirs.
    - ``blind``: hosts cannot be asked; the engine's events are the only proof.
    - ``doing``: the last step that was started, "" when it is done.
    - ``begun_at``, ``changed_at``: seconds since 1970.
    """

    data_center: str
    name: str
    by: str
    hosts: tuple[HostRecord, ...]
    reboot: str = AUTO
    digest: Optional[str] = None
    blind: bool = False
    stage: str = PREPARING
    doing: str = ""
    job: Optional[str] = None
    begun_at: float = 0.0
    changed_at: float = 0.0

    def host(self, name: str) -> HostRecord:
        """Return the host of this name."""
        return next(host for host in self.hosts if host.name == name)

    def with_host(self, name: str, **changes: Any) -> PreparationState:
        """Return the state with some fields of one host changed."""
        hosts = (replace(h, **changes) if h.name == name else h for h in self.hosts)
        return replace(self, hosts=tuple(hosts))

    def with_job(self, job: Optional[str]) -> PreparationState:
        """Return the state with the id of its job."""
        return replace(self, job=job)

    def to_do(self) -> tuple[HostRecord, ...]:
        """The hosts on which something is done, or was."""
        return tuple(h for h in self.hosts if h.way != NOTHING)
