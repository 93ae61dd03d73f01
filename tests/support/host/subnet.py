# SPDX-License-Identifier: GPL-2.0-or-later
"""A subnet manager for a host that can be changed: its process and its replies.

The replies have the form of infiniband-diags 44 (rdma-core 65, infiniband-diags/
sminfo.c, saquery.c, smpquery.c), recorded at opensm 3.3.23 on ibsim. As opensm does, it
reads the file only when it gets SIGHUP, and keeps MTU and rate of a group that exists
(opensm/osm_prtn.c, osm_prtn_add_mcgroup).
"""

from __future__ import annotations

from collections.abc import Sequence

from ovirt_rdma.host.fabric.partitions_conf import Definition, parse
from ovirt_rdma.host.system.commands import CommandFailed, CommandTimeout
from support.fakes.fake_processes import run_process

PID = 4711


class Subnet:
    """opensm at the port ``guid``, in a fabric with ``guids`` too.

    ``deaf``: a signal has no effect. ``silent``: nothing answers. ``master`` is where
    the master is, ``others`` where standbys are. ``signals`` are those that it got.
    """

    def __init__(self, path, guid: str, guids: Sequence[str] = ()) -> None:
        self.path, self.guid, self.guids = path, guid, [guid, *guids]
        self.master = guid
        self.others: list[str] = []
        self.deaf = self.silent = False
        self.signals: list[str] = []
        self.definitions: tuple[Definition, ...] = ()
        self.groups: dict[int, tuple[int, int]] = {}

    def install(self, fake, *words: str) -> None:
        """Let ``fake`` run it, with these words on its command line."""
        run_process(fake.path, PID, "/usr/sbin/opensm", *words)
        self.answer(fake)

    def answer(self, fake) -> None:
        """Let the tools of ``fake`` answer."""
        for name in ("sminfo", "saquery", "smpquery", "kill"):
            fake.runner.program(name, getattr(self, name))

    def read(self) -> None:
        """Sweep: read the file."""
        default = b"Default=0x7fff,ipoib : ALL=full;\n"
        present = self.path.exists()
        text = self.path.read_bytes() if present else default
        self.definitions = parse(text, "")
        wanted = {
            one.pkey: (one.mtu, one.rate) for one in self.definitions if one.ipoib
        }
        kept = {pkey: old for pkey, old in self.groups.items() if pkey in wanted}
        self.groups = {**wanted, **kept}

    def kill(self, argv: Sequence[str]) -> str:
        self.signals.append(" ".join(argv[1:]))
        if not self.deaf:
            self.read()
        return ""

    def sminfo(self, argv: Sequence[str]) -> str:
        if self.silent:
            raise CommandFailed("sminfo: iberror: failed: query", 255)
        return (
            f"sminfo: sm lid 1 sm guid {int(self.master, 16):#x}, activity count 67 "
            "priority 0 state 3 SMINFO_MASTER\n"
        )

    def saquery(self, argv: Sequence[str]) -> str:
        if self.silent:
            raise CommandTimeout("no answer within 5 s")
        # With the SA's key it shows members (osm_sa_mcmember_record.c), none here.
        if "--smkey" in argv:
            return ""
        if argv[-1] == "SMIR":
            return "".join(
                f"SMInfoRecord dump:\n\t\tRID\n\t\tLID...................{lid}\n"
                f"\t\tSMInfo dump:\n\t\tGUID..................{guid}\n"
                "\t\tSM_Key................0x0000000000000000\n"
                f"\t\tActCount..............68\n\t\tPriority..............{priority}\n"
                f"\t\tSMState...............{state}\n"
                for lid, guid, priority, state in self.records()
            )
        assert argv[-1] == "-g", argv
        return "".join(
            "MCMemberRecord group dump:\n"
            f"\t\tMGID....................ff12:401b:{pkey | 0x8000:x}::ffff:ffff\n"
            f"\t\tMlid....................0xC00{number}\n"
            f"\t\tMtu.....................{mtu | 0x80:#x}\n"
            f"\t\tpkey....................{pkey | 0x8000:#06X}\n"
            f"\t\tRate....................{rate | 0x80:#x}\n"
            "\t\tSL......................0x0\n"
            for number, (pkey, (mtu, rate)) in enumerate(self.groups.items())
            if {pkey, pkey | 0x8000} & self.table(self.guid)
        )

    def records(self) -> list[tuple[int, str, int, int]]:
        """Return the LID, GUID, priority and state of each manager."""
        states = {self.master: 3, **dict.fromkeys(self.others, 2)}
        return [(n, guid, 0, s) for n, (guid, s) in enumerate(states.items(), 1)]

    def smpquery(self, argv: Sequence[str]) -> str:
        guid = argv[-1]
        if guid not in self.guids:
            raise CommandFailed(
                "ibwarn: [7] ib_path_query_via: sa call path_query failed"
            )
        table = self.table(guid)
        entries = [f"{pkey:#06x}" for pkey in sorted(table)]
        entries += ["0x0000"] * (64 - len(entries))
        rows = [entries[n : n + 8] for n in range(0, 64, 8)]
        lines = [f"{n * 8:4}: {' '.join(row)}\n" for n, row in enumerate(rows)]
        return "".join([*lines, "64 pkeys capacity for this port\n"])

    def table(self, guid: str) -> set[int]:
        """Return the P_Key table that it gives to a port."""
        table = {0x7FFF | 0x8000 * (guid == self.guid)}
        for one in self.definitions:
            for member in one.members:
                own = member.port == "SELF" and guid == self.guid
                if member.port in (guid, "ALL", "ALL_CAS") or own:
                    full = member.membership != "limited"
                    table -= {one.pkey, one.pkey | 0x8000}
                    table.add(one.pkey | 0x8000 * full)
        return table
