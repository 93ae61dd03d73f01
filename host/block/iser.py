# SPDX-License-Identifier: GPL-2.0-or-later
"""Log in to iSER targets, and log out, through iscsiadm(8) and iscsid.

Nothing that VDSM or the operator has in open-iscsi's database is changed, and VDSM
changes nothing of ours. A record without a portal group tag is a file for all interface
records of a portal, which the next record with a tag replaces (idbm_rec_read,
idbm_add_node in usr/idbm.c of open-iscsi), and VDSM's have one (addIscsiNode,
lib/vdsm/storage/iscsi.py). So ours have a tag too, and an interface record that VDSM
does not use. A plain discovery would write all records of the portal again, with their
passwords (the default operation is new, update and delete); so a discovery is
nonpersistent. A login that is there is never tried again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.block.logins import Login, iser_logins
from ovirt_rdma.host.block.read import BlockReader
from ovirt_rdma.host.collect.storage import Session
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.block import IserTarget
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    NotInstalled,
)
from ovirt_rdma.host.system.tree import FileTree

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
_INTERFACES = re.compile(r"^iface\.iscsi_ifacename = (\S+)$", re.MULTILINE)
_WITHOUT_TAG = re.compile(r"^node\.tpgt = -1$", re.MULTILINE)


class Iser:
    """Acts on the iSER sessions of the host below ``root``; ``run`` runs its tools."""

    def __init__(self, root: Union[str, Path], run: TimedRunner) -> None:
        self._root, self._run = root, run

    def log_in(self, logins: Sequence[Login], timeout_s: float) -> list[Login]:
        """Make the ``logins`` that have no session; return each with its result, in
        order.

        The database is prepared for one after the other, as VDSM does; then all log in
        at the same time, each with ``timeout_s`` seconds.
        """
        if all(login.session for login in logins):
            return list(logins)
        problem = self._load_module()
        prepared = [
            login
            if login.session
            else replace(login, problem=problem or self._prepared(login, timeout_s))
            for login in logins
        ]

        def made(login: Login) -> Login:
            if login.session or login.problem:
                return login
            return self._logged_in(login, timeout_s)

        with ThreadPoolExecutor(min(len(prepared), _MOST_LOGINS)) as threads:
            return list(threads.map(made, prepared))

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

    def _prepared(self, login: Login, timeout_s: float) -> Optional[Sentence]:
        """Make the interface record and the target's, where they are missing; return
        why that failed.
        """
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
            self._database("iface", "-I", name, "-o", "new")
            key = ("-n", "iface.transport_name", "-v", _TRANSPORT)
            self._database("iface", "-I", name, "-o", "update", *key)
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
        new = ("-T", target.iqn, "-p", f"{target.portal},{_TAG}", *own, "-o", "new")
        self._database("node", *new)
        limit = min(_LOGIN_S, max(1, int(timeout_s)))
        for name, value in (
            # EL's iscsid.conf says automatic: iscsi.service would log in at boot.
            ("node.startup", "manual"),
            ("node.conn[0].timeo.login_timeout", limit),
            # iscsid ends its attempts when the login's own timeout is over.
            ("node.session.initial_login_retry_max", max(1, int(timeout_s) // limit)),
        ):
            key = ("-n", name, "-v", f"{value}")
            self._database("node", *portal, *own, "-o", "update", *key)
        return None

    def _database(self, *words: str) -> str:
        return self._run(("iscsiadm", "-m", *words), _DATABASE_S)

    def _logged_in(self, login: Login, timeout_s: float) -> Login:
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
            elif error.returncode != _EXISTS:
                problem = self._refusal(target, error)
        (found,) = iser_logins([target], self._sessions())
        if problem is None and found.session is None:
            text = "the target accepted the login, and the session is gone again"
            problem = Sentence("iser-session-gone", text)
        if problem is not None:
            return replace(login, problem=problem)
        return replace(found, made=made)

    def _refusal(self, target: IserTarget, error: CommandFailed) -> Sentence:
        """Ask the portal, which has just answered, for its targets."""
        where = ("-p", target.portal, "-I", target.interface)
        words = ("iscsiadm", "-m", "discovery", "-t", "st", *where)
        try:
            text = self._run((*words, "-o", "nonpersistent"), _DATABASE_S)
        except CommandFailed:
            text = ""
        names = sorted({row.split(" ")[-1] for row in text.splitlines() if " " in row})
        if names and target.iqn not in names:
            text = f"the portal has no target {target.iqn}; it has: {', '.join(names)}"
            return Sentence("iser-target-unknown", text)
        if error.returncode == _REFUSED:
            text = "the target refused it; its access list may not have this host"
            return Sentence("iser-login-refused", text)
        text = f"iscsiadm reports: {error} (exit status {error.returncode})"
        return Sentence("iser-login-failed", text)


def _target_of(login: Login) -> IserTarget:
    assert isinstance(login.target, IserTarget)  # noqa: S101  (for mypy)
    return login.target


def _silent(target: IserTarget, timeout_s: float) -> Sentence:
    # A target that is not there looks the same if its portal closes the connection
    # before the refusal has arrived, as LIO's may.
    where = f"-p {target.portal} -I {target.interface}"
    text = (
        f"the target does not answer within {timeout_s:g} s; the portal's targets: "
        f"iscsiadm -m discovery -t st {where} -o nonpersistent"
    )
    return Sentence("iser-target-silent", text)
