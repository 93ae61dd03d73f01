# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``network create``, carry it out, and roll it back if a part of it fails.

The network is not a VM network, has an MTU that its hosts support, and is added to the
clusters of a data center as not required. It is for IPoIB, or for RoCE, where it may
have a VLAN tag. The plan takes into account an existing network of that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.engine_sdk_tools.api.request import (
    Call,
    Listener,
    LostAnswer,
    Read,
    step,
    types,
)
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.job import Undo, after_lost, undo
from ovirt_rdma.engine_sdk_tools.model import (
    Cluster,
    Engine,
    Host,
    Network,
    check,
    hosts_named,
    listed,
    pick,
)
from ovirt_rdma.engine_sdk_tools.networks.nics import (
    NetdevMtu,
    NicMatch,
    in_partitions,
    ipoib_mtus,
)
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.facts.infiniband import CONNECTED_MTU
from ovirt_rdma.host.facts.uses import interfaces_of
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import View
from ovirt_rdma.host.rules.roce import ENOUGH, LARGEST, ib_mtu, roce_ports

_NO_REPORT = "no report from the host: give --facts-dir, or allow access over SSH"


@dataclass(frozen=True)
class AutoMtu:
    """``mtu`` in bytes, 0 if there are ``offenders``, and the reason, a sentence.

    ``offenders`` are sentences on hosts whose limit is unknown, ``remarks`` on those
    that limit the MTU of the others.
    """

    mtu: int
    because: str
    offenders: tuple[Sentence, ...] = ()
    remarks: tuple[Sentence, ...] = ()


def auto_mtu(
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    nic_match: Optional[str] = None,
) -> AutoMtu:
    """Return the largest MTU that the IPoIB netdevs of all ``hosts`` support."""
    limits: list[tuple[str, NetdevMtu, int]] = []
    offenders: list[Sentence] = []
    for host in hosts:
        netdevs, problem = netdevs_of(host, reports.get(host.name), nic_match)
        if problem:
            offenders.append(problem)
        for netdev in netdevs:
            if netdev.mtu is None:
                sentence = (
                    f"{host.name}: the MTU limit of {netdev.netdev} is unknown: "
                    f"{netdev.because}"
                )
                offenders.append(Sentence("mtu-unknown", sentence))
            else:
                limits.append((host.name, netdev, netdev.mtu))
    if offenders or not limits:
        return AutoMtu(0, "", tuple(offenders))
    name, least, mtu = min(limits, key=lambda limit: limit[2])
    most = max(limit for _, _, limit in limits)
    because = f"limited by {least.netdev} of {name}: {least.because}"
    remarks = []
    if most > mtu:
        low = [
            f"{host} {netdev.netdev}" for host, netdev, limit in limits if limit == mtu
        ]
        sentence = (
            f"{mtu} is the largest MTU that every host supports; limited by "
            f"{listed(low)} (others: up to {most})"
        )
        remarks.append(Sentence("mtu-limited", sentence))
    return AutoMtu(mtu, because, (), tuple(remarks))


def mtu_offenders(
    mtu: int,
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    nic_match: Optional[str] = None,
) -> tuple[list[Sentence], list[str]]:
    """Return sentences on hosts where no netdev supports ``mtu``, and the names of
    hosts where that is unknown.
    """
    offenders: list[Sentence] = []
    unknown = []
    for host in hosts:
        report = reports.get(host.name)
        netdevs, problem = netdevs_of(host, report, nic_match)
        if report is None or report.facts is None:
            unknown.append(host.name)
        elif problem:
            offenders.append(problem)
        elif any(netdev.mtu is None for netdev in netdevs):
            unknown.append(host.name)
        elif all(netdev.mtu < mtu for netdev in netdevs if netdev.mtu is not None):
            offenders += [
                Sentence(
                    "mtu-too-large",
                    f"{host.name}: {netdev.netdev} can have an MTU of at most "
                    f"{netdev.mtu}, not {mtu}: {netdev.because}",
                )
                for netdev in netdevs
            ]
    return offenders, unknown


