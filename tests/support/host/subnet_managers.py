# SPDX-License-Identifier: GPL-2.0-or-later
"""Several opensm in one fabric, and systemd's part of our unit on one host.

They agree as opensm 3.3.23 does: the highest priority is master, at an equal one the
lowest GUID (include/opensm/osm_sm.h, osm_sm_is_greater_than). An opensm reads its file
when it starts; without the file it takes its defaults (opensm/osm_subnet.c,
osm_subn_parse_conf_file). sminfo with a LID asks the manager at that port, which
answers on standby too, and fails where there is none (infiniband-diags/sminfo.c).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_processes import run_process
from support.host.subnet import Subnet

PORT = "/sys/class/infiniband/mlx4_0/ports/1"
OWN = "0x0002c90300fb1231"
UNIT = f"ovirt-rdma-opensm@{OWN}.service"
SETTINGS = f"/etc/ovirt-rdma/opensm-{OWN}.conf"
PID = 4712
_NO_ANSWER = CommandFailed("sminfo: iberror: failed: query", 255)


class SubnetManagers(Subnet):
    """The fabric of ``fake``, whose only port has the GUID OWN.

    ``managers`` has the priority of each running opensm by its GUID. ``dies``: ours
    ends at once. ``stubborn``: it becomes master although another one is higher, as
    with another sm_key.
    """

    def __init__(self, fake, path, guids: Sequence[str] = ()) -> None:
        super().__init__(path, OWN, guids)
        self.fake = fake
        self.managers: dict[str, int] = {}
        self.dies = self.stubborn = False
        self.calls: list[str] = []
        fake.units[UNIT] = "disabled"
        fake.write("/usr/sbin/opensm", "")
        (fake.path / "etc").mkdir(exist_ok=True)
        self._systemctl = fake.runner.programs["systemctl"]
        self.answer(fake)
        fake.runner.program("systemctl", self.systemctl)
        self.show()

    def run(self, guid: str, priority: int) -> None:
        """Run an opensm at ``guid``."""
        self.managers[guid] = priority
        self.read()
        self.show()

    def end(self, guid: str) -> None:
        """End it."""
        del self.managers[guid]

    @property
    def chosen(self) -> list[str]:
        """The GUIDs of the managers, the master first."""
        return sorted(self.managers, key=lambda g: (-self.managers[g], int(g, 16)))

    def show(self) -> None:
        """Give the port the state that the fabric has; once ACTIVE, it stays."""
        if self.managers:
            self.fake.write(f"{PORT}/state", "4: ACTIVE")
            self.fake.write(f"{PORT}/lid", f"{self.lid(OWN):#x}")

    def lid(self, guid: str) -> int:
        """Return the LID of a port."""
        return self.guids.index(guid) + 1

    def _state(self, guid: str) -> int:
        master = guid == self.chosen[0] or (self.stubborn and guid == OWN)
        return 3 if master else 2

    def sminfo(self, argv: Sequence[str]) -> str:
        if tuple(argv) == ("sminfo", "-V"):
            return "sminfo BUILD VERSION: 44.0\n"
        assert tuple(argv[1:5]) == ("-C", "mlx4_0", "-P", "1"), argv
        if not self.managers or self.silent:
            raise _NO_ANSWER
        guid = self.chosen[0]
        if len(argv) > 5:
            guid = self.guids[int(argv[5]) - 1]
            if guid not in self.managers:
                raise _NO_ANSWER
        state = self._state(guid)
        name = {2: "STANDBY", 3: "MASTER"}[state]
        return (
            f"sminfo: sm lid {self.lid(guid)} sm guid {int(guid, 16):#x}, activity "
            f"count 67 priority {self.managers[guid]} state {state} SMINFO_{name}\n"
        )

    def records(self) -> list[tuple[int, str, int, int]]:
        """Return the LID, GUID, priority and state of each manager."""
        return [
            (self.lid(guid), guid, priority, self._state(guid))
            for guid, priority in self.managers.items()
        ]

    def systemctl(self, argv: Sequence[str]) -> str:
        """systemctl(1) for our unit; try-restart does nothing if it is not running."""
        words = tuple(argv[1:])
        if words[-1:] != (UNIT,) or words[0] == "show":
            return self._systemctl(argv)
        self.calls.append(words[0])
        if words == ("try-restart", UNIT):
            if OWN in self.managers:
                self._stop()
                self._start()
            return ""
        assert words in (("enable", "--now", UNIT), ("disable", "--now", UNIT)), words
        if UNIT not in self.fake.units:
            raise CommandFailed(f"Failed to enable unit: Unit file {UNIT} not found.")
        self.fake.units[UNIT] = f"{words[0]}d"
        if words[0] == "disable":
            self._stop()
        elif OWN not in self.managers:
            self._start()
        return ""

    def _start(self) -> None:
        file = self.fake.path / SETTINGS[1:]
        if self.dies or not file.exists():  # ConditionPathExists
            return
        text = file.read_text()
        settings = dict(re.findall(r"^([a-z_]+) (\S+)$", text, re.MULTILINE))
        assert set(settings) == {
            "guid",
            "sm_priority",
            "partition_config_file",
            "log_file",
            "log_max_size",
        }
        run_process(self.fake.path, PID, "/usr/sbin/opensm", "--config", SETTINGS)
        self.run(settings["guid"], int(settings["sm_priority"]))

    def _stop(self) -> None:
        if OWN in self.managers:
            self.end(OWN)
            (self.fake.path / f"proc/{PID}/cmdline").unlink()
