# SPDX-License-Identifier: GPL-2.0-or-later
"""Define rules and what they return (findings, and the steps and changes of a plan),
and join facts and policy for them. Data, and pure.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Callable, Optional, TypeVar, Union

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.devices import (
    ARPHRD_INFINIBAND,
    Adapter,
    Netdev,
    NetdevGraph,
    OvirtNetwork,
    Profile,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Facts, OwnFile, Route
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.policy.model import (
    FOLLOW,
    TCP,
    InterfaceRule,
    NfsRule,
    Policy,
    interface_rule_for,
    names_port,
    rule_for,
)

RDMA = "rdma"
_NOTHING = InterfaceRule(0, "")


@dataclass(frozen=True)
class Port:
    """An RDMA port with its device and adapter; ``rules`` are those of the policy that
    name the port, with a P_Key or without, in their order.
    """

    device: RdmaDevice
    port: RdmaPort
    adapter: Optional[Adapter]
    rules: tuple[InterfaceRule, ...] = ()

    @property
    def name(self) -> str:
        """``mlx4_0/1``."""
        return f"{self.device.name}/{self.port.number}"

    @property
    def rule(self) -> Optional[InterfaceRule]:
        """The first rule that names the port itself, not a partition of it."""
        return next((rule for rule in self.rules if rule.pkey is None), None)


@dataclass(frozen=True)
class Interface:
    """A netdev of an RDMA port: IPoIB (P_Key children included), or RoCE's Ethernet.

    wanted: the policy's rule for it
    profile: the NetworkManager profile that is active on it or names it
    network: the logical network on it, or on a bond, VLAN or bridge of it (not on a
        P_Key child, which has its own MTU)
    users: whom a link-down would interrupt, as text; uses of an unknown netdev count
    planned: the plan creates it
    """

    netdev: Netdev
    device: RdmaDevice
    port: RdmaPort
    adapter: Optional[Adapter]
    wanted: Optional[InterfaceRule]
    profile: Optional[Profile]
    network: Optional[OvirtNetwork]
    users: tuple[str, ...] = ()
    planned: bool = False

    @property
    def name(self) -> str:
        """The netdev's name."""
        return self.netdev.name

    @property
    def port_name(self) -> str:
        """``mlx4_0/1``."""
        return f"{self.device.name}/{self.port.number}"

    @property
    def mode(self) -> Optional[str]:
        """The present transport mode of IPoIB; None if it is unknown."""
        return self.netdev.ipoib.mode if self.netdev.ipoib else None

    @property
    def pkey(self) -> Optional[str]:
        """The P_Key of IPoIB; None if it is unknown."""
        return self.netdev.ipoib.pkey if self.netdev.ipoib else None

    @property
    def is_ipoib(self) -> bool:
        """Whether it is IPoIB."""
        return self.netdev.type == ARPHRD_INFINIBAND

    @property
    def is_child(self) -> bool:
        """Whether it is a P_Key child."""
        return self.parent is not None

    @property
    def parent(self) -> Optional[str]:
        """The netdev on which a P_Key child was created; None for others."""
        return self.netdev.ipoib.parent if self.netdev.ipoib else None

    @property
    def policy(self) -> InterfaceRule:
        """What the policy sets for it: nothing, if no rule names it."""
        return self.wanted or _NOTHING

    @property
    def follows(self) -> bool:
        """Whether the policy lets its children follow the P_Key table."""
        return not self.is_child and self.policy.partitions == FOLLOW