def netdevs_of(
    host: Host, report: Optional[HostReport], nic_match: Optional[str]
) -> tuple[list[NetdevMtu], Optional[Sentence]]:
    """Return the limits of the host's IPoIB netdevs that ``nic_match`` selects, or why
    there is none. Without ``nic_match``: its ports, not the P_Key children.
    """
    if report is None or report.facts is None:
        why = (report.problem if report else "") or _NO_REPORT
        return [], Sentence("host-facts-missing", f"{host.name}: {why}")
    known = {found.name: found for found in interfaces_of(report.facts)}
    match = NicMatch.parse(nic_match) if nic_match else None
    if match is not None:
        found = in_partitions(host, match, report)
        if isinstance(found, Sentence):
            return [], found
        match = found
    netdevs = [
        limit
        for limit in ipoib_mtus(report.facts).values()
        if (match.means(known[limit.netdev]) if match else not limit.child)
    ]
    if netdevs:
        return netdevs, None
    which = f" that matches {nic_match!r}" if nic_match else ""
    return [], Sentence("netdev-missing", f"{host.name} has no IPoIB netdev{which}")


def _without_roce(
    hosts: Sequence[Host], reports: Mapping[str, HostReport], nic_match: Optional[str]
) -> tuple[list[Sentence], list[str]]:
    """Return sentences on hosts without a RoCE port that ``nic_match`` selects, and the
    names of hosts where that is unknown.
    """
    match = NicMatch.parse(nic_match) if nic_match else None
    offenders, unknown = [], []
    for host in hosts:
        report = reports.get(host.name)
        if report is None or report.facts is None:
            unknown.append(host.name)
            continue
        ports = {
            base.name
            for port in roce_ports(View(report.facts, Policy()))
            for base in port.bases
        }
        found = (one for one in interfaces_of(report.facts) if one.name in ports)
        if not any(match is None or match.means(one) for one in found):
            which = f" that matches {nic_match!r}" if nic_match else ""
            sentence = f"{host.name} has no netdev with RoCE{which}"
            offenders.append(Sentence("netdev-missing", sentence))
    return offenders, unknown


MIGRATION = "migration"
MANAGEMENT = "management"


@dataclass(frozen=True)
class HadMigration:
    """A cluster's present migration network, with its ``usages`` there. Not for the
    management network: the role returns to it by itself.
    """

    cluster: Cluster
    network: Network
    usages: tuple[str, ...]


def other_kind(
    existing: Network, mtu: int, request: NetworkRequest
) -> Iterator[Sentence]:
    """Yield how the existing network differs from the requested one."""
    name, why = existing.name, "which InfiniBand does not support"
    if request.ethernet:
        why = "and a bridge over a VLAN has not been seen to carry RoCE"
    if existing.vm and (request.vlan is not None or not request.ethernet):
        yield Sentence(
            "network-exists-vm",
            f"the existing network {name} is a VM network, {why}: use another name, or "
            "clear 'VM network' for it",
        )
    if existing.vlan is not None and not request.ethernet:
        yield Sentence(
            "network-exists-vlan",
            f"the existing network {name} has the VLAN tag {existing.vlan}, which "
            "InfiniBand does not support: use another name",
        )
    elif existing.vlan != request.vlan:
        has = "no VLAN tag" if existing.vlan is None else f"VLAN tag {existing.vlan}"
        wanted = "none" if request.vlan is None else str(request.vlan)
        yield Sentence(
            "network-exists-vlan",
            f"the existing network {name} has {has}, not {wanted}: use another name, "
            "or change --vlan",
        )
    if mtu and (existing.mtu or 1500) != mtu:
        yield Sentence(
            "network-exists-mtu",
            f"the existing network {name} has MTU {existing.mtu or 1500}, not {mtu}: "
            f"change it in the engine, or give --mtu {existing.mtu or 1500}",
        )


def loses_migration(
    networks: Sequence[Network], clusters: Sequence[Cluster], name: str
) -> list[str]:
    """Return warnings for the networks that lose the migration role: a cluster has only
    one migration network.
    """
    names = {cluster.id: cluster.name for cluster in clusters}
    return [
        f"{network.name} is no longer the migration network of {names[row.cluster]}"
        for network in networks
        for row in network.clusters
        if network.name != name and row.cluster in names and MIGRATION in row.usages
    ]


def had_migration(
    networks: Sequence[Network], clusters: Sequence[Cluster], name: str
) -> tuple[HadMigration, ...]:
    """Return the present migration networks, to restore the role in a rollback."""
    by_id = {cluster.id: cluster for cluster in clusters}
    return tuple(
        HadMigration(by_id[row.cluster], network, row.usages)
        for network in networks
        for row in network.clusters
        if network.name != name
        and row.cluster in by_id
        and MIGRATION in row.usages
        and MANAGEMENT not in row.usages
    )


