# SPDX-License-Identifier: GPL-2.0-or-later
"""Read all facts of a host. HostReader changes nothing, and never raises because of
what a host has.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.collect.netdev_users import (
    StorageSession,
    addresses_to_route,
    read_netdev_uses,
    read_storage_sessions,
)
from ovirt_rdma.host.collect.netdevs import (
    read_netdevs,
    read_network_manager,
    read_ovirt_networks,
    with_neighbours,
    with_ports,
    with_rdma_details,
)
from ovirt_rdma.host.collect.rdma import (
    RDMA_CLASS,
    read_adapters,
    read_host_uuid,
    read_rdma_devices,
    with_virtual_functions,
)
from ovirt_rdma.host.collect.software import (
    package_version,
    read_booted_at,
    read_modules,
    read_software,
)
from ovirt_rdma.host.collect.storage import (
    MOUNTINFO,
    MOUNTSTATS,
    marks_from_json,
    nfs_mounts,
    read_nfs_server,
)
from ovirt_rdma.host.collect.tools import Tools, cm_ids, links, route
from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice
from ovirt_rdma.host.facts.infiniband import HEADER
from ovirt_rdma.host.facts.model import (
    UNKNOWN,
    CmId,
    DegradedMark,
    Facts,
    Modules,
    NfsMount,
    Route,
)
from ovirt_rdma.host.paths import DEGRADED_JSON, RUN_MOUNTS
from ovirt_rdma.host.system.commands import CommandFailed, Runner, run_command
from ovirt_rdma.host.system.tree import FileTree, Problems, read_uptime

# ip(8): "If an error was reported by the kernel, the exit status is 2."
_KERNEL_REFUSED = 2
_KERNEL_PREFIX = re.compile("^(RTNETLINK answers: |Error: )")


class HostReader:
    """Read the host whose files are below ``root``.

    Tools are run with ``run``. By default they are run if ``root`` is ``/``, and not
    below any other root; then facts that only tools know are absent. Every method
    except ``facts`` takes a list to which it adds sentences about what it could not
    read. Nothing is cached.
    """

    def __init__(
        self, root: Union[str, Path] = "/", run: Optional[Runner] = None
    ) -> None:
        self._tree = FileTree(root)
        if run is None and self._tree.root == Path("/"):
            run = run_command
        self._tools = Tools(run, str(self._tree.root))

    def facts(self, routes_to: Sequence[str] = (), exports: bool = False) -> Facts:
        """Return all facts; of an NFS server here, what it exports only with
        ``exports``, because hooks and runs must not wait for it.

        The routes are those to the server addresses ``routes_to``, to the servers of
        all NFS mounts, and to those of block storage if the session does not show which
        netdev it uses.
        """
        return self._limited()._facts(routes_to, exports)

    def _limited(self) -> HostReader:
        tools = self._tools.with_limited_timeouts()
        return HostReader(self._tree.root, tools.run)

    def _facts(self, routes_to: Sequence[str], exports: bool) -> Facts:
        # Imported here: vdsmd reads mounts only, and needs no counters.
        from ovirt_rdma.host.collect.statistics import (  # noqa: PLC0415
            read_statistics,
        )
        from ovirt_rdma.host.facts.statistics import (  # noqa: PLC0415
            ACTIVITY_COUNTERS,
            activity_between,
        )

        problems: list[str] = []
        before = read_statistics(self._tree, counters=ACTIVITY_COUNTERS)
        mounts = self.nfs_mounts(problems)
        # Read directly after the mounts: with their ages it gives their start times.
        uptime_s, booted_at = self.uptime(problems), self.booted_at(problems)
        devices = read_rdma_devices(self._tree, problems, tools=self._tools)
        # Users of netdevs that cannot be read count as users. Without addresses none is
        # found, and without CM ids none of a second path.
        unread: list[str] = []
        # Below another root no tool is run, and no link is taken down.
        asked = problems if self._tools.run is None else unread
        netdevs = with_rdma_details(
            self._tree, self._tools, self._netdevs(asked, problems), devices, problems
        )
        devices = with_neighbours(self._tree, self._tools, devices, netdevs)
        manager = read_network_manager(self._tools, netdevs, problems)
        release = self.kernel_release(problems)
        over_rdma = any((m.protocol or "").startswith("rdma") for m in mounts)
        connections = self.cm_ids(asked if over_rdma else problems)
        sessions = read_storage_sessions(self._tree, mounts, unread)
        networks = read_ovirt_networks(self._tree, unread)
        problems += unread
        routes = self._routes(routes_to, sessions, problems)
        facts = Facts(
            hostname=self._tree.text("/proc/sys/kernel/hostname", problems) or UNKNOWN,
            kernel_release=release,
            uptime_s=uptime_s,
            host_uuid=read_host_uuid(self._tree),
            booted_at=booted_at,
            adapters=read_adapters(self._tree, devices, problems),
            rdma_devices=devices,
            netdevs=netdevs,
            network_manager=manager,
            ovirt_networks=networks,
            routes=routes,
            modules=read_modules(self._tree, release, problems, details=True),
            software=read_software(self._tree, self._tools, release, problems),
            nfs_mounts=mounts,
            cm_ids=connections,
            degraded_marks=self.degraded_marks(problems),
            rdma_slots=self._tree.number("/proc/sys/sunrpc/rdma_slot_table_entries"),
            nfs_server=read_nfs_server(self._tree, self._tools, problems, exports),
        )
        return replace(
            facts,
            adapters=with_virtual_functions(self._tree, self._tools, facts, problems),
            netdev_uses=read_netdev_uses(
                self._tree,
                facts,
                sessions,
                problems,
                tools=self._tools,
                unread=unread,
            ),
            activity=activity_between(
                before, read_statistics(self._tree, counters=ACTIVITY_COUNTERS)
            ),
            problems=tuple(dict.fromkeys(problems)),
        )

    def interfaces(self) -> Facts:
        """Return the facts that say what each netdev is, and its users. Runs no tool
        but ``ip``.
        """
        return self._limited()._interfaces()

    def _interfaces(self) -> Facts:
        problems: list[str] = []
        facts = self._with_partitions(self.netdevs(problems), problems)
        mounts = self.nfs_mounts(problems)
        sessions = read_storage_sessions(self._tree, mounts, problems)
        facts = replace(
            facts,
            hostname=self._tree.text("/proc/sys/kernel/hostname", problems) or UNKNOWN,
            ovirt_networks=read_ovirt_networks(self._tree, problems),
            nfs_mounts=mounts,
            routes=self._routes((), sessions, problems),
        )
        uses = read_netdev_uses(
            self._tree, facts, sessions, problems, tools=self._tools
        )
        return replace(facts, netdev_uses=uses, problems=tuple(dict.fromkeys(problems)))

    def mount_facts(self, cm_ids: bool = True) -> Facts:
        """Return the facts about NFS mounts and times only.

        Without ``cm_ids`` no tool is run.
        """
        problems: list[str] = []
        mounts = self.nfs_mounts(problems)
        return Facts(
            uptime_s=self.uptime(problems),
            booted_at=self.booted_at(problems),
            nfs_mounts=mounts,
            cm_ids=self.cm_ids(problems) if cm_ids else None,
            degraded_marks=self.degraded_marks(problems),
            problems=tuple(dict.fromkeys(problems)),
        )

    def partitions(self) -> Facts:
        """Return the facts about P_Key tables and IPoIB netdevs only.

        Reads /sys, and runs ``ip`` if P_Key children have no files there.
        """
        problems: list[str] = []
        odd: list[str] = []
        netdevs = read_netdevs(self._tree, {}, odd)
        if any(one.ipoib and not one.ipoib.sysfs for one in netdevs):
            argv = ["ip", "-j", "-d", "link", "show", "type", "ipoib"]
            rows, odd = self._tools.rows(argv, problems), []
            netdevs = read_netdevs(self._tree, links(rows or []), odd)
        problems += odd
        return self._with_partitions(netdevs, problems)

    def _with_partitions(
        self, netdevs: tuple[Netdev, ...], problems: list[str]
    ) -> Facts:
        """Return facts without MTUs of ports and offloads."""
        # Without tools: the MTUs of ibv_devinfo are not needed.
        devices = read_rdma_devices(self._tree, problems, tools=Tools(None))
        return Facts(
            rdma_devices=devices,
            netdevs=with_ports(self._tree, netdevs, devices),
            problems=tuple(dict.fromkeys(problems)),
        )

    def rdma_devices(
        self, problems: Problems = None, most_gids: Optional[int] = None
    ) -> tuple[RdmaDevice, ...]:
        """Return the RDMA devices; reads /sys only, and of each GID table the first
        ``most_gids`` entries (None: all).
        """
        return read_rdma_devices(self._tree, _list(problems), most_gids)

    def netdevs(self, problems: Problems = None) -> tuple[Netdev, ...]:
        """Return the netdevs; runs ``ip`` once for their addresses."""
        problems = _list(problems)
        return self._netdevs(problems, problems)

    def _netdevs(self, unread: list[str], problems: list[str]) -> tuple[Netdev, ...]:
        """Return the netdevs; a failure of ``ip`` goes to ``unread``."""
        rows = self._tools.rows(["ip", "-j", "-d", "addr", "show"], unread)
        return read_netdevs(self._tree, links(rows or []), problems)

    def datagram_limits(self, names: Collection[str]) -> dict[str, int]:
        """Return the largest datagram MTU in bytes of each netdev in ``names``, from
        ``ibv_devinfo``; those for which it is unknown are left out. The kernel refuses
        a larger MTU with EINVAL.
        """
        problems: list[str] = []
        tools = self._tools.with_limited_timeouts()
        devices = read_rdma_devices(self._tree, problems, tools=tools)
        netdevs = with_ports(self._tree, self.netdevs(), devices)
        mtus = {(d.name, p.number): p.max_mtu for d in devices for p in d.ports}
        found = (
            (netdev.name, mtus.get((netdev.rdma_device or "", netdev.rdma_port or 0)))
            for netdev in netdevs
            if netdev.name in names
        )
        return {name: mtu - HEADER for name, mtu in found if mtu}

    def modules(self, problems: Problems = None) -> Modules:
        """Return the modules that concern RDMA and NFS; reads /proc and /lib."""
        problems = _list(problems)
        return read_modules(self._tree, self.kernel_release(problems), problems)

    def nfs_mounts(self, problems: Problems = None) -> tuple[NfsMount, ...]:
        """Return the NFS mounts of this process's namespace.

        Reads only /proc, so it does not wait for a server that does not respond.
        """
        problems = _list(problems)
        mountinfo = self._tree.data(MOUNTINFO, problems) or b""
        mountstats = self._tree.data(MOUNTSTATS, problems) or b""
        return nfs_mounts(mountinfo, mountstats, problems)

    def degraded_marks(self, problems: Problems = None) -> tuple[DegradedMark, ...]:
        """Return vdsmd's marks of degraded mounts."""
        problems = _list(problems)
        if not self._tree.has(DEGRADED_JSON, others=RUN_MOUNTS):
            return ()
        data = self._tree.data(DEGRADED_JSON, problems, others=RUN_MOUNTS)
        try:
            return () if data is None else marks_from_json(data)
        except ValueError as error:
            problems.append(f"{DEGRADED_JSON} is invalid and is ignored: {error}")
            return ()

    def route(self, address: str, problems: Problems = None) -> Optional[Route]:
        """Return how the kernel reaches an IP address (``fe80::1%eth0`` too).

        None if that is unknown; "no route" is a Route with a problem.
        """
        problems = _list(problems)
        plain, _, scope = address.partition("%")
        try:
            ipaddress.ip_address(plain)
        except ValueError:
            problems.append(f"the route to {address!a} is unknown: not an IP address")
            return None
        argv = ["ip", "-j", "route", "get", plain]
        if scope:  # /proc shows an index; ip accepts it as ifINDEX
            argv += ["oif", f"if{scope}" if scope.isdecimal() else scope]
        try:
            rows = self._tools.rows(argv, problems, raised_status=_KERNEL_REFUSED)
        except CommandFailed as no:
            words = _KERNEL_PREFIX.sub("", str(no))
            return Route(address, problem=words)
        if rows is None:
            return None
        found = route(address, rows)
        if found is None:
            problems.append(f"{' '.join(argv)} shows no route")
        return found

    def _routes(
        self,
        to: Sequence[str],
        sessions: Sequence[StorageSession],
        problems: list[str],
    ) -> tuple[Route, ...]:
        servers = [*to, *addresses_to_route(sessions)]
        found = (self.route(server, problems) for server in dict.fromkeys(servers))
        return tuple(route for route in found if route)

    def cm_ids(self, problems: Problems = None) -> Optional[tuple[CmId, ...]]:
        """Return the RDMA CM ids, or None if they are unknown.

        Without an RDMA device there are none, and ``rdma`` fails.
        """
        if not self._tree.names(RDMA_CLASS):
            return ()
        argv = ["rdma", "-j", "resource", "show", "cm_id"]
        rows = self._tools.rows(argv, _list(problems))
        return None if rows is None else cm_ids(rows)

    def uptime(self, problems: Problems = None) -> float:
        """Return the seconds since boot; 0.0 if they cannot be read."""
        return read_uptime(self._tree, _list(problems))

    def booted_at(self, problems: Problems = None) -> Optional[int]:
        """Return when the host booted, in seconds since 1970, UTC; None if that cannot
        be read.
        """
        return read_booted_at(self._tree, _list(problems))

    def vdsm_version(self, problems: Problems = None) -> Optional[str]:
        """Return the version of VDSM's package; None if that is not known, or it is not
        installed.
        """
        return package_version(self._tools, "vdsm", _list(problems))

    def kernel_release(self, problems: Problems = None) -> str:
        """Return the running kernel's release, as in ``uname -r``."""
        return self._tree.text("/proc/sys/kernel/osrelease", problems) or UNKNOWN


def _list(problems: Problems) -> list[str]:
    return [] if problems is None else problems
