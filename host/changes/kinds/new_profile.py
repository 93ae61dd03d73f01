# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a NetworkManager profile, completely or not at all, and delete it again.

The profile is written as a file: only so can it have a UUID that was in the journal
before the profile existed. NetworkManager then loads the file, and the loaded profile
is verified.
"""

from __future__ import annotations

import shlex
from typing import Optional

from ovirt_rdma.host.changes.kinds import network_manager
from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host
from ovirt_rdma.host.changes.kinds.kind import Kind, Maker
from ovirt_rdma.host.changes.kinds.location import NET_CLASS
from ovirt_rdma.host.changes.kinds.model import AtomicChange
from ovirt_rdma.host.changes.kinds.network_manager import (
    NoSuchProfile,
    NotRunning,
    activate,
    nmcli,
)
from ovirt_rdma.host.changes.kinds.pkey_child import CHILD_S
from ovirt_rdma.host.changes.kinds.profile import ProfileProperty, uuid_or_fail
from ovirt_rdma.host.rules.base import PROFILE
from ovirt_rdma.host.rules.infiniband.partitions import ID as MAKES_CHILD
from ovirt_rdma.host.rules.infiniband.settings import CONNECTION_TYPE, NEW
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


class NewProfile(Maker):
    """A new profile, and the P_Key child that NetworkManager makes for it."""

    has_uuid = True

    @classmethod
    def is_for(cls, act: AtomicChange) -> bool:
        """Whether ``act`` makes a new profile, and does not change an existing one."""
        return any(
            change.kind == PROFILE
            and change.name == CONNECTION_TYPE
            and change.target.startswith(NEW)
            for change in act.changes
        )

    @property
    def netdev(self) -> Optional[str]:
        """The child. IPOIB-PROFILE-01 makes a profile for one that already exists and
        stays.
        """
        makes_child = self.act.step.partition("/")[0] == MAKES_CHILD
        return self._first.netdev if makes_child else None

    def owns(self, kind: Kind) -> bool:
        """Whether a change has changed this profile, or its child."""
        if isinstance(kind, ProfileProperty):
            return kind.sets.target == self.act.uuid
        return super().owns(kind)

    def describe(self) -> str:
        """Return the profile as text."""
        return f"the profile of {self._first.netdev}"

    def manual_fix(self) -> str:
        """Return the command that deletes the profile."""
        return f"nmcli connection delete {shlex.quote(self._first.sets.target)}"

    def do(self, host: Host) -> None:
        """Make the profile, and activate it if its netdev is free. With
        ``ignore-carrier=*`` (NetworkManager-config-server, which ovirt-host requires),
        a netdev without carrier is free too; otherwise NetworkManager activates the
        profile later by itself. Raises EffectFailed; there is no profile then.
        """
        uuid = self._uuid
        failure = "no profile can be made"
        running = nmcli(host, failure, "-t", "-f", "RUNNING", "general")
        if running.strip() != "running":
            raise EffectFailed(
                "network-manager-not-running",
                "no profile can be made: NetworkManager is not running",
            )
        self._check_free(host)
        # Read before: NetworkManager activates a profile by itself when it loads it.
        is_free = bool(self.netdev) or self._state(host) in _FREE
        try:
            self._write(host)
            failure = f"NetworkManager does not load {self._path}"
            nmcli(host, failure, "connection", "load", self._path)
            self._check_loaded(host, uuid)
            if is_free:
                self._activate(host, uuid)
        except EffectFailed as failed:
            try:
                self.undo(host)
            except EffectFailed as left:
                raise EffectFailed(
                    "profile-not-removed", f"{failed}; also, {left}", left.fix
                ) from None
            raise

    def undo(self, host: Host) -> None:
        """Delete the profile, and wait until the child that it made is gone too.

        Raises EffectFailed.
        """
        uuid, child = self._uuid, self.netdev
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
    def _first(self) -> ProfileProperty:
        return ProfileProperty(self.act.changes[0], self.act.uuid)

    @property
    def _uuid(self) -> str:
        return uuid_or_fail(self.act.changes[0], self.act.uuid)

    @property
    def _path(self) -> str:
        return network_manager.path_of(self._first.netdev or "")

    def _state(self, host: Host) -> Optional[str]:
        return network_manager.device_states(host).get(self._first.netdev or "")

    def _check_free(self, host: Host) -> None:
        place = host.path(self._path)
        if not place.parent.is_dir():
            raise EffectFailed(
                "profile-folder-missing",
                f"no profile can be made: {network_manager.FOLDER} does not exist",
            )
        taken = place.is_symlink() or place.exists()
        if taken and self._first.own_file(host) is None:
            raise EffectFailed(
                "profile-file-exists",
                f"{self._path} already exists, and is not from this run",
                "read it, and delete that profile, or give the file another name",
            )

    def _write(self, host: Host) -> None:
        wanted = {c.name: c.after for c in self.act.changes if c.after is not None}
        text = network_manager.text_of({network_manager.UUID: self._uuid, **wanted})
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
        settings = [change.name.partition(".")[0] for change in self.act.changes]
        loaded = network_manager.properties(host, uuid, *settings)
        if loaded is None:
            raise EffectFailed(
                "profile-not-loaded",
                f"NetworkManager has not accepted the profile for {self._first.netdev}",
                f"its log says why: {_JOURNAL}",
            )
        for change in self.act.changes:
            value = loaded.get(change.name)
            if not ProfileProperty(change).same(change.after, value):
                raise EffectFailed(
                    "profile-value-differs",
                    f"{change.name} in the new profile is {value or 'unset'} in "
                    f"NetworkManager, not {change.after}",
                    _JOURNAL,
                )

    def _activate(self, host: Host, uuid: str) -> None:
        child = self.netdev
        failure = f"the new profile of {self._first.netdev} cannot be activated"
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
            if self._first.own_file(host) is not None:
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