def no_migration(
    existing: Optional[Network], clusters: Sequence[Cluster]
) -> Sequence[Sentence]:
    """Refuse the migration role for a network that a cluster already has without it."""
    names = {cluster.id: cluster.name for cluster in clusters}
    return [
        Sentence(
            "migration-role-missing",
            f"{existing.name} is already in the cluster {names[row.cluster]}, without "
            "the migration role: set the role in the engine (Manage Networks)",
        )
        for row in (existing.clusters if existing else ())
        if existing and row.cluster in names and MIGRATION not in row.usages
    ]


def to_require(
    engine: Engine, existing: Optional[Network], clusters: Sequence[Cluster]
) -> tuple[list[Cluster], list[str]]:
    """Return the clusters where every host has the network, and a warning for each of
    the others.
    """
    ready, warnings = [], []
    known = existing.clusters if existing else ()
    having = {
        host.id
        for host in engine.hosts
        for attachment in host.attachments or ()
        if existing and attachment.network == existing.id
    }
    for cluster in clusters:
        rows = [row for row in known if row.cluster == cluster.id]
        if rows and rows[0].required:
            continue
        lacking = [
            host.name
            for host in engine.hosts
            if host.cluster == cluster.id and host.id not in having
        ]
        if lacking:
            warnings.append(
                f"it is not required in {cluster.name} yet: attach it first to "
                f"{listed(lacking)} (network attach)"
            )
        else:
            ready.append(cluster)
    return ready, warnings


AUTO = "auto"
_NUMBER = "let each host answer, or give a number: every fabric supports --mtu 2044"
# The engine accepts 0 and 68 or more, without a maximum (MTUValidator). The maximum of
# IPoIB is that of connected mode.
LEAST_MTU = 68
# common/businessentities/network/Network.java
MOST_VLAN = 4094
# BusinessEntitiesDefinitions.NETWORK_NAME_SIZE.
LONGEST_NAME = 256


@dataclass(frozen=True)
class NetworkRequest:
    """The arguments of ``network create``. ``mtu`` in bytes, or AUTO.

    ``clusters`` are names; empty: all of the data center. ``hosts`` are globs of the
    hosts whose netdevs must support the MTU; empty: all of the clusters. ``nic_match``
    selects their netdevs (:class:`NicMatch`); None: all IPoIB ports, or RoCE ports.
    ``required``: make it required in clusters where every host has it. ``ethernet``: it
    is for RoCE, with the tag ``vlan`` (1 to 4094) unless that is None.
    """

    name: str
    data_center: str
    mtu: Union[int, str] = AUTO
    clusters: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    nic_match: Optional[str] = None
    migration: bool = False
    required: bool = False
    ethernet: bool = False
    vlan: Optional[int] = None


@dataclass(frozen=True)
class NetworkPlan:
    """``network`` is the existing one, if any; ``mtu`` is in bytes, ``because`` is the
    reason for it. ``join`` are the clusters to add it to, ``require`` those in which it
    becomes required. ``had_migration`` are the networks that lose the migration role.
    ``warnings`` are sentences.
    """

    name: str
    data_center: str
    mtu: int
    because: str
    network: Optional[Network] = None
    join: tuple[Cluster, ...] = ()
    require: tuple[Cluster, ...] = ()
    migration: bool = False
    warnings: tuple[str, ...] = ()
    had_migration: tuple[HadMigration, ...] = ()
    vlan: Optional[int] = None

    @property
    def calls(self) -> tuple[Call, ...]:
        """The requests to the engine, in their order; ``NEW`` is a new network's id."""
        network = self.network.id if self.network else "NEW"
        made = () if self.network else (self.make(),)
        joined = tuple(self.joining(network, cluster) for cluster in self.join)
        required = (self.requiring(network, cluster) for cluster in self.require)
        return (*made, *joined, *required)

    def make(self) -> Call:
        """Return the call that makes the network."""
        network = types.Network(
            name=self.name,
            data_center=types.DataCenter(id=self.data_center),
            mtu=self.mtu,
            # An empty list makes a non-VM network, no list at all a VM network.
            usages=[],
            vlan=None if self.vlan is None else types.Vlan(id=self.vlan),
        )
        doing = f"making the network {self.name}"
        return Call("networks", "add", doing, {"network": network}, self.name)

    def joining(self, network: str, cluster: Cluster) -> Call:
        """Return the call that adds it to ``cluster``, as not required."""
        usages = [types.NetworkUsage.MIGRATION] if self.migration else []
        # Not required: hosts without it would become non-operational (event 519).
        body = types.Network(id=network, required=False, usages=usages)
        doing = f"adding the network {self.name} to the cluster {cluster.name}"
        path = f"clusters/{cluster.id}/networks"
        return Call(path, "add", doing, {"network": body}, self.name)

    def requiring(self, network: str, cluster: Cluster) -> Call:
        """Return the call that makes it required in ``cluster``."""
        doing = f"making the network {self.name} required in {cluster.name}"
        path = f"clusters/{cluster.id}/networks/{network}"
        body = types.Network(required=True)
        return Call(path, "update", doing, {"network": body}, self.name)


