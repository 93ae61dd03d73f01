# SPDX-License-Identifier: GPL-2.0-or-later
"""Log in to iSER targets, and log out, through iscsiadm(8) and iscsid.

Nothing that VDSM or the operator has in open-iscsi's database is changed. A plain
discovery would write all records of the portal again, with their passwords (the default
operation is new, update and delete); so a login adds the one record that it needs, and
a discovery is nonpersistent.

A record has the portal group's tag. Without it, open-iscsi writes a file for the portal
in place of a folder with a file for each interface (idbm_rec_write, usr/idbm.c): then
VDSM's next connection to the target removes it (addIscsiNode in its storage/iscsi.py),
and a second interface cannot have a record. The tag is what the portal says of itself.
"""

from __future__ import annotations

import ipaddress
import re
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.block.logins import IserLogin, Outcome, wanted_iser_logins
from ovirt_rdma.host.block.model import Session
from ovirt_rdma.host.block.read import BlockReader
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.block_fields import IserTarget
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    NotInstalled,
)
from ovirt_rdma.host.system.tree import FileTree

TimedRunner = Callable[[Sequence[str], float], str]
"""Runs an argument vector for some seconds; as Runner of host.system.commands."""

_TRANSPORT = "iser"
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
_EXISTS, _NO_RECORD, _REFUSED = 15, 21, 19
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


