# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``network attach``: the NIC, address and request for each host, and what speaks
against it, which is pure; and carry it out, batch by batch.

Each host is read before the change and verified after it. A host on which the network
is not as requested is rolled back by itself.

Every request has a connectivity check, with which VDSM rolls back by itself if the
engine loses the host, and a commit, without which the network is gone after a reboot.
The engine compares the MTU exactly (NetworkInSyncWithVdsNetworkInterface.java), so an
IPoIB netdev with a smaller MTU is out of sync although traffic may pass.

The engine and VDSM would refuse most of it too, but only when they process the host,
and some of it in the middle of a change (HostSetupNetworksValidator of ovirt-engine,
inter_ifaces_controller.rs of nmstate). Custom properties are declared per cluster level
with engine-config, which replaces the whole option, and read over the API.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
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
    Attachment,
    Cluster,
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
from ovirt_rdma.engine_sdk_tools.networks.nics import (
    Address,
    Chosen,
    NetdevMtu,
    NicMatch,
    addresses_from_range,
    check_addresses,
    choose_nics,
    ipoib_mtus,
    netmask,
)
from ovirt_rdma.engine_sdk_tools.reader import host_of
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.facts.infiniband import ACTIVE_BACKUP, full_member, partition_of

# The actions on a host.
ATTACH = "attach"
CHANGE = "change"
SYNC = "synchronise"
NOTHING = "nothing"

# The engine's default of NetworkConnectivityCheckTimeoutInSeconds.
CONNECTIVITY_S = 120


@dataclass(frozen=True)
class AttachRequest:
    """The arguments of ``network attach``. ``hosts`` are names and globs, ``nic_match``
    is the text that :class:`NicMatch` reads.

    ``addresses`` by host name, from a plan file, or ``span``, the range to assign them
    from. ``bond``: make an active-backup bond of the NICs. ``properties`` are custom
    properties. ``connectivity_s``: how many seconds the host may be unreachable before
    VDSM rolls back.
    """

    network: str
    hosts: tuple[str, ...]
    nic_match: str
    addresses: Optional[Mapping[str, Address]] = None
    span: str = ""
    data_center: Optional[str] = None
    bond: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    connectivity_s: int = CONNECTIVITY_S


@dataclass(frozen=True)
class HostAttach:
    """The plan for one host: ``act`` is one of the constants above, ``why`` names the
    differences.

    ``before`` is its attachment now, ``before_nic`` the NIC with that attachment.
    ``properties`` are all custom properties after the change.
    """

    host: Host
    chosen: Chosen
    address: Address
    act: str
    before: Optional[Attachment] = None
    before_nic: Optional[str] = None
    properties: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


_MTU_FIX = (
    "the mode of the netdev or the fabric does not allow the MTU of the network: "
    "'ovirt-rdma-host check' on the host shows which"
)


def attachment_of(host: Host, network: str) -> Optional[Attachment]:
    """Return the attachment of ``network`` (its id) on ``host``, or None."""
    return next((a for a in host.attachments or () if a.network == network), None)


def differences(
    host: Host,
    network: str,
    nic: str,
    address: str,
    properties: Mapping[str, str],
) -> list[str]:
    """Return clauses on what differs from the request, an empty list if the network is
    as requested and in sync. ``nic`` is a name, ``address`` is like ``10.0.0.11/24``.
    """
    attachment = attachment_of(host, network)
    if attachment is None:
        return ["the host does not have the network"]
    wrong = placed(host, attachment, nic, address, properties)
    return [*wrong, *out_of_sync(attachment)]


def placed(
    host: Host,
    attachment: Attachment,
    nic: str,
    address: str,
    properties: Mapping[str, str],
) -> list[str]:
    """Return clauses on what differs in the engine's own data."""
    names = {nic.id: nic.name for nic in host.nics or ()}
    wrong = []
    on = names.get(attachment.nic or "", "no NIC")
    if on != nic:
        wrong.append(f"it is on {on}, not on {nic}")
    if attachment.addresses != (address,):
        has = ", ".join(attachment.addresses) or "no static address"
        wrong.append(f"it has {has}, not {address}")
    if dict(attachment.properties) != dict(properties):
        has = _shown(dict(attachment.properties))
        wrong.append(f"its custom properties are {has}, not {_shown(properties)}")
    return wrong


