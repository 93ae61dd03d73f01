# SPDX-License-Identifier: GPL-2.0-or-later
"""A fake host in a folder: /proc, /sys and /lib in the kernel's formats, and its tools,
for :class:`ovirt_rdma.host.collect.collector.HostReader`.

    host = FakeRoot(tmp_path)
    host.netdev("eth0", addresses=["10.0.0.2/24"])
    host.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="rdma")
    facts = host.reader().facts()

Functions that add something can be called again to change it.
:mod:`support.fakes.fake_hosts` has complete hosts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.tools import Row
from ovirt_rdma.host.facts.devices import ARPHRD_ETHER, ARPHRD_LOOPBACK
from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_adapters import FakeAdapters
from support.fakes.fake_mounts import FakeMounts
from support.fakes.fake_netdevs import FakeNetdevs
from support.fakes.fake_nmcli import FakeNetworkManager
from support.fakes.fake_runner import FakeRunner
from support.fakes.fake_sessions import FakeSessions
from support.fakes.fake_software import FakeSoftware

EL9_KERNEL = "5.14.0-427.13.1.el9_4.x86_64"
ZERO_GID = ":".join(["0000"] * 8)


@dataclass(frozen=True)
class Pci:
    """A PCI function and the driver bound to it; ``child`` is a device below it
    that has the driver instead (``virtio2``, an mlx5 sub-function).
    """

    address: str
    vendor: str
    device: str
    driver: str
    revision: str = "0x00"
    child: str = ""

    @property
    def folder(self) -> str:
        """The function's folder."""
        return f"/sys/devices/pci0000:00/{self.address}"

    @property
    def bound(self) -> str:
        """The folder of the device that the driver is bound to."""
        return f"{self.folder}/{self.child}".rstrip("/")


