# SPDX-License-Identifier: GPL-2.0-or-later
"""Setting again what nothing else keeps, when a netdev has appeared: at boot, or after
its driver was loaded anew. What the unit ovirt-rdma-netdev@.service does.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.commands import Runner
from ovirt_rdma.host.effects.act import Act
from ovirt_rdma.host.effects.boot_settings import (
    BootSetting,
    read_boot_settings,
    still_held,
)
from ovirt_rdma.host.effects.effect import EffectFailed, Host
from ovirt_rdma.host.effects.host_effects import HostEffects
from ovirt_rdma.host.effects.journal import Journal, JournalProblem
from ovirt_rdma.host.effects.place import NET_CLASS, netdevs_of_pci, present_name
from ovirt_rdma.host.effects.same_value import came_true
from ovirt_rdma.host.effects.targets import MODE_FILE, netdev_file, port_mtu_of
from ovirt_rdma.host.facts import ARPHRD_INFINIBAND
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.paths import RUN_LOCK, under
from ovirt_rdma.host.policy import Policy
from ovirt_rdma.host.printable import printable
from ovirt_rdma.host.problem import Problem
from ovirt_rdma.host.reader import HostReader
from ovirt_rdma.host.rules.rule import LINK_DOWN, LIVE, Change
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.run_lock import one_run
from ovirt_rdma.host.safe_file import read_file

# A netdev may be announced before it has all its files in /sys.
FILES_S = 2.0
# A run that changes the host may itself have made the netdev come.
LOCK_S = 120.0
_TRIED = f"{Path(RUN_LOCK).parent}/boot-"


def restore_netdev(
    root: Union[str, Path],
    run: Optional[Runner],
    name: str,
    say: Optional[Callable[[str], None]] = None,
    effects: Optional[HostEffects] = None,
) -> int:
    """Set again what boot.json has for the netdev ``name`` and its adapter; what is so
    already is left alone.

    ``say`` gets a sentence for all that is set or cannot be; by default it goes to
    stderr, which for a unit is the journal. Returns 0, or 1 where something is not as
    it should be. Never raises.
    """
    say = say or _to_stderr
    try:
        with one_run(root, LOCK_S, by=f"unit netdev {name}"):
            settings = _settings(root)
            host = Host(Path(root), run)
            if settings:
                _wait_for_files(host, name)
            wanted = [one for one in settings if _is_about(host, one, name)]
            effects = effects or HostEffects(root, run)
            restorer = _Restorer(Path(root), run, effects, say)
            results = [restorer.restore(name, setting) for setting in _in_order(wanted)]
            return 0 if all(results) else 1
    except Problem as problem:
        say(f"{name}: {problem}" + (f"; {problem.fix}" if problem.fix else ""))
    except Exception as error:  # noqa: BLE001  (a unit at boot; it has no one to ask)
        say(f"{name}: its settings could not be set again: {error!r}")
    return 1


def _settings(root: Union[str, Path]) -> tuple[BootSetting, ...]:
    """Return what is to be set again. Raises Problem."""
    settings = read_boot_settings(root)
    try:
        ledger = Journal(root).ledger()
    except JournalProblem:
        return settings  # which ovirt-rdma-recover.service says, too
    held = (entry.act for entry in ledger.held)
    return still_held(settings, held) if ledger.runs else settings


def _wait_for_files(host: Host, name: str) -> None:
    """Wait until an IPoIB netdev has the file that it gets last; a child that ``ip
    link`` made gets none (Linux ulp/ipoib/ipoib_main.c and ipoib_vlan.c).
    """
    tree = FileTree(host.root)
    folder = f"{NET_CLASS}/{name}"
    if tree.text(f"{folder}/type") == str(ARPHRD_INFINIBAND):
        last = {"delete_child", "parent"}
        host.wait_for(lambda: bool(last.intersection(tree.names(folder))), FILES_S)


def _is_about(host: Host, setting: BootSetting, name: str) -> bool:
    """Whether ``setting`` is one of the netdev, or of the adapter that it is on."""
    port = port_mtu_of(setting.change)
    if port:
        return name in netdevs_of_pci(host, port[0])
    return present_name(host, setting.place) == name


def _in_order(settings: list[BootSetting]) -> list[BootSetting]:
    """Return the adapter's first: netdevs go and come back with them."""
    return sorted(settings, key=lambda one: port_mtu_of(one.change) is None)


@dataclass(frozen=True)
class _Restorer:
    root: Path
    run: Optional[Runner]
    effects: HostEffects
    say: Callable[[str], None]

    def restore(self, name: str, setting: BootSetting) -> bool:
        """Return whether all is as it should be then."""
        change = setting.change
        what = f"{name}: {_shown(change)}"
        found = self._read(setting)
        if found is not None and came_true(change, found):
            self._tried(change).unlink(missing_ok=True)
            return True
        act = _act(setting)
        if act.effect == LINK_DOWN:
            users = self._users(name)
            if users:
                self.say(f"{what} stays {found}: in use ({', '.join(users)})")
                return False
        if port_mtu_of(change) and not self._first_try(change):
            self.say(f"{what} stays {found}: it did not stick when it was written")
            return False
        try:
            self.effects.do(act)
        except EffectFailed as failed:
            self.say(f"{what} stays {found}: {failed}")
            return False
        now = self._read(setting)
        if not came_true(change, now):
            self.say(f"{what} is {now}, and should be {change.after}")
            return False
        self.say(f"{what} was {found}, is {now}")
        return True

    def _read(self, setting: BootSetting) -> Optional[str]:
        return self.effects.read(setting.change, place=setting.place).value

    def _users(self, name: str) -> tuple[str, ...]:
        """Return who would notice if the link of ``name``, or of another netdev of its
        adapter, went down. Read under the lock: it may have been waited for, and
        somebody have come to use the netdev meanwhile.
        """
        facts = HostReader(self.root, self.run).facts()
        view = View(facts, Policy())
        pci = {n.pci.address for n in facts.netdevs if n.name == name and n.pci}
        names = [n.name for n in facts.netdevs if n.pci and n.pci.address in pci]
        above = {one for base in (name, *names) for one in view.above(base)}
        uses = (use for use in facts.netdev_uses if use.netdev in above)
        return tuple(f"{use.purpose}: {use.what}" for use in uses)

    def _first_try(self, change: Change) -> bool:
        """Note that a value is written that brings the netdevs back, and us with them:
        one that never sticks must not do so for ever.
        """
        note = self._tried(change)
        if note.exists() and read_file(note).decode() == change.after:
            return False
        note.write_text(change.after or "")
        return True

    def _tried(self, change: Change) -> Path:
        address, number = port_mtu_of(change) or ("", 0)
        return under(self.root, f"{_TRIED}{address}-{number}")


def _act(setting: BootSetting) -> Act:
    file = netdev_file(setting.change)
    down = port_mtu_of(setting.change) or (file and file[1] == MODE_FILE)
    return Act(
        step="",
        effect=LINK_DOWN if down else LIVE,
        reason="",
        changes=(setting.change,),
        place=setting.place,
        lasting=False,
    )


def _shown(change: Change) -> str:
    file = netdev_file(change)
    return file[1] if file else change.name or change.target.rpartition("/")[2]


def _to_stderr(sentence: str) -> None:
    print(printable(sentence), file=sys.stderr, flush=True)