def out_of_sync(attachment: Attachment) -> list[str]:
    """Return clauses on what the host reports otherwise than the engine has it."""
    wrong = [
        f"{value.name} is {value.actual or 'not set'} on the host, not "
        f"{value.expected or 'unset'}"
        for value in attachment.reported
        if not value.in_sync
    ]
    if attachment.in_sync is None and not wrong:
        return ["the engine does not report whether it is in sync"]
    if attachment.in_sync is False and not wrong:
        return ["the engine reports that it is out of sync"]
    return wrong


def fix_for(attachment: Optional[Attachment]) -> str:
    """Return the fix for an attachment that is out of sync."""
    reported = attachment.reported if attachment else ()
    return _MTU_FIX if "mtu" in {v.name for v in reported if not v.in_sync} else ""


def _shown(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{n}={v}" for n, v in properties.items()) or "none"


# miimon: interval in ms at which a port's link is checked; webadmin's value for mode 1.
_BOND_OPTIONS = {"mode": "1", "miimon": "100"}


def attach_call(row: HostAttach, network: Network, connectivity_s: int) -> Call:
    """Return the call that attaches ``network`` to the host of ``row``.

    An attachment that is out of sync is synchronised too: the engine refuses to change
    it otherwise.
    """
    chosen, before = row.chosen, row.before
    attachment = _attachment(
        network, chosen.target, [row.address], row.properties, before
    )
    parameters: dict[str, Any] = {"modified_network_attachments": [attachment]}
    if chosen.new_bond:
        parameters["modified_bonds"] = [_bond(chosen)]
    if before is not None and out_of_sync(before):
        parameters["synchronized_network_attachments"] = [
            types.NetworkAttachment(id=before.id)
        ]
    doing = f"attaching {network.name} to {chosen.target} of {row.host.name}"
    return _setup(row.host, doing, parameters, connectivity_s)


def back_call(
    row: HostAttach,
    network: Network,
    now: Optional[Attachment],
    made_bond: Optional[str],
    connectivity_s: int,
) -> Call:
    """Return the call that restores what the host of ``row`` had before. ``now`` is its
    attachment at present, if any. ``made_bond`` is a bond to remove as well.
    """
    host, before = row.host, row.before
    parameters: dict[str, Any] = {}
    if before is None:
        if now is not None:
            gone = types.NetworkAttachment(id=now.id)
            parameters["removed_network_attachments"] = [gone]
        doing = f"removing {network.name} from {host.name} again"
    else:
        addresses = [ipaddress.ip_interface(text) for text in before.addresses]
        old = dict(before.properties)
        parameters["modified_network_attachments"] = [
            _attachment(network, row.before_nic or "", addresses, old, now)
        ]
        if now is not None and out_of_sync(now):
            parameters["synchronized_network_attachments"] = [
                types.NetworkAttachment(id=now.id)
            ]
        doing = f"restoring {network.name} on {host.name}"
    if made_bond:
        parameters["removed_bonds"] = [types.HostNic(name=made_bond)]
    return _setup(host, doing, parameters, connectivity_s)


def commit_call(host: Host) -> Call:
    """Return the call that makes the host's network configuration persistent."""
    doing = f"committing the network configuration of {host.name}"
    return Call(f"hosts/{host.id}", "commit_net_config", doing, {}, host.name)


def _setup(
    host: Host, doing: str, parameters: dict[str, Any], connectivity_s: int
) -> Call:
    parameters = {
        **parameters,
        "check_connectivity": True,
        "connectivity_timeout": connectivity_s,
        "commit_on_success": True,
    }
    return Call(f"hosts/{host.id}", "setup_networks", doing, parameters, host.name)


def _attachment(
    network: Network,
    nic: str,
    addresses: list[Address],
    properties: Mapping[str, str],
    existing: Optional[Attachment],
) -> Any:
    attachment = types.NetworkAttachment(
        network=types.Network(id=network.id),
        host_nic=types.HostNic(name=nic),
        ip_address_assignments=[_assignment(address) for address in addresses],
    )
    if existing is not None:
        attachment.id = existing.id
    if properties or (existing and existing.properties):
        attachment.properties = [
            types.Property(name=n, value=v) for n, v in properties.items()
        ]
    return attachment


def _assignment(address: Address) -> Any:
    version = types.IpVersion.V4 if address.version == 4 else types.IpVersion.V6
    return types.IpAddressAssignment(
        assignment_method=types.BootProtocol.STATIC,
        ip=types.Ip(address=str(address.ip), netmask=netmask(address), version=version),
    )


def _bond(chosen: Chosen) -> Any:
    options = [types.Option(name=n, value=v) for n, v in _BOND_OPTIONS.items()]
    slaves = [types.HostNic(name=name) for name in chosen.ports]
    bonding = types.Bonding(options=options, slaves=slaves)
    return types.HostNic(name=chosen.target, bonding=bonding)


# Check a network and its custom properties before it is attached to hosts.

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
    if host.status not in STATUSES:
        yield Sentence(
            "host-status",
            f"{host.name} is {status_words(host.status)}; networks can be set up "
            "on hosts that are up, in maintenance or non-operational",
        )
    by_name = {nic.name: nic for nic in host.nics or ()}
    names = dict.fromkeys((*chosen.ports, chosen.target))
    nics = [by_name[name] for name in names if name in by_name]
    infiniband = next((nic.name for nic in nics if nic.infiniband), None)
    if host.cluster not in {row.cluster for row in network.clusters}:
        name, where = shlex.quote(network.name), shlex.quote(center)
        kind = "" if infiniband else " --link-layer ethernet"
        kind += "" if network.vlan is None else f" --vlan {network.vlan}"
        yield Sentence(
            "network-not-in-cluster",
            f"{host.name}: {network.name} is not in its cluster; 'ovirt-rdma network "
            f"create {name} --datacenter {where}{kind} --mtu "
            f"{network.mtu or DEFAULT_MTU}' adds it",
        )
    if infiniband is not None:
        yield from _on_infiniband(host, infiniband, network)
    for nic in nics:
        yield from _carries(host, nic, chosen, network, networks)
    yield from _bond_refusals(host, chosen, by_name)
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
        elif other and None in (network.vlan, other.vlan):
            # NetworkMtuValidator.java of ovirt-engine.
            mtu, wanted = (one.mtu or DEFAULT_MTU for one in (other, network))
            if mtu != wanted:
                yield Sentence(
                    "nic-mtu-differs",
                    f"{host.name}: {nic.name} has the network {name} with MTU {mtu}, "
                    f"and {network.name} has {wanted}; where one on a NIC has no VLAN "
                    "tag, the engine requires the same MTU of all: change one, or take "
                    "another NIC",
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


def _bond_refusals(
    host: Host, chosen: Chosen, by_name: Mapping[str, Nic]
) -> Iterator[Sentence]:
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


@dataclass(frozen=True)
class AttachPlan:
    """``rows`` in host order. ``networks`` are all networks of the data center with the
    name ``center``, ``reports`` those of the hosts. ``warnings`` are sentences.
    """

    network: Network
    request: AttachRequest
    center: str = ""
    networks: tuple[Network, ...] = ()
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
        """The request to the engine for one host."""
        return attach_call(row, self.network, self.request.connectivity_s)


def plan_network_attach(
    engine: Engine,
    reports: Mapping[str, HostReport],
    declared: Mapping[str, Declared],
    request: AttachRequest,
) -> AttachPlan:
    """Return the plan for ``request``.

    ``engine`` is read with networks, NICs and attachments; ``declared`` are the custom
    properties by cluster level. Raises Problem for names that do not exist, and
    ChecksFailed with the refusals of all hosts.
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
    networks = tuple(n for n in engine.networks or () if n.data_center == center)
    used = {host.cluster for host in hosts}
    clusters = [cluster for cluster in engine.clusters if cluster.id in used]
    refusals += property_refusals(request.properties, declared, clusters)
    asked = request.addresses
    if asked is None:
        asked = addresses_from_range(request.span, [host.name for host in hosts])
    plan = check_addresses(asked, hosts, engine.hosts, network.id)
    refusals += plan.problems
    named = next((c.name for c in engine.data_centers if c.id == center), center)
    base = AttachPlan(network, request, named, networks, reports)
    rows, refused, unknown = _rows(base, hosts, plan.addresses)
    refusals += refused
    refusals += _other_partitions(rows, request)
    check(refusals)
    warnings = _warnings(network, others, unknown)
    return replace(base, rows=tuple(rows), warnings=tuple(warnings))


def plan_host(
    plan: AttachPlan, host: Host, address: Address
) -> tuple[Optional[HostAttach], list[Sentence]]:
    """Return the plan for ``host`` and the refusals; does not use ``plan.rows``."""
    request, network = plan.request, plan.network
    report = plan.reports.get(host.name)
    match = NicMatch.parse(request.nic_match)
    chosen = choose_nics(host, match, report, request.bond)
    if isinstance(chosen, Sentence):
        return None, [chosen]
    before = attachment_of(host, network.id)
    properties = {**dict(before.properties if before else ()), **request.properties}
    refusals = list(
        host_refusals(
            host,
            chosen,
            network,
            plan.networks,
            center=plan.center,
            report=report,
            properties=properties,
        )
    )
    names = {nic.id: nic.name for nic in host.nics or ()}
    before_nic = names.get(before.nic or "") if before else None
    act, why = ATTACH, "it does not have the network"
    if before is not None:
        wrong = placed(host, before, chosen.target, str(address), properties)
        lagging = out_of_sync(before)
        act = CHANGE if wrong else SYNC if lagging else NOTHING
        why = "; ".join([*wrong, *lagging])
    row = HostAttach(host, chosen, address, act, before, before_nic, properties, why)
    return row, refusals


def _rows(
    plan: AttachPlan, hosts: Sequence[Host], addresses: Mapping[str, Address]
) -> tuple[list[HostAttach], list[Sentence], list[str]]:
    rows, refusals, unknown = [], list[Sentence](), []
    mode = plan.request.properties.get(IPOIB_MODE)
    for host in hosts:
        address = addresses.get(host.name)
        if address is None:
            continue
        report = plan.reports.get(host.name)
        row, refused = plan_host(plan, host, address)
        refusals += refused
        if row is not None:
            rows.append(row)
            if unknown_mtu(host, row.chosen, report, mode):
                unknown.append(host.name)
    return rows, refusals, unknown


def _other_partitions(
    rows: Sequence[HostAttach], request: AttachRequest
) -> Iterator[Sentence]:
    """Yield a refusal if the policies of the hosts have one name for two partitions."""
    named = NicMatch.parse(request.nic_match).partitions
    hosts: dict[str, str] = {}
    for row in rows:
        pkey = row.chosen.interface.pkey if row.chosen.interface else None
        if named and (partition := partition_of(pkey)) is not None:
            hosts.setdefault(full_member(partition), row.host.name)
    if len(hosts) > 1:
        where = ", ".join(f"{pkey} on {host}" for pkey, host in hosts.items())
        text = f"{listed(named)} is not the same partition on all hosts: {where}"
        yield Sentence("partition-differs", text)


def _warnings(
    network: Network, others: Sequence[str], unknown: Sequence[str]
) -> list[str]:
    warnings = []
    if others:
        warnings.append(
            f"left out, not in the data center of {network.name}: {listed(others)}"
        )
    if unknown:
        warnings.append(
            f"MTU {network.mtu or 1500} could not be verified on {listed(unknown)}; a "
            "host that does not support it is rolled back"
        )
    return warnings


# The outcomes of a host.
DONE = "done"
UNCHANGED = "nothing to do"
AS_BEFORE = "as before"
FAILED = "failed"
NOT_BEGUN = "not begun"

# The engine reads the host again after a change: check this often, at this interval.
_LOOKS = 3
_BETWEEN_S = 2.0


@dataclass(frozen=True)
class HostResult:
    """``outcome`` is one of the constants above; ``sentence`` says why it is not DONE.

    AS_BEFORE: refused, or rolled back. FAILED: the host was changed, or its state is
    unknown.
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
    """Carry out ``plan``, ``batch`` hosts at a time.

    After a batch in which a host failed, no other host is started, unless
    ``keep_going``. Raises nothing for a single host.
    """
    listener.plan(tuple(row.host.name for row in plan.todo), len(plan.todo))
    results = {r.host.name: _result(r, UNCHANGED) for r in plan.rows}
    todo = list(plan.todo)
    results.update({row.host.name: _result(row, NOT_BEGUN) for row in todo})
    while todo:
        now, todo = todo[:batch], todo[batch:]
        done = in_parallel(
            lambda row: _attach_host(session, plan, row, listener), now, max(1, batch)
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


def declared_properties(
    session: Session, engine: Engine, hosts: Sequence[Host]
) -> dict[str, dict[str, str]]:
    """Read which custom properties the cluster levels of ``hosts`` declare."""
    used = {host.cluster for host in hosts}
    levels = sorted({c.version for c in engine.clusters if c.id in used and c.version})
    declared = {}
    for level in levels:
        doing = f"reading the custom properties of level {level}"
        read = Read(f"options/{OPTION}", doing, "get", {"version": level})
        option = session.read(read)
        texts = [value.value or "" for value in option.values or ()]
        declared[level] = read_declared(";".join(texts))
    return declared


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
    host = _read(session, row.host)
    fresh, refusals = plan_host(plan, host, row.address)
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
    try:
        wrong = _settled(session, plan, fresh)
    except EngineProblem as error:
        change = str(lost) if lost else f"{network.name} was attached"
        sentence = f"{change}; that could not be verified: {error}"
        return _result(row, FAILED, sentence, error.fix)
    if wrong:
        why = "; ".join(wrong)
        fix = fix_for(attachment_of(_read(session, row.host), network.id))
        before = f"{lost}; " if lost else ""
        sentence = f"{before}{network.name} is not in sync: {why}"
        return _roll_back(session, plan, fresh, sentence, fix)
    if lost is not None:
        # The API does not show whether it was committed; a second commit is harmless.
        session.perform(commit_call(row.host))
    return _result(row, DONE)


def _settled(session: Session, plan: AttachPlan, row: HostAttach) -> list[str]:
    """Return the differences from the plan that remain after _LOOKS reads."""
    wrong: list[str] = []
    for look in range(_LOOKS):
        if look:
            session.sleep(_BETWEEN_S)
        wrong = differences(
            _read(session, row.host),
            plan.network.id,
            row.chosen.target,
            str(row.address),
            row.properties,
        )
        if not wrong:
            break
    return wrong


def _roll_back(
    session: Session, plan: AttachPlan, row: HostAttach, sentence: str, fix: str
) -> HostResult:
    """Restore the network configuration of the host; ``sentence`` says why."""
    host = _read(session, row.host)
    call = _rollback_call(host, plan, row)
    if call is None:
        return _result(row, AS_BEFORE, sentence, fix)
    try:
        session.perform(call)
    except EngineProblem as error:
        host = _read(session, row.host)
        if _rollback_call(host, plan, row) is not None:
            by_hand = (
                f"in the engine, Setup Host Networks of {row.host.name}: restore the "
                f"earlier settings of {plan.network.name} by hand"
            )
            message = f"{sentence}; it could not be rolled back: {error}"
            return _result(row, FAILED, message, by_hand)
        if isinstance(error, LostAnswer):
            # As above: without it, a reboot would bring the network back.
            session.perform(commit_call(row.host))
    return _result(row, AS_BEFORE, sentence, fix)


def _rollback_call(host: Host, plan: AttachPlan, row: HostAttach) -> Optional[Call]:
    """Return the call that restores ``host``; None if nothing has to change."""
    connectivity_s = plan.request.connectivity_s
    now = attachment_of(host, plan.network.id)
    bonds = {nic.name for nic in host.nics or ()}
    bond = row.chosen.target if row.chosen.new_bond else None
    bond = bond if bond in bonds else None
    if now is None and row.before is None and bond is None:
        return None
    names = {nic.id: nic.name for nic in host.nics or ()}
    if row.before is not None and now is not None:
        same = replace(now, in_sync=None, reported=(), nic=None) == replace(
            row.before, in_sync=None, reported=(), nic=None
        )
        if same and names.get(now.nic or "") == row.before_nic:
            return None
    return back_call(row, plan.network, now, bond, connectivity_s)


def _read(session: Session, host: Host) -> Host:
    query = {"follow": "nics,network_attachments"}
    read = Read(f"hosts/{host.id}", f"reading {host.name}", "get", query)
    return host_of(session.read(read), nics=True, attachments=True, hooks=False)


def _result(
    row: HostAttach, outcome: str, sentence: str = "", fix: str = ""
) -> HostResult:
    return HostResult(
        row.host.name, row.chosen.target, str(row.address), outcome, sentence, fix
    )
