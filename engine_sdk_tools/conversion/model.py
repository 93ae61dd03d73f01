# SPDX-License-Identifier: GPL-2.0-or-later
"""Record what a conversion found at its start and what it has started, as plain data.

This is enough to undo everything and, together with the present state of engine and
hosts, to resume after a kill at any point. A conversion that fails goes back to what it
found; a revert to the baseline, the ``first`` values, which each record takes over
unchanged from that of the conversion before.
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
class FileChange:
    """A file of a host's policy that conversions write; None stands for no file.

    - ``name``: that of a drop-in.
    - ``first``: its content before the first conversion; written once.
    - ``found``: at the start of this one, ``wanted``: with our rule.
    - ``written``: what earlier conversions wrote.
    """

    name: str
    first: Optional[str]
    found: Optional[str]
    wanted: Optional[str]
    written: tuple[Optional[str], ...] = ()

    @property
    def known(self) -> tuple[Optional[str], ...]:
        """All contents that are not somebody else's."""
        known = (self.wanted, self.found, self.first, *self.written)
        return tuple(dict.fromkeys(known))


@dataclass(frozen=True)
class HostRecord:
    """A host.

    - ``found``: its status at the start.
    - ``push``: policies are sent to it.
    - ``files``: those of its policy that conversions change.
    - ``others``: the digest of the rest of its policy at the start; "" for unknown.
    - ``transports``: of the domains' mounts at the start, in their order; None if not
      mounted or unknown. For a heal, the transports that they should have.
    - ``first_transports``: those before the first conversion; empty if this conversion
      is the first for the host.
    - ``converted``: an earlier conversion changed it.
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
    files: tuple[FileChange, ...] = ()
    others: str = ""
    transports: tuple[Optional[str], ...] = ()
    first_transports: tuple[Optional[str], ...] = ()
    converted: bool = False
    goal: str = FORWARD
    stage: str = TODO
    touched: bool = False
    ours: bool = False
    why: str = ""
    event: int = 0
    left_out: bool = False

    @property
    def contents(self) -> dict[str, Optional[str]]:
        """The contents of ``files`` for its goal, by name."""
        return {f.name: f.found if self.goal == BACK else f.wanted for f in self.files}


@dataclass(frozen=True)
class DomainRecord:
    """A domain with its storage connection.

    - ``found``: its status at the start.
    - ``options``: the mount options at the start.
    - ``wanted``: the mount options of the goal.
    - ``first``: the mount options before the first conversion, written once; None if
      this conversion is the first.
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
    first: Optional[str] = None
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
    - ``former``: hosts of earlier conversions that are not in the data center; a revert
      includes them.
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
    former: tuple[HostRecord, ...] = ()

    @property
    def title(self) -> str:
        """``data1`` or ``data1, data2``."""
        return ", ".join(domain.name for domain in self.domains)

    @property
    def undoes(self) -> bool:
        """Whether it restores the state before."""
        return self.stage in (UNDOING, REVERTING)

    @property
    def is_again(self) -> bool:
        """Whether an earlier conversion of its domains still applies."""
        return any(domain.first is not None for domain in self.domains)

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