class View:
    """One host's facts and a policy, joined by netdev, device and port."""

    def __init__(self, facts: Facts, policy: Policy) -> None:
        self.facts = facts
        self.policy = policy
        self._netdevs = {netdev.name: netdev for netdev in facts.netdevs}
        self.users = NetdevUsers(facts)
        self._graph = NetdevGraph(facts.netdevs)
        self._adapters = {adapter.pci.address: adapter for adapter in facts.adapters}

    @functools.cached_property
    def ports(self) -> tuple[Port, ...]:
        """All ports, device by device."""
        rules = self.policy.host.interfaces
        return tuple(
            Port(
                device,
                port,
                self.adapter(device),
                tuple(rule for rule in rules if names_port(rule, device, port)),
            )
            for device in self.facts.rdma_devices
            for port in device.ports
        )

    @functools.cached_property
    def wants_nfs_over_rdma(self) -> bool:
        """Whether a rule of the policy, a mount or this host's server has RDMA."""
        server, mounts = self.facts.nfs_server, self.facts.nfs_mounts
        return (
            bool(server and server.rdma_ports)
            or any(rule.transport != TCP for rule in self.policy.nfs.rules)
            or any((mount.protocol or "").startswith(RDMA) for mount in mounts)
        )

    @functools.cached_property
    def wanted_routes(self) -> tuple[tuple[Route, NfsRule], ...]:
        """The known routes to servers of the policy's NFS rules, each with its rule:
        that of each mount, and those that name the address itself.

        A network or pattern names many addresses that are no server of a domain.
        """
        found = []
        for route in self.facts.routes:
            exports = (
                Export.maybe(mount.source)
                for mount in self.facts.nfs_mounts
                if mount.address == route.destination
            )
            matches = (rule_for(self.policy, export) for export in exports if export)
            rules = [match.rule for match in matches if match]
            rules += (r for r in self.policy.nfs.rules if r.server == route.destination)
            found += [(route, rule) for rule in dict.fromkeys(rules)]
        return tuple(found)

    def below(self, name: str) -> tuple[Netdev, ...]:
        """Return ``name`` and the netdevs below it; a P_Key child has none below."""
        return tuple(filter(None, map(self.netdev, self._graph.below(name))))

    @functools.cached_property
    def interfaces(self) -> tuple[Interface, ...]:
        """All netdevs of RDMA ports, by name."""
        ports = {(p.device.name, p.port.number): p for p in self.ports}
        places = (
            (netdev, ports.get((netdev.rdma_device or "", netdev.rdma_port or 0)))
            for netdev in self.facts.netdevs
        )
        return tuple(self._interface(n, place) for n, place in places if place)

    @functools.cached_property
    def ipoib(self) -> tuple[Interface, ...]:
        """The IPoIB netdevs among ``interfaces``."""
        return tuple(one for one in self.interfaces if one.is_ipoib)

    def on_port(self, port: Port) -> tuple[Interface, ...]:
        """Return the netdevs of ``port``."""
        return tuple(one for one in self.interfaces if one.port_name == port.name)

    def netdev(self, name: str) -> Optional[Netdev]:
        """Return the netdev ``name``, or None."""
        return self._netdevs.get(name)

    def adapter(self, device: RdmaDevice) -> Optional[Adapter]:
        """Return the PCI function of ``device``, or None."""
        return self._adapters.get(device.pci.address) if device.pci else None

    def own_file(self, path: str) -> Optional[OwnFile]:
        """Return the file at ``path``, where one of ours is or would go; or None."""
        files = self.facts.software.own_files
        return next((file for file in files if file.path == path), None)

    def carriers(self, name: str) -> tuple[str, ...]:
        """Return ``name`` and the bonds, VLANs and bridges on it."""
        return self._graph.carriers(name)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of NetworkManager."""
        manager = self.facts.network_manager
        return manager.profiles if manager else ()

    @functools.cached_property
    def _profiles(self) -> dict[str, Profile]:
        """By netdev: the active profile, else the one that names it.

        A profile on disk takes precedence over one that NetworkManager has in memory
        only, as it creates for a netdev that another program set up.
        """
        by_netdev: dict[str, Profile] = {}
        for on_disk in (True, False):
            chosen = [p for p in self.profiles if is_persistent(p) is on_disk]
            names = [(p.active_on, p) for p in chosen]
            for name, profile in (*names, *((p.interface_name, p) for p in chosen)):
                if name:
                    by_netdev.setdefault(name, profile)
        return by_netdev

    @functools.cached_property
    def managed(self) -> frozenset[str]:
        """The netdevs that a running NetworkManager manages."""
        manager = self.facts.network_manager
        return frozenset(manager.managed if manager and manager.running else ())

    def _interface(self, netdev: Netdev, place: Port) -> Interface:
        carriers, networks = self.carriers(netdev.name), self.facts.ovirt_networks
        return Interface(
            netdev=netdev,
            device=place.device,
            port=place.port,
            adapter=place.adapter,
            wanted=interface_rule_for(
                self.policy.host, netdev, place.device, place.port
            ),
            profile=self._profiles.get(netdev.name),
            network=next((n for n in networks if n.southbound in carriers), None),
            users=self.users.of(netdev.name),
        )


# Keeps the result of a function of a view that several rules use.
once_per_view = functools.lru_cache(maxsize=1)


def is_persistent(profile: Profile) -> bool:
    """Whether ``profile`` is on disk, and survives a reboot."""
    return profile.file is not None and not profile.file.startswith("/run/")


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
DCB = "dcb"
ROCE_TOS = "roce-tos"


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
    """One value of ``kind`` that a step sets: ``name`` of ``target``.

    What each kind allows and does is in host/changes/kinds, one class a kind.
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
    people; ``changes`` are applied in their order. ``reason``, ``undo`` and ``refused``
    are clauses; with ``refused`` the hardware or the engine does not allow the step,
    which is shown and never applied. ``users`` is what a LINK_DOWN step interrupts.
    """

    rule: str
    subject: str
    sentence: str
    before: str
    after: str
    effect: str
    reason: str
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
        return self.finds(PASS, sentence)

    def warns(self, sentence: str, fix: str = "") -> Finding:
        """Return the finding of something that may be wrong, or is not needed now."""
        return self.finds(WARN, sentence, fix)

    def fails(self, sentence: str, fix: str = "") -> Finding:
        """Return the finding of something that is wrong."""
        return self.finds(FAIL, sentence, fix)

    def skips(self, sentence: str, fix: str = "") -> Finding:
        """Return the finding that nothing is known, or there is nothing to check."""
        return self.finds(SKIP, sentence, fix)

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
        changes: tuple[Change, ...] = (),
        reason: str = "the policy requires it",
        undo: str = "",
        refused: str = "",
        users: tuple[str, ...] = (),
    ) -> Step:
        """Return a step: without changes if it is refused, and with ``users`` only if
        its links go down. Its ``undo`` restores ``before``, if nothing else is named.
        """
        return Step(
            *(self.rule, self.subject, sentence, before, after, effect, reason),
            undo=undo or f"restores {before}",
            changes=() if refused else changes,
            refused=refused,
            users=users if effect == LINK_DOWN else (),
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


_Thing = TypeVar("_Thing")


def each(
    rule: str,
    things: Callable[[View], Iterable[_Thing]],
    judge: Callable[[View, About, _Thing], Union[Outcome, Iterable[Outcome]]],
    otherwise: str = NO_DEVICE,
    *,
    rdma: bool = False,
    subject: str = "name",
) -> Rule:
    """Return a rule that judges each of the ``things``; ``subject`` is the attribute
    with its subject.
    """
    subject_of = operator.attrgetter(subject)

    def check(view: View) -> Iterator[Outcome]:
        for thing in things(view):
            said = judge(view, About(rule, subject_of(thing)), thing)
            yield from (said,) if isinstance(said, (Finding, Step)) else said

    return Rule(rule, check, otherwise, rdma=rdma)
