# SPDX-License-Identifier: GPL-2.0-or-later
"""Making a NetworkManager profile, whole or not at all, and deleting it again.

The profile is written as a file, because only so it has a UUID that was in the journal
before there was a profile; then NetworkManager is told to load it, and asked whether it
has.
"""

from __future__ import annotations

from ovirt_rdma.host.changes.kinds import network_manager
from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host
from ovirt_rdma.host.changes.kinds.location import NET_CLASS
from ovirt_rdma.host.changes.kinds.model import Act
from ovirt_rdma.host.changes.kinds.network_manager import (
    NoSuchProfile,
    NotRunning,
    activate,
    nmcli,
)
from ovirt_rdma.host.changes.kinds.properties import netdev_of, same_value
from ovirt_rdma.host.changes.kinds.sysfs import CHILD_S
from ovirt_rdma.host.rules.infiniband.partitions import ID as MAKES_CHILD
from ovirt_rdma.host.system.files import (
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.system.tree import FileTree

# How long nmcli waits until the profile is gone.
_WAIT_S = "30"
# Nothing is active on it, or only what NetworkManager found there and did not set up.
_FREE = ("disconnected", "connected (externally)")
_WITHOUT_CARRIER = "unavailable"
_JOURNAL = "journalctl -b -u NetworkManager"


def do(host: Host, act: Act) -> None:
    """Make the profile and activate it where its netdev is free. One without carrier is
    free too with ``ignore-carrier=*``, as NetworkManager-config-server has it, which
    ovirt-host requires; elsewhere it gets the profile by itself later. Raises
    EffectFailed; there is no profile then.
    """
    path, uuid = _file_of(act), _uuid_of(act)
    running = nmcli(host, "no profile can be made", "-t", "-f", "RUNNING", "general")
    if running.strip() != "running":
        raise EffectFailed(
            "network-manager-not-running",
            "no profile can be made: NetworkManager does not run",
        )
    _check_free(host, act, path, uuid)
    # Asked before: NetworkManager activates a profile by itself as it loads it.
    is_free = bool(_child_of(act)) or _is_free(host, act)
    try:
        _write(host, act, path, uuid)
        words = ("connection", "load", path)
        nmcli(host, f"NetworkManager does not load {path}", *words)
        _check_loaded(host, act, uuid)
        if is_free:
            _activate(host, act, uuid)
    except EffectFailed as failed:
        try:
            undo(host, act)
        except EffectFailed as left:
            raise EffectFailed(
                "profile-not-removed", f"{failed}; and {left}", left.fix
            ) from None
        raise


def undo(host: Host, act: Act) -> None:
    """Delete the profile, and wait until the child that it made is gone, too.

    Raises EffectFailed.
    """
    path, uuid = _file_of(act), _uuid_of(act)
    what = f"the profile {uuid} cannot be deleted"
    runs = True
    try:
        nmcli(host, what, "--wait", _WAIT_S, "connection", "delete", "uuid", uuid)
    except NoSuchProfile:
        pass
    except NotRunning:  # the file is all that there is
        runs = False
    _remove(host, act, path, uuid)
    child = _child_of(act)
    if child and not runs and _is_there(host, child):
        # NetworkManager made it, and once it runs again knows nothing of it.
        command = ("ip", "link", "delete", child)
        host.must(f"{child} cannot be removed", command)
    if child and not host.wait_for(lambda: not _is_there(host, child), CHILD_S):
        raise EffectFailed(
            "netdev-not-removed",
            f"the profile of {child} is deleted, and {child} is still there",
            f"ip link delete {child}",
        )


def _check_free(host: Host, act: Act, path: str, uuid: str) -> None:
    place = host.path(path)
    if not place.parent.is_dir():
        raise EffectFailed(
            "profile-folder-missing",
            f"{network_manager.FOLDER} is not there: no profile can be kept",
        )
    taken = place.is_symlink() or place.exists()
    if taken and network_manager.own_file(host, act.changes[0], uuid) is None:
        raise EffectFailed(
            "profile-file-exists",
            f"{path} is there already, and is not from this run",
            "look into it, and delete that profile, or give the file another name",
        )


def _write(host: Host, act: Act, path: str, uuid: str) -> None:
    wanted = {c.name: c.after for c in act.changes if c.after is not None}
    text = network_manager.text_of({network_manager.UUID: uuid, **wanted})
    try:
        write_atomically(
            host.path(path), text.encode("utf-8", "surrogateescape"), 0o600
        )
    except OSError as e:
        raise EffectFailed(
            "profile-not-written", f"{path} cannot be written: {e.strerror}"
        ) from None


def _check_loaded(host: Host, act: Act, uuid: str) -> None:
    """nmcli says 0 of a file that NetworkManager did not take, so this asks."""
    settings = [change.name.partition(".")[0] for change in act.changes]
    found = network_manager.properties(host, uuid, *settings)
    if found is None:
        raise EffectFailed(
            "profile-not-loaded",
            f"NetworkManager does not take the profile for {netdev_of(act.changes[0])}",
            f"its journal says why: {_JOURNAL}",
        )
    for change in act.changes:
        value = found.get(change.name)
        if not same_value(change, change.after, value):
            raise EffectFailed(
                "profile-value-differs",
                f"NetworkManager has {change.name} {value or 'unset'} in the new "
                f"profile, and not {change.after}",
                _JOURNAL,
            )


def _is_free(host: Host, act: Act) -> bool:
    name = netdev_of(act.changes[0]) or ""
    return network_manager.device_states(host).get(name) in _FREE


def _activate(host: Host, act: Act, uuid: str) -> None:
    name = netdev_of(act.changes[0]) or ""
    child = _child_of(act)
    what = f"the new profile of {name} cannot be activated"
    try:
        activate(host, what, uuid)
    except EffectFailed:
        # NetworkManager activates it as soon as there is carrier.
        if network_manager.device_states(host).get(name) != _WITHOUT_CARRIER:
            raise
    if child and not host.wait_for(lambda: _is_there(host, child), CHILD_S):
        raise EffectFailed(
            "netdev-not-created",
            f"{child} did not appear within {CHILD_S:g} s",
            _JOURNAL,
        )


def _remove(host: Host, act: Act, path: str, uuid: str) -> None:
    """Remove the file where NetworkManager had no profile, and what a run that was
    killed while it wrote has left.
    """
    place = host.path(path)
    try:
        if network_manager.own_file(host, act.changes[0], uuid) is not None:
            place.unlink()
        remove_unfinished(place.parent)
        if place.parent.is_dir():
            sync_directory(place.parent)
    except OSError as e:
        raise EffectFailed(
            "profile-not-removed", f"{path} cannot be removed: {e.strerror}"
        ) from None


def _child_of(act: Act) -> str:
    """Return the P_Key child that NetworkManager makes for the profile, or ""; a
    profile for a child that was there already makes none.
    """
    made = act.step.partition("/")[0] == MAKES_CHILD
    return (netdev_of(act.changes[0]) or "") if made else ""


def _is_there(host: Host, name: str) -> bool:
    return name in FileTree(host.root).names(NET_CLASS)


def _file_of(act: Act) -> str:
    return network_manager.path_of(netdev_of(act.changes[0]) or "")


def _uuid_of(act: Act) -> str:
    if act.uuid is None:
        raise EffectFailed(
            "profile-no-uuid", f"the profile {act.changes[0].target} has no UUID"
        )
    return act.uuid
