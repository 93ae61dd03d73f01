# SPDX-License-Identifier: GPL-2.0-or-later
"""The model of a rule, a finding and a step.

What a rule is, and what it gives: findings, and steps of the plan. Data.

What rules say on a host that has nothing for them to look at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable, Optional, Union

from ovirt_rdma.host.rules.view import View

# Verdicts of a finding.
PASS = "PASS"  # noqa: S105  (no password)
WARN = "WARN"
FAIL = "FAIL"
SKIP = "SKIP"
VERDICTS = (FAIL, WARN, PASS, SKIP)

# Classes of a step: nobody notices; the netdev's link goes down for a moment; it
# comes into force with the next boot.
LIVE = "live"
LINK_DOWN = "link-down"
REBOOT = "reboot"
CLASSES = (LIVE, LINK_DOWN, REBOOT)

# Kinds of a change.
SYSFS = "sysfs"
PROFILE = "profile"
OFFLOAD = "offload"
FILE = "file"
MODULE = "module"
UNIT = "unit"


@dataclass(frozen=True)
class Finding:
    """What ``rule`` found at ``subject`` (``ib0``, ``mlx4_0/1``, a PCI address, a
    module, or ``host``): a verdict, a sentence without a full stop, and a fix.
    """

    rule: str
    subject: str
    verdict: str
    sentence: str
    fix: str = ""


@dataclass(frozen=True)
class Change:
    """One thing that a step changes.

    By ``kind``: SYSFS writes ``after`` and a newline to the file ``target``; PROFILE
    sets the property ``name`` of the NetworkManager profile ``target`` (a UUID, or
    ``new:NETDEV`` for a profile of ours that IPOIB-PROFILE-01 or IPOIB-PKEY-01
    makes); OFFLOAD sets the ethtool feature ``name`` of the netdev ``target`` to
    ``on`` or ``off``; FILE makes the file ``target`` read ``after``; MODULE loads the
    module ``target``; UNIT makes the systemd unit ``target`` be ``enabled`` and
    started, or ``disabled`` and stopped. ``before`` is None where there is nothing yet,
    and ``after`` where a file is to go. A SYSFS write to ``create_child`` makes a
    netdev, cannot be read back, and is undone by the same value in ``delete_child``
    beside it.
    Undone are the changes of a step, and the steps of a plan, backwards, each to its
    ``before``. One whose ``before`` and ``after`` are the same is done all the same:
    another change of the step, or the undo of one, alters that value.
    ``clamped``: the kernel may settle for less than ``after``, a number, and that is
    as good (a datagram MTU follows the broadcast group's).
    """

    kind: str
    target: str
    before: Optional[str]
    after: Optional[str]
    name: str = ""
    clamped: bool = False


@dataclass(frozen=True)
class Step:
    """What the plan would change, and why.

    ``id`` is ``RULE/SUBJECT``: the same for the same thing in every plan. ``before``
    and ``after`` are for people; ``changes`` are what is done, in that order.
    ``reason`` and ``undo`` are sentences without a full stop, ``source`` says where
    the reason is from. ``refused`` says why this hardware, or the engine, does not
    allow it: such a step is shown and never done. ``users`` would notice (what a
    LINK_DOWN step interrupts).
    """

    rule: str
    subject: str
    sentence: str
    before: str
    after: str
    effect: str
    reason: str
    source: str
    undo: str
    changes: tuple[Change, ...] = ()
    refused: str = ""
    users: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The step's id, ``IPOIB-MTU-01/ib0``."""
        return f"{self.rule}/{self.subject}"


Outcome = Union[Finding, Step]


@dataclass(frozen=True)
class Rule:
    """A rule with its stable ``id``; ``what``, ``why`` and ``fix`` are what ``explain``
    prints: paragraphs of whole sentences. ``sources`` name kernel files, manual pages,
    vendor notes. ``decide`` is pure.
    """

    id: str
    title: str
    what: str
    why: str
    fix: str
    sources: tuple[str, ...]
    decide: Callable[[View], Iterable[Outcome]]


HOST = "host"


def no_device(rule: str) -> Finding:
    """Return the finding for a host without any RDMA device."""
    return Finding(rule, HOST, SKIP, "this host has no RDMA device")
