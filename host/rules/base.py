# SPDX-License-Identifier: GPL-2.0-or-later
"""Define rules and their results: findings, and steps and changes of a plan. Data."""

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

# Classes of a step: without disruption; the netdev's link is down for a moment; takes
# effect at the next boot.
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
OPENSM_FILE = "opensm-file"
OPENSM_SETTINGS = "opensm-settings"
VF = "vf"


@dataclass(frozen=True)
class Finding:
    """The verdict of ``rule`` on ``subject`` (``ib0``, ``mlx4_0/1``, a PCI address, a
    module, or ``host``), with a sentence without a full stop, and a fix.
    """

    rule: str
    subject: str
    verdict: str
    sentence: str
    fix: str = ""


@dataclass(frozen=True)
class Change:
    """One value that a step sets.

    What each kind allows and does is in host/changes/kinds, one class a kind:

    - SYSFS writes ``after`` and a newline to the file ``target``.
    - PROFILE sets the property ``name`` of the NetworkManager profile ``target``: a
      UUID, or ``new:NETDEV`` for a profile that IPOIB-PROFILE-01 or IPOIB-PKEY-01
      creates.
    - OFFLOAD sets the ethtool feature ``name`` of the netdev ``target`` to ``on`` or
      ``off``.
    - FILE replaces the text of the file ``target`` by ``after``.
    - OPENSM_FILE does that with opensm's partitions.conf, which may be the operator's.
    - OPENSM_SETTINGS does that with the settings of our opensm at one port.
    - MODULE loads the module ``target``.
    - UNIT enables and starts (``enabled``), or disables and stops (``disabled``), the
      systemd unit ``target``.
    - VF sets the property ``name`` of the virtual functions of the adapter at the PCI
      address ``target``.

    ``before`` is None if the value does not exist yet, ``after`` is None if the file is
    removed. A SYSFS write to ``create_child`` creates a netdev and cannot be read back;
    a write of the same value to ``delete_child`` in the same folder reverts it.

    The changes of a step, and the steps of a plan, are reverted in reverse order, each
    to its ``before``. A change whose ``before`` and ``after`` are equal is applied too,
    because another change of the step, or its revert, alters that value.

    ``clamped``: the kernel may set a smaller number than ``after``, and that is
    accepted (a datagram MTU follows the broadcast group's).
    """

    kind: str
    target: str
    before: Optional[str]
    after: Optional[str]
    name: str = ""
    clamped: bool = False


@dataclass(frozen=True)
class Step:
    """An entry of the plan: one or more changes to one subject, and their reason.

    ``id`` is ``RULE/SUBJECT``, the same in every plan. ``before`` and ``after`` are for
    people; ``changes`` are applied in their order. ``reason`` and ``undo`` are
    sentences without a full stop, ``source`` names the origin of the reason.
    ``refused`` is the reason why the hardware or the engine does not allow the step: it
    is shown and never applied. A Sentence there has an id. ``users`` is what a
    LINK_DOWN step interrupts.
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

HOST = "host"


@dataclass(frozen=True)
class About:
    """Make what ``rule`` says about one ``subject``: findings, each with a sentence and
    a fix, and a step.
    """

    rule: str
    subject: str = HOST

    def passes(self, sentence: str) -> Finding:
        """Return the finding that all is well."""
        return Finding(self.rule, self.subject, PASS, sentence)

    def warns(self, sentence: str, fix: str = "") -> Finding:
        """Return the finding of something that may be wrong, or is not needed now."""
        return Finding(self.rule, self.subject, WARN, sentence, fix)

    def fails(self, sentence: str, fix: str = "") -> Finding:
        """Return the finding of something that is wrong."""
        return Finding(self.rule, self.subject, FAIL, sentence, fix)

    def skips(self, sentence: str, fix: str = "") -> Finding:
        """Return the finding that nothing is known, or there is nothing to check."""
        return Finding(self.rule, self.subject, SKIP, sentence, fix)

    def finds(self, verdict: str, sentence: str, fix: str = "") -> Finding:
        """Return a finding whose verdict depends."""
        return Finding(self.rule, self.subject, verdict, sentence, fix)

    def step(
        self,
        sentence: str,
        before: str,
        after: str,
        effect: str,
        *,
        reason: str,
        source: str,
        undo: str,
        changes: tuple[Change, ...] = (),
        refused: str = "",
        users: tuple[str, ...] = (),
    ) -> Step:
        """Return a step. ``users`` are named if its links go down."""
        return Step(
            self.rule,
            self.subject,
            sentence,
            before,
            after,
            effect,
            reason,
            source,
            undo,
            changes,
            refused,
            users if effect == LINK_DOWN else (),
        )


NO_DEVICE = "this host has no RDMA device"


@dataclass(frozen=True)
class Rule:
    """A check with a stable ``id``; docs/rules has its page.

    check: yields what it says about each subject; pure
    otherwise, verdict: what is said of the host if that is nothing
    rdma: it says nothing of a host without an RDMA device
    """

    id: str
    check: Callable[[View], Iterable[Outcome]]
    otherwise: str = NO_DEVICE
    verdict: str = SKIP
    rdma: bool = False

    def decide(self, view: View) -> list[Outcome]:
        """Return findings and steps: one finding at least, but of a host with RDMA
        devices on which a rule without ``otherwise`` finds nothing.
        """
        if self.rdma and not view.facts.rdma_devices:
            return [About(self.id).skips(NO_DEVICE)]
        found = list(self.check(view))
        untrue = self.otherwise == NO_DEVICE and view.facts.rdma_devices
        if not found and self.otherwise and not untrue:
            found = [About(self.id).finds(self.verdict, self.otherwise)]
        return found
