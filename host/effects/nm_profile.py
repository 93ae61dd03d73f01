# SPDX-License-Identifier: GPL-2.0-or-later
"""NetworkManager as effects need it: what a profile says, and why nmcli refuses.

nmcli(1), "EXIT STATUS": 3 no answer in time, 4 and 5 (de)activation failed, 8
NetworkManager does not run, 10 no such profile, device or access point.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Optional

from ovirt_rdma.host import nmcli_output
from ovirt_rdma.host.atomic_file import sync_directory
from ovirt_rdma.host.commands import CommandFailed, NotInstalled
from ovirt_rdma.host.effects import keyfile
from ovirt_rdma.host.effects.effect import EffectFailed, Host

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
            f"{what}: NetworkManager does not run: nmcli is not there",
            "install NetworkManager, and start it",
        ) from None
    except CommandFailed as e:
        code = e.returncode
        meaning = _MEANINGS.get(code or 0)
        said = str(e).rstrip(".")
        sentence = f"{what}: {meaning or said}"
        if code == _NOT_FOUND:
            raise NoSuchProfile(sentence) from None
        if code == _NOT_RUNNING:
            raise NotRunning(sentence, _START) from None
        raise EffectFailed(sentence, "journalctl -b -u NetworkManager") from None


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
        sync_directory(host.path(keyfile.FOLDER))


def _is_empty(host: Host, uuid: str, setting: str) -> bool:
    found = properties(host, uuid, setting) or {}
    return not any(name.startswith(f"{setting}.") for name in found)


def device_states(host: Host) -> dict[str, str]:
    """Return nmcli's state of each device: ``disconnected``. Raises EffectFailed."""
    text = nmcli(
        host, "its devices are not known", "-t", "-f", "DEVICE,STATE", "device"
    )
    return {row[0]: row[1] for row in nmcli_output.table(text, 2)}
