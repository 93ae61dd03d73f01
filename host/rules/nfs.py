# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about NFS over RDMA: what a mount needs, and known defects of mounts. Pure.

The subject of a rule about mounts is the export: mounts of one export, which are rare,
count once.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable, Optional

from ovirt_rdma.host.export import (
    AUTO,
    Export,
    MountOptions,
    ServerKind,
    kind_of,
    needs_vendors_client,
    nfs_check,
)
from ovirt_rdma.host.facts.adapter_models import model_of
from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice
from ovirt_rdma.host.facts.model import ConnectionActivity, MountActivity, NfsMount
from ovirt_rdma.host.facts.statistics import beyond_requests
from ovirt_rdma.host.policy.model import REQUIRE_RDMA, TCP, rule_for
from ovirt_rdma.host.rules.base import (
    FAIL,
    RDMA,
    WARN,
    About,
    Finding,
    Rule,
    View,
    each,
    once_per_view,
)
from ovirt_rdma.host.rules.ipoib import parsed_address, static_addresses
from ovirt_rdma.host.rules.modules import (
    INSTALL_STACK,
    NFS_MODULE,
    blocking_line,
    file_of,
    is_available,
    is_loaded,
    mismatch,
    running_value,
    vendors_client,
    why_not_loaded,
)

# Drivers of bus devices whose RDMA devices set IB_DEVICE_MEM_MGT_EXTENSIONS
# (drivers/infiniband in Linux 6.1): mlx4, mlx5, hfi1, irdma on ice and i40e, bnxt_re on
# bnxt_en, cxgb4, qedr on qede, ocrdma on be2net, pvrdma, erdma, hns on hns3, rxe.
_NVIDIA_AND_INTEL = "mlx4_core mlx5_core hfi1 ice i40e irdma"
_OTHERS = "bnxt_en cxgb4 qede be2net vmw_pvrdma erdma hns3 hns rdma_rxe"
WITH_REGISTRATION = frozenset(f"{_NVIDIA_AND_INTEL} {_OTHERS}".split())
# Drivers whose devices do not set it.
WITHOUT_REGISTRATION = frozenset(("ib_qib", "ib_mthca", "efa", "usnic_verbs"))


_SWITCHES = "/sys/kernel/sunrpc/xprt-switches"


def _module(view: View) -> Iterator[Finding]:
    modules, about = view.facts.modules, About("NFSRDMA-01", NFS_MODULE)
    bad = FAIL if view.wants_nfs_over_rdma else WARN
    line, path = blocking_line(modules, NFS_MODULE), file_of(modules, NFS_MODULE) or ""
    available = is_available(modules, NFS_MODULE)
    why, fix = why_not_loaded(view, NFS_MODULE)
    if is_loaded(modules, NFS_MODULE):
        of_ofed = "mlnx" in path or "ofa_kernel" in path
        if of_ofed and view.facts.rdma_slots is None:
            # One without content, for those that were not chosen (--with-nfsrdma).
            yield about.warns(
                f"rpcrdma ({path}) is loaded and shows none of its settings: it is a "
                "placeholder that does nothing",
                INSTALL_STACK,
            )
        else:
            yield about.passes("rpcrdma is loaded")
    elif available is False:
        if view.facts.rdma_devices or bad == FAIL:
            yield about.finds(bad, f"NFS cannot be mounted over RDMA: {why}", fix)
    elif line and line.command == "install":
        # A blacklist hides a module's aliases, not the name by which the kernel
        # requests rpcrdma (modprobe.d(5)).
        yield about.finds(bad, why, fix)
    elif mismatch(modules):
        sentence = "rpcrdma cannot be loaded: it does not match the other RDMA modules"
        yield about.finds(bad, sentence, "see STACK-01")
    elif available:
        sentence = "rpcrdma is available; the kernel loads it at the first mount"
        yield about.passes(sentence)
    else:
        yield about.skips("it is unknown if this kernel has rpcrdma", fix)


