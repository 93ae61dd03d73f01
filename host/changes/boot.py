# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings that the kernel forgets, kept for the boot and restored after it.

What has to be set again whenever a netdev appears, because neither a profile nor a
file keeps it: offloads; transport mode and MTU where NetworkManager does not manage the
netdev, P_Key children made in sysfs, and the MTU of mlx4 ports.

It is kept in /var/lib/ovirt-rdma/boot.json, made from the acts that are held; without
such acts there is no file.

Setting again what nothing else keeps, when a netdev has appeared: at boot, or after
its driver was loaded anew. What the unit ovirt-rdma-netdev@.service does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.changes.journal import Journal, JournalProblem
from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host
from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.location import (
    NET_CLASS,
    netdevs_of_pci,
    present_name,
)
from ovirt_rdma.host.changes.kinds.model import Act, Place
from ovirt_rdma.host.changes.kinds.properties import (
    CREATE_CHILD,
    MODE_FILE,
    came_true,
    netdev_file,
    netdev_of,
    port_mtu_of,
    why_refused,
)
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.devices import ARPHRD_INFINIBAND
from ovirt_rdma.host.paths import BOOT_JSON, RUN_LOCK, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, OFFLOAD, SYSFS, Change
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.files import (
    how_to_mend,
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.system.json_codec import (
    Records,
    UnreadableJson,
    WrongRecord,
    plain,
    read_json,
)
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.printable import printable
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import FileTree

SCHEMA_VERSION = 1
_FILE_MODE = 0o600
_FOLDER_MODE = 0o755
_FIX = "ovirt-rdma-host apply writes it anew"


@dataclass(frozen=True)
class BootSetting:
    """``change.after`` is to be so at ``place``; its target has the netdev's name of
    the time when it was set.
    """

    place: Place
    change: Change


@dataclass(frozen=True)
class _File:
    schema_version: int
    settings: tuple[BootSetting, ...]


_records = Records("the boot settings")


def boot_settings(held: Iterable[Act]) -> tuple[BootSetting, ...]:
    """Return what is to be set again of the acts that are held, oldest first: the last
    value of each property, in the order in which they were set. Pure.
    """
    found: dict[Hashable, BootSetting] = {}
    for act in held:
        for change in () if act.lasting else act.changes:
            if change.kind not in (SYSFS, OFFLOAD) or change.after is None:
                continue
            place = act.place or Place(netdev=netdev_of(change))
            one = BootSetting(place, replace(change, before=None))
            key = _property(one)
            found.pop(key, None)  # so that it comes last
            found[key] = one
    return tuple(found.values())


def still_held(
    settings: Iterable[BootSetting], held: Iterable[Act]
) -> tuple[BootSetting, ...]:
    """Return those of ``settings`` whose value one of the acts that are held has set: a
    revert that a power cut ended has taken some back, and left the file as it was.
    Pure.
    """
    known = {
        (_property(one), one.change.after)
        for act in held
        for one in boot_settings([act])
    }
    return tuple(s for s in settings if (_property(s), s.change.after) in known)


def _property(setting: BootSetting) -> Hashable:
    place, change = setting.place, setting.change
    file = netdev_file(change)
    what = file[1] if file else change.name or change.target
    child = change.after if what == CREATE_CHILD else None
    if place.guid or place.pci:
        place = replace(place, netdev=None)  # it may have been renamed between
    return change.kind, what, child, place


def keep_for_boot(root: Union[str, Path], journal: Journal) -> str:
    """Bring the file below ``root`` in line with what ``journal`` holds, as has to be
    after each run; return "", or a sentence that says why that is not so, and the fix.
    """
    try:
        held = journal.ledger().held
        keep_boot_settings(root, (entry.act for entry in held))
    except Problem as problem:
        return f"{problem}; fix: {problem.fix}" if problem.fix else str(problem)
    return ""


def keep_boot_settings(root: Union[str, Path], held: Iterable[Act]) -> bool:
    """Bring the file below ``root`` in line with the acts that are held; return
    whether it changed. Raises Problem where it cannot be written.
    """
    path = under(root, BOOT_JSON)
    settings = boot_settings(held)
    data = json.dumps(plain(_File(SCHEMA_VERSION, settings)), indent=2) + "\n"
    remove_unfinished(path.parent)  # also where nothing is to be written
    try:
        if not settings:
            return _remove(path)
        if path.is_file() and read_file(path) == data.encode():
            return False
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            path.parent.chmod(_FOLDER_MODE)
        write_atomically(path, data.encode(), _FILE_MODE)
    except OSError as e:
        raise Problem(
            "boot-settings-not-written",
            f"{path} cannot be written ({e.strerror}), so what nothing else keeps is "
            "not as it should be after the next boot",
            f"{how_to_mend(e, path)}; then: ovirt-rdma-host apply",
        ) from e
    return True


def _remove(path: Path) -> bool:
    if not path.exists():
        return False
    path.unlink()
    sync_directory(path.parent)
    return True


def read_boot_settings(root: Union[str, Path]) -> tuple[BootSetting, ...]:
    """Return what the file has; nothing where there is none. Raises Problem where it
    is damaged, or asks for what no rule of ours does.
    """
    path = under(root, BOOT_JSON)
    if not path.exists():
        return ()
    try:
        data = read_json(path, read_file)
        version = data.get("schema_version") if isinstance(data, dict) else None
        if version not in (None, SCHEMA_VERSION):
            raise Problem(
                "boot-settings-version",
                f"{path} has the unknown schema version {version}",
                _FIX,
            )
        file = _records.read(_File, data)
    except UnreadableJson as e:
        raise Problem(
            "boot-settings-unreadable",
            f"{path} {e}",
            _FIX if e.is_file else "run as root",
        ) from e
    except WrongRecord as e:
        raise Problem("boot-settings-invalid", f"{path} is damaged: {e}", _FIX) from e
    for setting in file.settings:
        words = why_refused(setting.change)
        if words:
            raise Problem("boot-settings-invalid", f"{path}: {words}", _FIX)
    return file.settings


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
