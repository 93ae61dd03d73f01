# SPDX-License-Identifier: GPL-2.0-or-later
"""Connect an export that a rule names: readiness, choice, mount, fallback.

:mod:`ovirt_rdma.storage.vdsm.mount_verification` verifies the mount. This module does
not use VDSM's classes; :mod:`ovirt_rdma.storage.vdsm.connection` passes in the mount
and unmount of the stock connection.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.mount_options import RDMA, MountOptions
from ovirt_rdma.host.policy.model import REQUIRE_RDMA, TCP, RuleMatch
from ovirt_rdma.storage.mount_errors import classify
from ovirt_rdma.storage.readiness import NOT_READY, READY, Readiness, Step
from ovirt_rdma.storage.server_readiness import ServerReadiness, is_ipv6
from ovirt_rdma.storage.transport import (
    STOCK,
    Attempt,
    Choice,
    Families,
    choose,
    tcp_options,
    tcp_service_port,
)
from ovirt_rdma.storage.vdsm.context import Shared, StillRunning, hint, refused
from ovirt_rdma.storage.vdsm.mount_verification import (
    MountVerification,
    StockConnection,
)

_BY = {RDMA: "over RDMA", TCP: "over TCP", STOCK: "as stock VDSM does"}

log = logging.getLogger("storage.ovirt_rdma")


class NamedExport:
    """One export with the rule that names it, to connect and disconnect.

    ``engine`` and ``version`` are what the engine sent: the extra mount options, and
    ``"3"``, ``"4.2"`` or None for automatic.
    """

    def __init__(
        self,
        export: Export,
        match: RuleMatch,
        engine: MountOptions,
        version: Optional[str],
        shared: Shared,
    ) -> None:
        self.export = export
        self.rule = match.rule
        self._match = match
        self._engine = engine
        self._version = version
        self._shared = shared
        self._server: Optional[ServerReadiness] = None
        # Whether mount.nfs may retry a server without success, as with stock VDSM.
        self.may_take_minutes = False
        self._verification = MountVerification(export, match.rule, shared)

    @property
    def needs_readiness(self) -> bool:
        """Whether its server must be asked about RDMA before it can be mounted."""
        return self.rule.transport != TCP

    def ask_server(self) -> ServerReadiness:
        """Return a new ServerReadiness for the export's server."""
        return ServerReadiness(self.export.server, self.rule, self._shared.surroundings)

    def ask_ahead(self, server: ServerReadiness) -> None:
        """Ask ``server`` what the next connect needs; connect() uses its answers."""
        self._server = server
        # If the engine's port is not a number, connect() reports it.
        with contextlib.suppress(Problem):
            self.decide(server)
            if self.rule.transport == TCP:
                self.may_take_minutes = not server.tcp_answers(self._tcp_port)

    def connect(self, stock: StockConnection) -> None:
        """Mount the export as its rule says, and verify the mount.

        Returns at once if it is already mounted. If another call is mounting it, waits
        for that call and raises its error if both make the same attempt. Raises
        ConnectRefused with the reason; errors of stock VDSM other than a failed mount
        are passed on.
        """
        shared = self._shared
        tries = (self.rule, self._engine, self._version)
        try:
            shared.locks.run(
                stock.local_path,
                lambda: self._connect(stock),
                shared.wait_for_other_s,
                tries,
            )
        except StillRunning:
            raise refused(
                self.export,
                "another call for this export is still running after "
                f"{shared.wait_for_other_s:g} s",
                "",
            ) from None

    def disconnect(self, stock: StockConnection) -> None:
        """Unmount as stock VDSM does, once no other call mounts or unmounts it.

        Raises the errors of stock VDSM.
        """
        shared = self._shared
        try:
            shared.locks.run(stock.local_path, stock.unmount, shared.wait_for_other_s)
        except StillRunning:
            stock.unmount()

    def _connect(self, stock: StockConnection) -> None:
        server, self._server = self._server or self.ask_server(), None
        if stock.is_mounted():
            self._verification.existing(stock)
            return
        self._shared.not_unmounted.discard(stock.local_path)
        choice = self._choose(server)
        if server.settled_s:
            log.info(
                "%s: waited %.1f s for an RDMA port to come up",
                self.export,
                server.settled_s,
            )
        for note in choice.notes:
            log.info("%s: %s", self.export, note)
        if choice.first is None:
            raise refused(self.export, choice.reason, choice.fix)
        self._mount(stock, server, choice, choice.first)

    def _choose(self, server: ServerReadiness) -> Choice:
        try:
            return self.decide(server)
        except Problem as problem:
            return Choice(None, None, str(problem), fix=problem.fix)
        except Exception as error:
            reason = f"choosing the transport failed ({error!r}); please report this"
            log.exception("%s: %s", self.export, reason)
        # Our own error must not prevent a TCP mount, nor mount TCP against the rule.
        if self.rule.transport == REQUIRE_RDMA:
            return Choice(None, None, reason)
        return Choice(Attempt(STOCK, str(self._engine)), None, reason)

    def decide(self, server: ServerReadiness) -> Choice:
        """Ask ``server`` for what the choice needs, and choose.

        Raises OptionsProblem if the engine's port is not a number.
        """
        readiness, rdma_ipv6, tcp_ipv6 = None, False, None
        if self.needs_readiness:
            readiness = self._remembered(server) or server.readiness()
            rdma_address = server.rdma_address
            rdma_ipv6 = rdma_address is not None and is_ipv6(rdma_address)
        if readiness is not None and readiness.verdict != NOT_READY:
            # For a fallback, which asks the server itself before it is used.
            tcp_ipv6 = rdma_ipv6
        elif self.rule.transport != REQUIRE_RDMA:
            tcp_ipv6 = server.tcp_ipv6(self._tcp_port)
        families = Families(rdma_ipv6, tcp_ipv6)
        choice = choose(self._match, self._engine, families, readiness)
        return self._unless_tcp_is_dead(choice, server) if choice.degraded else choice

    def _unless_tcp_is_dead(self, choice: Choice, server: ServerReadiness) -> Choice:
        if server.tcp_answers(self._tcp_port):
            return choice
        also = f"; TCP port {self._tcp_port} does not answer either"
        return replace(choice, first=None, degraded_by="", reason=choice.reason + also)

    def _remembered(self, server: ServerReadiness) -> Optional[Readiness]:
        """Return the failure of an earlier mount of the server as its readiness.

        None if the server's own answer is better: NOT_READY, or READY and newer than
        the failure.
        """
        failure = self._shared.failures.recall(self._failure_key)
        verdict = server.readiness().verdict
        if failure is None or verdict == NOT_READY:
            return None
        if verdict == READY and failure.at < server.asked_at:
            return None
        age = self._shared.surroundings.clock() - failure.at
        reason = (
            f"an RDMA mount of {self.export.server} failed {age:.0f} s ago: "
            f"{failure.reason}"
        )
        return Readiness((Step("earlier mount", NOT_READY, reason, failure.fix),))

    @property
    def _failure_key(self) -> tuple[str, int, bool]:
        # NFS 3 asks mountd over TCP first, so its failures may have other causes.
        return self.export.server, self.rule.port, self._version == "3"

    @property
    def _tcp_port(self) -> int:
        return tcp_service_port(self.rule, self._engine, self._version)

    def _mount(
        self,
        stock: StockConnection,
        server: ServerReadiness,
        choice: Choice,
        attempt: Attempt,
    ) -> None:
        if choice.degraded:
            log.warning(
                "%s: FALLING BACK TO TCP, this mount is degraded: %s%s",
                self.export,
                choice.reason,
                hint(choice.fix),
            )
        else:
            log.info("%s: %s: %s", self.export, attempt.transport, choice.reason)
        stock.use(attempt.extra_options)
        stderr = stock.mount()
        if stderr is None:
            why = choice.degraded_by or choice.reason
            self._verification.after_mount(stock, attempt.transport, why, choice.fix)
            return
        failure = classify(stderr, over_rdma=attempt.transport == RDMA)
        reason = f"mounting {_BY[attempt.transport]} failed: {failure.meaning}"
        reason += f" ({failure.text})"
        if choice.degraded:
            reason = f"{choice.reason}; then {reason}"
        if attempt.transport == RDMA and failure.about_server:
            self._shared.failures.remember(
                self._failure_key,
                failure.meaning,
                failure.fix,
                self.rule.failure_cache,
            )
        if choice.fallback is None or failure.about_export:
            raise refused(self.export, reason, failure.fix)
        self._fall_back(stock, server, reason, failure.fix)

    def _fall_back(
        self, stock: StockConnection, server: ServerReadiness, reason: str, fix: str
    ) -> None:
        ipv6 = server.tcp_ipv6(self._tcp_port)
        attempt = Attempt(TCP, tcp_options(self.rule, self._engine, ipv6))
        second = Choice(attempt, None, reason, degraded_by=reason, fix=fix)
        second = self._unless_tcp_is_dead(second, server)
        if second.first is None:
            raise refused(self.export, second.reason, second.fix)
        self._mount(stock, server, second, second.first)
