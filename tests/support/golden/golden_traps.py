# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts in known traps of NFS over RDMA, and sound ones that look almost the same.

All are changes of one busy, sound host: one mount over RoCE, with the counters that
Linux 6.12 shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from support.fakes.fake_hosts import mapped_gid
from support.fakes.fake_root import FakeRoot, Pci
from support.golden.golden_base import KERNELS

EXPORT, PLACE, SERVER = "10.0.0.1:/vm", "/rhev/data-center/mnt/vm", "10.0.0.1"
CARD = Pci("0000:3b:00.0", "0x15b3", "0x1017", "mlx5_core")
CARD_FOLDER = f"/sys/devices/pci0000:3a/0000:3a:00.0/{CARD.address}"
PORT = "/sys/class/infiniband/mlx5_0/ports/1"
SWITCH = "/sys/kernel/sunrpc/xprt-switches/switch-0"


@dataclass
class Mount:
    """What mountstats and mountinfo say about the mount; changed by each trap."""

    version: str = "4.2"
    options: str = "soft,nosharecache"
    rsize: int = 1048576
    wsize: int = 1048576
    address: str = SERVER
    connections: int = 1
    connects: int = 1
    sends: int = 5000
    backlog: int = 0
    read_bytes: int = 1 << 30
    operations: dict[str, str] = field(
        default_factory=lambda: {
            # Operations, transmissions, time-outs, bytes sent and received; waiting,
            # reply and whole time in milliseconds; errors.
            "READ": "3000 3000 0 600000 1073741824 900 6000 7200 0",
            "WRITE": "2000 2000 0 1073741824 400000 700 8000 9000 0",
            "GETATTR": "100 100 0 20000 24000 1 40 50 0",
        }
    )

    def write(self, host: FakeRoot) -> None:
        """Write both files of /proc."""
        shown = (
            f"rw,vers={self.version},rsize={self.rsize},wsize={self.wsize},namlen=255,"
            f"{self.options},proto=rdma,port=20049,timeo=100,retrans=3,sec=sys"
        )
        kind = "nfs" if self.version == "3" else "nfs4"
        host.write(
            "/proc/self/mountinfo",
            f"40 25 0:50 / {PLACE} rw,relatime shared:3 - {kind} {EXPORT} {shown},"
            f"addr={self.address}",
        )
        rdma = f"0 0 {self.connects} 0 0 {self.sends} {self.sends} 0 9000 "
        rdma += f"{self.backlog} 3000 2000 9 1 1 0 0 64320 0 0 0 0 0 44 96 0 0"
        lines = [
            f"device {EXPORT} mounted on {PLACE} with fstype {kind} statvers=1.1",
            f"\topts:\t{shown}",
            "\tage:\t3000",
            f"\tbytes:\t0 0 0 0 {self.read_bytes} 1073741824 0 0 ",
            "\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)",
            *[f"\txprt:\trdma {rdma}"] * self.connections,
            "\tper-op statistics",
            *(f"\t{name:>12}: {numbers}" for name, numbers in self.operations.items()),
        ]
        host.write("/proc/self/mountstats", "\n".join(lines) + "\n")


def busy_host(path: Path, mount: Mount) -> FakeRoot:
    """Return the sound host, with ``mount``."""
    host = FakeRoot(path, kernel=KERNELS["el10"])
    host.distribution("el10")
    host.modules(loaded=("ib_uverbs", "mlx5_core", "mlx5_ib", "nfs", "rpcrdma"))
    host.kernel_config(SUNRPC_XPRT_RDMA="m", INFINIBAND_USER_ACCESS="m", INFINIBAND="m")
    host.link(CARD.folder, CARD_FOLDER)  # below the port of its slot
    host.adapter(CARD)
    host.netdev("ens1", mtu=9000, pci=CARD, addresses=("10.0.0.2/24",))
    host.route(SERVER, "ens1", "10.0.0.2")
    host.rdma_device("mlx5_0", pci=CARD)
    host.rdma_port("mlx5_0", rate="100 Gb/sec (4X EDR)", link_layer="Ethernet")
    host.gid("mlx5_0", 1, 0, mapped_gid("10.0.0.2"), "RoCE v2", "ens1")
    pcie(host, CARD_FOLDER, "8.0 GT/s PCIe", 16, "16.0 GT/s PCIe", 16)
    pcie(host, "/sys/devices/pci0000:3a/0000:3a:00.0", "", 0, "8.0 GT/s PCIe", 16)
    host.write("/proc/sys/sunrpc/rdma_slot_table_entries", "128")
    host.write("/sys/module/nfs/parameters/localio_enabled", "Y")
    counters(host, symbol_error=0, port_rcv_packets=9_000_000, link_downed=1)
    hw_counters(host, packet_seq_err=12, local_ack_timeout_err=1)
    connection(host)
    host.cm_id("mlx5_0", "10.0.0.2:40001", f"{SERVER}:20049")
    mount.write(host)
    return host


def pcie(
    host: FakeRoot, at: str, speed: str, width: int, most: str, lanes: int
) -> None:
    """Write a PCIe link: as it is, and as it can be."""
    if speed:
        host.write(f"{at}/current_link_speed", speed)
        host.write(f"{at}/current_link_width", str(width))
    host.write(f"{at}/max_link_speed", most)
    host.write(f"{at}/max_link_width", str(lanes))


def counters(host: FakeRoot, **values: int) -> None:
    """Write counters of the port."""
    for name, value in values.items():
        host.write(f"{PORT}/counters/{name}", str(value))