def _registration(view: View, about: About, device: RdmaDevice) -> Finding:
    name, driver = device.name, device.driver
    others = any(d.driver in WITH_REGISTRATION for d in view.facts.rdma_devices)
    if driver in WITH_REGISTRATION:
        return about.passes(
            f"{driver} supports the memory registration (FRWR) that NFS over RDMA "
            "requires"
        )
    if driver in WITHOUT_REGISTRATION:
        return about.finds(
            FAIL if view.wants_nfs_over_rdma and not others else WARN,
            f"{driver} does not support fast memory registration (FRWR): NFS mounts "
            f"over {name} fail (frwr mode is not supported by device)",
            "mount over TCP (IPoIB), or use another adapter",
        )
    return about.skips(
        f"it is unknown if {driver or 'the driver of ' + name} supports fast memory "
        "registration (FRWR)",
        "if it does, ibv_devinfo -v shows MEM_MGT_EXTENSIONS in device_cap_flags",
    )


def _port(view: View) -> Iterator[Finding]:
    about, wanted = About("NFSRDMA-03"), view.wants_nfs_over_rdma
    active = [place.name for place in view.ports if place.port.is_active]
    if active:
        verb = "is" if len(active) == 1 else "are"
        yield about.passes(f"{', '.join(active)} {verb} ACTIVE")
        yield from _routes(view)
    elif view.facts.rdma_devices:
        states = ", ".join(
            f"{place.name} is {place.port.state} ({place.port.physical_state})"
            for place in view.ports
        )
        yield about.finds(
            FAIL if wanted else WARN,
            f"no RDMA port is ACTIVE: {states or 'the devices have no port'}",
            "check cable and switch; on InfiniBand also check that a subnet manager is "
            "running",
        )
    elif wanted:
        capable = any(model_of(n.pci) for n in view.facts.netdevs if n.pci)
        yield about.fails(
            "NFS over RDMA is wanted here, but this host has no RDMA device",
            "see DRIVER-01"
            if view.facts.adapters or capable
            else "put an adapter that can do RDMA into this host: lspci -nn shows none",
        )


def _routes(view: View) -> Iterator[Finding]:
    for route, rule in view.wanted_routes:
        below = {
            (netdev.rdma_device, netdev.rdma_port)
            for netdev in view.below(route.netdev or "")
        }
        ports = [p for p in view.ports if (p.device.name, p.port.number) in below]
        by = f"{route.destination} is reached by {route.netdev}, "
        # The route to an address of this host itself says lo.
        if rule.transport == TCP or route.netdev == "lo":
            continue
        if any(place.port.is_active for place in ports):
            continue
        if route.netdev is None:
            by = f"{route.destination} cannot be reached: {route.problem or 'no route'}"
            fix = "attach the storage network to this host"
        elif ports:
            states = (f"{place.name} is {place.port.state}" for place in ports)
            by += f"and {', '.join(states)}"
            fix = "check cable and switch port of that port"
        else:
            by += "which is on no RDMA port"
            fix = "attach the storage network to the RDMA port's netdev, or above it"
        bad = FAIL if rule.transport == REQUIRE_RDMA else WARN
        yield About("NFSRDMA-03", route.destination).finds(bad, by, fix)


def _subnets(view: View) -> Iterator[Finding]:
    on: dict[str, dict[str, Netdev]] = {}
    for interface in view.interfaces:
        for netdev in filter(None, map(view.netdev, view.carriers(interface.name))):
            for address in map(parsed_address, static_addresses(netdev)):
                of_several = isinstance(address, ipaddress.IPv4Interface)
                if address and of_several and address.network.num_addresses > 1:
                    on.setdefault(str(address.network), {})[netdev.name] = netdev
    for network, netdevs in on.items():
        about = About(SUBNETS.id, network)
        values = [netdev.arp_ignore for netdev in netdevs.values()]
        shown = f"{', '.join(netdevs)} have addresses in {network}"
        fix = (
            "give each port a network of its own; or sysctl net.ipv4.conf.all."
            "arp_ignore=1 and arp_announce=2, and a route by source for each"
        )
        if len(netdevs) == 1:
            continue
        if None in values:
            yield about.skips(f"{shown}; it is unknown if arp_ignore is set", fix)
        elif 0 in values:
            yield about.warns(
                f"{shown}, and each answers ARP for the others' (arp_ignore is 0): "
                "RDMA CM takes the port that answers, and its connections fail",
                fix,
            )
        else:
            yield about.passes(f"{shown}, and each answers ARP for its own only")


