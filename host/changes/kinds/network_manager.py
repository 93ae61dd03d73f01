# SPDX-License-Identifier: GPL-2.0-or-later
"""Change NetworkManager profiles.

The file of a new NetworkManager profile: nm-settings-keyfile(5). Pure.

NetworkManager as effects need it: what a profile says, and why nmcli refuses.

nmcli(1), "EXIT STATUS": 3 no answer in time, 4 and 5 (de)activation failed, 8
NetworkManager does not run, 10 no such profile, device or access point.

Setting single properties of NetworkManager profiles, through NetworkManager.

Bringing what a profile says into force on its netdev, so that NetworkManager's
applied connection and the profile are the same (:mod:`ovirt_rdma.host.rules.reapply`).

With an activation NetworkManager also sets what else the profile says, and addresses
come and go. What had been set on the netdev otherwise, by whomever, is not ours to
change: mode, MTU and TSO are set back to what they were.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.changes.kinds import offload, sysfs
from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.location import NET_CLASS
from ovirt_rdma.host.changes.kinds.properties import MODE_FILE, netdev_of, same_value
from ovirt_rdma.host.collect.parsers import nmcli as nmcli_output
from ovirt_rdma.host.rules.base import OFFLOAD, SYSFS, Change
from ovirt_rdma.host.rules.infiniband.limits import TSO_FEATURES
from ovirt_rdma.host.rules.infiniband.settings import NEW, P_KEY, TRANSPORT_MODE, TSO
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled
from ovirt_rdma.host.system.files import sync_directory
from ovirt_rdma.host.system.safe_file import read_file

FOLDER = "/etc/NetworkManager/system-connections"
UUID = "connection.uuid"

_COMMENT = "# Made by ovirt-rdma-host; ovirt-rdma-host revert takes it away."
# A keyfile has ethtool's switches as booleans (libnm-core nm-keyfile.c).
_SWITCHES = {"on": "true", "off": "false"}
_ETHTOOL = "ethtool."


def path_of(netdev: str) -> str:
    """Return the file of the profile that we make for a netdev."""
    return f"{FOLDER}/ovirt-rdma-{netdev}.nmconnection"


def text_of(properties: Mapping[str, str]) -> str:
    """Return the keyfile of a profile with ``properties``, named as nmcli does:
    ``infiniband.transport-mode``.
    """
    sections: dict[str, list[str]] = {}
    for name, value in properties.items():
        section, _, key = name.partition(".")
        escaped = _kept(name, value).replace("\\", "\\\\")
        sections.setdefault(section, []).append(f"{key}={escaped}")
    blocks = ["\n".join([f"[{name}]", *keys]) for name, keys in sections.items()]
    return "\n\n".join([_COMMENT, *blocks]) + "\n"


def value_in(text: str, name: str) -> Optional[str]:
    """Return a property that a keyfile has; None where it has not, or is none."""
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


def _kept(name: str, value: str) -> str:
    if name == P_KEY:
        return str(int(value, 16))  # in decimal digits
    return _SWITCHES[value] if name.startswith(_ETHTOOL) else value


_NOT_RUNNING = 8
_NOT_FOUND = 10
_MEANINGS = {
    3: "it did not answer in time",
    _NOT_RUNNING: "NetworkManager does not run",
    _NOT_FOUND: "there is no such profile",
}
_START = "systemctl start NetworkManager"
# Settings that a profile need not have. NetworkManager keeps one that has nothing in it
# any more ("[ethtool]" in the keyfile): the profile would not be as it was.
_OPTIONAL = ("ethtool",)


class NoSuchProfile(EffectFailed):
    """NetworkManager does not know the profile."""


class NotRunning(EffectFailed):
    """NetworkManager does not run, or is not installed."""


def nmcli(host: Host, what: str, *words: str) -> str:
    """Run nmcli. ``what`` says what failed if it fails: ``the profile ... cannot be
    changed``.

    Raises NoSuchProfile, NotRunning, or EffectFailed.
    """
    try:
        return host.tool("nmcli", *words)
    except NotInstalled:
        raise NotRunning(
            "network-manager-not-running",
            f"{what}: NetworkManager does not run: nmcli is not there",
            "install NetworkManager, and start it",
        ) from None
    except CommandFailed as e:
        code = e.returncode
        meaning = _MEANINGS.get(code or 0)
        said = str(e).rstrip(".")
        sentence = f"{what}: {meaning or said}"
        if code == _NOT_FOUND:
            raise NoSuchProfile("profile-gone", sentence) from None
        if code == _NOT_RUNNING:
            raise NotRunning("network-manager-not-running", sentence, _START) from None
        raise EffectFailed(
            "network-manager-refused", sentence, "journalctl -b -u NetworkManager"
        ) from None


def properties(host: Host, uuid: str, *settings: str) -> Optional[dict[str, str]]:
    """Return what the profile ``uuid`` says in ``settings`` (``infiniband``), by
    property, as nmcli prints it; None where NetworkManager does not know it.

    Raises EffectFailed where it does not tell.
    """
    # The UUID is in "connection", and tells which profile was printed.
    fields = ",".join(dict.fromkeys(("connection", *settings)))
    words = ("-t", "-f", fields, "connection", "show", "uuid", uuid)
    try:
        text = nmcli(host, f"the profile {uuid} cannot be read", *words)
    except NoSuchProfile:
        return None
    found = nmcli_output.profiles(text).get(uuid)
    return None if found is None else {one.name: one.value for one in found}


def modify(host: Host, uuid: str, name: str, value: Optional[str]) -> None:
    """Set a property of a profile, or with None take it out. Raises EffectFailed."""
    what = f"the profile {uuid} cannot be changed ({name} {value or 'unset'})"
    nmcli(host, what, "connection", "modify", "uuid", uuid, name, value or "")
    setting = name.partition(".")[0]
    if value is None and setting in _OPTIONAL and _is_empty(host, uuid, setting):
        nmcli(host, what, "connection", "modify", "uuid", uuid, "remove", setting)
    # NetworkManager puts the new file's text on disk, and leaves its name to the kernel
    # (nm_utils_file_set_contents): where /var is a file system of its own, a power cut
    # would leave the journal ahead of the profile.
    with suppress(OSError):
        sync_directory(host.path(FOLDER))


def _is_empty(host: Host, uuid: str, setting: str) -> bool:
    found = properties(host, uuid, setting) or {}
    return not any(name.startswith(f"{setting}.") for name in found)


def device_states(host: Host) -> dict[str, str]:
    """Return nmcli's state of each device: ``disconnected``. Raises EffectFailed."""
    text = nmcli(
        host, "its devices are not known", "-t", "-f", "DEVICE,STATE", "device"
    )
    return {row[0]: row[1] for row in nmcli_output.table(text, 2)}


