# SPDX-License-Identifier: GPL-2.0-or-later
"""Connect an export that a rule names: readiness, choice, mount, proof, fallback.

A mount over the wrong transport is unmounted if its rule requires RDMA. Otherwise it
gets a mark as degraded. This module imports nothing of VDSM;
:mod:`ovirt_rdma.storage.vdsm.connection` passes in the stock connection.

What all connections of one vdsmd share is here too: recent failures of RDMA mounts per
server, so that one failure decides for all exports of the server, and one call at a
time that mounts or unmounts a local path.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import (
    DEFAULT_RETRANS,
    DEFAULT_TIMEOUT,
    RDMA,
    Export,
    MountOptions,
)
from ovirt_rdma.host.facts.model import DegradedMark, NfsMount
from ovirt_rdma.host.policy.model import REQUIRE_RDMA, TCP, RuleMatch
from ovirt_rdma.storage.messages import classify
from ovirt_rdma.storage.mounts import (
    REMOUNT,
    UNPROVEN,
    UNPROVEN_FIX,
    DegradedMarks,
    Proof,
    conflict_clause,
    conflict_fix,
    mounted_s,
    prove,
    sharers,
    time_for_people,
    uses_earlier_connection,
    utc_time,
)
from ovirt_rdma.storage.readiness import (
    NOT_READY,
    READY,
    ProbeContext,
    Readiness,
    ServerReadiness,
    Step,
    is_ipv6,
)
from ovirt_rdma.storage.transport import (
    STOCK,
    Attempt,
    Choice,
    choose,
    tcp_options,
    tcp_service_port,
)


class Failure(NamedTuple):
    """An RDMA mount that failed ``at`` a time of the surroundings' clock, for a
    ``reason``; ``fix``: what to do, "" if unknown. It counts ``until`` then.
    """

    at: float
    until: float
    reason: str
    fix: str


class StillRunning(Exception):
    """Another call for the path did not end before the deadline."""


class PathLocks:
    """The running calls, by local path, and what they try. Safe for several threads."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[Hashable, Future[None]]] = {}

    def run(
        self,
        path: str,
        do: Callable[[], None],
        timeout_s: float,
        tries: Hashable = None,
    ) -> None:
        """Call ``do`` once no other call for ``path`` is running.

        ``tries`` identifies the attempt: if a call that this one waited for made the
        same attempt and failed, its error is raised and ``do`` is not called. Raises
        StillRunning after ``timeout_s``, and the errors of ``do``.
        """
        deadline = time.monotonic() + timeout_s
        own: Future[None] = Future()
        while True:
            # Of several threads, one has its own.
            others, other = self._calls.setdefault(path, (tries, own))
            if other is own:
                break
            try:
                failed = self.error_of(other, deadline - time.monotonic())
            except FutureTimeout:
                raise StillRunning from None
            if failed and tries is not None and others == tries:
                raise failed
        error: Optional[Exception] = None
        try:
            do()
        except Exception as problem:
            error = problem
            raise
        finally:
            del self._calls[path]
            own.set_exception(error)

    def error_of(self, call: Future[None], wait_s: float) -> Optional[BaseException]:
        """Wait for a call; return what it raised, or None. Raises TimeoutError."""
        return call.exception(wait_s)


class ConnectRefused(Exception):
    """The export is not mounted; the text has the reason and the fix."""

    def __init__(self, export: Export, sentence: str, fix: str) -> None:
        super().__init__(f"{export}: {sentence}{_hint(fix)}")


def _hint(fix: str) -> str:
    return f"; fix: {fix}" if fix else ""


# How long a second call for one local path waits for the first. The first may take 260
# s: mount.nfs begins its last try after two minutes at most (nfs(5), retry=), a try on
# a server that hangs is two calls of 40 s (VDSM's timeo=100,retrans=3; measured), and
# VDSM's access check ends after 60 s (irs/process_pool_timeout). The engine itself
# waits for 180 s (vdsTimeout).
WAIT_FOR_OTHER_S = 300.0


@dataclass(frozen=True)
class Shared:
    """The shared state, one per process; safe for several threads.

    ``failures`` has the last one of each server. ``not_unmounted`` are local paths of
    mounts that are not over RDMA, although their rule requires it, and that could not
    be unmounted. ``marks`` are the marks of degraded mounts.
    """

    surroundings: ProbeContext
    failures: dict[Hashable, Failure] = field(default_factory=dict)
    locks: PathLocks = field(default_factory=PathLocks)
    wait_for_other_s: float = WAIT_FOR_OTHER_S
    marks: DegradedMarks = field(default_factory=DegradedMarks)
    not_unmounted: set[str] = field(default_factory=set)


