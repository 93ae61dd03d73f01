# SPDX-License-Identifier: GPL-2.0-or-later
"""Check a network and its custom properties before it is attached to hosts. Pure.

The engine and VDSM would refuse most of it too, but only when they process the host,
and some of it in the middle of a change (HostSetupNetworksValidator of ovirt-engine,
inter_ifaces_controller.rs of nmstate). Custom properties are declared per cluster level
with engine-config, which replaces the whole option, and read over the API.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Cluster, Host, Network, Nic, status_words
from ovirt_rdma.engine_sdk_tools.networks.ipoib_mtu import NetdevMtu, ipoib_mtus
from ovirt_rdma.engine_sdk_tools.networks.nics import Chosen
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.ipoib import ACTIVE_BACKUP

# Our own property: VDSM passes it to the hook before_network_setup.
IPOIB_MODE = "ipoib_mode"
OPTION = "UserDefinedNetworkCustomProperties"

# The custom properties of a cluster level: a regular expression by name.
Declared = Mapping[str, str]


def property_refusals(
    properties: Mapping[str, str],
    declared: Mapping[str, Declared],
    clusters: Sequence[Cluster],
) -> Iterator[Sentence]:
    """Refuse ``properties`` that the levels of ``clusters`` do not declare, and values
    that they do not allow. ``declared`` is by level (``4.7``).
    """
    for level in sorted({cluster.version or "" for cluster in clusters}):
        known = declared.get(level, {})
        for name, value in properties.items():
            if name not in known:
                yield Sentence(
                    "property-undeclared",
                    f"the custom property {name} is not declared for cluster level "
                    f"{level}: run engine-config -s {OPTION}='{_all(known, name)}' "
                    f"--cver={level}, and restart ovirt-engine",
                )
            elif not _matches(known[name], value):
                yield Sentence(
                    "property-value-invalid",
                    f"{name}={value} does not match the declaration of cluster level "
                    f"{level}: {known[name]}",
                )


def read_declared(text: str) -> dict[str, str]:
    """Parse the option ``UserDefinedNetworkCustomProperties``:
    ``name=regex;name2=regex2``.
    """
    declared = {}
    for part in text.split(";"):
        name, equals, pattern = part.strip().partition("=")
        if equals and name:
            declared[name] = pattern
    return declared


def _all(known: Declared, name: str) -> str:
    """Return the whole option with ``name``: engine-config replaces the old value."""
    pattern = "^(auto|datagram|connected)$" if name == IPOIB_MODE else "^.*$"
    return ";".join(f"{n}={p}" for n, p in {**known, name: pattern}.items())


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error:
        # A regular expression that only Java knows: leave it to the engine.
        return True


# HostValidator.java: the statuses in which networks can be set up.
STATUSES = ("maintenance", "up", "non_operational")
MANAGEMENT = "management"
DEFAULT_MTU = 1500


def host_refusals(
    host: Host,
    chosen: Chosen,
    network: Network,
    networks: Sequence[Network],
    *,
    center: str,
    report: Optional[HostReport],
    properties: Mapping[str, str],
) -> Iterator[Sentence]:
    """Yield the reasons not to attach ``network``, of the data center with the name
    ``center``, to the ``chosen`` NIC of ``host``.
    """
    yield from _status(host)
    if host.cluster not in {row.cluster for row in network.clusters}:
        name, where = shlex.quote(network.name), shlex.quote(center)
        yield Sentence(
            "network-not-in-cluster",
            f"{host.name}: {network.name} is not in its cluster; 'ovirt-rdma network "
            f"create {name} --datacenter {where} --mtu {network.mtu or DEFAULT_MTU}' "
            "adds it",
        )
    by_name = {nic.name: nic for nic in host.nics or ()}
    names = dict.fromkeys((*chosen.ports, chosen.target))
    nics = [by_name[name] for name in names if name in by_name]
    infiniband = next((nic.name for nic in nics if nic.infiniband), None)
    if infiniband is not None:
        yield from _on_infiniband(host, infiniband, network)
    for nic in nics:
        yield from _carries(host, nic, chosen, network, networks)
    yield from _bond(host, chosen, by_name)
    if report is not None and report.facts is not None:
        limits = ipoib_mtus(report.facts, properties.get(IPOIB_MODE))
        yield from _mtu(host, chosen, by_name, network, limits)


def unknown_mtu(
    host: Host, chosen: Chosen, report: Optional[HostReport], mode: Optional[str]
) -> bool:
    """Whether the MTU limit of an IPoIB NIC of ``chosen`` is unknown."""
    nics = [n for n in host.nics or () if n.name in (*chosen.ports, chosen.target)]
    if not any(nic.infiniband for nic in nics):
        return False
    if report is None or report.facts is None:
        return True
    limits = ipoib_mtus(report.facts, mode)
    names = chosen.ports or (chosen.target,)
    return any(name not in limits or limits[name].mtu is None for name in names)


def management_networks(host: Host, networks: Sequence[Network]) -> frozenset[str]:
    """Return the ids of the management networks of the host's cluster."""
    return frozenset(
        network.id
        for network in networks
        for row in network.clusters
        if row.cluster == host.cluster and MANAGEMENT in row.usages
    )