def _paths(view: View) -> Iterator[Finding]:
    wanted = dict.fromkeys(one.paths for one in view.policy.nfs.rules if one.paths)
    activity = view.facts.activity
    # Without the module there is no such folder, and no mount either.
    shown = activity is None or activity.connections is not None
    if wanted and not shown and is_loaded(view.facts.modules, "sunrpc"):
        yield About(PATHS.id).fails(
            f"this kernel has no {_SWITCHES}, so no connection can be moved to another "
            "path",
            "boot Linux 5.15 or later, or the latest kernel of EL9",
        )
    for paths in wanted:
        # Of the RDMA ports of the paths so far, the path that each leads to.
        taken: dict[tuple[str, Optional[int]], str] = {}
        for address in paths:
            yield _path(view, About(PATHS.id, address), taken)


_OF_ITS_OWN = "give each path a subnet, and a netdev on an RDMA port, of its own"


def _path(
    view: View, about: About, taken: dict[tuple[str, Optional[int]], str]
) -> Finding:
    """Return the finding of one path, whose ports are added to ``taken``."""
    if not view.facts.netdevs:
        return about.skips("the netdevs of this host are unknown")
    reached = [
        (own.network, netdev)
        for netdev in view.facts.netdevs
        for own in map(parsed_address, netdev.addresses)
        if isinstance(own, ipaddress.IPv4Interface)
        and ipaddress.IPv4Address(about.subject) in own.network
    ]
    if not reached:
        return about.warns(
            "no netdev has an address in its subnet, so routers are between: paths "
            "were tested without routers only",
            _OF_ITS_OWN,
        )
    subnet, netdev = max(reached, key=lambda one: one[0].prefixlen)
    ports = [
        (one.rdma_device, one.rdma_port)
        for one in view.below(netdev.name)
        if one.rdma_device
    ]
    if not ports:
        return about.fails(
            f"{netdev.name}, its netdev, is on no RDMA port", _OF_ITS_OWN
        )
    by = f"{netdev.name} ({ports[0][0]}/{ports[0][1]}, {subnet}) leads to it"
    others = [taken[port] for port in ports if port in taken]
    if others:
        return about.fails(
            f"{by} and to {others[0]}: one cable for two paths", _OF_ITS_OWN
        )
    taken.update(dict.fromkeys(ports, f"{about.subject} ({subnet})"))
    iwarp = {one.name for one in view.facts.rdma_devices if one.is_iwarp}
    if any(device in iwarp for device, _ in ports):
        return about.warns(
            f"{by}, by iWARP: the daemon cannot ask this path, so it moves connections "
            "there only while one works there, and brings none back",
            "use InfiniBand or RoCE for paths, or leave them out of the rule",
        )
    return about.passes(f"{by}, and to no path before it")


MODULE = Rule("NFSRDMA-01", _module)
REGISTRATION = each("NFSRDMA-02", lambda view: view.facts.rdma_devices, _registration)
PORT = Rule("NFSRDMA-03", _port)
SUBNETS = Rule(
    "SUBNET-01",
    _subnets,
    "no two netdevs of RDMA ports are known in one network",
    rdma=True,
)
PATHS = Rule("NFS-PATHS-01", _paths, "no rule of the policy has paths")
REQUIREMENTS = (MODULE, REGISTRATION, PORT, SUBNETS, PATHS)


