# SPDX-License-Identifier: GPL-2.0-or-later
"""open-iscsi's database, and sessions of iSER, as iscsiadm(8) shows and changes them.

usr/iscsiadm.c, usr/idbm.c, usr/iface.c and include/iscsi_err.h of open-iscsi 2.1.11.
tests/lab/test_real_iscsiadm.py has the same of the real one.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_root import FakeRoot

NO_OBJECTS, EXISTS, LOGIN, SILENT = 21, 15, 5, 4


class FakeIscsiadm:
    """The database and the sessions of ``root``; ``portals`` are those that answer,
    each with its targets. ``errors`` has the exit status of logins to a target.
    ``ran`` has each command without ``iscsiadm -m``.
    """

    def __init__(self, root: FakeRoot) -> None:
        self.root = root
        self.portals: dict[str, list[str]] = {}
        self.errors: dict[str, int] = {}
        self.ran: list[str] = []
        # iface_default and iface_iser of usr/iface.c.
        self.interfaces = {"default": "tcp", "iser": "iser"}
        self.records: dict[tuple[str, str, str], dict[str, str]] = {}
        self.sessions: dict[int, tuple[str, str, str]] = {}

    def run(self, argv: Sequence[str], timeout_s: float) -> str:
        """Take a command as Runner does."""
        if argv[0] != "iscsiadm":
            return ""
        self.ran.append(" ".join(argv[2:]))
        mode, words = argv[2], list(argv[3:])
        options = dict(zip(words, words[1:]))
        return getattr(self, f"_{mode}")(words, options)

    def session(self, number: int, iqn: str, portal: str, interface: str) -> None:
        """Add a session, which somebody else may have made."""
        self.sessions[number] = (iqn, portal, interface)
        address = portal.rpartition(":")[0].strip("[]")
        self.root.iscsi_session(number, iqn, address, "iscsi_iser")
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
        rest = ",<empty>,<empty>,<empty>,<empty>\n"
        return "".join(f"{n} {t}{rest}" for n, t in self.interfaces.items())

    def _node(self, words: list[str], options: dict[str, str]) -> str:
        portal, _, tag = options["-p"].partition(",")
        key = (options["-T"], portal, options["-I"])
        operation = options.get("-o")
        if operation == "new":
            if options["-I"] not in self.interfaces:
                raise CommandFailed("iscsiadm: Could not read iface info", 3)
            # A record without tag is a file in place of the portal's folder, which has
            # one for each interface (idbm_rec_write, usr/idbm.c:2130-2256): whichever
            # comes later removes the other. A record that is there is written anew.
            for other in [one for one in self.records if one[:2] == key[:2]]:
                if not tag or self.records[other]["node.tpgt"] == "-1":
                    del self.records[other]
            # EL's iscsid.conf says automatic.
            self.records[key] = {
                "node.tpgt": tag or "-1",
                "node.startup": "automatic",
            }
            return f"New iSCSI node [{key}] added\n"
        record = self.records.get(key)
        if record is None or (tag and record["node.tpgt"] != tag):
            raise CommandFailed("iscsiadm: No records found", NO_OBJECTS)
        if operation == "update":
            record[options["-n"]] = options["-v"]
        elif operation == "delete":
            del self.records[key]
        elif "-l" in words:
            self._log_in(key)
        return "".join(f"{name} = {value}\n" for name, value in record.items())

    def _log_in(self, key: tuple[str, str, str]) -> None:
        if key in self.sessions.values():
            raise CommandFailed("iscsiadm: already present", EXISTS)
        if key[0] in self.errors:
            raise CommandFailed("iscsiadm: login failed", self.errors[key[0]])
        if key[0] not in self.portals.get(key[1], []):
            raise CommandFailed("Could not log into all portals", LOGIN)
        self.session(max(self.sessions, default=6) + 1, *key)

    def _discovery(self, words: list[str], options: dict[str, str]) -> str:
        # Without an operation it is new, update and delete: all records go.
        if options.get("-o") != "nonpersistent":
            self.records.clear()
        if options["-p"] not in self.portals:
            raise CommandFailed("iscsiadm: Could not perform discovery", SILENT)
        names = self.portals[options["-p"]]
        return "".join(f"{options['-p']},1 {name}\n" for name in names)

    def _session(self, words: list[str], options: dict[str, str]) -> str:
        number = int(options["-r"])
        if number not in self.sessions:
            raise CommandFailed("iscsiadm: No session found", NO_OBJECTS)
        del self.sessions[number]
        for kind in ("iscsi_session", "iscsi_connection", "scsi_host", "iscsi_host"):
            for path in (self.root.path / "sys/class" / kind).glob(f"*{number}*"):
                path.unlink()
        shutil.rmtree(self.root.path / f"sys/devices/platform/host{number}")
        return ""
