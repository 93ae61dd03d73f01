# SPDX-License-Identifier: GPL-2.0-or-later
"""``network create``: a non-VM logical network for IPoIB, with an MTU that its hosts
can have, in the clusters of a data center and not required there yet.

Pure: the plan. :mod:`ovirt_rdma.engine_sdk_tools.network_create_run` carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from ovirtsdk4 import types

from ovirt_rdma.engine_sdk_tools.call import Call
from ovirt_rdma.engine_sdk_tools.engine_facts import Cluster, Engine, Host, Network
from ovirt_rdma.engine_sdk_tools.host_report import HostReport
from ovirt_rdma.engine_sdk_tools.names import hosts_named, listed, pick
from ovirt_rdma.engine_sdk_tools.network_mtu import auto_mtu, mtu_offenders
from ovirt_rdma.engine_sdk_tools.network_there import (
    HadMigration,
    had_migration,
    loses_migration,
    no_migration,
    other_kind,
    to_require,
)
from ovirt_rdma.engine_sdk_tools.refusals import check

AUTO = "auto"
# The engine takes 0 and 68 or more, without a maximum (MTUValidator); IPoIB's most is
# connected mode's.
LEAST_MTU = 68
MOST_MTU = 65520
# BusinessEntitiesDefinitions.NETWORK_NAME_SIZE.
LONGEST_NAME = 256


@dataclass(frozen=True)
class NetworkRequest:
    """What is asked for. ``mtu`` in bytes, or AUTO.

    ``clusters`` are names, none: all of the data center. ``hosts`` are globs of the
    hosts whose netdevs an AUTO has to suit, none: all of the clusters; ``nic_match``
    says which of their netdevs (:mod:`nic_match`), None: all IPoIB ones.
    ``required``: make it required where every host of a cluster has it by now.
    """

    name: str
    data_center: str
    mtu: Union[int, str] = AUTO
    clusters: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    nic_match: Optional[str] = None
    migration: bool = False
    required: bool = False


@dataclass(frozen=True)
class NetworkPlan:
    """``calls`` in their order, none where all is so already.

    ``network`` is the one that is there. ``mtu`` in bytes with the reason for it.
    ``had_migration`` are the networks that lose the migration role.
    ``warnings`` are sentences. A call whose path or words have ``{network}`` gets the
    new network's id.
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

    @property
    def calls(self) -> tuple[Call, ...]:
        """What would be asked of the engine; ``NEW`` stands for the new one's id."""
        network = self.network.id if self.network else "NEW"
        made = () if self.network else (self.make(),)
        joined = tuple(self.joining(network, one) for one in self.join)
        return (*made, *joined, *(self.requiring(network, one) for one in self.require))

    def make(self) -> Call:
        """The call that makes the network."""
        network = types.Network(
            name=self.name,
            data_center=types.DataCenter(id=self.data_center),
            mtu=self.mtu,
            # An empty list is a non-VM network; without the element it would be one.
            usages=[],
        )
        doing = f"making the network {self.name}"
        return Call("networks", "add", doing, {"network": network}, self.name)

    def joining(self, network: str, cluster: Cluster) -> Call:
        """The call that puts it into ``cluster``, not required."""
        usages = [types.NetworkUsage.MIGRATION] if self.migration else []
        # Not required: hosts without it would become non-operational (event 519).
        asked = types.Network(id=network, required=False, usages=usages)
        doing = f"putting the network {self.name} into the cluster {cluster.name}"
        path = f"clusters/{cluster.id}/networks"
        return Call(path, "add", doing, {"network": asked}, self.name)

    def requiring(self, network: str, cluster: Cluster) -> Call:
        """The call that makes it required in ``cluster``."""
        doing = f"making the network {self.name} required in {cluster.name}"
        path = f"clusters/{cluster.id}/networks/{network}"
        asked = types.Network(required=True)
        return Call(path, "update", doing, {"network": asked}, self.name)


def plan_network_create(
    engine: Engine, reports: Mapping[str, HostReport], request: NetworkRequest
) -> NetworkPlan:
    """Return what has to be done for ``request``.

    Raises Problem for names that do not exist, and ChecksFailed with every offender:
    hosts whose netdevs cannot have the MTU, or do not tell, and a network of that name
    that is another kind of network.
    """
    data_center = pick("data center", request.data_center, engine.data_centers)
    inside = [c for c in engine.clusters if c.data_center == data_center.id]
    clusters = [pick("cluster", name, inside) for name in request.clusters] or inside
    against = list(_wrong(request))
    networks = [n for n in engine.networks or () if n.data_center == data_center.id]
    there = next((n for n in networks if n.name == request.name), None)
    hosts = _hosts_of(engine, clusters, request.hosts)
    mtu, because, warnings = _mtu(request, hosts, reports, there, against)
    if there is not None:
        against += other_kind(there, mtu)
    joined = {row.cluster for row in there.clusters} if there else set[str]()
    if request.migration:
        warnings += loses_migration(networks, clusters, request.name)
        against += no_migration(there, clusters)
    check(against)
    require: list[Cluster] = []
    if request.required:
        require, told = to_require(engine, there, clusters)
        warnings += told
    return NetworkPlan(
        request.name,
        data_center.id,
        mtu,
        because,
        there,
        tuple(c for c in clusters if c.id not in joined),
        tuple(require),
        request.migration,
        tuple(warnings),
        had_migration(networks, clusters, request.name) if request.migration else (),
    )


def _wrong(request: NetworkRequest) -> Sequence[str]:
    found = []
    if not request.name.strip() or len(request.name) > LONGEST_NAME:
        found.append(f"a network's name has 1 to {LONGEST_NAME} characters")
    mtu = request.mtu
    if isinstance(mtu, int) and not LEAST_MTU <= mtu <= MOST_MTU:
        found.append(
            f"the MTU {mtu} is out of range: IPoIB has {LEAST_MTU} to {MOST_MTU}"
        )
    return found


def _hosts_of(
    engine: Engine, clusters: Sequence[Cluster], globs: Sequence[str]
) -> tuple[Host, ...]:
    inside = {cluster.id for cluster in clusters}
    chosen = hosts_named(engine, globs)
    return tuple(host for host in chosen if host.cluster in inside)


def _mtu(
    request: NetworkRequest,
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    there: Optional[Network],
    against: list[str],
) -> tuple[int, str, list[str]]:
    """Return the MTU, why, and warnings; what is against it is added to ``against``."""
    if isinstance(request.mtu, int):
        offenders, unknown = mtu_offenders(
            request.mtu, hosts, reports, request.nic_match
        )
        against += offenders
        told = []
        if unknown:
            told.append(
                f"nobody has told if MTU {request.mtu} can be on {listed(unknown)}"
            )
        return request.mtu, "as asked for", told
    if not hosts:
        against.append(
            "there is no host to take the MTU from; give it as a number: --mtu 2044 is "
            "what every InfiniBand fabric has"
        )
        return 0, "", []
    found = auto_mtu(hosts, reports, request.nic_match)
    against += found.offenders
    return found.mtu, found.because, list(found.remarks)
