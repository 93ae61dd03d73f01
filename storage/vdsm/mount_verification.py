# SPDX-License-Identifier: GPL-2.0-or-later
"""Verify a mount: proven, marked as degraded, or unmounted.

What connecting a named export needs of VDSM's own connection.

What the mount of a named export turned out to be: proven, marked or taken back.

Effects: unmounts what breaks a promise, and marks what is degraded.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, Optional, Protocol

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import DegradedMark, NfsMount
from ovirt_rdma.host.policy.model import REQUIRE_RDMA, TCP, NfsRule
from ovirt_rdma.storage.proof import RDMA, UNPROVEN, Proof, mounted_s, prove, shown, utc
from ovirt_rdma.storage.transport import STOCK
from ovirt_rdma.storage.trunking import (
    REMOUNT,
    UNTOLD,
    because,
    remedy,
    sharers,
    took_over,
)
from ovirt_rdma.storage.vdsm.context import Shared, refused


class StockConnection(Protocol):
    """What a named export needs of VDSM's own connection."""

    @property
    def local_path(self) -> str:
        """Where the export gets mounted."""

    def is_mounted(self) -> bool:
        """Whether VDSM sees the export mounted."""

    def use(self, extra_options: str) -> None:
        """Mount with these in place of the engine's extra options from now on."""

    def mount(self) -> Optional[bytes]:
        """Mount as stock VDSM does; mount's standard error if mount failed.

        Everything else that can go wrong is raised as it is.
        """

    def unmount(self) -> None:
        """Unmount as stock VDSM does."""


_MOUNT_CONF = "look into /etc/nfsmount.conf and /etc/nfsmount.conf.d"
_UNSEEN = (
    "it took the connection of an NFS 4 mount of the server that is not seen here, "
    "such as one that was unmounted while in use"
)
_UNTOLD_NOW = (
    "report this with the host's /proc/self/mountinfo and /proc/self/mountstats; "
    "a rule that says prefer-rdma mounts it nevertheless"
)
_END_USERS = "end what still uses an unmounted file system of the server, or reboot"

log = logging.getLogger("storage.ovirt_rdma")


@dataclass(frozen=True)
class _Seen:
    """The mount at the export's place, its proof, and others on its connection."""

    mount: NfsMount
    proof: Proof
    others: tuple[NfsMount, ...]


