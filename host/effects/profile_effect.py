# SPDX-License-Identifier: GPL-2.0-or-later
"""Setting single properties of NetworkManager profiles, through NetworkManager."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.effects import keyfile, nm_profile
from ovirt_rdma.host.effects.effect import EffectFailed, Host, Reading
from ovirt_rdma.host.effects.nm_profile import NoSuchProfile
from ovirt_rdma.host.effects.same_value import same_value
from ovirt_rdma.host.effects.targets import netdev_of
from ovirt_rdma.host.rules.ipoib_settings import NEW
from ovirt_rdma.host.rules.rule import Change
from ovirt_rdma.host.safe_file import read_file


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
        found = nm_profile.properties(host, uuid, change.name.partition(".")[0])
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
        raise EffectFailed(f"the profile {change.target} has no UUID")
    nm_profile.modify(host, known, change.name, change.after)


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
        nm_profile.modify(host, known, change.name, before)
    except NoSuchProfile:
        return False
    return True


def is_gone(host: Host, change: Change, uuid: Optional[str]) -> bool:
    """Whether there is no such profile (any more); False where nobody can tell."""
    known = uuid_of(change, uuid)
    if known is None:
        return True
    try:
        found = nm_profile.properties(host, known)
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
        path = host.path(keyfile.path_of(netdev_of(change) or ""))
        text = read_file(path).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    return text if keyfile.value_in(text, keyfile.UUID) == uuid else None


def _in_file(change: Change, text: str) -> Reading:
    return _set(change, keyfile.value_in(text, change.name))


def _set(change: Change, value: Optional[str]) -> Reading:
    return Reading(None if same_value(change, value, None) else value)