def read(host: Host, change: Change, uuid: Optional[str]) -> Reading:
    """Return the property as nmcli prints it; None where it is not set, and where
    there is no such profile.

    A profile of ours that NetworkManager does not know, or not now, is read from its
    file: so it is when a run was killed between the file and NetworkManager.
    """
    uuid = uuid_of(change, uuid)
    if uuid is None:
        return Reading()  # it is not there before it has one
    try:
        found = properties(host, uuid, change.name.partition(".")[0])
    except EffectFailed as e:
        text = own_file(host, change, uuid)
        return Reading(problem=str(e)) if text is None else _in_file(change, text)
    if found is None:
        text = own_file(host, change, uuid)
        return Reading() if text is None else _in_file(change, text)
    return _set(change, found.get(change.name))


def do(host: Host, change: Change, uuid: Optional[str]) -> None:
    """Set the property. Raises EffectFailed."""
    known = uuid_of(change, uuid)
    if known is None:
        raise EffectFailed(
            "profile-no-uuid", f"the profile {change.target} has no UUID"
        )
    modify(host, known, change.name, change.after)


def undo(
    host: Host, change: Change, uuid: Optional[str], before: Optional[str]
) -> bool:
    """Set the property to ``before``, and return whether it was something else; nothing
    where the profile is gone. Raises EffectFailed.
    """
    known = uuid_of(change, uuid)
    if known is None:
        return False
    present = read(host, change, uuid)
    if not present.problem and same_value(change, present.value, before):
        return False
    try:
        modify(host, known, change.name, before)
    except NoSuchProfile:
        return False
    return True


