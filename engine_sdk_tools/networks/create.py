# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``network create``, carry it out, and roll it back if a part of it fails.

The network is not a VM network, has an MTU that its hosts support, and is added to the
clusters of a data center as not required. It is for IPoIB, or for RoCE, where it may
have a VLAN tag. The plan takes into account an existing network of that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

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

AUTO = "auto"
DEFAULT_MTU = 1500
MIGRATION = "migration"
MANAGEMENT = "management"
# The engine accepts 0 and 68 or more, without a maximum (MTUValidator). The maximum of
# IPoIB is that of connected mode.
LEAST_MTU = 68
# common/businessentities/network/Network.java
MOST_VLAN = 4094
# BusinessEntitiesDefinitions.NETWORK_NAME_SIZE.
LONGEST_NAME = 256

_NO_FACTS = "host-facts-missing"
_NO_REPORT = "no report from the host: give --facts-dir, or allow access over SSH"


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
    becomes required. ``warnings`` are sentences. ``role_back`` restores, by cluster id,
    the migration role of the network that has it now.
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
    vlan: Optional[int] = None
    role_back: Mapping[str, Undo] = field(default_factory=dict)

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
    center = pick("data center", request.data_center, engine.data_centers)
    inside = [c for c in engine.clusters if c.data_center == center.id]
    clusters = [pick("cluster", name, inside) for name in request.clusters] or inside
    networks = [n for n in engine.networks or () if n.data_center == center.id]
    existing = next((n for n in networks if n.name == request.name), None)
    by_id = {cluster.id: cluster for cluster in clusters}
    hosts = [h for h in hosts_named(engine, request.hosts) if h.cluster in by_id]
    refusals, warnings = list(_wrong(request)), list[str]()
    mtu, because = host_mtu(request, hosts, reports, refusals, warnings)
    joined = {row.cluster for row in existing.clusters} if existing else set[str]()
    if existing is not None:
        refusals += _other_kind(existing, mtu, request)
        for row in existing.clusters if request.migration else ():
            if row.cluster in by_id and MIGRATION not in row.usages:
                sentence = (
                    f"{existing.name} is already in the cluster "
                    f"{by_id[row.cluster].name}, without the migration role: set the "
                    "role in the engine (Manage Networks)"
                )
                refusals.append(Sentence("migration-role-missing", sentence))
    role_back = {}
    for network in networks if request.migration else ():
        for row in network.clusters:
            # A cluster has only one migration network.
            if row.cluster in by_id and MIGRATION in row.usages:
                if network is existing:
                    continue
                cluster = by_id[row.cluster]
                warnings.append(
                    f"{network.name} is no longer the migration network of "
                    f"{cluster.name}"
                )
                # The role returns to the management network by itself.
                if MANAGEMENT not in row.usages:
                    role_back[cluster.id] = _restore_role(network, cluster, row.usages)
    number = "let each host answer, or give a number: every fabric supports --mtu 2044"
    check(refusals, "" if mtu else number)
    require: list[Cluster] = []
    if request.required:
        require, lacking = _to_require(engine, existing, clusters)
        warnings += lacking
    return NetworkPlan(
        request.name,
        center.id,
        mtu,
        because,
        existing,
        tuple(c for c in clusters if c.id not in joined),
        tuple(require),
        request.migration,
        tuple(warnings),
        request.vlan,
        role_back,
    )


def _wrong(request: NetworkRequest) -> Iterator[Sentence]:
    if not request.name.strip() or len(request.name) > LONGEST_NAME:
        sentence = f"the name of a network must have 1 to {LONGEST_NAME} characters"
        yield Sentence("network-name-invalid", sentence)
    mtu, vlan = request.mtu, request.vlan
    if isinstance(mtu, int) and not LEAST_MTU <= mtu <= CONNECTED_MTU:
        allowed = f"IPoIB has {LEAST_MTU} to {CONNECTED_MTU}"
        sentence = f"the MTU {mtu} is out of range: {allowed}"
        yield Sentence("mtu-out-of-range", sentence)
    # NETWORK_VLAN_OUT_OF_RANGE allows 0 too, which is a priority tag (802.1Q).
    if vlan is not None and not 1 <= vlan <= MOST_VLAN:
        sentence = f"the VLAN tag {vlan} is out of range: 1 to {MOST_VLAN}"
        yield Sentence("vlan-out-of-range", sentence)
    if vlan is not None and not request.ethernet:
        yield Sentence(
            "vlan-on-infiniband",
            "InfiniBand has no VLANs: add --link-layer ethernet for RoCE, or give each "
            "partition a network without a tag",
        )
    if not request.ethernet:
        return
    if request.nic_match and NicMatch.parse(request.nic_match).partitions:
        sentence = "--pkey is for InfiniBand: Ethernet has no partitions, but --vlan"
        yield Sentence("pkey-on-ethernet", sentence)
    if not isinstance(mtu, int):
        yield Sentence(
            "mtu-auto-ethernet",
            "--mtu auto is for InfiniBand: no host knows the switch's limit; give "
            "the largest that each switch and the server carry, such as 9000",
        )


