# SPDX-License-Identifier: GPL-2.0-or-later
"""Bring the sessions of block storage to what the policy says: read, log in, log out
and rescan, over SRP and iSER. Callers have the lock of the host.

SRP is by writes to sysfs. A login waits in the kernel for its target, and holds the
lock of its local port. So each is a process of its own that is killed at its deadline;
local ports log in at the same time.

iSER is through iscsiadm(8) and iscsid. Nothing that VDSM or the operator has in
open-iscsi's database is changed, and VDSM changes nothing of ours. A record without a
portal group tag is a file for all interface records of a portal, which the next record
with a tag replaces (idbm_rec_read, idbm_add_node in usr/idbm.c of open-iscsi), and
VDSM's have one (addIscsiNode, lib/vdsm/storage/iscsi.py). So ours have a tag too, and
an interface record that VDSM does not use. A plain discovery would write all records of
the portal again, with their passwords (the default operation is new, update and
delete): the one that a sentence names is nonpersistent. A login that is there is never
tried again.

What ``block logout`` has ended stays so: a file in /run names the targets, until a
login names them, the policy's targets change, or a boot. Another one has the
initiator_ext of the sessions that we made, which the kernel does not show. It says
whether a login is there (EEXIST); that would be an attempt, with a line in its log, at
each look.
"""

from __future__ import annotations

import errno
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.block.logins import (
    Login,
    Target,
    address_of,
    failure,
    initiator_of,
    iser_logins,
    login_text,
    sessions_by,
    sessions_of,
    srp_logins,
    timeout_writes,
)
from ovirt_rdma.host.block.read import BLOCK, SRP_LOCAL, BlockFacts, BlockReader
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.storage import SCSI_HOSTS, SRP, SRP_PORTS, Session
from ovirt_rdma.host.errors import Refused, Sentence
from ovirt_rdma.host.paths import BLOCK_SESSIONS_JSON, LOGGED_OUT_JSON, under
from ovirt_rdma.host.policy.block import BlockPolicy, IserTarget, SrpTarget
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    NotInstalled,
    Runner,
    end_command,
    run_command,
)
from ovirt_rdma.host.system.files import write_kernel_file
from ovirt_rdma.host.system.json_codec import Envelope, StateFile, digest_of, plain
from ovirt_rdma.host.system.tree import FileTree

_PROGRAM = Path(__file__).with_name("add_target.py")
# To load Python on a busy host; not part of the timeout.
_STARTUP_S = 10.0
# The kernel removes the LUNs after it has accepted a logout.
_GONE_S = 10.0
# All files of a rescan: each may wait for a target.
_RESCAN_S = 60.0
_LOOK_S = 0.1
_NOT_TRIED = "not tried, because other targets took too long"

Write = Callable[[Path, str, float], int]
"""Writes a text to a file within some seconds; returns the errno, 0 for none."""


