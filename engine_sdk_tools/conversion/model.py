# SPDX-License-Identifier: GPL-2.0-or-later
"""What a conversion found at its start and what it has begun: plain data.

It is enough to undo everything, and with the engine's and the hosts' own word to go on
after a kill at any point.
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

# Where the whole stands. UNDOING follows a failure, REVERTING the operator's word.
CONVERTING = "converting"
UNDOING = "undoing"
REVERTING = "reverting"
# Some hosts are converted and some not: it can go on, or be reverted.
STOPPED = "stopped"
CONVERTED = "converted"
ROLLED_BACK = "rolled back"
REVERTED = "reverted"

UNDER_WAY = frozenset({CONVERTING, UNDOING, REVERTING})
# After these a conversion of the same domain is a new one.
FINISHED = frozenset({CONVERTED, ROLLED_BACK, REVERTED})

# Which way a host goes.
FORWARD = "forward"
BACK = "back"

# Where a host or a domain stands on its way: ENTERING and LEAVING maintenance are
# written before the engine is asked for it, so it is known whose maintenance it is.
TODO = "todo"
ENTERING = "entering"
# Offline: it has its policy; then, no mount of the domains is left on it.
PREPARED = "prepared"
UNMOUNTED = "unmounted"
LEAVING = "leaving"
DONE = "done"
# It is in maintenance, or away, and stays so; its policy is in place.
LEFT = "left"
FAILED = "failed"
# Of a domain, on the way back: it was removed meanwhile, and the others go on.
GONE = "gone"

IN_PLAY = frozenset({ENTERING, LEAVING})
OVER = frozenset({DONE, LEFT, FAILED})

# What is done with the hosts.
CONVERT = "convert"
# Only the cycle: the mounts are made anew, policy and row stay.
HEAL = "heal"


@dataclass(frozen=True)
class HostRecord:
    """A host. ``found`` is its status at the start. ``policy`` is its policy.yaml from
    before, None for none; ``wanted`` the one with our rule; ``digest`` what the host
    says of that when it is loaded. ``push`` says whether policies are sent to it.
    ``transports`` are those of the domains' mounts at the start, in their order; None
    where it was not mounted, or not known; of a heal, what they should be.
    ``between`` are policies that are ours too, from between ``policy`` and ``wanted``.
    ``touched``: something of it was changed.
    ``ours``: its maintenance, if it is in one, is ours to end.
    ``event`` is the id of the engine's newest event before its last maintenance or
    activation was asked for.
    ``left_out``: the operator wants it to be left as it is.
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
    """A domain with its row: ``options`` are the mount options from before, ``wanted``
    those of the goal. ``found`` is its status at the start. ``touched``: it was
    activated with the new row, so hosts may have mounted it so. ``event`` is the id of
    the engine's newest event before its last activation was asked for.
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
    """One conversion. ``hosts`` are in the order in which they come.

    ``by_row``: the engine's row decides, not the hosts' policies. ``blind``: there are
    no reports from hosts, so nothing can be proven. ``rule`` is the transport of the
    policies' rule. ``doing`` is what was begun last, "" when it is done. ``why`` says
    what stopped it. Times in seconds since 1970. ``first_domains`` and ``first_hosts``
    are what was before conversions that this one came after (see originals): a revert
    goes back to that.
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
        """Whether it goes back to what was before."""
        return self.stage in (UNDOING, REVERTING)

    def host(self, name: str) -> HostRecord:
        """The host of this name."""
        return next(host for host in self.hosts if host.name == name)

    def with_host(self, name: str, **changes: Any) -> ConversionState:
        """The state with some fields of one host changed."""
        return self.with_hosts((name,), **changes)

    def with_hosts(self, names: Iterable[str], **changes: Any) -> ConversionState:
        """The state with the same fields of several hosts changed."""
        some = frozenset(names)
        hosts = (replace(h, **changes) if h.name in some else h for h in self.hosts)
        return replace(self, hosts=tuple(hosts))

    def with_domain(self, name: str, **changes: Any) -> ConversionState:
        """The state with some fields of one domain changed."""
        domains = (replace(d, **changes) if d.name == name else d for d in self.domains)
        return replace(self, domains=tuple(domains))