class StockConnection:
    """What a named export uses of VDSM's own ``connection``: of the class ``stock``,
    which raises ``mount_error`` if mount(8) fails.
    """

    def __init__(
        self, connection: Any, stock: Any, mount_error: type[Exception]
    ) -> None:
        self._connection, self._stock = connection, stock
        self._mount_error = mount_error

    @property
    def local_path(self) -> str:
        """The mount point of the export."""
        path: str = self._connection._mountCon._getLocalPath()
        return path

    def is_mounted(self) -> bool:
        """Whether VDSM sees the export mounted."""
        return bool(self._connection.isConnected())

    def use(self, attempt: Attempt) -> None:
        """From now on mount with its options instead of the engine's extra options, and
        with timeo and retrans as the engine says, but not less than it needs.
        """
        arguments = dict(self._connection._stock_arguments)
        arguments["extraOptions"] = attempt.extra_options
        if attempt.for_paths:
            arguments["timeout"] = max(arguments["timeout"], DEFAULT_TIMEOUT)
            arguments["retrans"] = max(arguments["retrans"], DEFAULT_RETRANS)
        self._stock.__init__(self._connection, **arguments)

    def mount(self) -> Optional[bytes]:
        """Mount as stock VDSM does; return mount's standard error if mount failed.

        Raises all other errors of stock VDSM.
        """
        try:
            self._stock.connect(self._connection)
        except self._mount_error as error:
            text = getattr(error, "err", b"")
            return text if isinstance(text, bytes) else str(text).encode()
        return None

    def unmount(self) -> None:
        """Unmount as stock VDSM does."""
        self._stock.disconnect(self._connection)


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


_ALREADY_MOUNTED = (
    "it was already mounted when vdsmd first found it to differ from its rule"
)
_BY = {RDMA: "over RDMA", TCP: "over TCP", STOCK: "as stock VDSM does"}
_DEGRADED = "%s: %s; this mount is degraded; fix: %s"