def write_in_child(path: Path, text: str, timeout_s: float) -> int:
    """Write ``text`` to ``path``; errno.ETIME if it was killed at the deadline."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_PROGRAM), str(path), text],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert child.stdout  # noqa: S101  (for mypy)
        select.select([child.stdout], [], [], _STARTUP_S)  # until the write begins
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return errno.ETIME
    finally:
        end_command(child, _LOOK_S)
    return child.returncode if child.returncode >= 0 else errno.EINTR


def _not_loaded(run: Runner, module: str, id: str) -> Optional[Sentence]:
    try:
        run(("modprobe", module))
    except CommandFailed as error:
        return Sentence(
            id,
            f"module {module} cannot be loaded: {error}; see journalctl -k, and: "
            f"modprobe --verbose {module}",
        )
    return None


@dataclass(frozen=True)
class _Initiator:
    """The ``initiator_ext`` of the session with the SCSI host ``host``."""

    host: Optional[int]
    initiator_ext: str


@dataclass(frozen=True)
class _Initiators:
    """Those of the sessions that we made."""

    sessions: tuple[_Initiator, ...]

    def is_fresh(self, now_s: float) -> bool:
        return True  # until the next boot


_INITIATORS = StateFile(
    BLOCK_SESSIONS_JSON, Envelope("block-sessions"), _Initiators, "sessions", {}
)


def _facts(root: Union[str, Path]) -> BlockFacts:
    """Read all sessions with their LUNs, and the initiator_ext of those of ours."""
    facts, state = BlockReader(FileTree(root)).facts(), _INITIATORS.read(root)
    known = {one.host: one.initiator_ext for one in (state.sessions if state else ())}
    sessions = (
        replace(one, initiator_ext=known.get(one.host)) if one.protocol == SRP else one
        for one in facts.sessions
    )
    return replace(facts, sessions=tuple(sessions))


def _is_late(end: Optional[float]) -> bool:
    return end is not None and time.monotonic() >= end


class Srp:
    """Acts on the SRP sessions of the host below ``root``; ``run`` runs its tools."""

    def __init__(
        self, root: Union[str, Path], run: Runner, write: Write = write_in_child
    ) -> None:
        self._root, self._run, self._write = root, run, write

    def log_in(
        self,
        logins: Sequence[Login],
        timeout_s: float,
        end: Optional[float] = None,
        others: Iterable[Login] = (),
    ) -> list[Login]:
        """Make the ``logins`` that have neither session nor problem; return each with
        its result, in order. ``others`` are those to the other targets of the policy.

        Each has ``timeout_s`` seconds; at ``end``, of time.monotonic(), none is begun.
        """
        if any(not one.session and not one.problem for one in logins):
            why = _not_loaded(self._run, "ib_srp", "srp-module-not-loaded")
            logins = [
                one if one.session else replace(one, problem=one.problem or why)
                for one in logins
            ]
        taken = {one.session.host for one in (*logins, *others) if one.session}
        by_port: dict[str, list[int]] = {}
        for number, login in enumerate(logins):
            if login.problem is None:
                by_port.setdefault(login.local, []).append(number)
        done = list(logins)

        def of_port(numbers: list[int]) -> None:
            for number in numbers:
                login = logins[number]
                if _is_late(end) and not login.session:
                    login = login.failed("srp-login-not-tried", _NOT_TRIED)
                else:
                    login = self._logged_in(login, timeout_s, taken)
                if login.session:
                    taken.add(login.session.host)
                done[number] = login

        if by_port:
            with ThreadPoolExecutor(len(by_port)) as threads:
                list(threads.map(of_port, by_port.values()))
        return done

    def _logged_in(
        self, login: Login, timeout_s: float, taken: set[Optional[int]]
    ) -> Login:
        target = login.target
        assert isinstance(target, SrpTarget)  # noqa: S101  (for mypy)
        if login.session is not None:
            return replace(login, notes=self._timeouts(target, login.session))
        last, before = self._log()[-1:], self._hosts()
        path = under(self._root, f"{SRP_LOCAL}/{login.local}/add_target")
        number = self._write(path, login_text(target), timeout_s)
        if number == errno.ETIME:
            text = f"the target does not answer within {timeout_s:g} s"
            return login.failed("srp-target-silent", text)
        if number == errno.ENOENT and not path.exists():
            text = f"ib_srp does not offer the port as {SRP_LOCAL}/{login.local}"
            return login.failed("srp-local-port-missing", text)
        # EEXIST: srp_daemon or another path of the same target was faster.
        if number not in (0, errno.EEXIST):
            log = self._log()
            if last and last[0] in log:  # the last line before
                log = log[len(log) - log[::-1].index(last[0]) :]
            return replace(login, problem=failure(number, target, log))
        # Numbers of SCSI hosts are used again: the record of a new one is another's.
        present = [
            one if one.host in before else replace(one, initiator_ext=None)
            for one in _facts(self._root).sessions
        ]
        # Of several, the new one is this login's.
        session = max(
            (one for one in sessions_by(login, present) if one.host not in taken),
            key=lambda one: (one.host not in before, one.host or 0),
            default=None,
        )
        if session is None:
            id = "srp-session-gone"
            text = "the kernel accepted the login, and the session is gone again"
            of_any_gid = replace(login, target=replace(target, dgid=None))
            if number == errno.EEXIST and not sessions_by(of_any_gid, present):
                text = "the kernel is still removing an earlier session"
            elif number == errno.EEXIST:
                id = "srp-login-not-unique"
                text = (
                    "the port has a session with this id_ext, ioc_guid and "
                    "initiator_ext that is another target's; write another "
                    "initiator_ext, or device and port"
                )
            return login.failed(id, text)
        notes = self._timeouts(target, session)
        return replace(login, session=session, made=number == 0, notes=notes)

    def _timeouts(self, target: SrpTarget, session: Session) -> tuple[Sentence, ...]:
        """Set the timeouts of a session; return a sentence for each that failed."""
        for name, value in timeout_writes(session.timeouts, target):
            path = under(self._root, f"{SRP_PORTS}/{session.remote_port}/{name}")
            error = _written(path, str(value))
            if error:
                text = f"{name} of {session.title} could not be set to {value}: {error}"
                return (Sentence("srp-timeout-not-set", text),)
        return ()

    def log_out(self, session: Session) -> Optional[Sentence]:
        """End an SRP session, and wait until it is gone; return why that failed."""
        path = under(self._root, f"{SRP_PORTS}/{session.remote_port}/delete")
        error = _written(path, "1")
        if error and session.host in self._hosts():
            text = f"{session.title} could not be logged out: {error}"
            return Sentence("srp-logout-failed", text)
        deadline = time.monotonic() + _GONE_S
        while session.host in self._hosts():
            if time.monotonic() >= deadline:
                text = f"{session.title} is still there {_GONE_S:g} s after its logout"
                return Sentence("srp-logout-failed", text)
            time.sleep(_LOOK_S)
        return None

    def _hosts(self) -> set[Optional[int]]:
        return {one.host for one in _facts(self._root).sessions}

    def rescan(self, sessions: Sequence[Session]) -> list[Sentence]:
        """Look for new LUNs and new sizes; return what failed.

        VDSM scans Fibre Channel and iSCSI hosts only (lib/vdsm/storage/fc-scan).
        """
        reader = BlockReader(FileTree(self._root))
        hosts = [one.host for one in sessions]
        luns = {host: reader.luns(host) for host in hosts}
        before = [lun for host in hosts for lun in luns[host]]
        end, failed = time.monotonic() + _RESCAN_S, []

        def of_session(session: Session) -> None:
            files = [(f"{SCSI_HOSTS}/host{session.host}/scan", "- - -")]
            files += (
                (f"{BLOCK}/{lun.device}/device/rescan", "1")
                for lun in luns[session.host]
            )
            for file, text in files:
                number = errno.ETIME
                if not _is_late(end):
                    left = end - time.monotonic()
                    number = self._write(under(self._root, file), text, left)
                why = f"{file} could not be written: {os.strerror(number)}"
                if number == errno.ETIME:
                    why = f"{session.title} was not rescanned within {_RESCAN_S:g} s"
                if number:
                    failed.append(Sentence("rescan-failed", why))
                if number == errno.ETIME:
                    return

        if sessions:  # none waits for another's target
            with ThreadPoolExecutor(len(sessions)) as threads:
                list(threads.map(of_session, sessions))
        after = {lun.device: lun for host in hosts for lun in reader.luns(host)}
        # Once all paths of a map have the new size.
        for map in sorted(
            {
                lun.map
                for lun in before
                if lun.map and after.get(lun.device, lun).size != lun.size
            }
        ):
            try:
                self._run(("multipathd", "resize", "map", map))
            except CommandFailed as error:
                text = f"multipathd did not resize {map}: {error}"
                failed.append(Sentence("rescan-failed", text))
        return failed

    def _log(self) -> list[str]:
        """Return the kernel's log; empty if it cannot be read."""
        try:
            return self._run(("dmesg",)).splitlines()
        except CommandFailed:
            return []


