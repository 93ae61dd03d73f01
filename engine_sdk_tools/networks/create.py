# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``network create``, carry it out, and roll it back if a part of it fails.

The network is not a VM network, has an MTU that its hosts support, and is added to the
clusters of a data center as not required. It is for IPoIB, or for RoCE, where it may
have a VLAN tag. The plan takes into account an existing network of that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from ovirt_rdma.engine_sdk_tools.api.request import Call, Listener, types
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.job import Undo, made, undo
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
from ovirt_rdma.engine_sdk_tools.networks.nics import NetdevMtu, NicMatch, ipoib_mtus
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.facts.infiniband import CONNECTED_MTU
from ovirt_rdma.host.facts.uses import interfaces_of
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import View
from ovirt_rdma.host.rules.roce import roce_ports

AUTO = "auto"
DEFAULT_MTU = 1500
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
    ``ethernet``: it is for RoCE, with the tag ``vlan`` (1 to 4094) unless that is None.
    """

    name: str
    data_center: str
    mtu: Union[int, str] = AUTO
    clusters: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    nic_match: Optional[str] = None
    ethernet: bool = False
    vlan: Optional[int] = None


@dataclass(frozen=True)
class NetworkPlan:
    """``network`` is the existing one, if any; ``mtu`` is in bytes, ``because`` is the
    reason for it. ``join`` are the clusters to add it to. ``warnings`` are sentences.
    """

    name: str
    data_center: str
    mtu: int
    because: str
    network: Optional[Network] = None
    join: tuple[Cluster, ...] = ()
    warnings: tuple[str, ...] = ()
    vlan: Optional[int] = None

    @property
    def calls(self) -> tuple[Call, ...]:
        """The requests to the engine, in their order; ``NEW`` is a new network's id."""
        network = self.network.id if self.network else "NEW"
        first = () if self.network else (self.making(),)
        return (*first, *(self.joining(network, cluster) for cluster in self.join))

    def making(self) -> Call:
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
        """Return the call that adds it to ``cluster``."""
        # Not required: hosts without it would become non-operational (event 519).
        body = types.Network(id=network, required=False, usages=[])
        doing = f"adding the network {self.name} to the cluster {cluster.name}"
        path = f"clusters/{cluster.id}/networks"
        return Call(path, "add", doing, {"network": body}, self.name)


