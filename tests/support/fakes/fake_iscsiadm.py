# SPDX-License-Identifier: GPL-2.0-or-later
"""open-iscsi's database, and sessions of iSER, as iscsiadm(8) shows and changes them.

usr/iscsiadm.c, usr/idbm.c, usr/iface.c and include/iscsi_err.h of open-iscsi 2.1.11.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Optional

from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_root import FakeRoot

NO_OBJECTS, EXISTS, LOGIN = 21, 15, 5
Key = tuple[str, str, Optional[str], str]


class FakeIscsiadm:
    """The database and the sessions of ``root``; ``portals`` are those that answer,
    each with its targets. ``errors`` has the exit status of logins to a target.
    ``ran`` has each command without ``iscsiadm -m``. ``records`` are by IQN, portal,
    portal group tag and interface. Without a tag, a portal has one record for all
    interfaces.
    """

    def __init__(self, root: FakeRoot) -> None:
        self.root = root
        self.portals: dict[str, list[str]] = {}
        self.errors: dict[str, int] = {}
        self.ran: list[str] = []
        # iface_default and iface_iser of usr/iface.c.
        self.interfaces = {"default": "tcp", "iser": "iser"}
        self.records: dict[Key, dict[str, str]] = {}
        self.sessions: dict[int, tuple[str, str, str]] = {}

    def run(self, argv: Sequence[str], timeout_s: float = 60) -> str:
        """Take a command as Runner does."""
        if argv[0] != "iscsiadm":
            return ""
        self.ran.append(" ".join(argv[2:]))
        mode = argv[2]
        words = [part for word in argv[3:] for part in _split(word)]
        options = dict(zip(words, words[1:]))
        return getattr(self, f"_{mode}")(words, options)

    def session(self, number: int, iqn: str, portal: str, interface: str) -> None:
        """Add a session, which somebody else may have made."""
        self.sessions[number] = (iqn, portal, interface)
        self.root.iscsi_session(number, iqn, portal.rpartition(":")[0], "iscsi_iser")
        folder = f"/sys/class/iscsi_session/session{number}"
        self.root.write(f"{folder}/ifacename", interface)
        self.root.write(f"{folder}/state", "LOGGED_IN")

    def _iface(self, words: list[str], options: dict[str, str]) -> str:
        operation, name = options.get("-o"), options.get("-I", "")
        if operation == "new":
            self.interfaces[name] = "tcp"  # iface_setup_defaults
        elif operation == "update":
            assert (options["-n"], name in self.interfaces) == (
                "iface.transport_name",
                True,
            )
            self.interfaces[name] = options["-v"]
        elif operation == "delete":
            del self.interfaces[name]
        rest = ",<empty>,<empty>,<empty>,<empty>\n"
        return "".join(f"{n} {t}{rest}" for n, t in self.interfaces.items())

    def _node(self, words: list[str], options: dict[str, str]) -> str:
        portal, _, tag = options["-p"].partition(",")
        interface = options.get("-I")
        operation = options.get("-o")
        if operation == "new":
            assert interface
            self._add((options["-T"], portal, tag or None, interface))
            return "New iSCSI node added\n"
        # A tag is not compared (__iscsi_match_session, usr/iscsi_util.c).
        matched = [
            key
            for key in self.records
            if key[:2] == (options["-T"], portal) and interface in (None, key[3])
        ]
        if "-u" in words:
            key = (options["-T"], portal, interface or "")
            numbers = [n for n, one in self.sessions.items() if one == key]
            if not numbers:
                raise CommandFailed("iscsiadm: No matching sessions found", NO_OBJECTS)
            for number in numbers:
                self._end(number)
            return ""
        if not matched:
            raise CommandFailed("iscsiadm: No records found", NO_OBJECTS)
        for key in matched:
            if operation == "update":
                self.records[key][options["-n"]] = options["-v"]
            elif operation == "delete":
                del self.records[key]
            elif "-l" in words:
                self._log_in((key[0], key[1], key[3]))
        return "".join(map(self._shown, matched)) if not operation else ""

    def _add(self, new: Key) -> None:
        iqn, portal, tag, _ = new
        same = [key for key in self.records if key[:2] == (iqn, portal)]
        # add_static_rec overwrites (idbm_add_node); idbm_rec_read finds the record
        # without a tag first, whatever its interface.
        for key in same:
            if key[2] is None or key == new:
                del self.records[key]
        if tag is None:  # idbm_rec_write_old takes a tag that is there
            tag = next((key[2] for key in same if key[2]), None)
        # EL's iscsid.conf says automatic.
        self.records[(*new[:2], tag, new[3])] = {"node.startup": "automatic"}

    def _shown(self, key: Key) -> str:
        iqn, _, tag, interface = key
        return (
            f"# BEGIN RECORD 2.1.11\nnode.name = {iqn}\nnode.tpgt = {tag or -1}\n"
            f"iface.iscsi_ifacename = {interface}\n# END RECORD\n"
        )

    def _log_in(self, key: tuple[str, str, str]) -> None:
        if key in self.sessions.values():
            raise CommandFailed("iscsiadm: already present", EXISTS)
        if key[0] in self.errors:
            raise CommandFailed("iscsiadm: login failed", self.errors[key[0]])
        if key[0] not in self.portals.get(key[1], []):
            raise CommandFailed("Could not log into all portals", LOGIN)
        self.session(max(self.sessions, default=6) + 1, *key)

    def _session(self, words: list[str], options: dict[str, str]) -> str:
        number = int(options["-r"])
        if number not in self.sessions:
            raise CommandFailed("iscsiadm: No session found", NO_OBJECTS)
        self._end(number)
        return ""

    def _end(self, number: int) -> None:
        del self.sessions[number]
        for kind in ("iscsi_session", "iscsi_connection", "scsi_host", "iscsi_host"):
            for path in (self.root.path / "sys/class" / kind).glob(f"*{number}*"):
                path.unlink()
        shutil.rmtree(self.root.path / f"sys/devices/platform/host{number}")


def _split(word: str) -> list[str]:
    return ["-o", word[len("--op=") :]] if word.startswith("--op=") else [word]