def _other_kind(
    existing: Network, mtu: int, request: NetworkRequest
) -> Iterator[Sentence]:
    """Yield how the existing network differs from the requested one."""
    has = f"the existing network {existing.name}"
    if existing.vm and (request.vlan is not None or not request.ethernet):
        yield Sentence(
            "network-exists-vm",
            f"{has} is a VM network, and a bridge carries neither InfiniBand nor, as "
            "far as is known, RoCE over a VLAN: use another name, or clear 'VM "
            "network' for it",
        )
    if existing.vlan != request.vlan:
        tags = ["none" if v is None else v for v in (existing.vlan, request.vlan)]
        yield Sentence(
            "network-exists-vlan",
            f"{has} has the VLAN tag {tags[0]}, not {tags[1]}: use another name, or "
            "for Ethernet change --vlan",
        )
    if mtu and (existing.mtu or DEFAULT_MTU) != mtu:
        yield Sentence(
            "network-exists-mtu",
            f"{has} has MTU {existing.mtu or DEFAULT_MTU}, not {mtu}: change it in the "
            f"engine, or give --mtu {existing.mtu or DEFAULT_MTU}",
        )


def host_mtu(
    request: NetworkRequest,
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    refusals: list[Sentence],
    warnings: list[str],
) -> tuple[int, str]:
    """Return the MTU, 0 if there is none, and the reason for it: for AUTO the largest
    that the netdevs of all ``hosts`` support. Add to ``refusals`` and ``warnings``.
    """
    limits, unknown = _limits(request, hosts, reports, refusals)
    mtu = request.mtu
    if not isinstance(mtu, int) and request.ethernet:
        return 0, ""
    if not isinstance(mtu, int):
        if not hosts:
            sentence = "there is no host to determine the MTU from"
            refusals.append(Sentence("mtu-without-hosts", sentence))
        if refusals or not limits:
            return 0, ""
        least, _, why = min(limits, key=lambda limit: limit[0])
        low = listed([netdev for most, netdev, _ in limits if most == least])
        others = max(limits)[0]
        more = f" (others: up to {others})" if others > least else ""
        return least, f"limited by {low}: {why}{more}"
    if unknown and request.ethernet:
        warnings.append(f"it is unknown whether there is RoCE on {listed(unknown)}")
    elif unknown:
        warnings.append(f"MTU {mtu} could not be verified on {listed(unknown)}")
    allowed = ib_mtu(mtu)
    if request.ethernet and (allowed or 0) < LARGEST:
        warnings.append(
            f"MTU {mtu} allows RoCE an IB MTU of {allowed or 'none'}; "
            f"{LARGEST} needs {ENOUGH} or more"
        )
    return mtu, "as requested"


def _limits(
    request: NetworkRequest,
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    refusals: list[Sentence],
) -> tuple[list[tuple[int, str, str]], list[str]]:
    """Return limits of IPoIB as (MTU, ``ib0 of host01``, reason), and the names of
    hosts where they are unknown, which AUTO refuses. Add to ``refusals``.
    """
    limits, unknown = [], []
    auto = request.mtu == AUTO and not request.ethernet
    for host in hosts:
        found = netdevs_of(host, reports.get(host.name), request)
        if isinstance(found, Sentence):
            if found.id == _NO_FACTS and not auto:
                unknown.append(host.name)
            else:
                refusals.append(found)
            continue
        if request.ethernet:
            continue
        blind = [netdev for netdev in found if netdev.mtu is None]
        known = [(n.mtu, f"{n.netdev} of {host.name}", n) for n in found if n.mtu]
        limits += [(mtu, name, netdev.because) for mtu, name, netdev in known]
        if not isinstance(request.mtu, int):
            for netdev in blind:
                sentence = f"the MTU limit of {netdev.netdev} is unknown"
                text = f"{host.name}: {sentence}: {netdev.because}"
                refusals.append(Sentence("mtu-unknown", text))
        elif blind:
            unknown.append(host.name)
        elif all(mtu < request.mtu for mtu, _, _ in known):
            for mtu, _, netdev in known:
                sentence = f"{netdev.netdev} can have an MTU of at most {mtu}"
                text = f"{sentence}, not {request.mtu}: {netdev.because}"
                refusals.append(Sentence("mtu-too-large", f"{host.name}: {text}"))
    return limits, unknown


