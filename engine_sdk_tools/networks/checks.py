# SPDX-License-Identifier: GPL-2.0-or-later
"""Check networks and custom properties before a request. Pure.

Custom properties of networks: what a cluster level declares, and whether it fits.
Pure.

Declared by engine-config, which replaces the whole option; read over the API.

What is against a logical network on a host's nic. Pure; a sentence for each.

The engine and VDSM would refuse most of it too, but only at the host's turn, and some
of it in the middle of a change (facts of ovirt-engine's HostSetupNetworksValidator and
nmstate's inter_ifaces_controller.rs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Cluster, Host, Network, Nic, status_words
from ovirt_rdma.engine_sdk_tools.networks.ipoib_mtu import NetdevMtu, ipoib_mtus
from ovirt_rdma.engine_sdk_tools.networks.nics import Chosen

# Ours: VDSM hands it to the hook before_network_setup.
IPOIB_MODE = "ipoib_mode"
OPTION = "UserDefinedNetworkCustomProperties"

# What a cluster level declares: names and regular expressions.
Declared = Mapping[str, str]


def against_properties(
    properties: Mapping[str, str],
    declared: Mapping[str, Declared],
    clusters: Sequence[Cluster],
) -> Iterator[str]:
    """Say which ``properties`` the levels of ``clusters`` do not have, or not so.

    ``declared`` is by level (``4.7``).
    """
    for level in sorted({cluster.version or "" for cluster in clusters}):
        known = declared.get(level, {})
        for name, value in properties.items():
            if name not in known:
                yield (
                    f"the custom property {name} is not declared for cluster level "
                    f"{level}: engine-config -s {OPTION}='{_all(known, name)}' "
                    f"--cver={level}, and restart ovirt-engine"
                )
            elif not _matches(known[name], value):
                yield (
                    f"{name}={value} is not what cluster level {level} declares: "
                    f"{known[name]}"
                )


def read_declared(text: str) -> dict[str, str]:
    """Return what the option ``UserDefinedNetworkCustomProperties`` declares:
    ``name=regex;name2=regex2``.
    """
    found = {}
    for part in text.split(";"):
        name, equals, pattern = part.strip().partition("=")
        if equals and name:
            found[name] = pattern
    return found


def _all(known: Declared, name: str) -> str:
    """The whole option, for setting it replaces what was declared before."""
    pattern = "^(auto|datagram|connected)$" if name == IPOIB_MODE else "^.*$"
    return ";".join(f"{n}={p}" for n, p in {**known, name: pattern}.items())


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error:
        # Java's own; the engine decides.
        return True


# HostValidator.java: the statuses in which networks may be set up.
STATUSES = ("maintenance", "up", "non_operational")
ACTIVE_BACKUP = ("active-backup", "1")
MANAGEMENT = "management"
DEFAULT_MTU = 1500


def against_host(
    host: Host,
    chosen: Chosen,
    network: Network,
    networks: Sequence[Network],
    *,
    report: Optional[HostReport],
    properties: Mapping[str, str],
) -> Iterator[str]:
    """Say what is against ``network`` on the ``chosen`` nic of ``host``."""
    yield from _status(host)
    if host.cluster not in {row.cluster for row in network.clusters}:
        yield (
            f"{host.name}: {network.name} is not in its cluster; "
            f"'ovirt-rdma network create {network.name}' puts it there"
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
    """Whether nobody tells if an IPoIB nic of ``chosen`` can have a network's MTU."""
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


def _status(host: Host) -> Iterator[str]:
    if host.status not in STATUSES:
        yield (
            f"{host.name} is {status_words(host.status)}; networks can be set up "
            "on hosts that are up, in maintenance or non-operational"
        )


def _on_infiniband(host: Host, nic: str, network: Network) -> Iterator[str]:
    """Say what of ``network`` cannot be on an IPoIB nic; an Ethernet nic has both."""
    if network.vm:
        yield (
            f"{host.name}: {network.name} is a VM network, which is bridged, and {nic} "
            "is InfiniBand, which cannot be a bridge port: clear 'VM network' for it, "
            "or make another one with 'ovirt-rdma network create'"
        )
    if network.vlan is not None:
        yield (
            f"{host.name}: {network.name} has the VLAN tag {network.vlan}, and {nic} "
            "is InfiniBand, which has no VLANs: take an Ethernet nic, or another "
            "network and a P_Key child for the nic"
        )