@dataclass(frozen=True)
class RdmaMount:
    """A mount whose connections are over RDMA, what it did, and what was asked for.

    activity: None if the counters were not read
    asked: the extra options of the policy's rule for this export
    kind: of its server, by that rule or by the server itself; None: unknown
    paths: that rule's
    """

    mount: NfsMount
    activity: Optional[MountActivity]
    asked: MountOptions
    kind: Optional[ServerKind] = None
    paths: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The server's addresses that its connections may have; nothing else leads from
        a mount to them.
        """
        own = self.mount.address
        return self.paths if own in self.paths else (own,) if own else ()

    def shown(self, name: str) -> Optional[int]:
        """Return the number of an option that the kernel shows, or None."""
        return MountOptions.parse(self.mount.options).number(name)


@once_per_view
def rdma_mounts(view: View) -> tuple[RdmaMount, ...]:
    """Return the mounts over RDMA, the first one of each export."""
    activity = view.facts.activity
    done = {one.mountpoint: one for one in activity.mounts} if activity else {}
    found: dict[str, RdmaMount] = {}
    for mount in view.facts.nfs_mounts:
        # Without mountstats mountinfo alone tells.
        protocols = mount.protocols or ((mount.protocol or "")[: len(RDMA)],)
        if mount.source in found or RDMA not in protocols:
            continue
        export = Export.maybe(mount.source)
        match = rule_for(view.policy, export) if export else None
        asked = MountOptions.parse(match.rule.options if match else "")
        named = match.rule.server_kind if match else AUTO
        kind = kind_of(named, mount.server_program)
        activity_of = done.get(mount.mountpoint)
        paths = match.rule.paths if match else ()
        found[mount.source] = RdmaMount(mount, activity_of, asked, kind, paths)
    return tuple(found.values())


NO_MOUNT = "this host has no NFS mount over RDMA"


_UNREAD = "the counters of this mount are unknown"


def _of_mounts(rule: str, judge: Callable[[View, About, RdmaMount], Finding]) -> Rule:
    return each(rule, rdma_mounts, judge, NO_MOUNT, subject="mount.source")


# net/sunrpc/xprtrdma: RPCRDMA_DEF_SLOT_TABLE.
DEFAULT_SLOTS = 128
# Waiting requests, as an average over all requests, up to which waiting is rare.
_RARE = 0.01
# Where requests wait for a slot only, they wait less than this many times the reply
# takes, beyond what the backlog explains: at most 1.04 on Debian's 6.1.192 and at least
# 1.5 on its 6.1.170, in bursts and with constant queues (docs/health.md).
_SLEEPS = 1.3
# One sleep.
_SLEEP_MS = 250
# Requests whose mean wait says something.
_MANY = 20
# The share of the slots that may wait in the mean. Those that sleep are few, and those
# of a long backlog wait so long that how evenly they come decides.
_SHORT = 0.25
# Requests over the connections of a mount, for each of its own. More are of other
# mounts of the server, whose waits are in other statistics.
_OWN = 1.2
# The requests that a server takes at once over a connection: 64 on newer Linux servers,
# 32 on older ones (include/linux/sunrpc/svc_rdma.h, RPCRDMA_MAX_REQUESTS).
_CREDITS = 32
_RAISE = (
    "set sunrpc.rdma_slot_table_entries=512 by sysctl and mount again; or ask for "
    "several connections (nconnect); more in explain NFS-SLOTS-01"
)


def _slots(view: View) -> Iterator[Finding]:
    slots = view.facts.rdma_slots
    if slots is not None and slots < DEFAULT_SLOTS:
        yield About(SLOTS.id).warns(
            f"connections to come have {slots} slots (sunrpc.rdma_slot_table_entries), "
            f"fewer than the kernel's {DEFAULT_SLOTS}",
            "remove the setting from sysctl.d, or raise it",
        )
    for one in rdma_mounts(view):
        yield _waiting(view, About(SLOTS.id, one.mount.source), one)


def _waiting(view: View, about: About, one: RdmaMount) -> Finding:
    done, found = one.activity, _connections_of(view, one) or ()
    slots = max((c.slots_max for c in found if c.slots_max is not None), default=None)
    if done is None:
        return about.skips(_UNREAD)
    of = f"{slots} slots" if slots is not None else "slots"
    if not done.backlog:
        return about.passes(f"no request had to wait for one of its {of}")
    average = done.backlog / max(1, done.sends)
    waited = f"on average {average:.2f} requests waited for one of its {of}"
    if _sleeps_without_slot(done, slots):
        new = (done.new_reads, done.new_writes)
        count = sum(one.count for one in new)
        queue_ms, rtt_ms = sum(o.queue_ms for o in new), sum(o.rtt_ms for o in new)
        return about.warns(
            f"{waited}, and a read or write now waits {queue_ms / count:.1f} ms before "
            f"it is sent, while its reply takes {rtt_ms / count:.1f} ms: as in kernels "
            "where the first request without a free slot waits 250 ms",
            _RAISE,
        )
    if average < _RARE:
        return about.passes(f"requests rarely had to wait for one of its {of}")
    return about.warns(waited, _RAISE)


def _sleeps_without_slot(done: MountActivity, slots: Optional[int]) -> bool:
    """Whether requests over RDMA seem to sleep when all ``slots`` of the connection are
    in use, longer than until one is free again. Without their number no sleep is seen.

    With n requests in the backlog and m more with slots than the server takes at once,
    (n + m) / (taken at once) replies come before a request is sent. The defect: commit
    a721035477fb of Linux.
    """
    sends, backlog = done.new_sends, done.new_backlog / max(1, done.new_sends)
    # Requests that wait until a lost connection is made again are not in the backlog.
    broke = done.new_connects or done.new_retransmissions
    # Sends are those of all mounts on the connections.
    of_others = sends > _OWN * done.new_operations
    if slots is None or broke or of_others or not 0 < backlog < _SHORT * slots:
        return False
    at_once = min(slots, _CREDITS)
    replies = (backlog + slots - at_once) / at_once
    # Reads are alike, and so are writes.
    many = [one for one in (done.new_reads, done.new_writes) if one.count >= _MANY]
    slept_ms = sum(one.queue_ms - replies * one.rtt_ms for one in many)
    # Slow writes keep quick reads waiting too, but then the writes wait as explained.
    return slept_ms >= _SLEEP_MS and all(
        one.queue_ms > (replies + _SLEEPS) * one.rtt_ms for one in many
    )


def _connections_of(
    view: View, one: RdmaMount
) -> Optional[tuple[ConnectionActivity, ...]]:
    """Return the connections to a mount's server; None if the kernel shows none."""
    activity, to = view.facts.activity, one.addresses
    if activity is None or activity.connections is None or not to:
        return None
    return tuple(c for c in activity.connections if c.destination in to)


