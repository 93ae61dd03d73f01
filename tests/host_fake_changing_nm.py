# SPDX-License-Identifier: GPL-2.0-or-later
"""NetworkManager of a fake host that can be told to change things: profiles are loaded
from keyfiles, changed, activated and deleted, and what they say comes into force.

The forms are those of nmcli 1.42.4. Strict: words that no effect of ours uses fail the
test.
"""

from __future__ import annotations

import configparser
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from host_fake_ipoib_kernel import IpoibKernel

from ovirt_rdma.host.commands import CommandFailed

_PROFILES = "/etc/NetworkManager/system-connections/"
_DEFAULTS = {"infiniband.mtu": "auto", "infiniband.p-key": "default"}
_OPTIONAL = "ethtool."
_MODE, _MTU = "infiniband.transport-mode", "infiniband.mtu"
_P_KEY, _PARENT = "infiniband.p-key", "infiniband.parent"
_NAME, _TSO = "connection.interface-name", "ethtool.feature-tso"


@dataclass
class ChangingNetworkManager(IpoibKernel):
    """``takes_profiles``: whether NetworkManager loads new ones."""

    takes_profiles: bool = True
    # Profiles with a setting that has nothing in it any more, but is there.
    _nm_emptied: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    # Children that NetworkManager made, and removes with their profile.
    _nm_made: set[str] = field(default_factory=set, init=False, repr=False)

    def emptied(self, uuid: str) -> Optional[str]:
        """Return the setting that the profile has with nothing in it, if there is."""
        return self._nm_emptied.get(uuid)

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
        """A file that is not taken is nmcli's exit status 0 all the same."""
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

    def _autoconnect(self, uuid: str) -> None:
        with contextlib.suppress(CommandFailed):
            self.activate(uuid)

    def activate(self, uuid: str) -> None:
        """Bring a profile into force on its netdev."""
        profile = self._nm_profiles[uuid]
        values = profile.properties
        name = values[_NAME]
        if name not in self.netdevs() and values.get(_PARENT):
            assert self.create_child(values[_PARENT], values[_P_KEY]) == name
            self._nm_made.add(name)
        if name not in self.netdevs():
            raise CommandFailed("Error: Connection activation failed: no device", 4)
        if self.text(name, "carrier") != "1":
            self._nm_devices[name] = "unavailable"
            words = f"device {name} not available because device has no carrier"
            raise CommandFailed(f"Error: Connection activation failed: {words}", 4)
        try:
            self.set_mode(name, values[_MODE])
            if values[_MTU].isdecimal():
                self.set_mtu(name, int(values[_MTU]))
        except OSError as e:
            raise CommandFailed("Error: Connection activation failed", 4) from e
        if _TSO in values:
            self.set_feature(name, "tx-tcp-segmentation", values[_TSO] == "on")
        self._nm_devices[name] = "connected"
        profile.row["DEVICE"] = name

    def delete(self, uuid: str) -> None:
        """Delete a profile with its file; its netdev is free then, or gone."""
        profile = self._nm_profiles.pop(uuid)
        (self.path / profile.row["FILENAME"].lstrip("/")).unlink(missing_ok=True)
        name = profile.row["DEVICE"]
        if name in self._nm_made:
            self._nm_made.discard(name)
            self._nm_devices.pop(name, None)
            self.remove_netdev(name)
        elif name:
            self._nm_devices[name] = "disconnected"

    def nm_boot(self) -> None:
        """Activate what there is for the netdevs that are there, parents first."""
        self._nm_made.clear()
        for uuid in sorted(self._nm_profiles, key=self._depth):
            profile = self._nm_profiles[uuid]
            if profile.properties["connection.type"] == "infiniband":
                profile.row["DEVICE"] = ""
                self._autoconnect(uuid)

    def _depth(self, uuid: str) -> int:
        return len(self._nm_profiles[uuid].properties.get(_PARENT, ""))