def hw_counters(host: FakeRoot, **values: int) -> None:
    """Write the driver's counters of the port."""
    for name, value in values.items():
        host.write(f"{PORT}/hw_counters/{name}", str(value))


def connection(host: FakeRoot, state: str = " CONNECTED   BOUND    ") -> None:
    """Write the connection's files, as Linux 6.12 does."""
    host.write(f"{SWITCH}/xprt-0-rdma/xprt_state", f"state={state}")
    host.write(f"{SWITCH}/xprt-0-rdma/dstaddr", SERVER)
    connected = "CONNECTED" in state.split()
    info = "max_num_slots=128\nmin_num_slots=2\nnum_reqs=32\nmain_xprt=1"
    host.write(f"{SWITCH}/xprt-0-rdma/xprt_info", info if connected else "<closed>")


def _nothing(host: FakeRoot) -> None:
    """Change nothing."""


@dataclass(frozen=True)
class Trap:
    """A rule, and what makes a host fall into its trap, or almost.

    fires, sound: changes of the mount; and_fires, and_sound: of the rest of the host
    options: the extra options of the policy's rule
    words: in the sentence or the fix that follows
    """

    words: str
    fires: Mapping[str, object] = field(default_factory=dict)
    sound: Mapping[str, object] = field(default_factory=dict)
    and_fires: Callable[[FakeRoot], None] = _nothing
    and_sound: Callable[[FakeRoot], None] = _nothing
    options: str = ""
    verdict: str = "WARN"

    def build(self, path: Path, fires: bool) -> FakeRoot:
        """Return the host in the trap, or the one beside it."""
        host = busy_host(path, Mount(**(self.fires if fires else self.sound)))
        (self.and_fires if fires else self.and_sound)(host)
        return host


def _operations(**changed: str) -> dict[str, str]:
    return {**Mount().operations, **changed}


def _narrow(host: FakeRoot) -> None:
    pcie(host, CARD_FOLDER, "8.0 GT/s PCIe", 8, "16.0 GT/s PCIe", 16)
    pcie(host, "/sys/devices/pci0000:3a/0000:3a:00.0", "", 0, "8.0 GT/s PCIe", 8)


def _just_enough(host: FakeRoot) -> None:
    pcie(host, CARD_FOLDER, "16.0 GT/s PCIe", 8, "16.0 GT/s PCIe", 16)


_AGAIN = {"READ": "3000 4200 900 600000 1073741824 900 6000 7200 0"}

TRAPS = {
    "NFS-SLOTS-01": Trap(
        "16.00 requests waited for one of its 128 slots",
        fires={
            "backlog": 80_000,
            "operations": _operations(
                READ="3000 3000 0 600000 1073741824 950000 6000 957000 0",
                WRITE="2000 2000 0 1073741824 400000 300000 8000 309000 0",
            ),
        },
        sound={"backlog": 12},
    ),
    "NFS-NCONNECT-01": Trap(
        "4 connections are asked for, and it has 1 | this kernel may ignore nconnect",
        sound={"connections": 4, "options": "soft,nconnect=4"},
        options="nconnect=4",
    ),
    "NFS-RESET-01": Trap(
        "1200 of 5100 requests were sent again, and its connections were made 9 times",
        fires={"connects": 9, "operations": _operations(**_AGAIN)},
        sound={"connects": 60},  # idle every five minutes
    ),
    "NFS-LISTENER-01": Trap(
        "1 of 1 connections to 10.0.0.1 cannot be made again",
        and_fires=lambda host: connection(host, "LOCKED CONNECTING BOUND"),
        and_sound=lambda host: connection(host, " BOUND "),  # idle
    ),
    "RPCCTL-01": Trap(
        "somebody has set this connection to 10.0.0.1 offline",
        and_fires=lambda host: connection(host, "CONNECTED BOUND OFFLINE"),
    ),
    "NFS-VERS-01": Trap(
        "it uses NFS 4.0", fires={"version": "4.0"}, sound={"version": "4.1"}
    ),
    "NFS-COPY-01": Trap(
        "2 of 7 server-side copies were given up",
        fires={
            "operations": _operations(
                COPY="7 7 0 900 900 0 20 30 0", OFFLOAD_CANCEL="2 2 0 90 90 0 1 2 0"
            )
        },
        sound={"operations": _operations(COPY="7 7 0 900 900 0 20 30 0")},
    ),
    "NFS-SIZE-01": Trap(
        "rsize is 65536, and 1048576 is asked for",
        fires={"rsize": 65536, "read_bytes": 100 << 20},
        options="rsize=1048576",
    ),
    "NFS-LOCALIO-01": Trap(
        "68719476736 bytes were read with 3000 requests",
        fires={"read_bytes": 64 << 30},
        sound={"read_bytes": 3000 << 20},  # each as large as possible
    ),
    "PCIE-01": Trap(
        "(8 GT/s x8) carries 63015 Mb/s, less than its port (100000 Mb/s) | the card "
        "can have 16 GT/s x16, and the slot has 8 GT/s x8",
        and_fires=_narrow,
        and_sound=_just_enough,
    ),
    "PORT-ERRORS-01": Trap(
        "the link had errors since boot: symbol_error 70000",
        and_fires=lambda host: counters(host, symbol_error=70_000),
        and_sound=lambda host: counters(host, symbol_error=300, port_rcv_errors=4),
    ),
}
