# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``network attach``: the NIC, address and request for each host, and what speaks
against it, which is pure; and carry it out, batch by batch. Each host is read before
the change and verified after it, and rolled back by itself if it is not as requested.

Every request has a connectivity check, with which VDSM rolls back by itself if the
engine loses the host, and a commit, without which the network is gone after a reboot.
The engine compares the MTU exactly (NetworkInSyncWithVdsNetworkInterface.java), so an
IPoIB netdev with a smaller MTU is out of sync although traffic may pass.

The engine and VDSM would refuse most of it too, but only when they process the host,
and some of it in the middle of a change (HostSetupNetworksValidator of ovirt-engine,
inter_ifaces_controller.rs of nmstate). Custom properties of an attachment are kept,
its gateway of IPv4, and its assignment of the other IP version.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.request import (
    Call,
    EngineProblem,
    Listener,
    LostAnswer,
    Read,
    step,
    types,
)
from ovirt_rdma.engine_sdk_tools.api.session import Session, in_parallel
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import (
    Assignment,
    Attachment,
    Engine,
    Host,
    Network,
    Nic,
    check,
    hosts_named,
    listed,
    natural,
    network_named,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.networks.create import DEFAULT_MTU
from ovirt_rdma.engine_sdk_tools.networks.nics import (
    Address,
    Chosen,
    NicMatch,
    address_refusals,
    addresses_from_range,
    choose_nics,
    ipoib_mtus,
    netmask,
)
from ovirt_rdma.engine_sdk_tools.reader import host_of
from ovirt_rdma.host.errors import ExitCode, Sentence
from ovirt_rdma.host.facts.infiniband import ACTIVE_BACKUP

# The actions on a host.
ATTACH = "attach"
CHANGE = "change"
SYNC = "synchronise"
NOTHING = "nothing"

# The engine's default of NetworkConnectivityCheckTimeoutInSeconds.
CONNECTIVITY_S = 120
# HostValidator.java: the statuses in which networks can be set up.
STATUSES = ("maintenance", "up", "non_operational")


@dataclass(frozen=True)
class AttachRequest:
    """The arguments of ``network attach``. ``hosts`` are names and globs, ``nic_match``
    is the text that :class:`NicMatch` reads.

    ``addresses`` by host name, from a plan file, or ``span``, the range to assign them
    from. ``bond``: make an active-backup bond of the NICs.
    """

    network: str
    hosts: tuple[str, ...]
    nic_match: str
    addresses: Optional[Mapping[str, Address]] = None
    span: str = ""
    data_center: Optional[str] = None
    bond: bool = False


@dataclass(frozen=True)
class HostAttach:
    """The plan for one host: ``act`` is a constant above, ``why`` names the differences
    to ``before``, its attachment now. ``mtu_unknown``: nobody knows the largest MTU
    there.
    """

    host: Host
    chosen: Chosen
    address: Address
    act: str = ATTACH
    before: Optional[Attachment] = None
    why: str = ""
    mtu_unknown: bool = False

    def changes(self, host: Host, network: str) -> list[str]:
        """Return clauses on what differs in ``host``; ``network`` is an id."""
        now = attachment_of(host, network)
        if now is None:
            return ["it does not have the network"]
        six = self.address.version == 6
        own = ", ".join(text for text in now.addresses if (":" in text) == six)
        compared = (
            ("is on", _nic_name(host, now) or "no NIC", self.chosen.target),
            ("has", own or "no static address", self.address),
        )
        return [
            f"it {what} {has}, not {wanted}"
            for what, has, wanted in compared
            if has != str(wanted)
        ]

    def assignments(self, network: Network) -> list[Assignment]:
        """The requested address, with the earlier gateway if the host stays in its
        subnet, and what the host has of the other IP version.
        """
        address, earlier = self.address, self.before.assignments if self.before else ()
        gateways = (
            one.gateway
            for one in earlier
            if one.interface and one.interface.network == address.network
        )
        parts = (str(address.ip), netmask(address), next(gateways, None))
        wanted = [
            Assignment(address.version, "static", *parts),
            *(one for one in earlier if one.version != address.version),
        ]
        return self.accepted(network, wanted)

    def accepted(
        self, network: Network, assignments: Iterable[Assignment]
    ) -> list[Assignment]:
        """Return ``assignments`` as the engine accepts them: with a gateway of IPv6
        only in a network with the default route
        (NetworkAttachmentIpConfigurationValidator.java).
        """
        routes = _is(network, "default_route", self.host)
        return [
            one if routes or one.version == 4 else replace(one, gateway=None)
            for one in assignments
        ]


def attachment_of(host: Host, network: str) -> Optional[Attachment]:
    """Return the attachment of ``network`` (its id) on ``host``, or None."""
    return next((a for a in host.attachments or () if a.network == network), None)


def _nic_name(host: Host, attachment: Attachment) -> Optional[str]:
    return next((n.name for n in host.nics or () if n.id == attachment.nic), None)


def out_of_sync(attachment: Optional[Attachment]) -> list[str]:
    """Return clauses on what the host reports otherwise than the engine has it."""
    if attachment is None:
        return []
    wrong = [
        f"{value.name} is {value.actual or 'not set'} on the host, not "
        f"{value.expected or 'unset'}"
        for value in attachment.reported
        if not value.in_sync
    ]
    if not wrong and not attachment.in_sync:
        return ["the engine does not report that it is in sync"]
    return wrong


# miimon: interval in ms at which a port's link is checked; webadmin's value for mode 1.
_BOND_OPTIONS = {"mode": "1", "miimon": "100"}


def _attachment(
    network: Network,
    nic: Optional[str],
    assignments: Iterable[Assignment],
    before: Optional[Attachment],
    now: Optional[Attachment],
) -> Any:
    """Return the SDK's attachment, with the custom properties of ``before``; one that
    the host has ``now`` is changed. Assignments that are not sent are lost
    (NetworkAttachmentMapper.java of ovirt-engine).
    """
    attachment = types.NetworkAttachment(
        id=now.id if now else None,
        network=types.Network(id=network.id),
        host_nic=types.HostNic(name=nic),
        ip_address_assignments=[
            types.IpAddressAssignment(
                assignment_method=one.method and types.BootProtocol(one.method),
                ip=types.Ip(
                    address=one.address,
                    netmask=one.netmask,
                    gateway=one.gateway,
                    version=types.IpVersion(f"v{one.version}"),
                ),
            )
            for one in assignments
        ],
    )
    if before and before.properties:
        attachment.properties = [
            types.Property(name=name, value=value) for name, value in before.properties
        ]
    return attachment


def host_refusals(plan: AttachPlan, row: HostAttach) -> Iterator[Sentence]:
    """Yield the reasons not to attach the network to the host of ``row``."""
    host, chosen, network = row.host, row.chosen, plan.network
    if host.status not in STATUSES:
        yield Sentence(
            "host-status",
            f"it is {status_words(host.status)}; networks can be set up on hosts that "
            "are up, in maintenance or non-operational",
        )
    nics = row_nics(row)
    infiniband = ", ".join(nic.name for nic in nics if nic.infiniband)
    if _is(network, "management", host):
        yield Sentence(
            "management-network",
            f"{network.name} is the management network, which is never changed: choose "
            "another network",
        )
    export = _export_at(plan, str(row.address.ip))
    if export and str(row.address) not in (row.before.addresses if row.before else ()):
        yield Sentence(
            "address-in-use",
            f"it cannot have {row.address.ip}: the server of {export} has it",
        )
    if host.cluster not in {row.cluster for row in network.clusters}:
        name, where = shlex.quote(network.name), shlex.quote(plan.center)
        cluster = plan.clusters.get(host.cluster, host.cluster)
        kind = f" --clusters {shlex.quote(cluster)}"
        kind += "" if infiniband else " --link-layer ethernet"
        kind += "" if network.vlan is None else f" --vlan {network.vlan}"
        yield Sentence(
            "network-not-in-cluster",
            f"{network.name} is not in its cluster; 'ovirt-rdma network create {name} "
            f"--datacenter {where}{kind} --mtu {network.mtu or DEFAULT_MTU}' adds it",
        )
    if infiniband and network.vm:
        yield Sentence(
            "vm-network-on-infiniband",
            f"{network.name} is a VM network, which needs a bridge, and {infiniband} "
            f"is InfiniBand, which cannot be a bridge port: clear 'VM network' of "
            f"{network.name}, or make another network with network create",
        )
    if infiniband and network.vlan is not None:
        yield Sentence(
            "vlan-on-infiniband",
            f"{network.name} has the VLAN tag {network.vlan}, and {infiniband} is "
            "InfiniBand, which has no VLANs: use an Ethernet NIC, or a network without "
            f"a tag and the P_Key child of its partition (--pkey vlan={network.vlan})",
        )
    for nic in nics:
        yield from _carries(plan, row, nic)
    ports = [nic.infiniband for nic in nics if nic.name in chosen.ports]
    if len(set(ports)) > 1:
        yield Sentence(
            "bond-mixes-link-layers",
            f"{infiniband} is InfiniBand and other ports of {chosen.target} are not; a "
            "bond cannot have both",
        )
    for bond in nics if any(ports) else ():
        if bond.name == chosen.target and bond.bond_mode not in ACTIVE_BACKUP:
            yield Sentence(
                "bond-mode",
                f"{bond.name} is in bonding mode {bond.bond_mode or '?'}; InfiniBand "
                "supports only the mode active-backup (1)",
            )


def _export_at(plan: AttachPlan, address: str) -> Optional[str]:
    """Return an export that a host has mounted from ``address``, if any."""
    every = (report.facts for report in plan.reports.values() if report.facts)
    mounts = (mount for facts in every for mount in facts.nfs_mounts)
    return next((mount.source for mount in mounts if mount.address == address), None)


def _is(network: Network, usage: str, host: Host) -> bool:
    """Whether ``network`` has ``usage``, an API's word, in the host's cluster."""
    return any(
        row.cluster == host.cluster and usage in row.usages for row in network.clusters
    )


def row_nics(row: HostAttach) -> list[Nic]:
    """Return the NICs of the host that get the network: the bond and its ports."""
    names = (*row.chosen.ports, row.chosen.target)
    return [nic for nic in row.host.nics or () if nic.name in names]


def _carries(plan: AttachPlan, row: HostAttach, nic: Nic) -> Iterator[Sentence]:
    """Refuse what conflicts with the networks and bonds that ``nic`` already has."""
    host, network, target = row.host, plan.network, row.chosen.target
    by_id = {network.id: network for network in plan.networks}
    attached = {a.network for a in host.attachments or () if a.nic == nic.id}
    attached |= {nic.network} if nic.network else set()
    is_port = nic.name != target
    for id in sorted(attached - ({network.id} if not is_port else set())):
        other = by_id.get(id, Network(id, id))
        mtus = [one.mtu or DEFAULT_MTU for one in (other, network)]
        has = f"{nic.name} has the network {other.name}"
        if _is(other, "management", host):
            yield Sentence(
                "nic-has-management-network",
                f"{has}, the management network, which is never changed: choose "
                "another NIC",
            )
        elif is_port:
            yield Sentence(
                "bond-port-has-network",
                f"{has} and cannot become a port of a bond: remove {other.name} from "
                "it first",
            )
        elif network.vlan is None and other.vlan is None:
            yield Sentence(
                "nic-has-network",
                f"{has}; a NIC has at most one network without a VLAN tag",
            )
        elif None in (network.vlan, other.vlan) and len(set(mtus)) > 1 and id in by_id:
            # NetworkMtuValidator.java of ovirt-engine.
            yield Sentence(
                "nic-mtu-differs",
                f"{has} with MTU {mtus[0]}, and {network.name} has {mtus[1]}; where "
                "one on a NIC has no VLAN tag, the engine requires the same MTU of "
                "all: change one, or take another NIC",
            )
    for other_nic in host.nics or ():
        # UnmanagedNetworkValidator.java; it checks the NIC and the VLANs on it.
        name = other_nic.unmanaged
        if name and nic.name in (other_nic.name, other_nic.vlan_of):
            yield Sentence(
                "nic-has-unmanaged-network",
                f"{nic.name} has the network {name}, which is not in the host's "
                f"cluster, so the engine attaches no other: add {name} to the cluster, "
                "or remove it from the host (webadmin: Setup Host Networks)",
            )
        if nic.name in other_nic.bond_ports and other_nic.name != target:
            yield Sentence(
                "nic-is-bond-port",
                f"{nic.name} is a port of {other_nic.name}: give the name of the bond, "
                "or of another NIC",
            )


def mtu_refusals(plan: AttachPlan, row: HostAttach) -> tuple[list[Sentence], bool]:
    """Return the refusals because of the MTU, and whether the limit is unknown."""
    network, report = plan.network, plan.reports.get(row.host.name)
    infiniband = {nic.name for nic in row_nics(row) if nic.infiniband}
    if report is None or report.facts is None:
        return [], bool(infiniband)
    limits = ipoib_mtus(report.facts)
    wanted = network.mtu or DEFAULT_MTU
    refusals, unknown = [], False
    for name in row.chosen.ports or (row.chosen.target,):
        limit = limits.get(name)
        if limit is None:
            if name in infiniband:
                why = f"{name} is no IPoIB netdev in the host's facts"
                refusals.append(Sentence("netdev-missing", why))
        elif limit.mtu is None:
            unknown = True
        elif limit.mtu < wanted:
            why = f"{name} can have an MTU of at most {limit.mtu}, and {network.name} "
            why += f"has {wanted}: {limit.because}"
            refusals.append(Sentence("mtu-too-large", why))
    return refusals, unknown


@dataclass(frozen=True)
class AttachPlan:
    """``rows`` in host order. ``networks`` are all networks of the data center with the
    name ``center``, ``clusters`` the names of clusters by id, ``reports`` those of the
    hosts. ``warnings`` are sentences.
    """

    network: Network
    request: AttachRequest
    center: str = ""
    networks: tuple[Network, ...] = ()
    clusters: Mapping[str, str] = field(default_factory=dict)
    reports: Mapping[str, HostReport] = field(default_factory=dict)
    rows: tuple[HostAttach, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def todo(self) -> tuple[HostAttach, ...]:
        """The hosts on which something has to change."""
        return tuple(row for row in self.rows if row.act != NOTHING)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The requests to the engine, host by host."""
        return tuple(self.call(row) for row in self.todo)

    def call(self, row: HostAttach) -> Call:
        """The request to the engine that attaches the network to one host."""
        chosen, before = row.chosen, row.before
        assignments = row.assignments(self.network)
        attachment = _attachment(
            self.network, chosen.target, assignments, before, before
        )
        parameters: dict[str, Any] = {"modified_network_attachments": [attachment]}
        if chosen.new_bond:
            options = [types.Option(name=n, value=v) for n, v in _BOND_OPTIONS.items()]
            slaves = [types.HostNic(name=name) for name in chosen.ports]
            bonding = types.Bonding(options=options, slaves=slaves)
            bond = types.HostNic(name=chosen.target, bonding=bonding)
            parameters["modified_bonds"] = [bond]
        doing = f"attaching {self.network.name} to {chosen.target} of {row.host.name}"
        return self._setup(row.host, doing, parameters, before)

    def call_back(self, row: HostAttach, host: Host) -> Optional[Call]:
        """Return what restores ``host``, read after the change; None if as before."""
        now, before = attachment_of(host, self.network.id), row.before
        doing = f"removing {self.network.name} from {host.name} again"
        parameters: dict[str, Any] = {}
        nics = {nic.name for nic in host.nics or ()}
        if row.chosen.new_bond and row.chosen.target in nics:
            parameters["removed_bonds"] = [types.HostNic(name=row.chosen.target)]
        if before is not None:
            nic = _nic_name(row.host, before)
            wanted = row.accepted(self.network, before.assignments)
            was = (nic, wanted, before.properties)
            if now:
                has = row.accepted(self.network, now.assignments)
                if (_nic_name(host, now), has, now.properties) == was:
                    return None
            parameters["modified_network_attachments"] = [
                _attachment(self.network, nic, wanted, before, now)
            ]
            doing = f"restoring {self.network.name} on {host.name}"
        elif now is not None:
            gone = types.NetworkAttachment(id=now.id)
            parameters["removed_network_attachments"] = [gone]
        return self._setup(host, doing, parameters, now) if parameters else None

    def _setup(
        self,
        host: Host,
        doing: str,
        parameters: dict[str, Any],
        now: Optional[Attachment],
    ) -> Call:
        """Return the call with ``parameters``. An attachment that is out of sync
        ``now`` is synchronised if it is modified: the engine refuses it otherwise.
        """
        if now and "modified_network_attachments" in parameters and out_of_sync(now):
            lagging = types.NetworkAttachment(id=now.id)
            parameters["synchronized_network_attachments"] = [lagging]
        parameters = {
            **parameters,
            "check_connectivity": True,
            "connectivity_timeout": CONNECTIVITY_S,
            "commit_on_success": True,
        }
        return Call(f"hosts/{host.id}", "setup_networks", doing, parameters, host.name)


def plan_network_attach(
    engine: Engine, reports: Mapping[str, HostReport], request: AttachRequest
) -> AttachPlan:
    """Return the plan for ``request``; ``engine`` has networks, NICs and attachments.
    Raises Problem for unknown names, ChecksFailed with the refusals of all hosts.
    """
    network = network_named(engine, request.network, request.data_center)
    center = network.data_center or ""
    inside = {host.id for host in engine.hosts_of(center)}
    chosen_hosts = hosts_named(engine, request.hosts)
    hosts = [host for host in chosen_hosts if host.id in inside]
    hosts.sort(key=lambda host: natural(host.name))
    others = [host.name for host in chosen_hosts if host.id not in inside]
    refusals: list[Sentence] = []
    if not hosts:
        sentence = f"none of the hosts is in the data center of {network.name}"
        names = f": {', '.join(others)}" if others else ""
        refusals.append(Sentence("hosts-in-other-data-center", sentence + names))
    addresses = request.addresses
    if addresses is None:
        addresses = addresses_from_range(request.span, [host.name for host in hosts])
    refusals += address_refusals(addresses, hosts, engine.hosts, network.id)
    plan = AttachPlan(
        network,
        request,
        engine.center_name(center) or center,
        tuple(n for n in engine.networks or () if n.data_center == center),
        {cluster.id: cluster.name for cluster in engine.clusters},
        reports,
    )
    rows = []
    for host in hosts:
        if host.name in addresses:
            row, refused = plan_host(plan, host, addresses[host.name])
            refusals += refused
            rows += [] if row is None else [row]
    check(refusals)
    unknown = [row.host.name for row in rows if row.mtu_unknown]
    warnings = []
    if others:
        warnings.append(
            f"left out, not in the data center of {network.name}: {listed(others)}"
        )
    if unknown:
        warnings.append(
            f"MTU {network.mtu or DEFAULT_MTU} could not be verified on "
            f"{listed(unknown)}; a host that does not support it is rolled back"
        )
    return replace(plan, rows=tuple(rows), warnings=tuple(warnings))


def plan_host(
    plan: AttachPlan, host: Host, address: Address
) -> tuple[Optional[HostAttach], list[Sentence]]:
    """Return the plan for ``host`` and the refusals; does not use ``plan.rows``."""
    request, network = plan.request, plan.network
    match = NicMatch.parse(request.nic_match)
    chosen = choose_nics(host, match, plan.reports.get(host.name), request.bond)
    if isinstance(chosen, Sentence):
        return None, [chosen]
    before = attachment_of(host, network.id)
    row = HostAttach(host, chosen, address, before=before)
    wrong, lagging = row.changes(host, network.id), out_of_sync(before)
    act = CHANGE if wrong else SYNC if lagging else NOTHING
    act = ATTACH if before is None else act
    too_large, unknown = mtu_refusals(plan, row)
    why = "; ".join([*wrong, *lagging])
    row = replace(row, act=act, why=why, mtu_unknown=unknown)
    refusals = [*host_refusals(plan, row), *too_large]
    return row, [sentence.about(host.name) for sentence in refusals]


# The outcomes of a host.
DONE = "done"
UNCHANGED = "nothing to do"
AS_BEFORE = "as before"
FAILED = "failed"
NOT_BEGUN = "not begun"

# The engine reads the host again after a change: check this often, at this interval.
_LOOKS = 3
_BETWEEN_S = 2.0

_LATER = "wait some minutes and run the command again: it does what is missing"


@dataclass(frozen=True)
class HostResult:
    """``outcome`` is a constant above; ``sentence`` says why it is not DONE. FAILED:
    the host was changed, or its state is unknown.
    """

    host: str
    nic: str
    address: str
    outcome: str
    sentence: str = ""
    fix: str = ""


@dataclass(frozen=True)
class AttachResult:
    """The result of each host, in host order; ``network`` is the network's name."""

    network: str
    rows: tuple[HostResult, ...]

    @property
    def summary(self) -> str:
        """How many hosts have the network."""
        good = sum(row.outcome in (DONE, UNCHANGED) for row in self.rows)
        return f"network {self.network} is on {good} of {len(self.rows)} hosts"

    @property
    def exit_code(self) -> ExitCode:
        """ROLLED_BACK: none is done, all as before; FAILED: not all as before."""
        outcomes = {row.outcome for row in self.rows}
        good = {DONE, UNCHANGED}
        if outcomes <= good:
            return ExitCode.DONE
        if outcomes & good:
            return ExitCode.SOME
        return ExitCode.FAILED if FAILED in outcomes else ExitCode.ROLLED_BACK


def attach_network(
    session: Session,
    plan: AttachPlan,
    listener: Listener,
    *,
    batch: int = 1,
    keep_going: bool = False,
) -> AttachResult:
    """Carry out ``plan``, ``batch`` hosts at a time. After a batch with a failed host,
    no other is started, unless ``keep_going``. Raises nothing for a single host.
    """
    todo = list(plan.todo)
    listener.plan(tuple(row.host.name for row in todo), len(todo))
    results = {r.host.name: _result(r, UNCHANGED) for r in plan.rows}
    results.update({row.host.name: _result(row, NOT_BEGUN) for row in todo})
    batch = max(1, batch)
    while todo:
        now, todo = todo[:batch], todo[batch:]
        done = in_parallel(
            lambda row: _attach_host(session, plan, row, listener), now, batch
        )
        results.update({result.host: result for result in done})
        bad = [r for r in done if r.outcome not in (DONE, UNCHANGED)]
        if bad and todo and not keep_going:
            listener.note(
                f"stopped after {', '.join(r.host for r in bad)}: {len(todo)} hosts "
                "not started"
            )
            break
    rows = tuple(results[row.host.name] for row in plan.rows)
    return AttachResult(plan.network.name, rows)


def _attach_host(
    session: Session, plan: AttachPlan, row: HostAttach, listener: Listener
) -> HostResult:
    with step(listener, plan.call(row).doing, row.host.name) as now:
        try:
            result = _attach(session, plan, row)
        except EngineProblem as error:
            result = _result(row, FAILED, str(error), error.fix)
        now.problem = result.sentence
    return result


def _attach(session: Session, plan: AttachPlan, row: HostAttach) -> HostResult:
    """Read, change, verify; roll back where the result is not as planned."""
    network = plan.network
    fresh, refusals = plan_host(plan, _read(session, row.host), row.address)
    if fresh is None or refusals:
        sentence = f"the host has changed since the plan: {'; '.join(refusals)}"
        return _result(row, AS_BEFORE, sentence)
    if fresh.act == NOTHING:
        return _result(row, DONE)
    lost: Optional[LostAnswer] = None
    try:
        session.perform(plan.call(fresh))
    except LostAnswer as error:
        lost = error
    except EngineProblem as error:
        # VDSM has rolled back by itself, or the engine never asked it.
        return _roll_back(session, plan, fresh, str(error), error.fix)
    wrong: list[str] = []
    now: Optional[Attachment] = None
    try:
        for look in range(_LOOKS):
            if look:
                session.sleep(_BETWEEN_S)
            host = _read(session, row.host)
            now = attachment_of(host, network.id)
            wrong = [*fresh.changes(host, network.id), *out_of_sync(now)]
            if not wrong:
                break
    except EngineProblem as error:
        change = str(lost) if lost else f"{network.name} was attached"
        sentence = f"{change}; that could not be verified: {error}"
        return _result(row, FAILED, sentence, error.fix)
    if wrong:
        reported = now.reported if now else ()
        mtu = any(v.name == "mtu" and not v.in_sync for v in reported)
        fix = (
            "the mode of the netdev or the fabric does not allow the MTU of the "
            "network: 'ovirt-rdma-host check' on the host shows which"
        )
        before = f"{lost}; " if lost else ""
        sentence = f"{before}{network.name} is not in sync: {'; '.join(wrong)}"
        return _roll_back(session, plan, fresh, sentence, fix if mtu else "", lost=lost)
    if lost is not None:
        # The API does not show whether it was committed; a second commit is harmless.
        _commit(session, row.host)
    return _result(row, DONE)


def _roll_back(
    session: Session,
    plan: AttachPlan,
    row: HostAttach,
    sentence: str,
    fix: str,
    *,
    lost: Optional[LostAnswer] = None,
) -> HostResult:
    """Restore the network configuration of the host; ``sentence`` says why. ``lost``:
    the answer to the change was.
    """
    call = plan.call_back(row, _read(session, row.host))
    if call is None and lost:
        # The engine may still be at it: VDSM alone may take CONNECTIVITY_S.
        sentence = f"{lost}; it has not yet, so the host's state is unknown"
        return _result(row, FAILED, sentence, _LATER)
    if call is None:
        return _result(row, AS_BEFORE, sentence, fix)
    try:
        session.perform(call)
    except EngineProblem as error:
        if plan.call_back(row, _read(session, row.host)) is not None:
            by_hand = (
                f"in the engine, Setup Host Networks of {row.host.name}: restore the "
                f"earlier settings of {plan.network.name} by hand"
            )
            message = f"{sentence}; it could not be rolled back: {error}"
            return _result(row, FAILED, message, by_hand)
        if isinstance(error, LostAnswer):
            # As above: without it, a reboot would bring the network back.
            _commit(session, row.host)
    return _result(row, AS_BEFORE, sentence, fix)


def _commit(session: Session, host: Host) -> None:
    """Make the host's network configuration persistent."""
    doing = f"committing the network configuration of {host.name}"
    session.perform(Call(f"hosts/{host.id}", "commit_net_config", doing, {}, host.name))


def _read(session: Session, host: Host) -> Host:
    query = {"follow": "nics,network_attachments"}
    read = Read(f"hosts/{host.id}", f"reading {host.name}", "get", query)
    return host_of(session.read(read), nics=True, attachments=True)


def _result(
    row: HostAttach, outcome: str, sentence: str = "", fix: str = ""
) -> HostResult:
    return HostResult(
        row.host.name, row.chosen.target, str(row.address), outcome, sentence, fix
    )
