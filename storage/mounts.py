# SPDX-License-Identifier: GPL-2.0-or-later
"""Prove over which transport the NFS mounts run, and compare them with the policy.

A mount's transport is proven from kernel data; mounts share connections (trunking);
vdsmd keeps marks of degraded mounts, in memory and in a file that all can read; the
review shows for each mount the transport that it should have and has, since when, and
why. All but :class:`DegradedMarks` is pure.

The transport of an NFS mount never changes, so it has been the same since the mount
was made. The kernel reuses the ids of mounts as soon as they are free; the mount point
and the time of the mount therefore distinguish it from its predecessor.

The kernel has one client for all mounts of a server with the same NFS 4 minor version,
whatever transport they request: when it mounts, the server's answer shows that the
server is already known, and the mount uses the existing connection (nfs4_match_client
and nfs41_walk_client_list in fs/nfs/nfs4client.c). ``nosharecache`` does not change
that. NFS 4.1 and later share across the server's addresses, 4.0 only with the same
address, NFS 3 never. Measured on kernel 6.1.
"""

from __future__ import annotations

import functools
import logging
import shlex
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.collect.storage import marks_from_json, marks_to_json
from ovirt_rdma.host.export import RDMA, Export, nfs_check, transport_of
from ovirt_rdma.host.facts.model import CmId, DegradedMark, Facts, NfsMount
from ovirt_rdma.host.paths import is_vdsms
from ovirt_rdma.host.policy.model import TCP, Policy, RuleMatch, rule_for
from ovirt_rdma.host.system.files import remove_unfinished, write_atomically
from ovirt_rdma.host.system.safe_file import MOST_BYTES_OF_OTHERS, read_file
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Step
from ovirt_rdma.storage.transport import NFS_TCP_PORT

# Ages are whole seconds, and uptime is read a moment after them.
SLACK_S = 5.0

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def mounted_s(mount: NfsMount, uptime_s: float) -> Optional[float]:
    """Return when ``mount`` was made, in seconds after boot; None if unknown.

    ``uptime_s`` is 0.0 if it could not be read.
    """
    if mount.age_s is None or not uptime_s:
        return None
    return uptime_s - mount.age_s


def utc_time(booted_at: Optional[int], after_boot_s: Optional[float]) -> Optional[str]:
    """Return a time after boot as ``2026-11-21T02:51:34Z``; None if unknown."""
    if booted_at is None or after_boot_s is None:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=booted_at + after_boot_s)
    except OverflowError:  # a facts file may hold any number
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def time_for_people(moment: str) -> str:
    """Return a time of :func:`utc_time` in a form for people."""
    return moment.replace("T", " ").replace("Z", " UTC")


def mark_of(
    mount: NfsMount, marks: Iterable[DegradedMark], uptime_s: float
) -> Optional[DegradedMark]:
    """Return the mark of ``mount``, not of an earlier mount at its mount point."""
    return next((mark for mark in marks if is_about(mark, mount, uptime_s)), None)


def is_about(mark: DegradedMark, mount: NfsMount, uptime_s: float) -> bool:
    """Whether ``mark`` was set on ``mount``, not on an earlier one at that point."""
    if mark.mountpoint != mount.mountpoint:
        return False
    made = mounted_s(mount, uptime_s)
    if made is None or mark.mounted_s is None:
        return True
    return abs(made - mark.mounted_s) <= SLACK_S


# Stands for the transport if the signals disagree or there is none.
UNPROVEN = "unproven"


@dataclass(frozen=True)
class Signal:
    """What one ``source`` in the kernel shows: a transport, and the text ``shown``."""

    source: str
    transport: str
    shown: str


