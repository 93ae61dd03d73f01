# SPDX-License-Identifier: GPL-2.0-or-later
"""Read and change NetworkManager profiles with nmcli, and activate them.

A new profile is a keyfile, see nm-settings-keyfile(5). Exit codes of nmcli are in
nmcli(1), "EXIT STATUS": 3 no answer in time, 4 and 5 (de)activation failed, 8
NetworkManager is not running, 10 no such profile, device or access point.

This is no kind of change, but what :mod:`.profile` needs of NetworkManager.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from contextlib import suppress
from typing import Optional

from ovirt_rdma.host.changes.kinds.host import (
    EffectFailed,
    Host,
)
from ovirt_rdma.host.collect.network_manager import profiles, table
from ovirt_rdma.host.rules.ipoib import P_KEY
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled
from ovirt_rdma.host.system.files import sync_directory

FOLDER = "/etc/NetworkManager/system-connections"
UUID = "connection.uuid"

_COMMENT = "# Made by ovirt-rdma-host; ovirt-rdma-host revert removes it."
# A keyfile has ethtool's switches as booleans (libnm-core nm-keyfile.c).
_SWITCHES = {"on": "true", "off": "false"}
_ETHTOOL = "ethtool."


def path_of(netdev: str) -> str:
    """Return the file of the profile that we make for a netdev."""
    return f"{FOLDER}/ovirt-rdma-{netdev}.nmconnection"


def text_of(properties: Mapping[str, str]) -> str:
    """Return the keyfile of a profile with ``properties``, which have nmcli's names:
    ``infiniband.transport-mode``. Pure.
    """
    sections: dict[str, list[str]] = {}
    for name, value in properties.items():
        section, _, key = name.partition(".")
        escaped = _keyfile_value(name, value).replace("\\", "\\\\")
        sections.setdefault(section, []).append(f"{key}={escaped}")
    blocks = ["\n".join([f"[{name}]", *keys]) for name, keys in sections.items()]
    return "\n\n".join([_COMMENT, *blocks]) + "\n"


def value_in(text: str, name: str) -> Optional[str]:
    """Return a property of a keyfile; None if it has none, or is not valid. Pure."""
    parser = configparser.RawConfigParser(
        delimiters=("=",),
        comment_prefixes=("#",),
        strict=False,
        empty_lines_in_values=False,
    )
    section, _, key = name.partition(".")
    try:
        parser.read_string(text)
        value = parser.get(section, key)
    except configparser.Error:
        return None
    return value.replace("\\\\", "\\")


def _keyfile_value(name: str, value: str) -> str:
    if name == P_KEY:
        return str(int(value, 16))  # in decimal digits
    return _SWITCHES[value] if name.startswith(_ETHTOOL) else value


_NOT_RUNNING = 8
_NOT_FOUND = 10
_MEANINGS = {
    3: "it did not answer in time",
    _NOT_RUNNING: "NetworkManager is not running",
    _NOT_FOUND: "there is no such profile",
}
_START = "systemctl start NetworkManager"
# Settings that a profile need not have. NetworkManager keeps a setting that has become
# empty ("[ethtool]" in the keyfile): the profile would not be the same as before.
_OPTIONAL = ("ethtool",)


class NoSuchProfile(EffectFailed):
    """NetworkManager does not know the profile."""


class NotRunning(EffectFailed):
    """NetworkManager is not running, or is not installed."""


def nmcli(host: Host, failure: str, *arguments: str) -> str:
    """Run nmcli and return its output. An error begins with ``failure``: ``the profile
    ... cannot be changed``.

    Raises NoSuchProfile, NotRunning, or EffectFailed.
    """
    try:
        return host.tool("nmcli", *arguments)
    except NotInstalled:
        raise NotRunning(
            "network-manager-not-running",
            f"{failure}: NetworkManager is not running: nmcli is not installed",
            "install NetworkManager, and start it",
        ) from None
    except CommandFailed as e:
        code = e.returncode
        meaning = _MEANINGS.get(code or 0)
        message = str(e).rstrip(".")
        sentence = f"{failure}: {meaning or message}"
        if code == _NOT_FOUND:
            raise NoSuchProfile("profile-gone", sentence) from None
        if code == _NOT_RUNNING:
            raise NotRunning("network-manager-not-running", sentence, _START) from None
        raise EffectFailed(
            "network-manager-refused", sentence, "journalctl -b -u NetworkManager"
        ) from None


def properties(host: Host, uuid: str, *settings: str) -> Optional[dict[str, str]]:
    """Return the properties of the profile ``uuid`` in ``settings`` (``infiniband``),
    as nmcli prints them; None if NetworkManager has no such profile.

    Raises EffectFailed if they cannot be read.
    """
    # The UUID is in "connection", and shows which profile was printed.
    fields = ",".join(dict.fromkeys(("connection", *settings)))
    arguments = ("-t", "-f", fields, "connection", "show", "uuid", uuid)
    try:
        text = nmcli(host, f"the profile {uuid} cannot be read", *arguments)
    except NoSuchProfile:
        return None
    profile = profiles(text).get(uuid)
    return None if profile is None else {item.name: item.value for item in profile}


def modify(host: Host, uuid: str, name: str, value: Optional[str]) -> None:
    """Set a property of a profile; None unsets it. Raises EffectFailed."""
    failure = f"the profile {uuid} cannot be changed ({name} {value or 'unset'})"
    nmcli(host, failure, "connection", "modify", "uuid", uuid, name, value or "")
    setting = name.partition(".")[0]
    if value is None and setting in _OPTIONAL and _is_empty(host, uuid, setting):
        nmcli(host, failure, "connection", "modify", "uuid", uuid, "remove", setting)
    # NetworkManager syncs the text of the new file, but not its name in the folder
    # (nm_utils_file_set_contents): if /var is a separate file system, a power cut would
    # leave the journal ahead of the profile.
    with suppress(OSError):
        sync_directory(host.path(FOLDER))


def _is_empty(host: Host, uuid: str, setting: str) -> bool:
    present = properties(host, uuid, setting) or {}
    return not any(name.startswith(f"{setting}.") for name in present)


def device_states(host: Host) -> dict[str, str]:
    """Return nmcli's state of each device: ``disconnected``. Raises EffectFailed."""
    failure = "NetworkManager's devices could not be read"
    text = nmcli(host, failure, "-t", "-f", "DEVICE,STATE", "device")
    return {row[0]: row[1] for row in table(text, 2)}


# How long nmcli waits for an activation; below base.COMMAND_TIMEOUT_S. NetworkManager
# gives DHCP 45 s.
WAIT_S = "50"


def activate(host: Host, failure: str, uuid: str) -> None:
    """Activate a profile. Raises EffectFailed; its sentence begins with ``failure``."""
    nmcli(host, failure, "--wait", WAIT_S, "connection", "up", "uuid", uuid)


def active_on(host: Host, failure: str, uuid: str) -> Optional[str]:
    """Return the netdev, or several with commas, on which a profile is active; None if
    it is on none. Raises EffectFailed.
    """
    text = nmcli(host, failure, "-t", "-f", "UUID,DEVICE", "connection")
    rows = {row[0]: row[1] for row in table(text, 2)}
    return rows.get(uuid) or None


def reapply_or_activate(host: Host, failure: str, uuid: str, netdev: str) -> None:
    """Reapply the profile that is active on ``netdev``, which does not interrupt
    anything; if NetworkManager refuses that, activate it. Raises EffectFailed.
    """
    try:
        nmcli(host, failure, "--wait", WAIT_S, "device", "reapply", netdev)
    except EffectFailed:
        activate(host, failure, uuid)
