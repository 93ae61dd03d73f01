# SPDX-License-Identifier: GPL-2.0-or-later
"""open-iscsi's database, and sessions of iSER, as iscsiadm(8) shows and changes them.

usr/iscsiadm.c, usr/idbm.c, usr/iface.c and include/iscsi_err.h of open-iscsi 2.1.11.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_root import FakeRoot

NO_OBJECTS, EXISTS, LOGIN = 21, 15, 5


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
        rest = ",<empty>,<empty>,<empty>,<empty>\n"
        return "".join(f"{n} {t}{rest}" for n, t in self.interfaces.items())

    def _node(self, words: list[str], options: dict[str, str]) -> str:
        key = (options["-T"], options["-p"], options["-I"])
        operation = options.get("-o")
        if operation == "new":
            # idbm_rec_write does not overwrite; EL's iscsid.conf says automatic.
            self.records.setdefault(key, {"node.startup": "automatic"})
            return f"New iSCSI node [{key}] added\n"
        if key not in self.records:
            raise CommandFailed("iscsiadm: No records found", NO_OBJECTS)
        if operation == "update":
            self.records[key][options["-n"]] = options["-v"]
        elif "-l" in words:
            self._log_in(key)
        return ""

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
        names = self.portals.get(options["-p"], [])
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
