# SPDX-License-Identifier: GPL-2.0-or-later
"""Files, modules and units: the kinds FILE, OPENSM_FILE, OPENSM_SETTINGS, MODULE and
UNIT.

A file is written atomically, and only if there is none or it is ours.

OPENSM_FILE is partitions.conf. It may be the operator's: its text is in the journal,
and is there again after an undo. opensm reads the file at each heavy sweep, and SIGHUP
makes it sweep (opensm(8)). OPENSM_SETTINGS are the settings of our opensm at one port.
It reads the GUID only when it starts, and one on standby does not sweep
(opensm/osm_state_mgr.c, do_sweep), so it is started again.

A module is never unloaded: others may use it by then, and an unused module does no
harm. Of systemd's units, ours are enabled and started.
"""

from __future__ import annotations

import re
import shlex
import stat
from pathlib import Path
from typing import ClassVar, Optional

from ovirt_rdma.host.changes.kinds.kind import EffectFailed, Host, Kind, Reading
from ovirt_rdma.host.fabric.subnet import running_opensm
from ovirt_rdma.host.facts.model import module_name
from ovirt_rdma.host.paths import (
    JOURNAL,
    OPENSM_SETTINGS_FILE,
    OPENSM_UNIT,
    PARTITIONS_FILES,
)
from ovirt_rdma.host.rules.base import FILE, MODULE, OPENSM_FILE, OPENSM_SETTINGS, UNIT
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.files import (
    OWN_FILES,
    foreign_reason,
    kept_reason,
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.system.safe_file import read_file

_MODE = 0o644
_FIX = "move the file away, or remove from the policy what it sets"


class File(Kind):
    """The text of one of our files; ``after`` is None if it is removed."""

    name = FILE
    may_be_removed = True
    is_text = True
    fix_of_foreign: ClassVar[str] = _FIX

    def values(self) -> Optional[str]:
        return r"[^\0]*" if self.change.target in OWN_FILES else None

    @property
    def undo_goes_on(self) -> bool:
        return True

    def normal(self, value: str) -> Optional[str]:
        """Return the text without newlines at its end."""
        # Facts show bytes that are not UTF-8 as \x80, a reading keeps them.
        data = value.encode("utf-8", "surrogateescape")
        return data.decode("utf-8", "backslashreplace").rstrip("\n")

    def value_text(self, value: Optional[str]) -> str:
        if value is None:
            return super().value_text(value)
        lines = value.count("\n") + bool(value and not value.endswith("\n"))
        return f"a file of {lines} line{'' if lines == 1 else 's'}"

    def manual_fix(self, value: Optional[str]) -> str:
        target = shlex.quote(self.change.target)
        text = f"write the text that {JOURNAL} has for it to {target}"
        return f"rm {target}" if value is None else text

    def read(self, host: Host) -> Reading:
        target = self.change.target
        path = host.path(target)
        try:
            if path.is_symlink():
                return Reading(problem=f"{target} is a symbolic link, not our file")
            return Reading(read_file(path).decode("utf-8", "surrogateescape"))
        except (FileNotFoundError, NotADirectoryError):
            return Reading()
        except OSError as e:
            return Reading(problem=f"{target} cannot be read: {e.strerror}")

    def do(self, host: Host) -> None:
        """Write the file, or remove it if ``after`` is None. Raises EffectFailed if the
        present file is not ours, or the disk is full; the file is unchanged then.
        """
        self._put(host, self.change.after)
        self._use(host)

    def undo(self, host: Host) -> None:
        """Write the earlier text again, or remove the file if there was none."""
        before, present = self.change.before, self.read(host)
        if present.problem or present.value != before:
            self._put(host, before)
        else:
            # A write may have been killed before the rename.
            remove_unfinished(host.path(self.change.target).parent)
        # Also if the text is there: the run may have been killed before this.
        self._use(host)

    def _use(self, host: Host) -> None:
        """Let the program that the file is for read it. Raises EffectFailed."""

    def _foreign(self, text: str) -> str:
        """Return why a file with this ``text`` must not be written, or ""."""
        return foreign_reason(self.change.target, text)

    def _mode(self, path: Path) -> int:
        """Return the mode of the file that is written to ``path``."""
        return _MODE

    def _put(self, host: Host, text: Optional[str]) -> None:
        target = self.change.target
        path = host.path(target)
        present = self.read(host)
        if present.problem:
            raise EffectFailed("file-unreadable", present.problem, _FIX)
        foreign = "" if present.value is None else self._foreign(present.value)
        if foreign:
            raise EffectFailed("file-not-ours", foreign, self.fix_of_foreign)
        try:
            if text is not None:
                path.parent.mkdir(mode=0o755, exist_ok=True)
                mode = self._mode(path)
                write_atomically(path, text.encode("utf-8", "surrogateescape"), mode)
                return
            if present.value is not None:
                path.unlink()
                sync_directory(path.parent)
            remove_unfinished(path.parent)
        except OSError as e:
            raise EffectFailed(
                "file-not-written", f"{target} cannot be written: {e.strerror}"
            ) from None


_SETTINGS = re.compile(OPENSM_SETTINGS_FILE.format("(0x[0-9a-f]{16})"))


class OpensmFile(File):
    """The text of partitions.conf; ``after`` is None if it is removed."""

    name = OPENSM_FILE
    fix_of_foreign = "remove that line, if the file may be replaced"

    def values(self) -> Optional[str]:
        return r"[^\0]*" if self.change.target in PARTITIONS_FILES else None

    def _foreign(self, text: str) -> str:
        return kept_reason(self.change.target, text)

    def _mode(self, path: Path) -> int:
        try:
            return stat.S_IMODE(path.stat().st_mode)
        except OSError:
            return super()._mode(path)

    def _use(self, host: Host) -> None:
        """Signal each opensm."""
        for process in running_opensm(host.tree):
            host.run_or_fail(
                f"opensm (process {process.pid}) could not be signalled to read "
                f"{self.change.target} again",
                ("kill", "-HUP", str(process.pid)),
                f"kill -HUP {process.pid}",
            )


class OpensmSettings(File):
    """The text of the settings of our opensm; ``after`` is None if it is removed."""

    name = OPENSM_SETTINGS
    fix_of_foreign = "move the file away, if ovirt-rdma may write it"

    def values(self) -> Optional[str]:
        return r"[^\0]*" if _SETTINGS.fullmatch(self.change.target) else None

    def _use(self, host: Host) -> None:
        """Start opensm again if it is running."""
        match = _SETTINGS.fullmatch(self.change.target)
        if match is None or not host.has_systemd:
            return
        command = ("systemctl", "try-restart", OPENSM_UNIT.format(match[1]))
        failure = f"opensm could not be started again with {self.change.target}"
        host.run_or_fail(failure, command, " ".join(command))


LOADED = "loaded"
_MODULE = re.compile(r"[a-z0-9][a-z0-9_-]{0,55}")


class Module(Kind):
    """A loaded kernel module."""

    name = MODULE
    stays = "a module stays loaded"

    def values(self) -> Optional[str]:
        return LOADED if _MODULE.fullmatch(self.change.target) else None

    def still_holds(self, value: Optional[str]) -> bool:
        return True  # others may have loaded it since

    def read(self, host: Host) -> Reading:
        # /sys/module has built-in modules too.
        name = module_name(self.change.target)
        listed = (host.tree.text("/proc/modules") or "").split("\n")
        loaded = name in {line.partition(" ")[0] for line in listed}
        loaded = loaded or host.tree.is_folder(f"/sys/module/{name}")
        return Reading(LOADED if loaded else None)

    def do(self, host: Host) -> None:
        name = self.change.target
        fix = f"see journalctl -k, and: modprobe --verbose {name}"
        host.run_or_fail(f"module {name} cannot be loaded", ("modprobe", name), fix)


ENABLED = "enabled"
_VERBS = {True: "enable", False: "disable"}
_UNIT = re.compile(r"ovirt-rdma-opensm@0x[0-9a-f]{16}\.service")


class Unit(Kind):
    """Whether one of our units is enabled and started."""

    name = UNIT
    is_named = True

    def values(self) -> Optional[str]:
        # Before our change, a unit may have any state of systemctl: "static".
        known = _UNIT.fullmatch(self.change.target) and self.change.name == ENABLED
        return r"[a-z-]+" if known else None

    @property
    def undo_goes_on(self) -> bool:
        return True

    def manual_fix(self, value: Optional[str]) -> str:
        target = shlex.quote(self.change.target)
        return f"systemctl {_VERBS[value == ENABLED]} --now {target}"

    def read(self, host: Host) -> Reading:
        """Return systemd's UnitFileState; None if there is no such unit."""
        if not host.has_systemd:
            return Reading(problem="systemd is not running here")
        unit = self.change.target
        command = ("systemctl", "show", "-p", "UnitFileState", "--value", unit)
        try:
            return Reading(host.tool(*command).strip() or None)
        except CommandFailed as e:
            return Reading(problem=f"{' '.join(command)} failed: {e}")

    def is_gone(self, host: Host) -> bool:
        return self.read(host) == Reading()

    def undo(self, host: Host) -> None:
        # Also if it has that state: systemctl changes this before it starts or stops.
        if self.change.before is not None and not self.is_gone(host):
            self.put(host, self.change.before)

    def put(self, host: Host, value: str) -> None:
        unit, verb = self.change.target, _VERBS[value == ENABLED]
        if not host.has_systemd:
            raise EffectFailed(
                "systemd-not-running",
                f"{unit} cannot be changed: systemd is not running here",
            )
        fix = f"see systemctl status {unit}"
        command = ("systemctl", verb, "--now", unit)
        host.run_or_fail(f"{unit} cannot be {verb}d", command, fix)