@dataclass(frozen=True)
class Proof:
    """The signals and the transport that they prove.

    ``transport`` is None if they disagree or there is no signal.
    """

    transport: Optional[str]
    signals: tuple[Signal, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{s.source}: {s.shown}" for s in self.signals) or "no signal"


def prove(mount: NfsMount, cm_ids: Optional[Sequence[CmId]] = None) -> Proof:
    """Compare mountinfo's ``proto=``, mountstats' ``xprt:`` lines and, if ``cm_ids``
    has one, the connected RDMA CM id to the mount's server.

    A CM id does not contradict TCP: it may belong to another mount, and a mount that
    shares a TCP connection shows the RDMA port that it requested.
    """
    signals = []
    if mount.protocol is not None:
        shown = f"proto={mount.protocol}"
        signals.append(Signal("mountinfo", transport_of(mount.protocol), shown))
    protocols = mount.protocols
    if protocols:
        kinds = {transport_of(protocol) for protocol in protocols}
        kind = kinds.pop() if len(kinds) == 1 else "mixed"
        shown = f"xprt: {' '.join(protocols)}"
        signals.append(Signal("mountstats", kind, shown))
    cm_id = _connected(mount, cm_ids or ())
    if cm_id is not None and any(signal.transport == RDMA for signal in signals):
        shown = f"{cm_id.device} to {cm_id.destination}"
        signals.append(Signal("rdma cm_id", RDMA, shown))
    named = {signal.transport for signal in signals}
    return Proof(named.pop() if len(named) == 1 else None, tuple(signals))


def _connected(mount: NfsMount, cm_ids: Sequence[CmId]) -> Optional[CmId]:
    """Return the kernel's own CM id to the mount's server; None if there is none.

    None proves nothing: an idle RDMA transport disconnects after five minutes
    (RPCRDMA_IDLE_DISC_TO) and connects again with the next request.
    """
    address = mount.address or ""
    endpoints = {f"{address}:{mount.port}", f"[{address}]:{mount.port}"}
    for cm_id in cm_ids:
        if (cm_id.state, cm_id.owner) == ("CONNECT", "[rpcrdma]") and (
            cm_id.destination in endpoints
        ):
            return cm_id
    return None


FILE_MODE = 0o644

log = logging.getLogger("storage.ovirt_rdma")


class DegradedMarks:
    """Marks of degraded mounts, one per mount point. Safe for several threads.

    ``path`` is the file, read once and replaced as a whole at each change; None keeps
    the marks in memory only. No error of the file is raised: if it cannot be read, the
    list starts empty; if it cannot be written, the marks stay in memory and the log
    gets one line.
    """

    def __init__(self, path: Optional[Path] = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._marks: Optional[dict[str, DegradedMark]] = None
        self._failed_to_write = False

    def of(self, mount: NfsMount, uptime_s: float) -> Optional[DegradedMark]:
        """Return the mark that is about ``mount``, if there is one."""
        with self._lock:
            if self._failed_to_write:
                # The folder may exist by now.
                self._keep(self._loaded())
            return mark_of(mount, self._loaded().values(), uptime_s)

    def put(
        self,
        mark: DegradedMark,
        read_mounts: Callable[[], Sequence[NfsMount]],
        uptime_s: float,
    ) -> None:
        """Set ``mark``; it replaces any other mark at its mount point.

        Marks whose mount is not among those of ``read_mounts`` are dropped.
        """
        with self._lock:
            # Read under the lock, or a mark that was set meanwhile would be dropped.
            mounts = read_mounts()
            marks = {
                old.mountpoint: old
                for old in self._loaded().values()
                if any(is_about(old, mount, uptime_s) for mount in mounts)
            }
            marks[mark.mountpoint] = mark
            self._keep(marks)

    def drop(self, mountpoint: str) -> None:
        """Drop the mark at ``mountpoint``, if there is one."""
        with self._lock:
            marks = self._loaded()
            if mountpoint in marks:
                self._keep({at: one for at, one in marks.items() if at != mountpoint})

    def _loaded(self) -> dict[str, DegradedMark]:
        if self._marks is None:
            self._marks = {mark.mountpoint: mark for mark in self._read()}
        return self._marks

    def _read(self) -> tuple[DegradedMark, ...]:
        if self._path is None:
            return ()
        remove_unfinished(self._path.parent)  # of a vdsmd that was killed
        try:
            return marks_from_json(read_file(self._path, MOST_BYTES_OF_OTHERS))
        except (OSError, ValueError) as error:
            if not isinstance(error, FileNotFoundError):
                log.warning(
                    "%s is invalid and is ignored, the list of degraded mounts starts "
                    "empty: %s",
                    self._path,
                    getattr(error, "strerror", None) or error,
                )
            return ()

    def _keep(self, marks: dict[str, DegradedMark]) -> None:
        self._marks = marks
        if self._path is None:
            return
        try:
            write_atomically(self._path, marks_to_json(marks.values()), FILE_MODE)
        except OSError as error:
            if not self._failed_to_write:
                log.warning(
                    "%s cannot be written (%s), so nfs list and status do not show "
                    "why a mount is degraded; "
                    "fix: systemd-tmpfiles --create ovirt-rdma.conf",
                    self._path,
                    error.strerror or error,
                )
            self._failed_to_write = True
        else:
            self._failed_to_write = False


# The step of :func:`others_step`.
OTHERS = "others"
# Only a remount changes the transport, and only of all mounts of a connection at once.
REMOUNT = "put the host into maintenance and activate it again"
# The fix for a mount whose transport is unproven.
UNPROVEN_FIX = (
    f"{REMOUNT}; if that does not help, report it with the host's /proc/self/mountinfo "
    "and /proc/self/mountstats"
)
_NAMED = 3
_MINOR_VERSIONS = ("4.0", "4.1", "4.2")
_OTHER = {RDMA: TCP, TCP: RDMA}


@dataclass(frozen=True)
class ConflictingMounts:
    """Existing mounts that would force another transport than the wanted one.

    ``certain``: they have the version and the address that the new mount will have.
    Otherwise the result depends on either.
    """

    mounts: tuple[NfsMount, ...]
    certain: bool


def sharers(mount: NfsMount, mounts: Sequence[NfsMount]) -> tuple[NfsMount, ...]:
    """Return the others of ``mounts`` that use the connection of ``mount``.

    The kernel shows the same address for all mounts of a shared connection, even if a
    mount was given another (``addr=``).
    """
    connection = connection_of(mount)
    if connection is None:
        return ()
    return _others_at(
        mount, [one for one in mounts if connection_of(one) == connection]
    )


def _others_at(mount: NfsMount, mounts: Iterable[NfsMount]) -> tuple[NfsMount, ...]:
    place = mount.mountpoint
    return tuple([other for other in mounts if other.mountpoint != place])


def uses_earlier_connection(mount: NfsMount, rdma_port: int) -> Optional[bool]:
    """Whether ``mount`` uses a connection that existed before it.

    Then it shows the port that was requested, which does not fit its transport. None
    if the ports do not differ.
    """
    transport = prove(mount).transport
    if not _is_4(mount) or transport is None:
        return False
    if rdma_port == NFS_TCP_PORT:
        return None
    # With NFS 4 the kernel does not show port 2049.
    port = mount.port or NFS_TCP_PORT
    return port == (rdma_port if transport == TCP else NFS_TCP_PORT)


def conflicting_mounts(
    mounts: Sequence[NfsMount],
    export: Export,
    addresses: Collection[str],
    version: Optional[str],
    wanted: str,
) -> Optional[ConflictingMounts]:
    """Return the mounts that prevent the transport ``wanted`` for a new mount of
    ``export``; None if there are none.

    ``addresses`` are the server's. ``version`` is ``"3"``, ``"4.2"``, or anything else
    if mount.nfs chooses it. Mounts of the export itself do not count: they no longer
    exist when it is remounted. Other names and addresses of the server only show when
    it is mounted.
    """
    if version == "3":
        return None
    over_wanted = {
        (mount.version, mount.address)
        for mount in mounts
        if prove(mount).transport == wanted
    }
    name = export.key[0]
    others = [
        mount
        for mount in mounts
        if _is_4(mount)
        and not export.same_as(Export.maybe(mount.source))
        and prove(mount).transport == _OTHER[wanted]
        and (mount.address in addresses or _server_of(mount) == name)
        # With two connections the kernel uses the requested one (nfs_match_client).
        and (mount.version, mount.address) not in over_wanted
    ]
    if version in _MINOR_VERSIONS:
        others = [mount for mount in others if mount.version == version]
        certain = tuple(mount for mount in others if mount.address in addresses)
        if certain:
            return ConflictingMounts(certain, certain=True)
    return ConflictingMounts(tuple(others), certain=False) if others else None


def conflict_clause(mounts: Sequence[NfsMount]) -> str:
    """Return a clause that explains the effect of ``mounts`` (of one transport)."""
    names = [mount.source for mount in mounts]
    if len(names) > _NAMED:
        names[_NAMED - 1 :] = [f"{len(names) - _NAMED + 1} more"]
    *most, last = names
    shown = f"{', '.join(most)} and {last}" if most else last
    versions = " and ".join(sorted({f"NFS {mount.version}" for mount in mounts}))
    return (
        f"{shown} {'are' if most else 'is'} mounted over "
        f"{(prove(mounts[0]).transport or 'another transport').upper()}, and the "
        f"kernel uses one connection for all {versions} mounts of a server"
    )


def conflict_fix(mounts: Sequence[NfsMount]) -> str:
    """Return what ends the conflict with ``mounts``, before the remount."""
    steps = []
    by_hand = [m for m in mounts if not is_vdsms(m.mountpoint)]
    if by_hand:
        mountpoints = " ".join(shlex.quote(mount.mountpoint) for mount in by_hand)
        steps.append(f"umount {mountpoints}")
    if len(by_hand) < len(mounts):
        steps.append(
            "choose one transport for all NFS 4 exports of the server in the policy, "
            "or another NFS version for some of them (3, or 4.1 beside 4.2)"
        )
    return "; ".join(steps)


def others_step(
    mounts: Sequence[NfsMount],
    export: Export,
    addresses: Collection[str],
    version: Optional[str],
) -> Step:
    """Check whether existing mounts prevent RDMA for a new mount of ``export``.

    The parameters are those of :func:`conflicting_mounts`.
    """
    if version == "3":
        return Step(OTHERS, READY, "NFS 3 mounts share no connection")
    conflict = conflicting_mounts(mounts, export, addresses, version, RDMA)
    if conflict is None:
        free = f"no NFS 4 mount of {export.server} forces this export to TCP"
        return Step(OTHERS, READY, free)
    return Step(
        OTHERS,
        NOT_READY if conflict.certain else UNKNOWN,
        f"{conflict_clause(conflict.mounts)}: this export "
        f"{'would' if conflict.certain else 'may'} be mounted over TCP too",
        f"{conflict_fix(conflict.mounts)}; then {REMOUNT}",
    )


def _server_of(mount: NfsMount) -> Optional[str]:
    source = Export.maybe(mount.source)
    return source.key[0] if source else None


def _is_4(mount: NfsMount) -> bool:
    return mount.version is not None and mount.version.startswith("4")


def connection_of(mount: NfsMount) -> Optional[tuple[str, ...]]:
    """Return what identifies the connection of an NFS 4 mount.

    None if the mount shares no connection, or if it is unknown.
    """
    if not _is_4(mount):
        return None
    parts = (mount.version, mount.address, mount.protocol)
    known = tuple(part for part in parts if part is not None)
    return known if len(known) == len(parts) else None


OK = "ok"
DEGRADED = "degraded"
NOT_COVERED = "not covered"
UNNAMED = "not named"
_POSIXFS = (
    "VDSM mounts no NFS domain with such options (nosharecache is missing), and no "
    "rule covers a PosixFS domain"
)

_OR_BY_A_DOMAIN = (
    "replace it by an NFS domain, or change the policy so that no rule names it; if it "
    f"is an NFS domain, {REMOUNT}"
)


@dataclass(frozen=True)
class MountReview:
    """One mount, the rule that names it (or None), the proof, and the verdict.

    ``since`` is when it was mounted, as ``2026-11-21T02:51:34Z``; None if unknown.
    ``mark`` is what vdsmd recorded about a degraded mount; ``cause`` is the reason that
    can be seen without a mark. ``others`` use the same connection, so they can only
    change their transport together with this mount; ``against`` are those of them for
    which the policy chooses another transport than for this one.
    """

    mount: NfsMount
    match: Optional[RuleMatch]
    proof: Proof
    verdict: str
    sentence: str
    fix: str = ""
    since: Optional[str] = None
    mark: Optional[DegradedMark] = None
    cause: str = ""
    others: tuple[NfsMount, ...] = ()
    against: tuple[NfsMount, ...] = ()

    @property
    def reason(self) -> Optional[str]:
        """Why it is degraded; None if it is not, or if the reason is unknown."""
        return self.mark.reason if self.mark else self.cause or None

    def document(self) -> dict[str, Optional[str]]:
        """Return what it is, for programs."""
        return {
            "export": self.mount.source,
            "mountpoint": self.mount.mountpoint,
            "transport": self.proof.transport,
            "rule": self.match.rule.name if self.match else None,
            "since": self.since,
            "reason": self.reason,
            "fix": self.fix,
        }


def review_all(
    facts: Facts,
    policy: Policy,
    mounts: Optional[Sequence[NfsMount]] = None,
    *,
    sharing: bool = True,
) -> list[MountReview]:
    """Compare ``mounts`` of ``facts`` (None: all NFS mounts) with ``policy``, in order.

    A host may have thousands of mounts: each source is matched with the rules once.
    Without ``sharing``, which is no part of a verdict, nobody looks for the mounts on
    one connection: each may have thousands of others.
    """
    together: dict[Optional[tuple[str, ...]], list[NfsMount]] = {}
    for mount in facts.nfs_mounts if sharing else ():
        together.setdefault(connection_of(mount), []).append(mount)
    together.pop(None, None)  # those that share none
    marks: dict[str, list[DegradedMark]] = {}
    for mark in facts.degraded_marks:
        marks.setdefault(mark.mountpoint, []).append(mark)
    match = functools.lru_cache(None)(lambda source: _match(source, policy))
    return [
        _review(
            facts,
            mount,
            mark_of(mount, marks.get(mount.mountpoint, ()), facts.uptime_s),
            _others_at(mount, together.get(connection_of(mount), ())),
            match,
        )
        for mount in (facts.nfs_mounts if mounts is None else mounts)
    ]


def _review(
    facts: Facts,
    mount: NfsMount,
    mark: Optional[DegradedMark],
    others: tuple[NfsMount, ...],
    match_of: Callable[[str], Optional[RuleMatch]],
) -> MountReview:
    """Compare one mount with the rule that names its source. ``mark`` is ignored if the
    transport has changed; ``others`` are the mounts on its connection.
    """
    proof, match = prove(mount, facts.cm_ids), match_of(mount.source)
    since = utc_time(facts.booted_at, mounted_s(mount, facts.uptime_s))
    runs = f"{mount.source} runs over {proof.transport or 'an unproven transport'}"
    found = MountReview(
        mount, match, proof, UNNAMED, f"{runs}; no rule names it", since=since
    )
    if match is None:
        return found
    wanted = _wanted(match)
    by_rule = f"{match.rule.title} says {match.rule.transport}"
    if proof.transport is None:
        sentence = f"{mount.source}: the kernel's signals do not agree ({proof})"
        return replace(
            found, verdict=UNPROVEN, sentence=sentence, fix=UNPROVEN_FIX, mark=mark
        )
    if proof.transport == wanted:
        return replace(found, verdict=OK, sentence=f"{runs}, as {by_rule}")
    if mark is not None and mark.transport != proof.transport:
        mark = None
    if mark is None and not _by_nfs_class(mount):
        row = (
            "remove RDMA from"
            if wanted == TCP
            else "add proto=rdma (proto=rdma6 for IPv6) to"
        )
        return replace(
            found,
            verdict=NOT_COVERED,
            sentence=f"{runs}, but {by_rule}; {_POSIXFS}",
            fix=f"{row} the mount options of its storage connection, {_OR_BY_A_DOMAIN}",
        )
    cause = ""
    if others and uses_earlier_connection(mount, match.rule.port) is not False:
        cause = conflict_clause(others)
    since = (mark.since if mark else None) or since
    reason = mark.reason if mark else cause
    history = f"since {time_for_people(since)}, " if since else ""
    history += f"because {reason}" if reason else "for a reason that is not recorded"
    against = tuple(m for m in others if _wanted(match_of(m.source)) != wanted)
    steps = [mark.fix if mark else "", conflict_fix(against)]
    if wanted == TCP:
        steps.append(REMOUNT)
    else:
        ready = f"once all but '{OTHERS}' is" if others else "once it is"
        steps.append(f"{nfs_check(mount.source)}; {ready} ready, {REMOUNT}")
    return replace(
        found,
        verdict=DEGRADED,
        sentence=f"{runs}, but {by_rule}; {history}",
        fix="; then ".join(step for step in steps if step),
        since=since,
        mark=mark,
        cause=cause,
        others=others,
        against=against,
    )


def remount_fix(degraded: MountReview, ready: bool) -> str:
    """Return how a degraded mount gets the transport that its rule says.

    ``ready``: the host is ready for RDMA, apart from mounts that share a connection.
    """
    if degraded.verdict == NOT_COVERED:
        return degraded.fix
    domain = "only this storage domain (no running VM may use it)"
    if degraded.others:
        names = ", ".join(other.source for other in degraded.others)
        domain = (
            f"all domains on its connection together (this one and {names}; no running "
            "VM may use them)"
        )
    now = (
        "put the host into maintenance in the engine and activate it again (its VMs "
        f"migrate), or deactivate and activate {domain}; the hosted engine's own "
        "domain needs a reboot of the host in maintenance"
    )
    if degraded.against:
        now = f"{conflict_fix(degraded.against)}; then {now}"
    if not ready and degraded.proof.transport != RDMA:
        return f"once it is ready, {now}"
    # Causes that readiness does not check, such as nfsmount.conf, would act again.
    first = degraded.mark.fix if degraded.mark else ""
    return f"{first} (if not done yet); then {now}" if first else now


def _by_nfs_class(mount: NfsMount) -> bool:
    """Whether VDSM may have mounted it as an NFS domain.

    PosixFS domains with vfs_type nfs have mount points in the same folder, but none of
    NFSConnection.DEFAULT_OPTIONS (VDSM 4.50, storageServer.py), of which mountinfo
    shows nosharecache. The metadata of the domain would be certain, but reading it may
    hang.
    """
    by_class = "nosharecache" in mount.options.split(",")
    return by_class or not is_vdsms(mount.mountpoint)


def _wanted(match: Optional[RuleMatch]) -> Optional[str]:
    if match is None:
        return None
    return TCP if match.rule.transport == TCP else RDMA


def _match(source: str, policy: Policy) -> Optional[RuleMatch]:
    export = Export.maybe(source)
    return rule_for(policy, export) if export else None