_REMOUNT = "all mounts of the server must be mounted again"
_FIXES = "boot a kernel with the fixes of March 2026"
_UNBLOCK = f"mount without nconnect ({_REMOUNT}), or {_FIXES}"
# Repeated requests, as a part of all, and connections made, from which they are no
# accident. An idle connection is made again every five minutes without repeating any.
_OFTEN, _AT_LEAST, _CONNECTS = 0.01, 10, 3


def _nconnect(view: View, about: About, one: RdmaMount) -> Finding:
    done, made = one.activity, len(one.mount.protocols)
    taken, wanted = one.shown("nconnect") or 0, one.asked.number("nconnect")
    asked = wanted or taken or 1
    # Others may be of another mount of the server.
    waiting = sum(c.waits for c in _connections_of(view, one) or ())
    blocked = min(waiting, done.still) if done else 0
    if blocked:
        return about.fails(
            f"requests wait on {blocked} of {made} connections where none is "
            "under way that they could wait for: it is blocked",
            _UNBLOCK,
        )
    if done and done.unanswered:
        return about.warns(
            f"{done.unanswered} of {made} connections sent requests and got no reply "
            "while others got some: it may be blocked, or the server is late",
            f"check again; if it stays so: {_UNBLOCK}",
        )
    if not made:
        return about.skips("the kernel shows no connections of this mount")
    if made < asked:
        why = "it shares the connections of an earlier mount of this server"
        if wanted and not taken and one.mount.version != "3":
            why = (
                "this kernel may ignore nconnect for NFS 4 over RDMA (before Linux "
                "6.9): use NFS 3 or a newer kernel"
            )
        return about.warns(
            f"{asked} connections are asked for, and it has {made}",
            f"{why}; or the mount is older than the policy: {_REMOUNT}",
        )
    return about.passes(f"none of its connections is blocked; it has {made}")


def _reset(view: View, about: About, one: RdmaMount) -> Finding:
    done, activity = one.activity, view.facts.activity
    if done is None or activity is None:
        return about.skips(_UNREAD)
    again = f"{done.retransmissions} of {done.operations} requests were sent again"
    connects = f"its connections were made {done.connects} times"
    fix = (
        "look at the server's log and CPU, then at PORT-ERRORS-01; for Linux servers "
        "see explain NFS-RESET-01"
    )
    if done.new_connects and done.new_retransmissions:
        return about.warns(
            f"a connection broke within the last {activity.seconds:.1f} s and "
            f"{done.new_retransmissions} requests were sent again; {again} in all",
            fix,
        )
    part = done.retransmissions / max(1, done.operations)
    extra = done.connects - done.connections
    if part >= _OFTEN and done.retransmissions >= _AT_LEAST and extra >= _CONNECTS:
        return about.warns(f"{again}, and {connects}", fix)
    return about.passes(f"{again}; {connects}")


