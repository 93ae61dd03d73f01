# SPDX-License-Identifier: GPL-2.0-or-later
"""Verify the mount of a named export: prove its transport, mark it, or unmount it.

A mount over the wrong transport is unmounted if its rule requires RDMA. Otherwise it
gets a mark as degraded.
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
from ovirt_rdma.host.mount_options import RDMA
from ovirt_rdma.host.policy.model import REQUIRE_RDMA, TCP, NfsRule
from ovirt_rdma.storage.proof import (
    UNPROVEN,
    Proof,
    mounted_s,
    prove,
    time_for_people,
    utc_time,
)
from ovirt_rdma.storage.transport import STOCK
from ovirt_rdma.storage.trunking import (
    REMOUNT,
    UNPROVEN_FIX,
    conflict_clause,
    conflict_fix,
    sharers,
    uses_earlier_connection,
)
from ovirt_rdma.storage.vdsm.context import Shared, refused


class StockConnection(Protocol):
    """The part of VDSM's own connection that a named export uses."""

    @property
    def local_path(self) -> str:
        """The mount point of the export."""

    def is_mounted(self) -> bool:
        """Whether VDSM sees the export mounted."""

    def use(self, extra_options: str) -> None:
        """From now on mount with these instead of the engine's extra options."""

    def mount(self) -> Optional[bytes]:
        """Mount as stock VDSM does; return mount's standard error if mount failed.

        Raises all other errors of stock VDSM.
        """

    def unmount(self) -> None:
        """Unmount as stock VDSM does."""


_MOUNT_CONF = "check /etc/nfsmount.conf and /etc/nfsmount.conf.d"
_HIDDEN_MOUNT = (
    "it shares the connection of an NFS 4 mount of the server that is not visible "
    "here, such as one that was unmounted while in use"
)
_REPORT = (
    "report this with the host's /proc/self/mountinfo and /proc/self/mountstats; "
    "with prefer-rdma in its rule it is mounted anyway"
)
_END_USERS = (
    "stop the programs that still use an unmounted file system of the server, or reboot"
)

log = logging.getLogger("storage.ovirt_rdma")


@dataclass(frozen=True)
class _Seen:
    """The mount at the export's path, its proof, and others on its connection."""

    mount: NfsMount
    proof: Proof
    others: tuple[NfsMount, ...]