def plan_network_create(
    engine: Engine, reports: Mapping[str, HostReport], request: NetworkRequest
) -> NetworkPlan:
    """Return the plan for ``request``. Raises Problem for unknown names, and
    ChecksFailed with every reason: MTUs not supported or unknown, and an existing
    network that differs.
    """
    center = pick("data center", request.data_center, engine.data_centers)
    inside = [c for c in engine.clusters if c.data_center == center.id]
    clusters = [pick("cluster", name, inside) for name in request.clusters] or inside
    networks = [n for n in engine.networks or () if n.data_center == center.id]
    existing = next((n for n in networks if n.name == request.name), None)
    ids = {cluster.id for cluster in clusters}
    hosts = [h for h in hosts_named(engine, request.hosts) if h.cluster in ids]
    refusals, warnings = list(_wrong(request)), list[str]()
    mtu, because = host_mtu(request, hosts, reports, refusals, warnings)
    joined = {row.cluster for row in existing.clusters} if existing else set[str]()
    if existing is not None:
        refusals += _other_kind(existing, mtu, request)
    number = "let each host answer, or give a number: every fabric supports --mtu 2044"
    check(refusals, "" if mtu else number)
    return NetworkPlan(
        request.name,
        center.id,
        mtu,
        because,
        existing,
        tuple(c for c in clusters if c.id not in joined),
        tuple(warnings),
        request.vlan,
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
    """Return the MTU, 0 if there is none, and the reason: for AUTO the largest that all
    ``hosts`` support; of a number a host is refused without a netdev for it. Adds to
    ``refusals`` and ``warnings``.
    """
    number = request.mtu if isinstance(request.mtu, int) else None
    auto = number is None and not request.ethernet
    # As (MTU, ``ib0 of host01``, reason), and the hosts where it is unknown.
    limits: list[tuple[int, str, str]] = []
    unknown = []
    for host in hosts:
        found = netdevs_of(host, reports.get(host.name), request)
        if isinstance(found, Sentence):
            if found.id == _NO_FACTS and not auto:
                unknown.append(host.name)
            else:
                refusals.append(found)
            continue
        blind = [one for one in found if one.mtu is None]
        known = [(one.mtu, one.netdev, one.because) for one in found if one.mtu]
        if auto:
            limits += [(mtu, f"{name} of {host.name}", why) for mtu, name, why in known]
            refusals += [
                Sentence(
                    "mtu-unknown",
                    f"{host.name}: the MTU limit of {one.netdev} is unknown: "
                    f"{one.because}",
                )
                for one in blind
            ]
        elif blind and not request.ethernet:
            unknown.append(host.name)
        elif number and all(mtu < number for mtu, _, _ in known):
            refusals += [
                Sentence(
                    "mtu-too-large",
                    f"{host.name}: {name} can have an MTU of at most {mtu}, not "
                    f"{number}: {why}",
                )
                for mtu, name, why in known
            ]
    if number is not None:
        if unknown:
            what = f"MTU {number} could not be verified"
            if request.ethernet:
                what = "it is unknown whether there is RoCE"
            warnings.append(f"{what} on {listed(unknown)}")
        return number, "as requested"
    if auto and not hosts:
        sentence = "there is no host to determine the MTU from"
        refusals.append(Sentence("mtu-without-hosts", sentence))
    if refusals or not limits:
        return 0, ""
    least, _, why = min(limits, key=lambda limit: limit[0])
    low = listed([netdev for most, netdev, _ in limits if most == least])
    others = max(limits)[0]
    more = f" (others: up to {others})" if others > least else ""
    return least, f"limited by {low}: {why}{more}"


def netdevs_of(
    host: Host, report: Optional[HostReport], request: NetworkRequest
) -> Union[list[NetdevMtu], Sentence]:
    """Return the selected netdevs with their limits as far as IPoIB has some, or why
    there is none. Without ``nic_match``: its ports, not the P_Key children.
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
    match = NicMatch.parse(request.nic_match) if request.nic_match else None
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


@dataclass(frozen=True)
class NetworkMade:
    """The result: the network's ``id``, and the names of clusters it was added to."""

    id: str
    joined: tuple[str, ...] = ()


def create_network(
    session: Session, plan: NetworkPlan, listener: Listener
) -> NetworkMade:
    """Carry out ``plan``. Raises Problem if a part failed: what was made is removed,
    and the message names what could not be.
    """
    listener.plan((plan.name,), len(plan.calls))
    undoing: list[Undo] = []
    name = plan.name

    def is_ours(network: Any) -> bool:
        return bool(
            network.name == name
            and getattr(network.data_center, "id", None) == plan.data_center
        )

    try:
        if plan.network is None:
            network = made(session, plan.making(), listener, is_ours)
            undoing.append(_removing(f"networks/{network}", name))
        else:
            network = plan.network.id
        for cluster in plan.join:
            call = plan.joining(network, cluster)
            made(session, call, listener, lambda row: row.id == network)
            where = f" from the cluster {cluster.name}"
            undoing.append(_removing(f"{call.path}/{network}", name, where))
    except Problem as error:
        raise undo(session, undoing, listener).told(error) from error
    return NetworkMade(network, tuple(cluster.name for cluster in plan.join))


def _removing(path: str, name: str, where: str = "") -> Undo:
    doing = f"removing the network {name}{where} again"
    by_hand = f"remove the network {name}{where}"
    return Undo(Call(path, "remove", doing, {}, name), by_hand)