class MountVerification:
    """Looks at the mounts of one export with the rule that names it."""

    def __init__(self, export: Export, rule: NfsRule, shared: Shared) -> None:
        self._export = export
        self._rule = rule
        self._shared = shared
        self._wanted = TCP if rule.transport == TCP else RDMA

    def after_mount(
        self, stock: StockConnection, asked: str, reason: str, fix: str
    ) -> None:
        """Prove a mount that was just made, and mark it if it is degraded.

        ``asked`` is the transport of the attempt; where that is not what the rule
        wants, ``reason`` says why and ``fix`` what to do. Raises ConnectRefused
        where the rule's promise is broken; the mount is taken back then.
        """
        seen = self._look(stock)
        transport = seen.proof.transport if seen else None
        if seen is None or transport is None:
            self._cannot_be_told(stock, seen)
            return
        if asked in (transport, STOCK):
            log.info(
                "%s: mounted over %s, proven (%s)", self._export, transport, seen.proof
            )
        else:
            told = (
                f"{asked} was asked for, but the kernel mounted over {transport} "
                f"({seen.proof})"
            )
            shared = self._shared_with(seen)
            cause, fix, now = _cause(shared, took_over(seen.mount, self._rule.port))
            reason = f"{told}, {cause}"
            if self._rule.transport == REQUIRE_RDMA:
                self._take_back(stock, reason, now)
            if transport == self._wanted:
                log.info("%s: %s", self._export, reason)
            else:
                log.warning(
                    "%s: %s; this mount is degraded; fix: %s", self._export, reason, now
                )
            reason = because(shared) if shared else reason
        with self._own_errors_logged():
            self._note(seen, transport, reason, fix)

    def _cannot_be_told(self, stock: StockConnection, seen: Optional[_Seen]) -> None:
        """Take back a mount that must be RDMA and may be anything; mark any other.

        A promise that holds only as long as all goes well is none, and nobody uses
        the mount yet.
        """
        proof = seen.proof if seen else "it is not seen among the host's mounts"
        told = f"mounted, but over which transport cannot be told ({proof})"
        if self._rule.transport == REQUIRE_RDMA:
            self._take_back(stock, told, _UNTOLD_NOW)
        log.warning(
            "%s: %s; this mount is degraded; fix: %s", self._export, told, UNTOLD
        )
        if seen is not None:
            with self._own_errors_logged():
                self._note(seen, UNPROVEN, told, UNTOLD)

    def existing(self, stock: StockConnection) -> None:
        """Judge a mount that was there already; tell once if it is degraded.

        Raises ConnectRefused for one that should have been taken back, and could
        not be.
        """
        seen = self._look(stock)
        transport = seen.proof.transport if seen else None
        if stock.local_path in self._shared.not_taken_back:
            if self._rule.transport == REQUIRE_RDMA and transport != RDMA:
                raise refused(
                    self._export,
                    "an earlier mount that could not be unmounted is in the way",
                    f"umount -f -l {shlex.quote(stock.local_path)}",
                )
            self._shared.not_taken_back.discard(stock.local_path)
        if seen is not None:
            with self._own_errors_logged():
                self._tell_once(seen, transport or UNPROVEN)

    def _tell_once(self, seen: _Seen, transport: str) -> None:
        uptime_s = self._shared.surroundings.reader.uptime()
        mark = self._shared.marks.of(seen.mount, uptime_s)
        wish = self._rule.transport
        if transport == self._wanted:
            self._note(seen, transport)
        elif mark is None:
            self._warn(seen, transport)
            self._note(seen, transport, self._found_it(seen, uptime_s))
        elif (mark.wanted, mark.transport) != (wish, transport):
            self._warn(seen, transport)
            self._note(seen, transport, mark.reason, mark.fix)

    def _warn(self, seen: _Seen, transport: str) -> None:
        fix = f"{remedy(seen.others)}; then {REMOUNT}" if seen.others else REMOUNT
        if transport == UNPROVEN:
            transport, fix = f"what cannot be told ({seen.proof})", UNTOLD
        log.warning(
            "%s: already mounted over %s, while %s says %s: this mount is degraded; "
            "fix: %s",
            self._export,
            transport,
            self._rule.title,
            self._rule.transport,
            fix,
        )

    def _look(self, stock: StockConnection) -> Optional[_Seen]:
        try:
            mounts = self._shared.surroundings.reader.nfs_mounts()
        except Exception:
            log.exception("%s: reading the mounts failed", self._export)
            return None
        for mount in mounts:
            if mount.mountpoint == stock.local_path:
                return _Seen(mount, prove(mount), sharers(mount, mounts))
        return None

    def _shared_with(self, seen: _Seen) -> tuple[NfsMount, ...]:
        """Return the mounts that gave this one its transport."""
        if took_over(seen.mount, self._rule.port) is False:
            return ()
        return seen.others

    @contextlib.contextmanager
    def _own_errors_logged(self) -> Iterator[None]:
        # A mark is no reason for a mount to fail.
        try:
            yield
        except Exception:
            log.exception("%s: marking failed; please report this", self._export)

    def _found_it(self, seen: _Seen, uptime_s: float) -> str:
        booted_at = self._shared.surroundings.reader.booted_at()
        now = utc(booted_at, uptime_s or None)
        at = f", at {shown(now)}" if now else ""
        found = f"it was mounted already when vdsmd first saw it{at}"
        shared = self._shared_with(seen)
        return f"{found}; {because(shared)}" if shared else found

    def _note(
        self, seen: _Seen, transport: str, reason: str = "", fix: str = ""
    ) -> None:
        """Mark the mount as degraded, or drop its mark where it is as it should be."""
        marks = self._shared.marks
        if transport == self._wanted:
            marks.drop(seen.mount.mountpoint)
            return
        reader = self._shared.surroundings.reader
        uptime_s = reader.uptime()
        made = mounted_s(seen.mount, uptime_s)
        mark = DegradedMark(
            mountpoint=seen.mount.mountpoint,
            export=str(self._export),
            rule=self._rule.name,
            wanted=self._rule.transport,
            transport=transport,
            reason=reason,
            fix=fix,
            since=utc(reader.booted_at(), made),
            mounted_s=made,
        )
        marks.put(mark, reader.nfs_mounts, uptime_s)

    def _take_back(self, stock: StockConnection, sentence: str, fix: str) -> NoReturn:
        try:
            stock.unmount()
        except Exception as error:
            self._shared.not_taken_back.add(stock.local_path)
            sentence += f"; unmounting it again failed ({error})"
            raise refused(self._export, sentence, fix) from error
        raise refused(self._export, f"{sentence}; unmounted again", fix)


def _cause(
    shared: tuple[NfsMount, ...], took_it_over: Optional[bool]
) -> tuple[str, str, str]:
    """Say why a mount has not the transport that was asked for; what its mark has as
    a fix, and what is to be done now.
    """
    if shared:
        # What a later reader is to do depends on what is mounted then.
        now = f"{remedy(shared)}; then {REMOUNT}"
        return f"because {because(shared)}", "", now
    if took_it_over:
        return f"because {_UNSEEN}", _END_USERS, _END_USERS
    return "which settings of nfsmount.conf can cause", _MOUNT_CONF, _MOUNT_CONF
