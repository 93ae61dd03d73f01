# SPDX-License-Identifier: GPL-2.0-or-later
"""The NetworkManager of a fake host, with a strict ``nmcli``; and VDSM's networks.

    host.network_manager()
    host.nm_device("ib0")
    host.nm_profile("ib0", "infiniband", active_on="ib0",
                    properties={"infiniband.transport-mode": "datagram"})
    host.ovirt_network("storage", nic="ib0", bridged=False, mtu=2044)

The output is that of nmcli 1.42.4.
"""

from __future__ import annotations

import json
import uuid as uuids
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_files import FakeFiles
from support.fakes.fake_runner import FakeRunner

SETTINGS = (
    "connection",
    "infiniband",
    "802-3-ethernet",
    "bond",
    "ethtool",
    "ipv4",
    "ipv6",
)


@dataclass
class FakeProfile:
    """A profile, with all its properties in nmcli's order."""

    row: dict[str, str]
    properties: dict[str, str]


@dataclass
class FakeNetworkManager(FakeFiles):
    """Until ``network_manager`` is called, it is not installed."""

    runner: FakeRunner = field(default_factory=FakeRunner)
    _nm_running: bool = field(default=True, init=False, repr=False)
    _nm_devices: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _nm_profiles: dict[str, FakeProfile] = field(
        default_factory=dict, init=False, repr=False
    )

    def network_manager(self, running: bool = True) -> None:
        """Install NetworkManager."""
        self._nm_running = running
        self.runner.program("nmcli", self._nmcli)

    def nm_device(self, name: str, state: str = "connected") -> None:
        """Set NetworkManager's state of a netdev: ``connected``, ``unmanaged``."""
        self._nm_devices[name] = state

    def nm_profile(
        self,
        name: str,
        type: str = "infiniband",
        uuid: str = "",
        interface_name: Optional[str] = None,
        active_on: str = "",
        file: Optional[str] = None,
        properties: Optional[Mapping[str, str]] = None,
    ) -> str:
        """Add a profile; return its UUID, by default derived from the name.

        ``interface_name`` is that of the profile's own name unless it is given.
        """
        uuid = uuid or str(uuids.uuid5(uuids.NAMESPACE_OID, name))
        folder = "/etc/NetworkManager/system-connections"
        shown = {
            "connection.id": name,
            "connection.uuid": uuid,
            "connection.stable-id": "",
            "connection.type": type,
            "connection.interface-name": name
            if interface_name is None
            else interface_name,
            "connection.autoconnect": "yes",
            "connection.timestamp": "1795288622",
            "connection.read-only": "no",
        }
        if type == "infiniband":
            shown |= {
                "infiniband.mac-address": "",
                "infiniband.mtu": "auto",
                "infiniband.transport-mode": "datagram",
                "infiniband.p-key": "default",
                "infiniband.parent": "",
            }
        shown |= properties or {}
        row = {"NAME": name, "UUID": uuid, "TYPE": type, "DEVICE": active_on}
        row["FILENAME"] = f"{folder}/{name}.nmconnection" if file is None else file
        self._nm_profiles[uuid] = FakeProfile(row, shown)
        return uuid

    def _nmcli(self, argv: Sequence[str]) -> str:
        nmcli, terse, fields, wanted, *words = argv
        assert (nmcli, terse, fields) == ("nmcli", "-t", "-f")
        if not self._nm_running:
            raise CommandFailed("Error: NetworkManager is not running.", 8)
        if words == ["general"]:
            rows = [{"RUNNING": "running"}]
        elif words == ["device"]:
            rows = [{"DEVICE": n, "STATE": s} for n, s in self._nm_devices.items()]
        elif words == ["connection"]:
            rows = [profile.row for profile in self._nm_profiles.values()]
        else:
            assert words[:2] == ["connection", "show"]
            assert set(wanted.split(",")) <= set(SETTINGS)
            return self._shown(wanted.split(","), words[2:])
        return "".join(
            ":".join(_escaped(row[column]) for column in wanted.split(",")) + "\n"
            for row in rows
        )

    def _shown(self, settings: Sequence[str], ids: Sequence[str]) -> str:
        assert set(ids[::2]) <= {"uuid"}
        blocks = []
        for uuid in ids[1::2]:
            if uuid not in self._nm_profiles:
                raise CommandFailed(f"Error: {uuid} - no such connection profile.", 10)
            properties = self._nm_profiles[uuid].properties
            blocks.append(
                "".join(
                    f"{name}:{value}\n"
                    for name, value in properties.items()
                    if name.partition(".")[0] in settings
                )
            )
        return "\n".join(blocks)

    # VDSM

    def ovirt_network(
        self, name: str, stored: str = "staging", **attributes: Any
    ) -> None:
        """Add a logical network as VDSM stores it; ``stored`` in ``staging`` (what is
        in force) or ``persistence``.
        """
        defaults = {"bridged": True, "mtu": 1500, "defaultRoute": False}
        network = {**defaults, "switch": "legacy", "bootproto": "none", **attributes}
        self.vdsm_network_file(name, json.dumps(network, indent=4), stored)

    def vdsm_network_file(self, name: str, text: str, stored: str = "staging") -> None:
        """Write VDSM's file of a network, with any text."""
        base = f"/var/lib/vdsm/{stored}/netconf"
        self.link(base, f"{base}.k3yB2vNc")
        self.write(f"{base}/nets/{name}", text.encode("utf-8", "surrogateescape"))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")
