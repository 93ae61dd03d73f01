# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a NetworkManager profile, completely or not at all, and delete it again.

The profile is written as a file: only so can it have a UUID that was in the journal
before the profile existed. NetworkManager then loads the file, and the loaded profile
is verified.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.changes.kinds import network_manager
from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host
from ovirt_rdma.host.changes.kinds.kind import Kind
from ovirt_rdma.host.changes.kinds.model import AtomicChange
from ovirt_rdma.host.changes.kinds.network_manager import (
    NoSuchProfile,
    NotRunning,
    activate,
    nmcli,
)
from ovirt_rdma.host.changes.kinds.pkey_child import CHILD_S
from ovirt_rdma.host.changes.kinds.profile import ProfileProperty
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import PROFILE, Change
from ovirt_rdma.host.rules.ipoib_children import CHILDREN
from ovirt_rdma.host.rules.profiles import CONNECTION_TYPE, NEW
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


@dataclass(frozen=True)
class NewProfile(ProfileProperty):
    """All changes that make a new profile, ``changes``, of which ``change`` is the
    first. ``makes_child``: NetworkManager makes the P_Key child for it too;
    IPOIB-PROFILE-01 makes a profile for one that already exists and stays.
    """

    changes: tuple[Change, ...] = ()
    makes_child: bool = False

    is_maker = True

    @classmethod
    def of(cls, act: AtomicChange) -> Optional[NewProfile]:
        """Return the profile that ``act`` makes; None if it changes an existing one."""
        made = any(
            change.kind == PROFILE
            and change.name == CONNECTION_TYPE
            and change.target.startswith(NEW)
            for change in act.changes
        )
        makes_child = act.step.partition("/")[0] == CHILDREN.id
        first = act.changes[0]
        return cls(first, act.uuid, act.changes, makes_child) if made else None

    @property
    def made_netdev(self) -> Optional[str]:
        return self.netdev if self.makes_child else None

    def owns(self, other: Kind) -> bool:
        """Whether ``other`` has changed this profile, or its child."""
        if isinstance(other, ProfileProperty):
            return other.sets.target == self.uuid
        return super().owns(other)

    def describe(self) -> str:
        return f"the profile of {self.netdev}"

    def manual_fix(self, value: Optional[str]) -> str:
        return f"nmcli connection delete {shlex.quote(self.sets.target)}"

    def do(self, host: Host) -> None:
        """Make the profile, and activate it if its netdev is free. With
        ``ignore-carrier=*`` (NetworkManager-config-server, which ovirt-host requires),
        a netdev without carrier is free too; otherwise NetworkManager activates the
        profile later by itself. Raises EffectFailed; there is no profile then.
        """
        uuid = self.uuid_or_fail()
        failure = "no profile can be made"
        running = nmcli(host, failure, "-t", "-f", "RUNNING", "general")
        if running.strip() != "running":
            raise EffectFailed(
                "network-manager-not-running",
                "no profile can be made: NetworkManager is not running",
            )
        self._check_free(host)
        # Read before: NetworkManager activates a profile by itself when it loads it.
        is_free = self.makes_child or self._state(host) in _FREE
        try:
            self._write(host)
            failure = f"NetworkManager does not load {self._path}"
            nmcli(host, failure, "connection", "load", self._path)
            self._check_loaded(host, uuid)
            if is_free:
                self._activate_new(host, uuid)
        except EffectFailed as failed:
            try:
                self.undo(host, None)
            except EffectFailed as left:
                raise EffectFailed(
                    "profile-not-removed", f"{failed}; also, {left}", left.fix
                ) from None
            raise

    def take_effect(self, host: Host) -> None:
        """Do nothing: it is activated as soon as it is made."""

    def undo(self, host: Host, before: Optional[str]) -> None:
        """Delete the profile, and wait until the child that it made is gone too.

        Raises EffectFailed.
        """
        uuid, child = self.uuid_or_fail(), self.made_netdev
        failure = f"the profile {uuid} cannot be deleted"
        delete = ("--wait", _WAIT_S, "connection", "delete", "uuid", uuid)
        running = True
        try:
            nmcli(host, failure, *delete)
        except NoSuchProfile:
            pass
        except NotRunning:  # only the file has to be removed
            running = False
        self._remove(host)
        if child and not running and _exists(host, child):
            # NetworkManager has made it, but does not know that when it is started
            # again.
            command = ("ip", "link", "delete", child)
            host.run_or_fail(f"{child} cannot be removed", command)
        if child and not host.wait_for(lambda: not _exists(host, child), CHILD_S):
            raise EffectFailed(
                "netdev-not-removed",
                f"the profile of {child} was deleted, but {child} still exists",
                f"ip link delete {child}",
            )

    @property
    def _path(self) -> str:
        return network_manager.path_of(self.netdev or "")

    def _state(self, host: Host) -> Optional[str]:
        return network_manager.device_states(host).get(self.netdev or "")

    def _check_free(self, host: Host) -> None:
        place = host.path(self._path)
        if not place.parent.is_dir():
            raise EffectFailed(
                "profile-folder-missing",
                f"no profile can be made: {network_manager.FOLDER} does not exist",
            )
        taken = place.is_symlink() or place.exists()
        if taken and self.own_file(host) is None:
            raise EffectFailed(
                "profile-file-exists",
                f"{self._path} already exists, and is not from this run",
                "read it, and delete that profile, or give the file another name",
            )

    def _write(self, host: Host) -> None:
        wanted = {c.name: c.after for c in self.changes if c.after is not None}
        text = network_manager.text_of(
            {network_manager.UUID: self.uuid_or_fail(), **wanted}
        )
        data = text.encode("utf-8", "surrogateescape")
        try:
            write_atomically(host.path(self._path), data, 0o600)
        except OSError as e:
            raise EffectFailed(
                "profile-not-written", f"{self._path} cannot be written: {e.strerror}"
            ) from None

    def _check_loaded(self, host: Host, uuid: str) -> None:
        """Verify that NetworkManager has the profile: nmcli exits with 0 even if
        NetworkManager has not accepted the file.
        """
        settings = [change.name.partition(".")[0] for change in self.changes]
        loaded = network_manager.properties(host, uuid, *settings)
        if loaded is None:
            raise EffectFailed(
                "profile-not-loaded",
                f"NetworkManager has not accepted the profile for {self.netdev}",
                f"its log says why: {_JOURNAL}",
            )
        for change in self.changes:
            value = loaded.get(change.name)
            if not ProfileProperty(change).same(change.after, value):
                raise EffectFailed(
                    "profile-value-differs",
                    f"{change.name} in the new profile is {value or 'unset'} in "
                    f"NetworkManager, not {change.after}",
                    _JOURNAL,
                )

    def _activate_new(self, host: Host, uuid: str) -> None:
        child = self.made_netdev
        failure = f"the new profile of {self.netdev} cannot be activated"
        try:
            activate(host, failure, uuid)
        except EffectFailed:
            # NetworkManager activates it as soon as there is carrier.
            if self._state(host) != _WITHOUT_CARRIER:
                raise
        if child and not host.wait_for(lambda: _exists(host, child), CHILD_S):
            raise EffectFailed(
                "netdev-not-created",
                f"{child} did not appear within {CHILD_S:g} s",
                _JOURNAL,
            )

    def _remove(self, host: Host) -> None:
        """Remove the file if NetworkManager has not removed it with the profile, and
        files that a run left that was killed while it wrote.
        """
        place = host.path(self._path)
        try:
            if self.own_file(host) is not None:
                place.unlink()
            remove_unfinished(place.parent)
            if place.parent.is_dir():
                sync_directory(place.parent)
        except OSError as e:
            raise EffectFailed(
                "profile-not-removed", f"{self._path} cannot be removed: {e.strerror}"
            ) from None


def _exists(host: Host, name: str) -> bool:
    return name in FileTree(host.root).names(NET_CLASS)