def is_gone(host: Host, change: Change, uuid: Optional[str]) -> bool:
    """Whether there is no such profile (any more); False where nobody can tell."""
    known = uuid_of(change, uuid)
    if known is None:
        return True
    try:
        found = properties(host, known)
    except EffectFailed:
        return False
    return found is None and own_file(host, change, known) is None


def uuid_of(change: Change, uuid: Optional[str]) -> Optional[str]:
    """Return the UUID of the profile that ``change`` is about."""
    return uuid if change.target.startswith(NEW) else change.target


def own_file(host: Host, change: Change, uuid: str) -> Optional[str]:
    """Return the text of the file that we made for a new profile; None where it is
    not there, or is another profile's.
    """
    if not change.target.startswith(NEW):
        return None
    try:
        path = host.path(path_of(netdev_of(change) or ""))
        text = read_file(path).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    return text if value_in(text, UUID) == uuid else None


def _in_file(change: Change, text: str) -> Reading:
    return _set(change, value_in(text, change.name))


def _set(change: Change, value: Optional[str]) -> Reading:
    return Reading(None if same_value(change, value, None) else value)


# What nmcli waits for an activation; below effect.COMMAND_TIMEOUT_S. NetworkManager
# gives DHCP 45 s.
WAIT_S = "50"


def activate(host: Host, what: str, uuid: str) -> None:
    """Activate a profile; ``what`` says what failed if it does. Raises EffectFailed."""
    nmcli(host, what, "--wait", WAIT_S, "connection", "up", "uuid", uuid)


def bring_into_force(host: Host, uuid: str, changed: str = "") -> None:
    """Have NetworkManager take over what the profile ``uuid`` says, where it is active:
    by a Reapply, which interrupts nothing, and where it refuses that by activation.

    What ``changed``, a property of the profile, decides on the netdev is as the profile
    has it then, all else as it was. Raises EffectFailed.
    """
    what = f"the profile {uuid} cannot be brought into force"
    name = _active_on(host, what, uuid)
    if name is None or "," in name:
        # On several netdevs (connection.multi-connect, which nmstate never sets) an
        # activation may take another one: their next setup brings it into force.
        return
    known = list(_set_on(host, name, changed))
    try:
        nmcli(host, what, "--wait", WAIT_S, "device", "reapply", name)
    except EffectFailed:
        activate(host, what, uuid)
    for change in known:
        effect = offload if change.kind == OFFLOAD else sysfs
        effect.undo(host, change, change.before)


def _active_on(host: Host, what: str, uuid: str) -> Optional[str]:
    text = nmcli(host, what, "-t", "-f", "UUID,DEVICE", "connection")
    rows = {row[0]: row[1] for row in nmcli_output.table(text, 2)}
    return rows.get(uuid) or None


def _set_on(host: Host, name: str, changed: str) -> Iterator[Change]:
    """Yield what is set on a netdev, as changes to what is there, the mode first: it
    sets an MTU.
    """
    for file in () if changed == TRANSPORT_MODE else (MODE_FILE, "mtu"):
        change = Change(SYSFS, f"{NET_CLASS}/{name}/{file}", None, None)
        yield replace(change, before=sysfs.read(host, change).value)
    for feature in () if changed == TSO else TSO_FEATURES:
        change = Change(OFFLOAD, name, None, None, feature)
        yield replace(change, before=offload.read(host, change).value)