def _carries(
    host: Host,
    nic: Nic,
    chosen: Chosen,
    network: Network,
    networks: Sequence[Network],
) -> Iterator[str]:
    """Say what is on ``nic`` already."""
    by_id = {one.id: one for one in networks}
    on_it = {a.network for a in host.attachments or () if a.nic == nic.id}
    if nic.network:
        on_it.add(nic.network)
    managing = management_networks(host, networks)
    is_port = nic.name != chosen.target
    for one in sorted(on_it - ({network.id} if not is_port else set())):
        other = by_id.get(one)
        name = other.name if other else one
        if one in managing:
            yield (
                f"{host.name}: {nic.name} carries the management network {name}, which "
                "is left alone: choose another nic"
            )
        elif is_port:
            yield (
                f"{host.name}: {nic.name} carries {name} and cannot become a bond's "
                f"port: take {name} off it first"
            )
        elif network.vlan is None and (other is None or other.vlan is None):
            yield (
                f"{host.name}: {nic.name} carries {name} already, and a nic has at "
                "most one network without a VLAN tag"
            )
    for other_nic in host.nics or ():
        # The engine looks at the nic and at the VLANs on it.
        if other_nic.unmanaged and nic.name in (other_nic.name, other_nic.vlan_of):
            yield _unmanaged(host, nic, other_nic.unmanaged)
    for bond in host.nics or ():
        if nic.name in bond.bond_ports and bond.name != chosen.target:
            yield (
                f"{host.name}: {nic.name} is a port of {bond.name}: name the bond, or "
                "another nic"
            )


def _unmanaged(host: Host, nic: Nic, name: str) -> str:
    """UnmanagedNetworkValidator.java refuses whatever is put beside it."""
    return (
        f"{host.name}: {nic.name} carries {name}, a network that the host's cluster "
        f"does not have, and the engine puts nothing beside it: put {name} into the "
        "cluster ('ovirt-rdma network create' or webadmin), or take it off the host "
        "(webadmin: Setup Host Networks)"
    )


def _bond(host: Host, chosen: Chosen, by_name: Mapping[str, Nic]) -> Iterator[str]:
    if not chosen.ports:
        return
    ports = [by_name[name] for name in chosen.ports if name in by_name]
    kinds = {nic.infiniband for nic in ports}
    if len(kinds) > 1:
        ours = ", ".join(nic.name for nic in ports if nic.infiniband)
        yield (
            f"{host.name}: {ours} is InfiniBand and other ports of {chosen.target} are "
            "not, and no bond can have both"
        )
    bond = by_name.get(chosen.target)
    if bond and True in kinds and bond.bond_mode not in ACTIVE_BACKUP:
        yield (
            f"{host.name}: {bond.name} is in bonding mode {bond.bond_mode or '?'}, and "
            "InfiniBand can only be bonded in mode active-backup (1)"
        )


def _mtu(
    host: Host,
    chosen: Chosen,
    by_name: Mapping[str, Nic],
    network: Network,
    limits: Mapping[str, NetdevMtu],
) -> Iterator[str]:
    wanted = network.mtu or DEFAULT_MTU
    for name in chosen.ports or (chosen.target,):
        limit = limits.get(name)
        if limit and limit.no_mode:
            yield f"{host.name}: {name} cannot be in connected mode: {limit.no_mode}"
        elif limit and limit.mtu is not None and limit.mtu < wanted:
            yield (
                f"{host.name}: {name} can have an MTU of at most {limit.mtu}, and "
                f"{network.name} has {wanted}: {limit.because}"
            )
        elif limit is None and name in by_name and by_name[name].infiniband:
            yield f"{host.name}: its own facts know no IPoIB netdev {name}"
