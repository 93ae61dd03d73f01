# SPDX-License-Identifier: GPL-2.0-or-later
"""What the mount of a named export turned out to be: proven, marked or taken back.

Effects: unmounts what breaks a promise, and marks what is degraded.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, Optional

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts import DegradedMark, NfsMount
from ovirt_rdma.host.policy import REQUIRE_RDMA, TCP, NfsRule
from ovirt_rdma.storage.mount_age import mounted_s, shown, utc
from ovirt_rdma.storage.mount_review import REMOUNT
from ovirt_rdma.storage.proof import RDMA, Proof, prove
from ovirt_rdma.storage.refusal import refused
from ovirt_rdma.storage.shared import Shared
from ovirt_rdma.storage.stock_connection import StockConnection
from ovirt_rdma.storage.transport import STOCK

_MOUNT_CONF = "look into /etc/nfsmount.conf and /etc/nfsmount.conf.d"

log = logging.getLogger("storage.ovirt_rdma")


@dataclass(frozen=True)
class _Seen:
    """The mount at the export's place, and its proof."""

    mount: NfsMount
    proof: Proof


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
            proof = seen.proof if seen else None
            log.warning("%s: mounted, transport not proven: %s", self._export, proof)
            return
        if asked in (transport, STOCK):
            log.info(
                "%s: mounted over %s, proven (%s)", self._export, transport, seen.proof
            )
        else:
            reason = (
                f"{asked} was asked for, but the kernel mounted over {transport} "
                f"({seen.proof}), which settings of nfsmount.conf can cause"
            )
            fix = _MOUNT_CONF
            if self._rule.transport == REQUIRE_RDMA:
                self._take_back(stock, reason, fix)
            if transport == self._wanted:
                log.info("%s: %s", self._export, reason)
            else:
                log.warning(
                    "%s: %s; this mount is degraded; fix: %s", self._export, reason, fix
                )
        with self._own_errors_logged():
            self._note(seen, transport, reason, fix)

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
                    "a TCP mount that could not be unmounted is in the way",
                    f"umount -f -l {stock.local_path}",
                )
            self._shared.not_taken_back.discard(stock.local_path)
        if seen is not None and transport is not None:
            with self._own_errors_logged():
                self._tell_once(seen, transport)

    def _tell_once(self, seen: _Seen, transport: str) -> None:
        uptime_s = self._shared.surroundings.reader.uptime()
        mark = self._shared.marks.of(seen.mount, uptime_s)
        wish = self._rule.transport
        if transport == self._wanted:
            self._note(seen, transport)
        elif mark is None:
            self._warn(transport)
            self._note(seen, transport, self._found_it(uptime_s))
        elif (mark.wanted, mark.transport) != (wish, transport):
            self._warn(transport)
            self._note(seen, transport, mark.reason, mark.fix)

    def _warn(self, transport: str) -> None:
        log.warning(
            "%s: already mounted over %s, while %s says %s: this mount is degraded; "
            "fix: %s",
            self._export,
            transport,
            self._rule.title,
            self._rule.transport,
            REMOUNT,
        )

    def _look(self, stock: StockConnection) -> Optional[_Seen]:
        try:
            mounts = self._shared.surroundings.reader.nfs_mounts()
        except Exception:
            log.exception("%s: reading the mounts failed", self._export)
            return None
        for mount in mounts:
            if mount.mountpoint == stock.local_path:
                return _Seen(mount, prove(mount))
        return None

    @contextlib.contextmanager
    def _own_errors_logged(self) -> Iterator[None]:
        # A mark is no reason for a mount to fail.
        try:
            yield
        except Exception:
            log.exception("%s: marking failed; please report this", self._export)

    def _found_it(self, uptime_s: float) -> str:
        booted_at = self._shared.surroundings.reader.booted_at()
        now = utc(booted_at, uptime_s or None)
        at = f", at {shown(now)}" if now else ""
        return f"it was mounted already when vdsmd first saw it{at}"

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