def _written(path: Path, text: str) -> str:
    """Write to a file of sysfs; return the error, or an empty text."""
    try:
        write_kernel_file(path, text.encode("ascii"))
    except OSError as error:
        return error.strerror or str(error)
    return ""


TimedRunner = Callable[[Sequence[str], float], str]
"""Runs an argument vector for some seconds; as Runner of host.system.commands."""

_TRANSPORT = "iser"
# VDSM's (DEFAULT_TPGT, iscsi.py). iscsid takes another one from the target
# (get_op_params_text_keys, usr/login.c).
_TAG = 1
_DATABASE_S = 15.0
# iscsid: node.conn[0].timeo.logout_timeout, 15 s, and the removal of the LUNs.
_LOGOUT_S = 60.0
_MOST_LOGINS = 8
# iscsid ends a login by the limit of its record; iscsiadm then reports why.
_ANSWER_S = 10.0
# iscsid.conf's node.conn[0].timeo.login_timeout; the record's own limit is this times
# initial_login_retry_max (iscsi_retry_initial_login, usr/initiator.c).
_LOGIN_S = 15

# enum iscsi_error_list, include/iscsi_err.h of open-iscsi.
_EXISTS, _NO_RECORD = 15, 21
_REFUSED = {5, 19}
_SILENT = {8, 11, 33}
_ERRORS = {
    4: Sentence("iser-target-silent", "no RDMA connection to the portal was made"),
    12: Sentence("iser-module-not-loaded", "iscsid has no transport iser"),
    18: Sentence("iscsid-unavailable", "iscsid does not answer"),
    20: Sentence("iscsid-unavailable", "iscsid is not running; systemctl start iscsid"),
    24: Sentence(
        "iser-login-not-authorized",
        "the target did not accept name or password; the record of iscsiadm has them",
    ),
}