def plan_network_create(
    engine: Engine, reports: Mapping[str, HostReport], request: NetworkRequest
) -> NetworkPlan:
    """Return the plan for ``request``.

    Raises Problem for names that do not exist, and ChecksFailed with every reason:
    hosts whose netdevs do not support the MTU or whose limit is unknown, and an
    existing network of that name that differs.
    """
    data_center = pick("data center", request.data_center, engine.data_centers)
    inside = [c for c in engine.clusters if c.data_center == data_center.id]
    clusters = [pick("cluster", name, inside) for name in request.clusters] or inside
    refusals = list(_wrong(request))
    networks = [n for n in engine.networks or () if n.data_center == data_center.id]
    existing = next((n for n in networks if n.name == request.name), None)
    ids = {cluster.id for cluster in clusters}
    hosts = [host for host in hosts_named(engine, request.hosts) if host.cluster in ids]
    mtu, because, warnings = _mtu(request, hosts, reports, refusals)
    if existing is not None:
        refusals += other_kind(existing, mtu, request)
    joined = {row.cluster for row in existing.clusters} if existing else set[str]()
    if request.migration:
        warnings += loses_migration(networks, clusters, request.name)
        refusals += no_migration(existing, clusters)
    check(refusals, "" if mtu else _NUMBER)
    require: list[Cluster] = []
    if request.required:
        require, not_yet = to_require(engine, existing, clusters)
        warnings += not_yet
    return NetworkPlan(
        request.name,
        data_center.id,
        mtu,
        because,
        existing,
        tuple(c for c in clusters if c.id not in joined),
        tuple(require),
        request.migration,
        tuple(warnings),
        had_migration(networks, clusters, request.name) if request.migration else (),
        request.vlan,
    )


def _wrong(request: NetworkRequest) -> Iterator[Sentence]:
    if not request.name.strip() or len(request.name) > LONGEST_NAME:
        sentence = f"the name of a network must have 1 to {LONGEST_NAME} characters"
        yield Sentence("network-name-invalid", sentence)
    mtu = request.mtu
    if isinstance(mtu, int) and not LEAST_MTU <= mtu <= CONNECTED_MTU:
        allowed = f"IPoIB has {LEAST_MTU} to {CONNECTED_MTU}"
        sentence = f"the MTU {mtu} is out of range: {allowed}"
        yield Sentence("mtu-out-of-range", sentence)
    # NETWORK_VLAN_OUT_OF_RANGE allows 0 too, which is a priority tag (802.1Q).
    if request.vlan is not None and not 1 <= request.vlan <= MOST_VLAN:
        sentence = f"the VLAN tag {request.vlan} is out of range: 1 to {MOST_VLAN}"
        yield Sentence("vlan-out-of-range", sentence)
    match = NicMatch.parse(request.nic_match) if request.nic_match else None
    if request.ethernet and match and match.partitions:
        sentence = "--pkey is for InfiniBand: Ethernet has no partitions, but --vlan"
        yield Sentence("pkey-on-ethernet", sentence)
    if request.vlan is not None and not request.ethernet:
        yield Sentence(
            "vlan-on-infiniband",
            "InfiniBand has no VLANs: add --link-layer ethernet for RoCE, or give each "
            "partition a network without a tag",
        )


def _mtu(
    request: NetworkRequest,
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    refusals: list[Sentence],
) -> tuple[int, str, list[str]]:
    """Return the MTU, the reason for it, and warnings; add to ``refusals``."""
    if request.ethernet:
        return _ethernet_mtu(request, hosts, reports, refusals)
    if isinstance(request.mtu, int):
        offenders, unknown = mtu_offenders(
            request.mtu, hosts, reports, request.nic_match
        )
        refusals += offenders
        warnings = []
        if unknown:
            warnings.append(
                f"MTU {request.mtu} could not be verified on {listed(unknown)}"
            )
        return request.mtu, "as requested", warnings
    if not hosts:
        sentence = "there is no host to determine the MTU from"
        refusals.append(Sentence("mtu-without-hosts", sentence))
        return 0, "", []
    auto = auto_mtu(hosts, reports, request.nic_match)
    refusals += auto.offenders
    return auto.mtu, auto.because, list(auto.remarks)