def netdevs_of(
    host: Host, report: Optional[HostReport], request: NetworkRequest
) -> Union[list[NetdevMtu], Sentence]:
    """Return the netdevs of the host that the request selects, with their limits as far
    as IPoIB has some, or why there is none. Without ``nic_match``: its ports, not the
    P_Key children.
    """
    if report is None or report.facts is None:
        why = (report.problem if report else "") or _NO_REPORT
        return Sentence(_NO_FACTS, f"{host.name}: {why}")
    if request.ethernet:
        ports = roce_ports(View(report.facts, Policy()))
        names = {base.name for port in ports for base in port.bases}
        limits = {name: NetdevMtu(name, None, "the switch") for name in names}
    else:
        limits = ipoib_mtus(report.facts)
    match: Optional[NicMatch] = None
    if request.nic_match:
        resolved = in_partitions(host, NicMatch.parse(request.nic_match), report)
        if isinstance(resolved, Sentence):
            return resolved
        match = resolved
    netdevs = [
        limits[nic.name]
        for nic in interfaces_of(report.facts)
        if nic.name in limits
        and (match.means(nic) if match else not limits[nic.name].child)
    ]
    if netdevs:
        return netdevs
    kind = "netdev with RoCE" if request.ethernet else "IPoIB netdev"
    which = f" that matches {request.nic_match!r}" if request.nic_match else ""
    return Sentence("netdev-missing", f"{host.name} has no {kind}{which}")


def _to_require(
    engine: Engine, existing: Optional[Network], clusters: Sequence[Cluster]
) -> tuple[list[Cluster], list[str]]:
    """Return the clusters where every host has the network, and a warning for each of
    the others.
    """
    ready, warnings = [], []
    done = {r.cluster for r in (existing.clusters if existing else ()) if r.required}
    for cluster in clusters:
        lacking = [
            host.name
            for host in engine.hosts
            if host.cluster == cluster.id
            and not any(
                existing and a.network == existing.id for a in host.attachments or ()
            )
        ]
        if cluster.id in done:
            continue
        if lacking:
            warnings.append(
                f"it is not required in {cluster.name} yet: attach it first to "
                f"{listed(lacking)} (network attach)"
            )
        else:
            ready.append(cluster)
    return ready, warnings


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
    name = plan.name

    def sent(call: Call, path: str, made: Callable[[Any], bool]) -> Any:
        """Return the SDK's network. The engine refuses to repeat the change, so that
        after a lost answer the networks at ``path`` are read.
        """

        def look() -> Any:
            return next(
                filter(made, session.read(Read(path, "reading networks"))), None
            )

        with step(listener, call.doing, call.subject):
            try:
                return session.perform(call)
            except LostAnswer as lost:
                return after_lost(lost, look)

    try:
        if plan.network is None:
            path = f"datacenters/{plan.data_center}/networks"
            network = str(sent(plan.make(), path, lambda n: n.name == name).id)
            by_hand = f"remove the network {name}"
            undoing.append(_removing(f"networks/{network}", name, "", by_hand))
        else:
            network = plan.network.id
        for cluster in plan.join:
            path = f"clusters/{cluster.id}/networks"
            call = plan.joining(network, cluster)
            sent(call, path, lambda n: n.id == network and not n.required)
            # The last is undone first: the role is restored after the network is
            # out of the cluster.
            if cluster.id in plan.role_back:
                undoing.append(plan.role_back[cluster.id])
            where = f" from the cluster {cluster.name}"
            by_hand = f"remove the network {name}{where}"
            undoing.append(_removing(f"{path}/{network}", name, where, by_hand))
        for cluster in plan.require:
            call = plan.requiring(network, cluster)
            path = f"clusters/{cluster.id}/networks"
            sent(call, path, lambda n: n.id == network and n.required)
    except Problem as error:
        raise undo(session, undoing, listener).told(error) from error
    joined = tuple(cluster.name for cluster in plan.join)
    required = tuple(cluster.name for cluster in plan.require)
    return NetworkMade(network, plan.network is None, joined, required)


def _removing(path: str, name: str, where: str, by_hand: str) -> Undo:
    doing = f"removing the network {name}{where} again"
    return Undo(Call(path, "remove", doing, {}, name), by_hand)


def _restore_role(network: Network, cluster: Cluster, usages: Sequence[str]) -> Undo:
    doing = f"making {network.name} the migration network of {cluster.name} again"
    path = f"clusters/{cluster.id}/networks/{network.id}"
    body = types.Network(usages=[types.NetworkUsage(word) for word in usages])
    arguments: dict[str, Any] = {"network": body}
    by_hand = f"make {network.name} the migration network of {cluster.name}"
    return Undo(Call(path, "update", doing, arguments, network.name), by_hand)
