# SPDX-License-Identifier: GPL-2.0-or-later
"""Record what a conversion found at its start and what it has started, as plain data.

This is enough to undo everything and, together with the present state of engine and
hosts, to resume after a kill at any point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Optional

from ovirt_rdma.host.policy.model import DEFAULT_PORT

OFFLINE = "offline"
ROLLING = "rolling"

RDMA = "rdma"
TCP = "tcp"

# Stages of a conversion. UNDOING follows a failure, REVERTING is on request.
CONVERTING = "converting"
UNDOING = "undoing"
REVERTING = "reverting"
# Some hosts are converted and some not: it can be resumed or reverted.
STOPPED = "stopped"
CONVERTED = "converted"
ROLLED_BACK = "rolled back"
REVERTED = "reverted"

UNDER_WAY = frozenset({CONVERTING, UNDOING, REVERTING})
# In these stages the next conversion of the same domain is a new one.
FINISHED = frozenset({CONVERTED, ROLLED_BACK, REVERTED})

# The goal of a host.
FORWARD = "forward"
BACK = "back"

# Stages of a host or a domain. ENTERING and LEAVING maintenance are stored before the
# request to the engine, to know who started the maintenance.
TODO = "todo"
ENTERING = "entering"
# Offline: the host has its policy; then, none of the domains is mounted on it.
PREPARED = "prepared"
UNMOUNTED = "unmounted"
LEAVING = "leaving"
DONE = "done"
# The host is in maintenance, or is not up, and stays so; its policy is in place.
LEFT = "left"
FAILED = "failed"
# Of a domain, on the way back: it was removed meanwhile; the others continue.
GONE = "gone"

IN_PLAY = frozenset({ENTERING, LEAVING})
OVER = frozenset({DONE, LEFT, FAILED})

# Kinds of work.
CONVERT = "convert"
# Hosts only remount; policy and storage connection are unchanged.
HEAL = "heal"


@dataclass(frozen=True)
class HostRecord:
    """A host.

    - ``found``: its status at the start.
    - ``push``: policies are sent to it.
    - ``policy``: its policy.yaml before, None for none.
    - ``wanted``: its policy.yaml with our rule.
    - ``digest``: the digest that the host reports when ``wanted`` is loaded.
    - ``between``: policies of earlier conversions, between ``policy`` and ``wanted``.
    - ``transports``: of the domains' mounts at the start, in their order; None if not
      mounted or unknown. For a heal, the transports that they should have.
    - ``touched``: something on it was changed.
    - ``ours``: we started its maintenance, if it is in one, and have to end it.
    - ``event``: id of the engine's newest event before the last request for its
      maintenance or activation.
    - ``left_out``: the operator wants no change on it.
    """

    id: str
    name: str
    found: Optional[str]
    push: bool = False
    policy: Optional[str] = None
    wanted: Optional[str] = None
    digest: Optional[str] = None
    between: tuple[str, ...] = ()
    transports: tuple[Optional[str], ...] = ()
    goal: str = FORWARD
    stage: str = TODO
    touched: bool = False
    ours: bool = False
    why: str = ""
    event: int = 0
    left_out: bool = False


@dataclass(frozen=True)
class DomainRecord:
    """A domain with its storage connection.

    - ``found``: its status at the start.
    - ``options``: the mount options before.
    - ``wanted``: the mount options of the goal.
    - ``touched``: it was activated with the new options, so hosts may have mounted it
      with them.
    - ``event``: id of the engine's newest event before the last request for its
      activation.
    """

    id: str
    name: str
    found: Optional[str]
    connection: str
    address: Optional[str]
    path: str
    options: str
    wanted: str
    master: bool = False
    stage: str = TODO
    touched: bool = False
    event: int = 0


@dataclass(frozen=True)
class ConversionState:
    """One conversion.

    - ``hosts``: in the order in which they are converted.
    - ``rule``: the transport in the rule of the policies.
    - ``by_row``: the engine's mount options decide, not the hosts' policies.
    - ``blind``: there are no reports from hosts, so nothing can be proven.
    - ``doing``: the last step that was started, "" when it is done.
    - ``why``: why it stopped.
    - ``begun_at``, ``changed_at``: seconds since 1970.
    - ``first_domains``, ``first_hosts``: the baseline, from before earlier conversions;
      a revert restores it.
    """

    kind: str
    data_center: str
    to: str
    mode: str
    domains: tuple[DomainRecord, ...]
    hosts: tuple[HostRecord, ...]
    rule: str = ""
    by_row: bool = False
    blind: bool = False
    batch: int = 1
    port: int = DEFAULT_PORT
    stage: str = CONVERTING
    doing: str = ""
    why: str = ""
    job: Optional[str] = None
    begun_at: float = 0.0
    changed_at: float = 0.0
    first_domains: tuple[DomainRecord, ...] = ()
    first_hosts: tuple[HostRecord, ...] = ()

    @property
    def title(self) -> str:
        """``data1`` or ``data1, data2``."""
        return ", ".join(domain.name for domain in self.domains)

    @property
    def undoes(self) -> bool:
        """Whether it restores the state before."""
        return self.stage in (UNDOING, REVERTING)

    def host(self, name: str) -> HostRecord:
        """Return the host of this name."""
        return next(host for host in self.hosts if host.name == name)

    def with_host(self, name: str, **changes: Any) -> ConversionState:
        """Return the state with some fields of one host changed."""
        return self.with_hosts((name,), **changes)

    def with_hosts(self, names: Iterable[str], **changes: Any) -> ConversionState:
        """Return the state with the same fields of several hosts changed."""
        chosen = frozenset(names)
        hosts = (replace(h, **changes) if h.name in chosen else h for h in self.hosts)
        return replace(self, hosts=tuple(hosts))

    def with_domain(self, name: str, **changes: Any) -> ConversionState:
        """Return the state with some fields of one domain changed."""
        domains = (replace(d, **changes) if d.name == name else d for d in self.domains)
        return replace(self, domains=tuple(domains))
