# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a NetworkManager profile, completely or not at all, and delete it again.

The profile is written as a file: only so can it have a UUID that was in the journal
before the profile existed. NetworkManager then loads the file, and the loaded profile
is verified.
"""

from __future__ import annotations

from ovirt_rdma.host.changes.kinds import network_manager
from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host
from ovirt_rdma.host.changes.kinds.location import NET_CLASS
from ovirt_rdma.host.changes.kinds.model import AtomicChange
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
# No profile is active on it, or only one that NetworkManager has generated.
_FREE = ("disconnected", "connected (externally)")
_WITHOUT_CARRIER = "unavailable"
_JOURNAL = "journalctl -b -u NetworkManager"


def do(host: Host, act: AtomicChange) -> None:
    """Make the profile, and activate it if its netdev is free. With
    ``ignore-carrier=*`` (NetworkManager-config-server, which ovirt-host requires), a
    netdev without carrier is free too; otherwise NetworkManager activates the profile
    later by itself. Raises EffectFailed; there is no profile then.
    """
    path, uuid = _file_of(act), _uuid_of(act)
    running = nmcli(host, "no profile can be made", "-t", "-f", "RUNNING", "general")
    if running.strip() != "running":
        raise EffectFailed(
            "network-manager-not-running",
            "no profile can be made: NetworkManager is not running",
        )
    _check_free(host, act, path, uuid)
    # Read before: NetworkManager activates a profile by itself when it loads it.
    is_free = bool(_child_of(act)) or _is_free(host, act)
    try:
        _write(host, act, path, uuid)
        failure = f"NetworkManager does not load {path}"
        nmcli(host, failure, "connection", "load", path)
        _check_loaded(host, act, uuid)
        if is_free:
            _activate(host, act, uuid)
    except EffectFailed as failed:
        try:
            undo(host, act)
        except EffectFailed as left:
            raise EffectFailed(
                "profile-not-removed", f"{failed}; also, {left}", left.fix
            ) from None
        raise


def undo(host: Host, act: AtomicChange) -> None:
    """Delete the profile, and wait until the child that it made is gone too.

    Raises EffectFailed.
    """
    path, uuid = _file_of(act), _uuid_of(act)
    failure = f"the profile {uuid} cannot be deleted"
    running = True
    try:
        nmcli(host, failure, "--wait", _WAIT_S, "connection", "delete", "uuid", uuid)
    except NoSuchProfile:
        pass
    except NotRunning:  # only the file has to be removed
        running = False
    _remove(host, act, path, uuid)
    child = _child_of(act)
    if child and not running and _exists(host, child):
        # NetworkManager has made it, but does not know that when it is started again.
        command = ("ip", "link", "delete", child)
        host.run_or_fail(f"{child} cannot be removed", command)
    if child and not host.wait_for(lambda: not _exists(host, child), CHILD_S):
        raise EffectFailed(
            "netdev-not-removed",
            f"the profile of {child} was deleted, but {child} still exists",
            f"ip link delete {child}",
        )


def _check_free(host: Host, act: AtomicChange, path: str, uuid: str) -> None:
    place = host.path(path)
    if not place.parent.is_dir():
        raise EffectFailed(
            "profile-folder-missing",
            f"no profile can be made: {network_manager.FOLDER} does not exist",
        )
    taken = place.is_symlink() or place.exists()
    if taken and network_manager.own_file(host, act.changes[0], uuid) is None:
        raise EffectFailed(
            "profile-file-exists",
            f"{path} already exists, and is not from this run",
            "read it, and delete that profile, or give the file another name",
        )


def _write(host: Host, act: AtomicChange, path: str, uuid: str) -> None:
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


def _check_loaded(host: Host, act: AtomicChange, uuid: str) -> None:
    """Verify that NetworkManager has the profile: nmcli exits with 0 even if
    NetworkManager has not accepted the file.
    """
    settings = [change.name.partition(".")[0] for change in act.changes]
    loaded = network_manager.properties(host, uuid, *settings)
    if loaded is None:
        raise EffectFailed(
            "profile-not-loaded",
            "NetworkManager has not accepted the profile for "
            f"{netdev_of(act.changes[0])}",
            f"its log says why: {_JOURNAL}",
        )
    for change in act.changes:
        value = loaded.get(change.name)
        if not same_value(change, change.after, value):
            raise EffectFailed(
                "profile-value-differs",
                f"{change.name} in the new profile is {value or 'unset'} in "
                f"NetworkManager, not {change.after}",
                _JOURNAL,
            )


def _is_free(host: Host, act: AtomicChange) -> bool:
    name = netdev_of(act.changes[0]) or ""
    return network_manager.device_states(host).get(name) in _FREE


def _activate(host: Host, act: AtomicChange, uuid: str) -> None:
    name = netdev_of(act.changes[0]) or ""
    child = _child_of(act)
    failure = f"the new profile of {name} cannot be activated"
    try:
        activate(host, failure, uuid)
    except EffectFailed:
        # NetworkManager activates it as soon as there is carrier.
        if network_manager.device_states(host).get(name) != _WITHOUT_CARRIER:
            raise
    if child and not host.wait_for(lambda: _exists(host, child), CHILD_S):
        raise EffectFailed(
            "netdev-not-created",
            f"{child} did not appear within {CHILD_S:g} s",
            _JOURNAL,
        )


def _remove(host: Host, act: AtomicChange, path: str, uuid: str) -> None:
    """Remove the file if NetworkManager has not removed it with the profile, and files
    that a run left that was killed while it wrote.
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


def _child_of(act: AtomicChange) -> str:
    """Return the P_Key child that NetworkManager makes for the profile, or "": it makes
    none if the child already exists.
    """
    made = act.step.partition("/")[0] == MAKES_CHILD
    return (netdev_of(act.changes[0]) or "") if made else ""


def _exists(host: Host, name: str) -> bool:
    return name in FileTree(host.root).names(NET_CLASS)


def _file_of(act: AtomicChange) -> str:
    return network_manager.path_of(netdev_of(act.changes[0]) or "")


def _uuid_of(act: AtomicChange) -> str:
    if act.uuid is None:
        raise EffectFailed(
            "profile-no-uuid", f"the profile {act.changes[0].target} has no UUID"
        )
    return act.uuid