def _status(host: Host) -> Iterator[Sentence]:
    if host.status not in STATUSES:
        yield Sentence(
            "host-status",
            f"{host.name} is {status_words(host.status)}; networks can be set up "
            "on hosts that are up, in maintenance or non-operational",
        )


def _on_infiniband(host: Host, nic: str, network: Network) -> Iterator[Sentence]:
    """Refuse what an IPoIB NIC does not support and an Ethernet NIC does."""
    if network.vm:
        yield Sentence(
            "vm-network-on-infiniband",
            f"{host.name}: {network.name} is a VM network, which needs a bridge, and "
            f"{nic} is InfiniBand, which cannot be a bridge port: clear 'VM network' "
            f"of {network.name}, or make another network with network create",
        )
    if network.vlan is not None:
        yield Sentence(
            "vlan-on-infiniband",
            f"{host.name}: {network.name} has the VLAN tag {network.vlan}, and {nic} "
            "is InfiniBand, which has no VLANs: use an Ethernet NIC, or a network "
            f"without a tag and the P_Key child of its partition (--pkey vlan="
            f"{network.vlan})",
        )


def _carries(
    host: Host,
    nic: Nic,
    chosen: Chosen,
    network: Network,
    networks: Sequence[Network],
) -> Iterator[Sentence]:
    """Refuse what conflicts with the networks and bonds that ``nic`` already has."""
    by_id = {network.id: network for network in networks}
    attached = {a.network for a in host.attachments or () if a.nic == nic.id}
    if nic.network:
        attached.add(nic.network)
    managing = management_networks(host, networks)
    is_port = nic.name != chosen.target
    for id in sorted(attached - ({network.id} if not is_port else set())):
        other = by_id.get(id)
        name = other.name if other else id
        if id in managing:
            yield Sentence(
                "nic-has-management-network",
                f"{host.name}: {nic.name} has the management network {name}, which is "
                "never changed: choose another NIC",
            )
        elif is_port:
            yield Sentence(
                "bond-port-has-network",
                f"{host.name}: {nic.name} has the network {name} and cannot become a "
                f"port of a bond: remove {name} from it first",
            )
        elif network.vlan is None and (other is None or other.vlan is None):
            yield Sentence(
                "nic-has-network",
                f"{host.name}: {nic.name} already has the network {name}; a NIC has at "
                "most one network without a VLAN tag",
            )
    for other_nic in host.nics or ():
        # The engine checks the NIC and the VLANs on it.
        if other_nic.unmanaged and nic.name in (other_nic.name, other_nic.vlan_of):
            yield _unmanaged(host, nic, other_nic.unmanaged)
    for bond in host.nics or ():
        if nic.name in bond.bond_ports and bond.name != chosen.target:
            yield Sentence(
                "nic-is-bond-port",
                f"{host.name}: {nic.name} is a port of {bond.name}: give the name of "
                "the bond, or of another NIC",
            )


def _unmanaged(host: Host, nic: Nic, name: str) -> Sentence:
    """Refuse as UnmanagedNetworkValidator.java does, which allows no other network."""
    return Sentence(
        "nic-has-unmanaged-network",
        f"{host.name}: {nic.name} has the network {name}, which is not in the host's "
        f"cluster; the engine attaches no other network to such a NIC: add {name} to "
        "the cluster (network create, or webadmin), or remove it from the host "
        "(webadmin: Setup Host Networks)",
    )


def _bond(host: Host, chosen: Chosen, by_name: Mapping[str, Nic]) -> Iterator[Sentence]:
    if not chosen.ports:
        return
    ports = [by_name[name] for name in chosen.ports if name in by_name]
    kinds = {nic.infiniband for nic in ports}
    if len(kinds) > 1:
        ours = ", ".join(nic.name for nic in ports if nic.infiniband)
        yield Sentence(
            "bond-mixes-link-layers",
            f"{host.name}: {ours} is InfiniBand and other ports of {chosen.target} are "
            "not; a bond cannot have both",
        )
    bond = by_name.get(chosen.target)
    if bond and True in kinds and bond.bond_mode not in ACTIVE_BACKUP:
        yield Sentence(
            "bond-mode",
            f"{host.name}: {bond.name} is in bonding mode {bond.bond_mode or '?'}; "
            "InfiniBand supports only the mode active-backup (1)",
        )


def _mtu(
    host: Host,
    chosen: Chosen,
    by_name: Mapping[str, Nic],
    network: Network,
    limits: Mapping[str, NetdevMtu],
) -> Iterator[Sentence]:
    wanted = network.mtu or DEFAULT_MTU
    for name in chosen.ports or (chosen.target,):
        limit = limits.get(name)
        if limit and limit.no_mode:
            yield Sentence(
                "connected-mode-unsupported",
                f"{host.name}: {name} does not support connected mode: {limit.no_mode}",
            )
        elif limit and limit.mtu is not None and limit.mtu < wanted:
            yield Sentence(
                "mtu-too-large",
                f"{host.name}: {name} can have an MTU of at most {limit.mtu}, and "
                f"{network.name} has {wanted}: {limit.because}",
            )
        elif limit is None and name in by_name and by_name[name].infiniband:
            yield Sentence(
                "netdev-missing",
                f"{host.name}: the host's facts have no IPoIB netdev {name}",
            )