class Iser:
    """Acts on the iSER sessions of the host below ``root``; ``run`` runs its tools."""

    def __init__(self, root: Union[str, Path], run: TimedRunner) -> None:
        self._root, self._run = root, run
        self._database_lock = threading.Lock()

    def log_in(self, logins: Sequence[IserLogin], timeout_s: float) -> list[Outcome]:
        """Make the ``logins`` that have no session; return each result, in order.

        All at the same time, each with ``timeout_s`` seconds; but the database is
        changed for one after the other, as VDSM does.
        """
        missing = [login for login in logins if login.session is None]
        if not missing:
            return [Outcome(login) for login in logins]
        problem = self._load_module()

        def made(login: IserLogin) -> Outcome:
            if login.session is not None:
                return Outcome(login)
            if problem is not None:
                return Outcome(login, problem=problem)
            return self._made(login, time.monotonic() + timeout_s, timeout_s)

        with ThreadPoolExecutor(min(len(missing), _MOST_LOGINS)) as threads:
            return list(threads.map(made, logins))

    def log_out(self, session: Session) -> Optional[Sentence]:
        """End a session; return why that failed. The record stays."""
        words = ("iscsiadm", "-m", "session", "-r", f"{session.number}", "-u")
        try:
            self._run(words, _LOGOUT_S)
        except CommandFailed as error:
            if error.returncode != _NO_RECORD and session.number in self._numbers():
                text = f"{session.title} could not be logged out: {error}"
                return Sentence("iser-logout-failed", text)
        return None

    def _numbers(self) -> set[Optional[int]]:
        return {one.number for one in self._sessions()}

    def _sessions(self) -> tuple[Session, ...]:
        return BlockReader(FileTree(self._root)).facts().sessions

    def _load_module(self) -> Optional[Sentence]:
        try:
            self._run(("modprobe", "ib_iser"), _DATABASE_S)
        except CommandFailed as error:
            text = f"module ib_iser cannot be loaded: {error}"
            return Sentence("iser-module-not-loaded", text)
        return None

    def _made(self, login: IserLogin, until: float, timeout_s: float) -> Outcome:
        """Make the records where they are missing, and log in."""
        target = login.target
        try:
            with self._database_lock:
                problem = self._interface(target.interface)
                tag = None if problem else self._tag_of_record(target)
            if problem is None and tag is None:
                tag = self._tag_of_portal(target, timeout_s)
                if isinstance(tag, Sentence):
                    problem = tag
                else:
                    with self._database_lock:
                        self._new_record(target, tag, timeout_s)
        except NotInstalled:
            text = "iscsiadm is missing; install the package iscsi-initiator-utils"
            problem = Sentence("iscsiadm-missing", text)
        except CommandFailed as error:
            problem = _ERRORS.get(
                error.returncode or 0,
                Sentence("iser-record-failed", f"iscsiadm failed: {error}"),
            )
        if problem is not None:
            return Outcome(login, problem=problem)
        left_s = max(0.0, until - time.monotonic())
        return self._logged_in(login, tag or "", left_s, timeout_s)

    def _interface(self, name: str) -> Optional[Sentence]:
        transport = dict(_TRANSPORTS.findall(self._database("iface"))).get(name)
        if transport is None:
            self._database("iface", "-I", name, "-o", "new")
            key = ("-n", "iface.transport_name", "-v", _TRANSPORT)
            self._database("iface", "-I", name, "-o", "update", *key)
        elif transport != _TRANSPORT:
            text = (
                f"the interface record {name} has the transport {transport}; write "
                "another interface in the policy"
            )
            return Sentence("iser-record-other-transport", text)
        return None

    def _tag_of_record(self, target: IserTarget) -> Optional[str]:
        """Return the portal group's tag in the record, which may have a password; "" if
        the record was made without, None if there is no record.
        """
        try:
            text = self._database("node", *_record_words(target, ""))
        except CommandFailed as error:
            if error.returncode != _NO_RECORD:
                raise
            return None
        tag = re.search(r"^node\.tpgt = ([0-9]{1,5})$", text, re.MULTILINE)
        return tag[1] if tag else ""

    def _tag_of_portal(
        self, target: IserTarget, timeout_s: float
    ) -> Union[str, Sentence]:
        """Return the portal group's tag as the portal says it, or why there is none."""
        try:
            names = self._targets(target, timeout_s)
        except CommandTimeout:
            return _silent(target, timeout_s)
        except CommandFailed as error:
            if error.returncode in _SILENT:
                return _silent(target, timeout_s)
            raise
        tag = names.get((target.iqn, target.portal))
        return tag or _unknown_target(target, names)

    def _targets(
        self, target: IserTarget, timeout_s: float
    ) -> dict[tuple[str, str], str]:
        """Ask the portal for its targets; return the portal group's tag by IQN and
        address. Writes no record.
        """
        where = ("-p", target.portal, "-I", target.interface)
        words = ("iscsiadm", "-m", "discovery", "-t", "st", *where)
        text = self._run((*words, "-o", "nonpersistent"), timeout_s)
        # ADDRESS:PORT,TAG IQN
        rows = re.findall(r"^(\S+:[0-9]{1,5}),([0-9]{1,5}) (\S+)$", text, re.MULTILINE)
        return {(iqn, _same_form(portal)): tag for portal, tag, iqn in rows}

    def _new_record(self, target: IserTarget, tag: str, timeout_s: float) -> None:
        own = _record_words(target, tag)
        self._database("node", *own, "-o", "new")
        limit = min(_LOGIN_S, max(1, int(timeout_s)))
        for name, value in (
            # EL's iscsid.conf says automatic: iscsi.service would log in at boot.
            ("node.startup", "manual"),
            ("node.conn[0].timeo.login_timeout", limit),
            # iscsid ends its attempts when the login's own timeout is over.
            ("node.session.initial_login_retry_max", max(1, int(timeout_s) // limit)),
        ):
            self._database("node", *own, "-o", "update", "-n", name, "-v", f"{value}")

    def _database(self, *words: str) -> str:
        return self._run(("iscsiadm", "-m", *words), _DATABASE_S)

    def _logged_in(
        self, login: IserLogin, tag: str, left_s: float, timeout_s: float
    ) -> Outcome:
        words = ("iscsiadm", "-m", "node", *_record_words(login.target, tag), "-l")
        made, problem = True, None
        try:
            self._run(words, left_s + _ANSWER_S)
        except CommandTimeout:
            problem = _silent(login.target, timeout_s)
        except CommandFailed as error:
            made = False
            if error.returncode in _SILENT:
                problem = _silent(login.target, timeout_s)
            elif error.returncode in _ERRORS:
                problem = _ERRORS[error.returncode]
            elif error.returncode != _EXISTS:
                problem = self._refusal(login.target, error)
        if problem is not None:
            return Outcome(login, problem=problem)
        (found,) = wanted_iser_logins([login.target], self._sessions())
        if found.session is None:
            text = "the target accepted the login, and the session is gone again"
            return Outcome(login, problem=Sentence("iser-session-gone", text))
        return Outcome(found, made=made)

    def _refusal(self, target: IserTarget, error: CommandFailed) -> Sentence:
        """Ask the portal, which has just answered, for its targets."""
        try:
            names = self._targets(target, _DATABASE_S)
        except CommandFailed:
            names = {}
        if names and target.iqn not in {iqn for iqn, _ in names}:
            return _unknown_target(target, names)
        if error.returncode == _REFUSED:
            text = "the target refused it; its access list may not have this host"
            return Sentence("iser-login-refused", text)
        text = f"iscsiadm reports: {error} (exit status {error.returncode})"
        return Sentence("iser-login-failed", text)


def _record_words(target: IserTarget, tag: str) -> tuple[str, ...]:
    portal = f"{target.portal},{tag}" if tag else target.portal
    return ("-T", target.iqn, "-p", portal, "-I", target.interface)


def _same_form(portal: str) -> str:
    """Return a portal with its address as the policy has it."""
    address, _, port = portal.rpartition(":")
    try:
        shown = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return portal
    return f"[{shown}]:{port}" if shown.version == 6 else f"{shown}:{port}"


def _unknown_target(target: IserTarget, names: Iterable[tuple[str, str]]) -> Sentence:
    found = sorted(
        {iqn if iqn != target.iqn else f"{iqn} at {portal}" for iqn, portal in names}
    )
    text = f"the portal has no target {target.iqn} at {target.portal}; it has: "
    return Sentence("iser-target-unknown", text + (", ".join(found) or "none"))


def _silent(target: IserTarget, timeout_s: float) -> Sentence:
    # A target that is not there looks the same if its portal closes the connection
    # before the refusal has arrived, as LIO's may.
    where = f"-p {target.portal} -I {target.interface}"
    text = (
        f"the target does not answer within {timeout_s:g} s; the portal's targets: "
        f"iscsiadm -m discovery -t st {where} -o nonpersistent"
    )
    return Sentence("iser-target-silent", text)