def _ethernet_mtu(
    request: NetworkRequest,
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    refusals: list[Sentence],
) -> tuple[int, str, list[str]]:
    offenders, unknown = _without_roce(hosts, reports, request.nic_match)
    refusals += offenders
    if not isinstance(request.mtu, int):
        refusals.append(
            Sentence(
                "mtu-auto-ethernet",
                "--mtu auto is for InfiniBand: no host knows the switch's limit; give "
                "the largest that each switch and the server carry, such as 9000",
            )
        )
        return 0, "", []
    warnings = []
    if unknown:
        warnings.append(f"whether there is RoCE is unknown of {listed(unknown)}")
    allowed = ib_mtu(request.mtu)
    if (allowed or 0) < LARGEST:
        warnings.append(
            f"MTU {request.mtu} allows RoCE an IB MTU of {allowed or 'none'}; "
            f"{LARGEST} needs {ENOUGH} or more"
        )
    return request.mtu, "as requested", warnings


@dataclass(frozen=True)
class NetworkMade:
    """The result: the network's ``id``, and the names of clusters it was added to."""

    id: str
    made: bool
    joined: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def create_network(
    session: Session, plan: NetworkPlan, listener: Listener
) -> NetworkMade:
    """Carry out ``plan``.

    Raises Problem if a part failed. What was made by then is removed; the message names
    what could not be removed.
    """
    listener.plan((plan.name,), len(plan.calls))
    undoing: list[Undo] = []
    try:
        if plan.network is None:
            network = _made(session, plan, listener)
            undoing.append(_remove(network, plan.name))
        else:
            network = plan.network.id
        joined = []
        for cluster in plan.join:
            _step(session, plan.joining(network, cluster), listener)
            joined.append(cluster.name)
            # The last is undone first: the role is restored after the network is
            # out of the cluster.
            undoing += [
                _restore_role(h) for h in plan.had_migration if h.cluster == cluster
            ]
            undoing.append(_leave(network, cluster, plan.name))
        for cluster in plan.require:
            _step(session, plan.requiring(network, cluster), listener)
    except Problem as error:
        raise undo(session, undoing, listener).told(error) from error
    required = tuple(cluster.name for cluster in plan.require)
    return NetworkMade(network, plan.network is None, tuple(joined), required)


def _made(session: Session, plan: NetworkPlan, listener: Listener) -> str:
    call = plan.make()
    with step(listener, call.doing, plan.name):
        try:
            return str(session.perform(call).id)
        except LostAnswer as lost:
            return after_lost(lost, lambda: _find(session, plan))


def _find(session: Session, plan: NetworkPlan) -> str:
    """Return the id of the network of ``plan``, "" if the engine does not have it."""
    path = f"datacenters/{plan.data_center}/networks"
    for network in session.read(Read(path, "reading the networks")):
        if network.name == plan.name:
            return str(network.id)
    return ""


def _step(session: Session, call: Call, listener: Listener) -> None:
    with step(listener, call.doing, call.subject):
        try:
            session.perform(call)
        except LostAnswer as lost:
            # The engine refuses both if repeated: read the result instead.
            after_lost(lost, lambda: _is_done(session, call))


def _is_done(session: Session, call: Call) -> bool:
    cluster = call.path.split("/")[1]
    wanted = call.arguments["network"]
    network = wanted.id or call.path.split("/")[-1]
    path = f"clusters/{cluster}/networks"
    for row in session.read(Read(path, "reading the cluster's networks")):
        if row.id == network:
            return bool(row.required) == bool(wanted.required)
    return False


def _remove(network: str, name: str) -> Undo:
    doing = f"removing the network {name} again"
    call = Call(f"networks/{network}", "remove", doing, {}, name)
    return Undo(call, f"remove the network {name}")


def _leave(network: str, cluster: Cluster, name: str) -> Undo:
    doing = f"removing the network {name} from the cluster {cluster.name} again"
    path = f"clusters/{cluster.id}/networks/{network}"
    by_hand = f"remove the network {name} from the cluster {cluster.name}"
    return Undo(Call(path, "remove", doing, {}, name), by_hand)


def _restore_role(had: HadMigration) -> Undo:
    name, cluster = had.network.name, had.cluster
    doing = f"making {name} the migration network of {cluster.name} again"
    path = f"clusters/{cluster.id}/networks/{had.network.id}"
    usages = [types.NetworkUsage(word) for word in had.usages]
    body = {"network": types.Network(usages=usages)}
    by_hand = f"make {name} the migration network of {cluster.name}"
    return Undo(Call(path, "update", doing, body, name), by_hand)
