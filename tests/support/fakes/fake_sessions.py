# SPDX-License-Identifier: GPL-2.0-or-later
"""Block storage sessions and TCP connections of a fake host."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from support.fakes.fake_files import FakeFiles

_HEADINGS = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"
_REST = "00000000:00000000 00:00000000 00000000     0        0 1617 1 0000000 20 4 30"
Ends = tuple[str, int, str, int]


@dataclass
class FakeSessions(FakeFiles):
    """Writes iSCSI, SRP and NVMe in /sys/class, and /proc/net/tcp."""

    _sockets: dict[str, list[str]] = field(default_factory=dict, init=False, repr=False)

    def iscsi_session(
        self,
        number: int,
        target: str = "iqn.2016-06.org:data",
        address: Optional[str] = "10.0.0.1",
        transport: str = "iscsi_tcp",
        local: Optional[str] = None,
        netdev: str = "(null)",
    ) -> None:
        """Add a session with one connection, on a SCSI host of the same number.

        Without ``address`` the connection is down: reading its socket fails.
        """
        host = f"/sys/devices/platform/host{number}"
        session = f"{host}/session{number}"
        connection = f"connection{number}:0"
        self.link(
            f"/sys/class/iscsi_session/session{number}",
            f"{session}/iscsi_session/session{number}",
        )
        self.link(
            f"/sys/class/iscsi_connection/{connection}",
            f"{session}/{connection}/iscsi_connection/{connection}",
        )
        for kind in ("iscsi_host", "scsi_host"):
            self.link(f"/sys/class/{kind}/host{number}", f"{host}/{kind}/host{number}")
        self.write(f"/sys/class/iscsi_session/session{number}/targetname", target)
        self.write(f"/sys/class/scsi_host/host{number}/proc_name", transport)
        self.write(f"/sys/class/iscsi_host/host{number}/netdev", netdev)
        if local:
            self.write(f"/sys/class/iscsi_host/host{number}/ipaddress", local)
        else:
            self.unreadable(f"/sys/class/iscsi_host/host{number}/ipaddress")
        folder = f"/sys/class/iscsi_connection/{connection}"
        for name, text in (("address", address), ("port", address and "3260")):
            if text:
                self.write(f"{folder}/{name}", text)
            else:
                self.unreadable(f"{folder}/{name}")  # ENOTCONN
        self.write(f"{folder}/persistent_address", address or "10.0.0.1")
        self.write(f"{folder}/persistent_port", "3260")

    def srp_session(self, number: int, device: str, port: str = "1") -> None:
        """Add the SCSI host of a login to an SRP target."""
        ioc_guid = "0x0002c903000a0b0c"
        folder = f"/sys/class/scsi_host/host{number}"
        self.write(f"{folder}/local_ib_device", device)
        self.write(f"{folder}/local_ib_port", port)
        self.write(f"{folder}/id_ext", ioc_guid)
        self.write(f"{folder}/ioc_guid", ioc_guid)
        self.write(f"/sys/class/srp_remote_ports/port-{number}:1/state", "running")

    def nvme_controller(
        self,
        number: int,
        address: str = "traddr=10.0.0.1,trsvcid=4420",
        transport: str = "rdma",
    ) -> None:
        """Add a controller."""
        folder = f"/sys/class/nvme/nvme{number}"
        self.write(f"{folder}/transport", transport)
        self.write(f"{folder}/address", address)
        self.write(f"{folder}/subsysnqn", "nqn.2014-08.org:data")

    def tcp_connections(
        self, *connections: Ends, state: str = "01", inode: int = 1617
    ) -> None:
        """Add sockets to /proc/net/tcp and tcp6; state 01 is established.

        IPv4 addresses are in tcp; ``::ffff:10.0.0.1`` is in tcp6.
        """
        for local, local_port, remote, remote_port in connections:
            name = "tcp6" if ":" in local else "tcp"
            lines = self._sockets.setdefault(name, [_HEADINGS])
            lines.append(
                f"{len(lines) - 1:4}: {_words(local)}:{local_port:04X} "
                f"{_words(remote)}:{remote_port:04X} {state} "
                + _REST.replace("1617", f"{inode}")
            )
            self.tcp_table(name, lines)

    def tcp_table(self, name: str, lines: Sequence[str]) -> None:
        """Write all of /proc/net/tcp or tcp6."""
        self.write(f"/proc/net/{name}", "\n".join(line.ljust(149) for line in lines))


def _words(address: str) -> str:
    """Print an address as %08X does with the words of struct in_addr and in6_addr."""
    packed = ipaddress.ip_address(address).packed
    return "".join(
        f"{int.from_bytes(packed[i : i + 4], sys.byteorder):08X}"
        for i in range(0, len(packed), 4)
    )