# NAME TRANSPORT,HARDWARE_ADDRESS,IP_ADDRESS,NETDEV,INITIATOR_NAME
_TRANSPORTS = re.compile(r"^(\S+) ([^\s,]+),", re.MULTILINE)
_INTERFACES = re.compile(r"^iface\.iscsi_ifacename = (\S+)$", re.MULTILINE)
_WITHOUT_TAG = re.compile(r"^node\.tpgt = -1$", re.MULTILINE)


class Iser:
    """Acts on the iSER sessions of the host below ``root``; ``run`` runs its tools."""

    def __init__(self, root: Union[str, Path], run: TimedRunner) -> None:
        self._root, self._run = root, run

    def log_in(
        self, logins: Sequence[Login], timeout_s: float, end: Optional[float] = None
    ) -> list[Login]:
        """Make the ``logins`` that have no session; return each with its result, in
        order.

        The database is prepared for one after the other, as VDSM does; then all log in
        at the same time, each with ``timeout_s`` seconds. At ``end``, of
        time.monotonic(), none is begun.
        """
        if all(login.session for login in logins):
            return list(logins)
        problem = _not_loaded(
            lambda argv: self._run(argv, _DATABASE_S),
            "ib_iser",
            "iser-module-not-loaded",
        )
        prepared = [
            login
            if login.session
            else replace(
                login, problem=problem or self._prepared(login, timeout_s, end)
            )
            for login in logins
        ]
        logged_in = partial(self._logged_in, timeout_s=timeout_s, end=end)
        with ThreadPoolExecutor(min(len(prepared), _MOST_LOGINS)) as threads:
            return list(threads.map(logged_in, prepared))

    def log_out(self, session: Session) -> Optional[Sentence]:
        """End a session; return why that failed. The record stays."""
        words = ("iscsiadm", "-m", "session", "-r", f"{session.number}", "-u")
        try:
            self._run(words, _LOGOUT_S)
        except CommandFailed as error:
            numbers = {one.number for one in _facts(self._root).sessions}
            if error.returncode != _NO_RECORD and session.number in numbers:
                text = f"{session.title} could not be logged out: {error}"
                return Sentence("iser-logout-failed", text)
        return None

    def _prepared(
        self, login: Login, timeout_s: float, end: Optional[float]
    ) -> Optional[Sentence]:
        """Make the interface record and the target's, where they are missing; return
        why that failed.
        """
        if _is_late(end):
            return Sentence("iser-login-not-tried", _NOT_TRIED)
        target = _target_of(login)
        try:
            return self._interface(target.interface) or self._record(target, timeout_s)
        except NotInstalled:
            text = "iscsiadm is missing; install the package iscsi-initiator-utils"
            return Sentence("iscsiadm-missing", text)
        except CommandFailed as error:
            return _ERRORS.get(
                error.returncode or 0,
                Sentence("iser-record-failed", f"iscsiadm failed: {error}"),
            )

    def _interface(self, name: str) -> Optional[Sentence]:
        transport = dict(_TRANSPORTS.findall(self._database("iface"))).get(name)
        if transport is None:
            own = ("iface", "-I", name)
            self._make(own, own, {"iface.transport_name": _TRANSPORT})
        elif transport != _TRANSPORT:
            text = (
                f"the interface record {name} has the transport {transport}; remove "
                f"it (iscsiadm -m iface -I {name} -o delete), or write another "
                "interface in the policy"
            )
            return Sentence("iser-record-other-transport", text)
        return None

    def _record(self, target: IserTarget, timeout_s: float) -> Optional[Sentence]:
        portal = ("-T", target.iqn, "-p", target.portal)
        try:
            shown = self._database("node", *portal)
        except CommandFailed as error:
            if error.returncode != _NO_RECORD:
                raise
        else:
            names = _INTERFACES.findall(shown)
            if not names:
                text = f"iscsiadm shows the records of {target.iqn} in an unknown form"
                return Sentence("iser-record-failed", text)
            if _WITHOUT_TAG.search(shown):
                words = " ".join(("iscsiadm -m node", *portal, "-I", names[0]))
                text = (
                    "open-iscsi has a record of it without a portal group tag, which "
                    "any other login replaces, with its password; remove it first "
                    f"({words} -o delete)"
                )
                return Sentence("iser-record-without-tag", text)
            if target.interface in names:
                return None  # perhaps with a password
        own = ("-I", target.interface)
        new = ("node", "-T", target.iqn, "-p", f"{target.portal},{_TAG}", *own)
        limit = min(_LOGIN_S, max(1, int(timeout_s)))
        attempts = max(1, int(timeout_s) // limit)
        values = {
            # EL's iscsid.conf says automatic: iscsi.service would log in at boot.
            "node.startup": "manual",
            "node.conn[0].timeo.login_timeout": f"{limit}",
            # iscsid ends its attempts when the login's own timeout is over.
            "node.session.initial_login_retry_max": f"{attempts}",
        }
        self._make(new, ("node", *portal, *own), values)
        return None

    def _make(
        self, new: Sequence[str], record: Sequence[str], values: dict[str, str]
    ) -> None:
        """Make a record with ``values``; if that fails, none is left."""
        try:
            self._database(*new, "-o", "new")
            for name, value in values.items():
                self._database(*record, "-o", "update", "-n", name, "-v", value)
        except BaseException:
            with suppress(CommandFailed):
                self._database(*record, "-o", "delete")
            raise

    def _database(self, *words: str) -> str:
        return self._run(("iscsiadm", "-m", *words), _DATABASE_S)

    def _logged_in(self, login: Login, timeout_s: float, end: Optional[float]) -> Login:
        if login.session or login.problem:
            return login
        if _is_late(end):
            return login.failed("iser-login-not-tried", _NOT_TRIED)
        target = _target_of(login)
        where = ("-T", target.iqn, "-p", target.portal)
        words = ("iscsiadm", "-m", "node", *where, "-I", target.interface, "-l")
        made, problem = True, None
        try:
            self._run(words, timeout_s + _ANSWER_S)
        except CommandTimeout:
            problem = _silent(target, timeout_s)
        except CommandFailed as error:
            made = False
            if error.returncode in _SILENT:
                problem = _silent(target, timeout_s)
            elif error.returncode in _ERRORS:
                problem = _ERRORS[error.returncode]
            elif error.returncode in _REFUSED:
                text = (
                    "the target refused it: its access list may not have this host, or "
                    f"the portal has no target of that name; {_targets_of(target)}"
                )
                problem = Sentence("iser-login-refused", text)
            elif error.returncode != _EXISTS:
                text = f"iscsiadm reports: {error} (exit status {error.returncode})"
                problem = Sentence("iser-login-failed", text)
        (found,) = iser_logins([target], _facts(self._root).sessions)
        if problem is None and found.session is None:
            text = "the target accepted the login, and the session is gone again"
            problem = Sentence("iser-session-gone", text)
        if problem is not None:
            return replace(login, problem=problem)
        return replace(found, made=made)


def _target_of(login: Login) -> IserTarget:
    assert isinstance(login.target, IserTarget)  # noqa: S101  (for mypy)
    return login.target


def _silent(target: IserTarget, timeout_s: float) -> Sentence:
    # A target that is not there looks the same if its portal closes the connection
    # before the refusal has arrived, as LIO's may.
    text = f"the target does not answer within {timeout_s:g} s; {_targets_of(target)}"
    return Sentence("iser-target-silent", text)


def _targets_of(target: IserTarget) -> str:
    return (
        "the portal's targets: iscsiadm -m discovery -t st "
        f"-p {target.portal} -I {target.interface} -o nonpersistent"
    )


@dataclass(frozen=True)
class _LoggedOut:
    """The names of ``targets`` that stay logged out while ``block``, the digest of that
    part of the policy, is the same.
    """

    block: str
    targets: tuple[str, ...]

    def is_fresh(self, now_s: float) -> bool:
        return True  # until the next boot


_LOGGED_OUT = StateFile(
    LOGGED_OUT_JSON, Envelope("block-logged-out"), _LoggedOut, "logouts", {}
)


class BlockSessions:
    """The sessions of the host below ``root``."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._run = run_command if root == "/" else partial(_not_run, root)
        self._srp, self._iser = Srp(root, self._run), Iser(root, self._run)

    def facts(self) -> BlockFacts:
        """Read all sessions with their LUNs."""
        return _facts(self._root)

    def logins(self, block: BlockPolicy, facts: BlockFacts) -> list[Login]:
        """Return the logins to all targets of ``block``; those of SRP first."""
        found: list[Login] = []
        if block.srp:
            host = HostReader(self._root)
            addresses = dict.fromkeys(address_of(one) for one in block.srp if one.dest)
            routes = [route for one in addresses if (route := host.route(one))]
            sessions = [one for one in facts.sessions if one.protocol == SRP]
            ports = host.partitions()
            found = srp_logins(
                block.srp, ports.rdma_devices, ports.netdevs, routes, sessions
            )
        return [*found, *iser_logins(block.iser, facts.sessions)]

    def log_in(
        self,
        block: BlockPolicy,
        targets: Sequence[Target],
        total_s: Optional[float] = None,
    ) -> list[Login]:
        """Make the logins to ``targets``, of ``block``, that have no session; return
        all with their results. None of them stays logged out.

        After ``total_s`` seconds none is begun. Raises Problem.
        """
        end = None if total_s is None else time.monotonic() + total_s
        named = {one.name for one in targets}
        self._leave_out(block, self.logged_out(block) - named)
        # Of all targets, so that each session belongs to one of them.
        every = self.logins(block, self.facts())
        logins = [one for one in every if one.target in targets]
        others = [one for one in every if one.target not in targets]
        srp = [one for one in logins if isinstance(one.target, SrpTarget)]
        iser = [one for one in logins if isinstance(one.target, IserTarget)]
        done = [
            *self._srp.log_in(srp, block.login_timeout, end, others),
            *self._iser.log_in(iser, block.login_timeout, end),
        ]
        new = {
            now.session.host: initiator_of(now.target)
            for before, now in zip(srp, done)
            if now.session and not before.session
        }
        if new:
            old = {one.host: one.initiator_ext for one in self.facts().sessions}
            known = ((host, ext) for host, ext in {**old, **new}.items() if ext)
            state = _Initiators(tuple(_Initiator(*one) for one in known))
            _INITIATORS.write(self._root, state)
        return done

    def logged_out(self, block: BlockPolicy) -> set[str]:
        """Return the names of the targets of ``block`` that stay logged out."""
        state = _LOGGED_OUT.read(self._root)
        is_of_block = state and state.block == digest_of(plain(block))
        return set(state.targets) if state and is_of_block else set()

    def _leave_out(self, block: BlockPolicy, names: Iterable[str]) -> None:
        old = _LOGGED_OUT.read(self._root)
        new = _LoggedOut(digest_of(plain(block)), tuple(sorted(names)))
        if new != old and (old or new.targets):
            _LOGGED_OUT.write(self._root, new)

    def log_out(
        self, leaving: Sequence[Session], block: BlockPolicy, names: Iterable[str]
    ) -> dict[Session, Sentence]:
        """End the sessions ``leaving``; return those that are still there, and why. The
        targets ``names``, of ``block``, stay logged out: :meth:`logged_out`.

        Raises Refused, and ends none, if one of their LUNs is in use; and Problem.
        """
        users = BlockReader(FileTree(self._root), self._run).users(leaving)
        if users:
            raise Refused(
                "block-in-use",
                f"nothing was logged out, because {len(users)} "
                f"user{'' if len(users) == 1 else 's'} would lose LUNs: "
                f"{'; '.join(users)}",
                "put the host into maintenance, or end these",
            )
        self._leave_out(block, self.logged_out(block).union(names))
        ends = {True: self._srp.log_out, False: self._iser.log_out}
        return {one: why for one in leaving if (why := ends[one.protocol == SRP](one))}

    def rescan(self, sessions: Sequence[Session]) -> list[Sentence]:
        """Look for new LUNs and new sizes; return what failed, and which are down."""
        up = [one for one in sessions if one.is_up]
        down = [
            Sentence("rescan-failed", f"{one.title} is {one.state}, and not rescanned")
            for one in sessions
            if not one.is_up
        ]
        return [*down, *self._srp.rescan(up)]


def leaving_sessions(
    logins: Sequence[Login], facts: BlockFacts, names: Optional[Sequence[str]]
) -> tuple[list[Session], list[str], list[str]]:
    """Return the sessions that ``names`` mean, the names of the targets that these are
    of, and the names that mean none.

    A name is that of a target in ``logins``, which are those to all targets of the
    policy, an ioc_guid or an IQN. None: all of SRP, and those of iSER that ``logins``
    have, as others may be VDSM's. Raises Refused if a target's name means a session
    that may be another target's. Pure.
    """
    # Targets of SRP and iSER may have the same name.
    own: dict[str, list[Session]] = {}
    for target in dict.fromkeys(one.target for one in logins):
        sessions = sessions_of(target, logins, facts.sessions)
        own[target.name] = own.get(target.name, []) + sessions
    if names is None:
        iser = [one.session for one in logins if one.session]
        found = [one for one in facts.sessions if one.protocol == SRP or one in iser]
        return found, list(own), []
    found, unknown = [], []
    for name in names:
        guid = name.lower().removeprefix("0x")
        of_name = [
            one
            for one in facts.sessions
            if one in own.get(name, ()) or name == one.iqn or guid == one.ioc_guid
        ]
        for one in of_name:
            rivals = [n for n, have in own.items() if n not in names and one in have]
            if rivals and name != one.iqn and guid != one.ioc_guid:
                raise Refused(
                    "block-session-unclear",
                    f"{one.title} may be {rivals[0]}'s session too: the kernel does "
                    "not show its initiator_ext",
                    "ovirt-rdma-host block login shows whose it is; or name both",
                )
        if not of_name and name not in own:
            unknown.append(name)
        found += (one for one in of_name if one not in found)
    targets = [
        name
        for name, sessions in own.items()
        if name in names or any(one in found for one in sessions)
    ]
    return found, targets, unknown


def _not_run(root: str, argv: Sequence[str], timeout_s: float = 0) -> str:
    raise CommandFailed(f"not run, because {root} is not this host's root")