def _listener(view: View, about: About, one: RdmaMount) -> Finding:
    found, address = _connections_of(view, one), " or ".join(one.addresses)
    if found is None:
        return about.skips("this kernel does not show the state of its connections")
    if not found:
        return about.skips(f"the kernel shows no connection to {address}")
    trying = [c for c in found if "CONNECTING" in c.state and not c.connected]
    if trying:
        return about.warns(
            f"{len(trying)} of {len(found)} connections to {address} cannot be made "
            "again",
            f"{nfs_check(one.mount.source)}; if the server refuses, restart its NFS "
            "service: it may have lost its RDMA listener when its address moved",
        )
    idle = sum(not connection.connected for connection in found)
    return about.passes(f"{len(found) - idle} connected, {idle} idle")


def _rpcctl(view: View) -> Iterator[Finding]:
    activity = view.facts.activity
    about = About(RPCCTL.id)
    if activity is None or activity.connections is None:
        yield about.skips("this kernel does not show the state of connections")
        return
    off = [c for c in activity.connections if {"OFFLINE", "REMOVE"} & set(c.state)]
    for one in off:
        yield About(RPCCTL.id, one.name).warns(
            f"somebody has set this connection to {one.destination} offline",
            "set it online again, and never remove it (kernels from 6.12 on crash): "
            f"echo online > {_SWITCHES}/{one.name}/xprt_state",
        )
    if activity.connections and not off:
        yield about.passes("no connection is offline; none must be removed with rpcctl")


def _version(view: View, about: About, one: RdmaMount) -> Finding:
    version = one.mount.version
    if version == "4.0":
        return about.warns(
            "it uses NFS 4.0, which Linux servers with nfs-utils 2.9.1 or later do not "
            "offer by default",
            "choose NFS version 4.2 (or auto) for the storage domain in the engine",
        )
    if version is None:
        return about.skips("its NFS version is unknown")
    return about.passes(f"it uses NFS {version}")


def _copy(view: View, about: About, one: RdmaMount) -> Finding:
    if one.mount.version not in (None, "4.2"):
        return about.passes(f"NFS {one.mount.version} has no server-side copy")
    if one.activity is None:
        return about.skips(_UNREAD)
    copies, cancelled = one.activity.copies, one.activity.cancelled_copies
    if cancelled:
        return about.warns(
            f"{cancelled} of {copies} server-side copies were given up: the server's "
            "message about the end may be lost",
            "choose NFS version 4.1 for the storage domain in the engine",
        )
    if copies:
        return about.passes(f"none of {copies} server-side copies was given up")
    return about.skips(
        "no server-side copy was made yet, so it is unknown if it would end"
    )


def _size(view: View, about: About, one: RdmaMount) -> Finding:
    sizes = {name: one.shown(name) for name in ("rsize", "wsize")}
    shown = {name: size for name, size in sizes.items() if size is not None}
    # The kernel rounds down to a power of two, or to a page (nfs_block_size).
    smaller = [
        f"{name} is {size}, and {asked} is asked for"
        for name, size in shown.items()
        if (asked := one.asked.number(name)) is not None and size < asked // 2 + 1
    ]
    if smaller:
        return about.warns(
            "; ".join(smaller),
            "raise the server's largest size (knfsd: max_block_size, which it lowers "
            "itself with little memory), or ask for less; then mount again",
        )
    if not shown:
        return about.skips("its rsize and wsize are unknown")
    return about.passes(", ".join(f"{name} is {n}" for name, n in shown.items()))


