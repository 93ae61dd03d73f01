# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan the creation of a logical network for IPoIB. Pure.

The MTU that all hosts of a network can have, and the hosts that cannot. Pure.

What is there of a network that is asked for, and what its clusters have. Pure.

``network create``: a non-VM logical network for IPoIB, with an MTU that its hosts
can have, in the clusters of a data center and not required there yet.

Pure: the plan. :mod:`ovirt_rdma.engine_sdk_tools.networks.create` carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from ovirtsdk4 import types

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Cluster, Engine, Host, Network
from ovirt_rdma.engine_sdk_tools.names import hosts_named, listed, pick
from ovirt_rdma.engine_sdk_tools.networks.ipoib_mtu import NetdevMtu, ipoib_mtus
from ovirt_rdma.engine_sdk_tools.networks.nics import NicMatch
from ovirt_rdma.engine_sdk_tools.refusals import check

_NO_REPORT = "nothing is known of it: give --facts-dir, or let it be reached over SSH"


@dataclass(frozen=True)
class AutoMtu:
    """``mtu`` in bytes, 0 where there are ``offenders``, and ``because``, a sentence.

    ``offenders`` are sentences on hosts that do not tell, ``remarks`` on those for
    which the others get less than they could.
    """

    mtu: int
    because: str
    offenders: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def auto_mtu(
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    nic_match: Optional[str] = None,
) -> AutoMtu:
    """Return the largest MTU that the IPoIB netdevs of all ``hosts`` can have."""
    limits: list[tuple[str, NetdevMtu, int]] = []
    offenders = []
    for host in hosts:
        found, problem = netdevs_of(host, reports.get(host.name), nic_match)
        if problem:
            offenders.append(problem)
        for one in found:
            if one.mtu is None:
                offenders.append(
                    f"{host.name}: {one.netdev} has no MTU to go by, as {one.because}"
                )
            else:
                limits.append((host.name, one, one.mtu))
    if offenders or not limits:
        return AutoMtu(0, "", tuple(offenders))
    name, least, mtu = min(limits, key=lambda limit: limit[2])
    most = max(limit for _, _, limit in limits)
    because = f"{least.netdev} of {name} sets it: {least.because}"
    remarks = []
    if most > mtu:
        low = [f"{host} {one.netdev}" for host, one, limit in limits if limit == mtu]
        remarks.append(
            f"some could have {most}; {mtu} is for the sake of {listed(low)}"
        )
    return AutoMtu(mtu, because, (), tuple(remarks))


def mtu_offenders(
    mtu: int,
    hosts: Sequence[Host],
    reports: Mapping[str, HostReport],
    nic_match: Optional[str] = None,
) -> tuple[list[str], list[str]]:
    """Return sentences on hosts that cannot have ``mtu`` on any of their netdevs, and
    the names of those that do not tell.
    """
    offenders, unknown = [], []
    for host in hosts:
        report = reports.get(host.name)
        found, problem = netdevs_of(host, report, nic_match)
        if report is None or report.facts is None:
            unknown.append(host.name)
        elif problem:
            offenders.append(problem)
        elif any(one.mtu is None for one in found):
            unknown.append(host.name)
        elif all(one.mtu < mtu for one in found if one.mtu is not None):
            offenders += [
                f"{host.name}: {one.netdev} can have at most {one.mtu}, not {mtu}: "
                f"{one.because}"
                for one in found
            ]
    return offenders, unknown


def netdevs_of(
    host: Host, report: Optional[HostReport], nic_match: Optional[str]
) -> tuple[list[NetdevMtu], str]:
    """Return the limits of a host's IPoIB netdevs that are meant, or why there is none.

    Without ``nic_match``: those of its ports, no P_Key children.
    """
    if report is None or report.facts is None:
        why = (report.problem if report else "") or _NO_REPORT
        return [], f"{host.name}: {why}"
    macs = {netdev.name: netdev.address for netdev in report.facts.netdevs}
    match = NicMatch.parse(nic_match) if nic_match else None
    found = [
        one
        for one in ipoib_mtus(report.facts).values()
        if (
            match.means(one.netdev, macs.get(one.netdev), one.pci)
            if match
            else not one.child
        )
    ]
    if found:
        return found, ""
    which = f" that {nic_match} names" if nic_match else ""
    return [], f"{host.name} has no IPoIB netdev{which}"


MIGRATION = "migration"
MANAGEMENT = "management"


@dataclass(frozen=True)
class HadMigration:
    """The network that is a cluster's migration network now, with its ``usages`` there.
    The management network is none of these: the role falls back to it by itself.
    """

    cluster: Cluster
    network: Network
    usages: tuple[str, ...]


def other_kind(there: Network, mtu: int) -> Sequence[str]:
    """Say how the network that is there differs from what is asked for."""
    found = []
    if there.vm:
        found.append(
            f"there is a network {there.name}, and it is a VM network, which cannot be "
            "on InfiniBand: take another name, or clear 'VM network' for it"
        )
    if there.vlan is not None:
        found.append(
            f"there is a network {there.name} with the VLAN tag {there.vlan}, which "
            "InfiniBand does not have"
        )
    if mtu and (there.mtu or 1500) != mtu:
        found.append(
            f"there is a network {there.name} with MTU {there.mtu or 1500}, not {mtu}: "
            "change it in the engine, or ask for that MTU"
        )
    return found


def loses_migration(
    networks: Sequence[Network], clusters: Sequence[Cluster], name: str
) -> list[str]:
    """A cluster has one migration network: say which loses the role."""
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
    """Return whose the role is that ``name`` gets, to be given back if it comes to
    that.
    """
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
    there: Optional[Network], clusters: Sequence[Cluster]
) -> Sequence[str]:
    """A network that is in a cluster already without the role keeps being without."""
    names = {cluster.id: cluster.name for cluster in clusters}
    return [
        f"{there.name} is in the cluster {names[row.cluster]} already, without the "
        "migration role: set it there in the engine (Manage Networks)"
        for row in (there.clusters if there else ())
        if there and row.cluster in names and MIGRATION not in row.usages
    ]


def to_require(
    engine: Engine, there: Optional[Network], clusters: Sequence[Cluster]
) -> tuple[list[Cluster], list[str]]:
    """Return the clusters all of whose hosts have the network, and what the others
    lack.
    """
    ready, told = [], []
    for cluster in clusters:
        rows = [r for r in (there.clusters if there else ()) if r.cluster == cluster.id]
        if rows and rows[0].required:
            continue
        lacking = [
            host.name
            for host in engine.hosts
            if host.cluster == cluster.id and not (there and _has(host, there))
        ]
        if lacking:
            told.append(
                f"it is not required in {cluster.name} yet: {listed(lacking)} "
                "must have it first (ovirt-rdma network attach)"
            )
        else:
            ready.append(cluster)
    return ready, told


def _has(host: Host, network: Network) -> bool:
    return any(a.network == network.id for a in host.attachments or ())


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