@dataclass
class FakeRoot(
    FakeMounts,
    FakeAdapters,
    FakeSessions,
    FakeSoftware,
    FakeNetdevs,
    FakeNetworkManager,
):
    """A host below ``path``: EL9's kernel, an hour after boot, only ``lo``."""

    kernel: str = EL9_KERNEL
    hostname: str = "hv1"
    runner: FakeRunner = field(default_factory=FakeRunner)
    _links: dict[str, Row] = field(default_factory=dict, init=False, repr=False)
    _cm_ids: list[Row] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self.write("/proc/sys/kernel/osrelease", self.kernel)
        self.write("/proc/sys/kernel/hostname", self.hostname)
        self.uptime(3600.0)
        self.booted_at(1_700_000_000)
        self.modules()
        self.command_line()
        self.distribution()
        self._write_mounts()
        self.runner.answer(
            "ip -j -d addr show",
            lambda: json.dumps(
                [
                    {**row, **self._ipoib_links.get(name, {})}
                    for name, row in self._links.items()
                ]
            ),
        )
        self.runner.answer(
            "rdma -j resource show cm_id", lambda: json.dumps(self._cm_ids)
        )
        self.netdev(
            "lo",
            type=ARPHRD_LOOPBACK,
            mtu=65536,
            address="00:00:00:00:00:00",
            operstate="unknown",
            addresses=("127.0.0.1/8", "::1/128"),
        )
        # The kernel puts a file among the folders of /sys/class/net.
        self.write("/sys/class/net/bonding_masters", "")

    def reader(self) -> HostReader:
        """Return a reader of this host."""
        return HostReader(self.path, self.runner)

    # System

    def uptime(self, seconds: float) -> None:
        """Set the time since boot."""
        self.write("/proc/uptime", f"{seconds:.2f} {seconds * 3:.2f}")

    def booted_at(self, seconds: int) -> None:
        """Set the time of boot, in seconds since 1970."""
        self.write("/proc/stat", f"cpu  1 2 3\nctxt 4\nbtime {seconds}\nprocesses 5")

    def modules(
        self,
        loaded: Sequence[str] = (),
        available: Sequence[str] = (),
        built_in: Sequence[str] = (),
        suffix: str = ".ko.xz",
    ) -> None:
        """Set which modules are loaded, in modules.dep, and built in."""
        lines = [f"{m} 45056 0 - Live 0x0000000000000000" for m in loaded]
        self.write("/proc/modules", "\n".join(lines).encode() + b"\n")
        folder = f"/lib/modules/{self.kernel}"
        files = [f"kernel/some/where/{m}{suffix}:" for m in (*loaded, *available)]
        self.write(f"{folder}/modules.dep", "\n".join(files))
        files = [f"kernel/some/where/{m}.ko" for m in built_in]
        self.write(f"{folder}/modules.builtin", "\n".join(files))

    # Network

    def netdev(
        self,
        name: str,
        type: int = ARPHRD_ETHER,
        mtu: int = 1500,
        address: str = "52:54:00:12:34:56",
        operstate: str = "up",
        pci: Optional[Pci] = None,
        kind: Optional[str] = None,
        lowers: Sequence[str] = (),
        addresses: Sequence[str] = (),
    ) -> None:
        """Add a netdev; ``kind`` is that of a virtual one (``bond``), ``lowers`` must
        exist.
        """
        bus = pci.bound if pci else "/sys/devices/virtual"
        self._class_entry("net", name, bus)
        folder = f"/sys/class/net/{name}"
        self.write(f"{folder}/type", str(type))
        self.write(f"{folder}/mtu", str(mtu))
        self.write(f"{folder}/address", address)
        self.write(f"{folder}/operstate", operstate)
        if pci:
            self._bind(folder, pci)
        for lower in lowers:
            self.link(f"{folder}/lower_{lower}", self._real(f"net/{lower}"))
            self.link(f"/sys/class/net/{lower}/upper_{name}", self._real(f"net/{name}"))
        row: Row = {"ifname": name, "mtu": mtu, "address": address}
        if kind:
            row["linkinfo"] = {"info_kind": kind}
        row["addr_info"] = [
            {"local": local, "prefixlen": int(length)}
            for local, length in (a.split("/") for a in addresses)
        ]
        self._links[name] = row
        self.complete_netdev(name, kind, lowers)

    def route(
        self,
        destination: str,
        netdev: str,
        source: str,
        gateway: Optional[str] = None,
    ) -> None:
        """Set the route to an address."""
        row = {"dst": destination, "dev": netdev, "prefsrc": source, "flags": []}
        if gateway:
            row["gateway"] = gateway
        self.runner.answer(f"ip -j route get {destination}", json.dumps([row]))

    def no_route(self, destination: str, words: str = "Network is unreachable") -> None:
        """Make the kernel have no route to an address."""
        failure = CommandFailed(f"RTNETLINK answers: {words}", 2)
        self.runner.answer(f"ip -j route get {destination}", failure)

    # RDMA

    def rdma_device(
        self,
        name: str,
        node_type: str = "1: CA",
        node_guid: str = "0002:c903:00fb:1230",
        firmware: str = "",
        pci: Optional[Pci] = None,
        parent: Optional[str] = None,
    ) -> None:
        """Add an RDMA device; ``parent`` is the netdev below a Soft-RoCE one."""
        bus = pci.bound if pci else "/sys/devices/virtual"
        self._class_entry("infiniband", name, bus)
        folder = f"/sys/class/infiniband/{name}"
        self.write(f"{folder}/node_type", node_type)
        self.write(f"{folder}/node_guid", node_guid)
        self.write(f"{folder}/fw_ver", firmware)
        (self.path / folder.lstrip("/") / "ports").mkdir(exist_ok=True)
        if pci:
            self._bind(folder, pci)
        if parent:
            self.write(f"{folder}/parent", parent)

    def rdma_port(
        self,
        device: str,
        number: int = 1,
        state: str = "4: ACTIVE",
        physical_state: str = "5: LinkUp",
        rate: str = "40 Gb/sec (4X QDR)",
        link_layer: str = "InfiniBand",
        table_size: int = 4,
    ) -> None:
        """Add a port with an empty GID table of ``table_size`` entries."""
        folder = f"/sys/class/infiniband/{device}/ports/{number}"
        self.write(f"{folder}/state", state)
        self.write(f"{folder}/phys_state", physical_state)
        self.write(f"{folder}/rate", rate)
        self.write(f"{folder}/link_layer", link_layer)
        for index in range(table_size):
            self.write(f"{folder}/gids/{index}", ZERO_GID)
            self.unreadable(f"{folder}/gid_attrs/types/{index}")  # EINVAL
            self.unreadable(f"{folder}/gid_attrs/ndevs/{index}")

    def gid(
        self,
        device: str,
        port: int,
        index: int,
        gid: str,
        type: str = "IB/RoCE v1",
        netdev: Optional[str] = None,
    ) -> None:
        """Fill one entry of a port's GID table."""
        folder = f"/sys/class/infiniband/{device}/ports/{port}"
        values = {f"gids/{index}": gid, f"gid_attrs/types/{index}": type}
        if netdev:
            values[f"gid_attrs/ndevs/{index}"] = netdev
        for path, value in values.items():
            place = self.path / f"{folder}/{path}".lstrip("/")
            if place.is_dir():
                place.rmdir()
            self.write(f"{folder}/{path}", value)

    def cm_id(
        self,
        device: str,
        source: str,
        destination: Optional[str] = None,
        state: str = "CONNECT",
        owner: str = "rpcrdma",
        pid: Optional[int] = None,
    ) -> None:
        """Add a CM id as ``rdma -j`` lists it; without ``pid`` it is the kernel's."""
        row: Row = {"ifindex": 0, "ifname": device, "port": 1}
        row |= {"cm-idn": len(self._cm_ids), "state": state, "ps": "TCP"}
        row |= {"comm": owner, "src-addr": source}
        if pid is not None:
            row["pid"] = pid
        if destination:
            row["dst-addr"] = destination
        self._cm_ids.append(row)

    # sysfs

    def _class_entry(self, kind: str, name: str, bus: str) -> None:
        self.link(f"/sys/class/{kind}/{name}", f"{bus}/{kind}/{name}")

    def _real(self, entry: str) -> str:
        """Return where a class entry really is, as a path on this host."""
        place = (self.path / "sys/class" / entry).resolve()
        return "/" + os.path.relpath(place, self.path.resolve())

    def _bind(self, folder: str, pci: Pci) -> None:
        self.write(f"{pci.folder}/vendor", pci.vendor)
        self.write(f"{pci.folder}/device", pci.device)
        self.write(f"{pci.folder}/revision", pci.revision)
        self.link(f"{pci.bound}/driver", f"/sys/bus/drivers/{pci.driver}")
        self.link(f"{folder}/device", pci.bound)
