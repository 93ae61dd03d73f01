# SPDX-License-Identifier: GPL-2.0-or-later
"""A NetworkManager of a fake host that can be changed: profiles are loaded from
keyfiles, changed, activated and deleted, and activation sets their values.

The properties of a profile at its activation are stored too: a Reapply is refused if
one differs by now, except an MTU (can_reapply_change, src/core/devices/nm-device.c). An
offload that a profile has is restored when the profile is no longer active; others are
left unchanged (_ethtool_state_set and _reset).

The output is that of nmcli 1.42.4. Strict: arguments that the product does not use fail
the test.
"""

from __future__ import annotations

import configparser
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_ipoib_kernel import IpoibKernel

_PROFILES = "/etc/NetworkManager/system-connections/"
_DEFAULTS = {"infiniband.mtu": "auto", "infiniband.p-key": "default"}
_OPTIONAL = "ethtool."
_MODE, _MTU = "infiniband.transport-mode", "infiniband.mtu"
_P_KEY, _PARENT = "infiniband.p-key", "infiniband.parent"
_NAME, _TSO = "connection.interface-name", "ethtool.feature-tso"
_KERNEL_TSO = "tx-tcp-segmentation"
_REAPPLIED = (_MTU, "802-3-ethernet.mtu")


@dataclass
class ChangingNetworkManager(IpoibKernel):
    """``takes_profiles``: whether NetworkManager loads new ones. ``dhcp_fails``: how
    many of the next activations fail, as without an answer to DHCP: a new activation
    takes the place of the earlier one first (nm_device_queue_activation,
    src/core/devices/nm-device.c), and mode and MTU are set before addresses.
    """

    takes_profiles: bool = True
    dhcp_fails: int = 0
    # Profiles with a setting that has become empty, but still exists.
    _nm_emptied: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    # The properties of active profiles at their activation, by UUID.
    _nm_applied: dict[str, dict[str, str]] = field(
        default_factory=dict, init=False, repr=False
    )
    # TSO of netdevs before a profile set it.
    _nm_tso: dict[str, bool] = field(default_factory=dict, init=False, repr=False)
    activated: list[str] = field(default_factory=list)
    # Children that NetworkManager made, and removes with their profile.
    _nm_made: set[str] = field(default_factory=set, init=False, repr=False)

    def emptied(self, uuid: str) -> Optional[str]:
        """Return the profile's setting that is empty, if there is one."""
        return self._nm_emptied.get(uuid)

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
        """Add a profile; see FakeNetworkManager."""
        uuid = super().nm_profile(
            name, type, uuid, interface_name, active_on, file, properties
        )
        if active_on:
            self._nm_applied[uuid] = dict(self._nm_profiles[uuid].properties)
        return uuid

    def refused(self) -> dict[str, set[str]]:
        """Return for each netdev with an active profile the properties that are not in
        effect, because of which NetworkManager would refuse a Reapply.
        """
        found = {}
        for uuid, applied in self._nm_applied.items():
            now = self._nm_profiles[uuid].properties
            names = now.keys() | applied.keys()
            differ = {n for n in names if now.get(n) != applied.get(n)}
            if differ - {*_REAPPLIED}:
                found[self._nm_profiles[uuid].row["DEVICE"]] = differ
        return found

    def profile(self, name: str) -> Optional[dict[str, str]]:
        """Return the properties of the profile of that name, None if there is none."""
        found = [
            p.properties for p in self._nm_profiles.values() if p.row["NAME"] == name
        ]
        return found[0] if found else None

    def nm_command(self, argv: Sequence[str]) -> str:
        """Run ``nmcli``."""
        words = list(argv[1:])
        if words[:1] == ["--wait"]:
            assert int(words[1]) < 60
            del words[:2]
        if words[0] == "-t":
            return self._nmcli(["nmcli", *words])
        if not self._nm_running:
            raise CommandFailed("Error: NetworkManager is not running.", 8)
        noun, verb, *rest = words
        if (noun, verb) == ("device", "reapply"):
            self._reapply(*rest)
            return ""
        assert noun == "connection", words
        if verb == "load":
            self._load(*rest)
            return ""
        by, uuid, *rest = rest
        assert by == "uuid"
        if uuid not in self._nm_profiles:
            raise CommandFailed(f"Error: unknown connection '{uuid}'.", 10)
        if verb == "modify":
            self._modify(uuid, *rest)
        elif verb == "up":
            self.activate(uuid)
        else:
            assert verb == "delete"
            self.delete(uuid)
        return ""

    def _load(self, path: str) -> None:
        """Load a keyfile; nmcli exits with 0 even if the file is not accepted."""
        place = self.path / path.lstrip("/")
        assert path.startswith(_PROFILES)
        if not self.takes_profiles or not place.is_file():
            return
        assert place.stat().st_mode & 0o777 == 0o600, "insecure permissions"
        parser = configparser.RawConfigParser(delimiters=("=",))
        parser.read_string(place.read_text())
        found = {
            f"{section}.{key}": value
            for section in parser.sections()
            for key, value in parser[section].items()
        }
        if not found.get(_MODE):
            return  # "property is invalid"
        if _P_KEY in found:
            found[_P_KEY] = f"0x{int(found[_P_KEY]):04x}"
            if found[_NAME] != f"{found[_PARENT]}.{int(found[_P_KEY], 16):04x}":
                return
        name, uuid = found["connection.id"], found["connection.uuid"]
        self.nm_profile(name, found["connection.type"], uuid, file=path)
        self._nm_profiles[uuid].properties.update(found)
        self._nm_devices.setdefault(found[_NAME], "disconnected")
        if self._nm_devices[found[_NAME]] == "disconnected":
            self._autoconnect(uuid)

    def _modify(self, uuid: str, name: str, value: str) -> None:
        profile = self._nm_profiles[uuid]
        if name == "remove":
            assert self._nm_emptied.pop(uuid) == value
            return
        if name == _MODE and value not in ("datagram", "connected"):
            raise CommandFailed(f"Error: Failed to modify: {name}: property is invalid")
        if not value and name.startswith(_OPTIONAL):
            profile.properties.pop(name, None)
            if not any(each.startswith(_OPTIONAL) for each in profile.properties):
                self._nm_emptied[uuid] = _OPTIONAL.rstrip(".")
            return
        if name.startswith(_OPTIONAL):
            self._nm_emptied.pop(uuid, None)
        assert name in profile.properties or name.startswith(_OPTIONAL), name
        profile.properties[name] = value or _DEFAULTS.get(name, "")

    def _reapply(self, name: str) -> None:
        active = [u for u, p in self._nm_profiles.items() if p.row["DEVICE"] == name]
        if not active:
            raise CommandFailed("Error: Device is not activated.", 1)
        for setting in self.refused().get(name, ()):
            words = f"Can't reapply any changes to '{setting}'"
            raise CommandFailed(f"Error: Reapplying connection failed: {words}", 1)
        values = self._nm_profiles[active[0]].properties
        if values != self._nm_applied[active[0]] and values.get(_MTU, "").isdecimal():
            self.set_mtu(name, int(values[_MTU]))
        self._nm_applied[active[0]] = dict(values)

    def _autoconnect(self, uuid: str) -> None:
        with contextlib.suppress(CommandFailed):
            self.activate(uuid)

    def activate(self, uuid: str) -> None:
        """Set the values of a profile on its netdev."""
        profile = self._nm_profiles[uuid]
        values = profile.properties
        name = values[_NAME] or profile.row["DEVICE"]
        if name not in self.netdevs() and values.get(_PARENT):
            assert self.create_child(values[_PARENT], values[_P_KEY]) == name
            self._nm_made.add(name)
        if name not in self.netdevs():
            raise CommandFailed("Error: Connection activation failed: no device", 4)
        if self.text(name, "carrier") != "1":
            self._nm_devices[name] = "unavailable"
            words = f"device {name} not available because device has no carrier"
            raise CommandFailed(f"Error: Connection activation failed: {words}", 4)
        self._forget(name)
        if _MODE in values:
            try:
                self.set_mode(name, values[_MODE])
            except OSError as e:
                if name in self._nm_made:
                    self._nm_made.discard(name)
                    self.remove_netdev(name)
                raise CommandFailed("Error: Connection activation failed", 4) from e
            if values[_MTU].isdecimal():
                with contextlib.suppress(OSError):  # a line in its log
                    self.set_mtu(name, int(values[_MTU]))
        if _TSO in values:
            feature = self._features[name][f"\t{_KERNEL_TSO}"]
            self._nm_tso[name] = feature in ("on", "off [requested on]")
            self.set_feature(name, _KERNEL_TSO, values[_TSO] == "on")
        if self.dhcp_fails:
            self.dhcp_fails -= 1
            self._forget(name)
            self._nm_devices[name] = "disconnected"
            words = "IP configuration could not be reserved"
            raise CommandFailed(f"Error: Connection activation failed: {words}", 4)
        self._nm_devices[name] = "connected"
        profile.row["DEVICE"] = name
        self._nm_applied[uuid] = dict(values)
        self.activated.append(name)

    def _forget(self, name: str) -> None:
        """Deactivate what is active on a netdev."""
        if name in self._nm_tso:
            self.set_feature(name, _KERNEL_TSO, self._nm_tso.pop(name))
        for uuid, profile in self._nm_profiles.items():
            if profile.row["DEVICE"] == name:
                profile.row["DEVICE"] = ""
                self._nm_applied.pop(uuid, None)

    def delete(self, uuid: str) -> None:
        """Delete a profile with its file; its netdev is free then, or gone."""
        name = self._nm_profiles[uuid].row["DEVICE"]
        if name:
            self._forget(name)
        profile = self._nm_profiles.pop(uuid)
        (self.path / profile.row["FILENAME"].lstrip("/")).unlink(missing_ok=True)
        if name in self._nm_made:
            self._nm_made.discard(name)
            self._nm_devices.pop(name, None)
            self.remove_netdev(name)
        elif name:
            self._nm_devices[name] = "disconnected"

    def nm_boot(self) -> None:
        """Activate what there is for the netdevs that are there, parents first."""
        self._nm_made.clear()
        self._nm_applied.clear()
        self._nm_tso.clear()
        for uuid in sorted(self._nm_profiles, key=self._depth):
            profile = self._nm_profiles[uuid]
            if profile.properties["connection.type"] == "infiniband":
                profile.row["DEVICE"] = ""
                self._autoconnect(uuid)

    def _depth(self, uuid: str) -> int:
        return len(self._nm_profiles[uuid].properties.get(_PARENT, ""))
