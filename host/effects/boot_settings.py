# SPDX-License-Identifier: GPL-2.0-or-later
"""What has to be set again whenever a netdev appears, because neither a profile nor a
file keeps it: offloads; transport mode and MTU where NetworkManager does not manage the
netdev, P_Key children made in sysfs, and the MTU of mlx4 ports.

It is kept in /var/lib/ovirt-rdma/boot.json, made from the acts that are held; without
such acts there is no file.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Union

from ovirt_rdma.host.atomic_file import (
    how_to_mend,
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.effects.act import Act, Place
from ovirt_rdma.host.effects.journal import Journal
from ovirt_rdma.host.effects.targets import (
    CREATE_CHILD,
    netdev_file,
    netdev_of,
    why_refused,
)
from ovirt_rdma.host.json_file import UnreadableJson, read_json
from ovirt_rdma.host.json_records import Records, WrongRecord, plain
from ovirt_rdma.host.paths import BOOT_JSON, under
from ovirt_rdma.host.problem import Problem
from ovirt_rdma.host.rules.rule import OFFLOAD, SYSFS, Change
from ovirt_rdma.host.safe_file import read_file

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
            raise Problem(f"{path} has the unknown schema version {version}", _FIX)
        file = _records.read(_File, data)
    except UnreadableJson as e:
        raise Problem(f"{path} {e}", _FIX if e.is_file else "run as root") from e
    except WrongRecord as e:
        raise Problem(f"{path} is damaged: {e}", _FIX) from e
    for setting in file.settings:
        words = why_refused(setting.change)
        if words:
            raise Problem(f"{path}: {words}", _FIX)
    return file.settings