class MountVerification:
    """Verifies the mounts of one export against the rule that names it."""

    def __init__(self, export: Export, rule: NfsRule, shared: Shared) -> None:
        self._export = export
        self._rule = rule
        self._shared = shared
        self._wanted = TCP if rule.transport == TCP else RDMA

    def after_mount(
        self, stock: StockConnection, asked: str, reason: str, fix: str
    ) -> None:
        """Verify a mount that was just made, and mark it if it is degraded.

        ``asked`` is the transport of the attempt. If the rule prefers another,
        ``reason`` says why and ``fix`` what to do. Raises ConnectRefused if the rule
        requires RDMA and the mount is not proven; it is unmounted then.
        """
        seen = self._find(stock)
        transport = seen.proof.transport if seen else None
        if seen is None or transport is None:
            self._unproven(stock, seen)
            return
        if asked in (transport, STOCK):
            log.info(
                "%s: mounted over %s, proven (%s)", self._export, transport, seen.proof
            )
        else:
            mounted = (
                f"{asked} was requested, but the kernel mounted over {transport} "
                f"({seen.proof})"
            )
            shared = self._shared_with(seen)
            cause, fix, now = _cause(
                shared, uses_earlier_connection(seen.mount, self._rule.port)
            )
            reason = f"{mounted}, {cause}"
            if self._rule.transport == REQUIRE_RDMA:
                self._unmount(stock, reason, now)
            if transport == self._wanted:
                log.info("%s: %s", self._export, reason)
            else:
                log.warning(
                    "%s: %s; this mount is degraded; fix: %s", self._export, reason, now
                )
            reason = conflict_clause(shared) if shared else reason
        with self._own_errors_logged():
            self._update_mark(seen, transport, reason, fix)

    def _unproven(self, stock: StockConnection, seen: Optional[_Seen]) -> None:
        """Unmount an unproven mount if its rule requires RDMA; mark it otherwise.

        The mount is not in use yet, and require-rdma allows nothing unproven.
        """
        proof = seen.proof if seen else "it is not among the host's mounts"
        reason = f"mounted, but its transport could not be determined ({proof})"
        if self._rule.transport == REQUIRE_RDMA:
            self._unmount(stock, reason, _REPORT)
        log.warning(
            "%s: %s; this mount is degraded; fix: %s",
            self._export,
            reason,
            UNPROVEN_FIX,
        )
        if seen is not None:
            with self._own_errors_logged():
                self._update_mark(seen, UNPROVEN, reason, UNPROVEN_FIX)

    def existing(self, stock: StockConnection) -> None:
        """Verify a mount that already existed; report it once if it is degraded.

        Raises ConnectRefused for one that had to be unmounted, and could not be.
        """
        seen = self._find(stock)
        transport = seen.proof.transport if seen else None
        if stock.local_path in self._shared.not_unmounted:
            if self._rule.transport == REQUIRE_RDMA and transport != RDMA:
                raise refused(
                    self._export,
                    "an earlier mount could not be unmounted and still exists",
                    f"umount -f -l {shlex.quote(stock.local_path)}",
                )
            self._shared.not_unmounted.discard(stock.local_path)
        if seen is not None:
            with self._own_errors_logged():
                self._report_once(seen, transport or UNPROVEN)

    def _report_once(self, seen: _Seen, transport: str) -> None:
        uptime_s = self._shared.surroundings.reader.uptime()
        mark = self._shared.marks.of(seen.mount, uptime_s)
        if transport == self._wanted:
            self._update_mark(seen, transport)
        elif mark is None:
            self._warn(seen, transport)
            self._update_mark(seen, transport, self._already_mounted(seen, uptime_s))
        elif (mark.wanted, mark.transport) != (self._rule.transport, transport):
            self._warn(seen, transport)
            self._update_mark(seen, transport, mark.reason, mark.fix)

    def _warn(self, seen: _Seen, transport: str) -> None:
        fix = f"{conflict_fix(seen.others)}; then {REMOUNT}" if seen.others else REMOUNT
        if transport == UNPROVEN:
            transport, fix = f"an unknown transport ({seen.proof})", UNPROVEN_FIX
        log.warning(
            "%s: already mounted over %s, while %s says %s: this mount is degraded; "
            "fix: %s",
            self._export,
            transport,
            self._rule.title,
            self._rule.transport,
            fix,
        )

    def _find(self, stock: StockConnection) -> Optional[_Seen]:
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
        """Return the mounts whose connection, and so transport, this one shares."""
        if uses_earlier_connection(seen.mount, self._rule.port) is False:
            return ()
        return seen.others

    @contextlib.contextmanager
    def _own_errors_logged(self) -> Iterator[None]:
        # An error of a mark must not make the mount fail.
        try:
            yield
        except Exception:
            log.exception(
                "%s: updating its mark failed; please report this", self._export
            )

    def _already_mounted(self, seen: _Seen, uptime_s: float) -> str:
        booted_at = self._shared.surroundings.reader.booted_at()
        now = utc_time(booted_at, uptime_s or None)
        at = f", at {time_for_people(now)}" if now else ""
        # By whom is not known: vdsmd itself may have, under an earlier policy.
        sentence = (
            "it was already mounted when vdsmd first found it to differ from its "
            f"rule{at}"
        )
        shared = self._shared_with(seen)
        return f"{sentence}; {conflict_clause(shared)}" if shared else sentence

    def _update_mark(
        self, seen: _Seen, transport: str, reason: str = "", fix: str = ""
    ) -> None:
        """Mark the mount as degraded; drop its mark if the transport is as wanted."""
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
            since=utc_time(reader.booted_at(), made),
            mounted_s=made,
        )
        marks.put(mark, reader.nfs_mounts, uptime_s)

    def _unmount(self, stock: StockConnection, sentence: str, fix: str) -> NoReturn:
        try:
            stock.unmount()
        except Exception as error:
            self._shared.not_unmounted.add(stock.local_path)
            sentence += f"; unmounting it again failed ({error})"
            raise refused(self._export, sentence, fix) from error
        raise refused(self._export, f"{sentence}; unmounted again", fix)


def _cause(
    shared: tuple[NfsMount, ...], shares_connection: Optional[bool]
) -> tuple[str, str, str]:
    """Return why a mount does not have the requested transport, the fix for its mark,
    and the fix for now.
    """
    if shared:
        # A later fix depends on the mounts of that time.
        now = f"{conflict_fix(shared)}; then {REMOUNT}"
        return f"because {conflict_clause(shared)}", "", now
    if shares_connection:
        return f"because {_HIDDEN_MOUNT}", _END_USERS, _END_USERS
    return "which settings in nfsmount.conf can cause", _MOUNT_CONF, _MOUNT_CONF