class NamedExport:
    """One export with the rule that names it, to connect, verify and disconnect.

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
        self._wanted = TCP if match.rule.transport == TCP else RDMA

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
            raise ConnectRefused(
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
            self._existing(stock)
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
            raise ConnectRefused(self.export, choice.reason, choice.fix)
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
        readiness, rdma_ipv6 = None, False
        tcp_ipv6: Optional[bool] = None
        if self.needs_readiness:
            readiness = self._remembered(server) or server.readiness()
            rdma_address = server.rdma_address
            rdma_ipv6 = rdma_address is not None and is_ipv6(rdma_address)
        if readiness is not None and readiness.verdict != NOT_READY:
            # For a fallback, which asks the server itself before it is used.
            tcp_ipv6 = rdma_ipv6
        elif self.rule.transport != REQUIRE_RDMA:
            tcp_ipv6 = server.tcp_ipv6(self._tcp_port)
        choice = choose(
            self._match,
            self._engine,
            readiness,
            self._version,
            rdma_ipv6=rdma_ipv6,
            tcp_ipv6=tcp_ipv6,
        )
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
        failure = self._shared.failures.get(self._failure_key)
        now = self._shared.surroundings.clock()
        verdict = server.readiness().verdict
        if failure is None or now >= failure.until or verdict == NOT_READY:
            return None
        if verdict == READY and failure.at < server.asked_at:
            return None
        reason = (
            f"an RDMA mount of {self.export.server} failed {now - failure.at:.0f} s "
            f"ago: {failure.reason}"
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
                _hint(choice.fix),
            )
        else:
            log.info("%s: %s: %s", self.export, attempt.transport, choice.reason)
        stock.use(attempt)
        why = choice.degraded_by or choice.reason
        try:
            stderr = stock.mount()
        except Exception:
            # After most errors of its access check, VDSM leaves the mount.
            if stock.is_mounted():
                self._verify(stock, attempt.transport, why, choice.fix)
            raise
        if stderr is None:
            self._verify(stock, attempt.transport, why, choice.fix)
            return
        if stock.is_mounted():
            # It is the text of umount, after an access check that failed.
            self._shared.not_unmounted.add(stock.local_path)
        failure = classify(stderr, over_rdma=attempt.transport == RDMA)
        reason = f"mounting {_BY[attempt.transport]} failed: {failure.meaning}"
        reason += f" ({failure.text})"
        if choice.degraded:
            reason = f"{choice.reason}; then {reason}"
        if attempt.transport == RDMA and failure.about_server:
            now = self._shared.surroundings.clock()
            until = now + self.rule.failure_cache
            found = Failure(now, until, failure.meaning, failure.fix)
            self._shared.failures[self._failure_key] = found
        if choice.fallback is None or failure.about_export:
            raise ConnectRefused(self.export, reason, failure.fix)
        self._fall_back(stock, server, reason, failure.fix)

    def _fall_back(
        self, stock: StockConnection, server: ServerReadiness, reason: str, fix: str
    ) -> None:
        ipv6 = server.tcp_ipv6(self._tcp_port)
        attempt = Attempt(TCP, tcp_options(self.rule, self._engine, ipv6))
        second = Choice(attempt, None, reason, degraded_by=reason, fix=fix)
        second = self._unless_tcp_is_dead(second, server)
        if second.first is None:
            raise ConnectRefused(self.export, second.reason, second.fix)
        self._mount(stock, server, second, second.first)

    def _verify(
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
            proof = seen.proof if seen else "it is not among the host's mounts"
            reason = f"mounted, but its transport could not be determined ({proof})"
            # It is not in use yet, and require-rdma allows nothing unproven.
            if self.rule.transport == REQUIRE_RDMA:
                self._unmount(stock, reason, _REPORT)
            transport, fix = UNPROVEN, UNPROVEN_FIX
            log.warning(_DEGRADED, self.export, reason, fix)
        elif asked in (transport, STOCK):
            log.info(
                "%s: mounted over %s, proven (%s)", self.export, transport, seen.proof
            )
        else:
            shared = self._shared_with(seen)
            cause, fix, now = _cause(
                shared, uses_earlier_connection(seen.mount, self.rule.port)
            )
            reason = (
                f"{asked} was requested, but the kernel mounted over {transport} "
                f"({seen.proof}), {cause}"
            )
            if self.rule.transport == REQUIRE_RDMA:
                self._unmount(stock, reason, now)
            if transport == self._wanted:
                log.info("%s: %s", self.export, reason)
            else:
                log.warning(_DEGRADED, self.export, reason, now)
            reason = conflict_clause(shared) if shared else reason
        if seen is not None:
            with self._own_errors_logged():
                self._update_mark(seen, transport, reason, fix)

    def _existing(self, stock: StockConnection) -> None:
        """Verify a mount that already existed; report it once if it is degraded.

        Raises ConnectRefused for one that had to be unmounted, and could not be.
        """
        seen = self._find(stock)
        transport = seen.proof.transport if seen else None
        if stock.local_path in self._shared.not_unmounted:
            if self.rule.transport == REQUIRE_RDMA and transport != RDMA:
                raise ConnectRefused(
                    self.export,
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
            # By whom is not known: vdsmd itself may have, under an earlier policy.
            booted_at = self._shared.surroundings.reader.booted_at()
            now = utc_time(booted_at, uptime_s or None)
            reason = _ALREADY_MOUNTED + (f", at {time_for_people(now)}" if now else "")
            shared = self._shared_with(seen)
            if shared:
                reason = f"{reason}; {conflict_clause(shared)}"
            self._update_mark(seen, transport, reason)
        elif (mark.wanted, mark.transport) != (self.rule.transport, transport):
            self._warn(seen, transport)
            self._update_mark(seen, transport, mark.reason, mark.fix)

    def _warn(self, seen: _Seen, transport: str) -> None:
        fix = f"{conflict_fix(seen.others)}; then {REMOUNT}" if seen.others else REMOUNT
        if transport == UNPROVEN:
            transport, fix = f"an unknown transport ({seen.proof})", UNPROVEN_FIX
        log.warning(
            "%s: already mounted over %s, while %s says %s: this mount is degraded; "
            "fix: %s",
            self.export,
            transport,
            self.rule.title,
            self.rule.transport,
            fix,
        )

    def _find(self, stock: StockConnection) -> Optional[_Seen]:
        try:
            mounts = self._shared.surroundings.reader.nfs_mounts()
        except Exception:
            log.exception("%s: reading the mounts failed", self.export)
            return None
        for mount in mounts:
            if mount.mountpoint == stock.local_path:
                return _Seen(mount, prove(mount), sharers(mount, mounts))
        return None

    def _shared_with(self, seen: _Seen) -> tuple[NfsMount, ...]:
        """Return the mounts whose connection, and so transport, this one shares."""
        if uses_earlier_connection(seen.mount, self.rule.port) is False:
            return ()
        return seen.others

    @contextlib.contextmanager
    def _own_errors_logged(self) -> Iterator[None]:
        # An error of a mark must not make the mount fail.
        try:
            yield
        except Exception:
            log.exception(
                "%s: updating its mark failed; please report this", self.export
            )

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
            export=str(self.export),
            rule=self.rule.name,
            wanted=self.rule.transport,
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
            raise ConnectRefused(self.export, sentence, fix) from error
        raise ConnectRefused(self.export, f"{sentence}; unmounted again", fix)