def _server(view: View) -> Iterator[Finding]:
    client = vendors_client(view.facts.modules)
    for rule in view.policy.nfs.rules:
        needed = ", ".join(needs_vendors_client(MountOptions.parse(rule.options)))
        about = About(SERVER.id, rule.name) if needed else None
        if about and client is None:
            yield about.skips(f"it is unknown if this host's NFS client takes {needed}")
        elif about and not client:
            yield about.fails(
                f"the kernel's own NFS client refuses {needed}, so its mounts fail",
                "install the client driver of PowerScale or VAST, or remove the option",
            )
        elif about:
            yield about.passes(f"this host has a vendor's NFS client for {needed}")
    for one in rdma_mounts(view):
        if one.kind:
            yield _as_documented(About(SERVER.id, one.mount.source), one, one.kind)


def _as_documented(about: About, one: RdmaMount, kind: ServerKind) -> Finding:
    versions = sorted({*kind.versions, *kind.client_versions})
    if versions and one.mount.version not in (None, *versions):
        return about.warns(
            f"it uses NFS {one.mount.version}, and documents of {kind.title} name only "
            f"{', '.join(versions)} over RDMA",
            f"choose NFS version {versions[-1]} for the storage domain in the engine",
        )
    for name in ("rsize", "wsize"):
        if kind.largest and (one.shown(name) or 0) > kind.largest:
            return about.warns(
                f"{name} is {one.shown(name)}, and over RDMA {kind.title} is unstable "
                f"with more than {kind.largest}",
                f"write server_kind: {kind.name} or {kind.options} in the rule, then "
                "mount again",
            )
    known = versions or kind.largest
    if not known:
        return about.skips(f"no document of {kind.title} says which versions it takes")
    return about.passes(f"it is as documents of {kind.title} require")


# Without LOCALIO the kernel has no such parameter.
_MODULE, _PARAMETER = "nfs", "localio_enabled"


def _localio(view: View, about: About, one: RdmaMount) -> Finding:
    value = running_value(view.facts.modules, _MODULE, _PARAMETER)
    past, done = _past_the_connection(one), one.activity
    addresses = (text for netdev in view.facts.netdevs for text in netdev.addresses)
    here = one.mount.address in {text.partition("/")[0] for text in addresses}
    if past and value in (None, "Y"):
        return about.warns(
            f"{past}: the kernel reads and writes the server's files directly "
            "(LOCALIO), so the proof of RDMA says nothing about the data",
            "no fix is needed for the data; to have it use RDMA: echo N > "
            f"/sys/module/{_MODULE}/parameters/{_PARAMETER}",
        )
    # With pNFS the requests are in the counters of other servers.
    uncounted = done.layout if done else value is not None
    if uncounted or (here and value == "Y"):
        return about.skips("its counters do not show if its data uses its connection")
    since = f" since LOCALIO was disabled; before that, {past}" if past else ""
    return about.passes(f"its data uses its connection{since}")


def _past_the_connection(one: RdmaMount) -> str:
    """Return what shows that data was moved without requests, or nothing.

    With pNFS the requests are in the counters of other servers.
    """
    done = one.activity
    if done is None or done.layout:
        return ""
    for what, moved, requests, size in (
        ("read", done.server_read, done.reads, one.shown("rsize")),
        ("written", done.server_written, done.writes, one.shown("wsize")),
    ):
        if moved and size and beyond_requests(moved, requests, size) > 0:
            return f"{moved} bytes were {what} with {requests} requests"
    return ""


SLOTS = Rule("NFS-SLOTS-01", _slots, NO_MOUNT)
NCONNECT = _of_mounts("NFS-NCONNECT-01", _nconnect)
RESET = _of_mounts("NFS-RESET-01", _reset)
LISTENER = _of_mounts("NFS-LISTENER-01", _listener)
RPCCTL = Rule("RPCCTL-01", _rpcctl, NO_MOUNT)
VERSION = _of_mounts("NFS-VERS-01", _version)
COPY = _of_mounts("NFS-COPY-01", _copy)
SIZE = _of_mounts("NFS-SIZE-01", _size)
SERVER = Rule("NFS-SERVER-01", _server, "no server's kind is known")
LOCALIO = _of_mounts("NFS-LOCALIO-01", _localio)
MOUNTS = (
    *(SLOTS, NCONNECT, RESET, LISTENER, RPCCTL),
    *(VERSION, COPY, SIZE, SERVER, LOCALIO),
)
