# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the running opensm processes, and which partitions' file each of them reads.

opensm reads its options with getopt_long_only (opensm/main.c, 3.3.24): an option has
one hyphen or two, and may be cut as long as it is unique.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.paths import OPENSM_SETTINGS_FILE, PARTITIONS_FILES
from ovirt_rdma.host.system.numbers import whole
from ovirt_rdma.host.system.processes import ROOT, processes, runs
from ovirt_rdma.host.system.tree import FileTree

# OSM_DEFAULT_CONFIG_FILE: EL's, and that of Debian and MLNX_OFED.
_CONFIGS = ("/etc/rdma/opensm.conf", "/etc/opensm/opensm.conf")
# Those options that have a value, by their letter (opensm/main.c, short_option).
_WITH_VALUE = "FciwOfdDgLlstaumXRMUSPYZpnqkCGHJ"
_NAMES = {"Pconfig": "P", "guid": "g", "priority": "p", "config": "F"}
_SETTING = re.compile(r"\s*(guid|sm_priority|partition_config_file)\s+(\S+)")
_LETTERS = {"guid": "g", "sm_priority": "p", "partition_config_file": "P"}


@dataclass(frozen=True)
class OpensmProcess:
    """A running opensm.

    ``partitions`` is the file that it reads, None if that is opensm's default.
    ``guid`` is the port of its settings (``0x0002c90300fb1231``), None if it takes
    the first with a link; ``priority`` is None if there is none in them. ``settings``
    is the file that its option --config names, None if that is opensm's default.
    """

    pid: int
    partitions: Optional[str] = None
    guid: Optional[str] = None
    priority: Optional[int] = None
    settings: Optional[str] = None

    @property
    def is_ours(self) -> bool:
        """Whether ``fabric sm enable`` has started it."""
        return bool(self.guid) and self.settings == OPENSM_SETTINGS_FILE.format(
            self.guid
        )


def running_opensm(tree: FileTree) -> tuple[OpensmProcess, ...]:
    """Return the opensm processes that root runs, by their number."""
    found = []
    for pid, argv in processes(tree):
        words = [word.decode("utf-8", "surrogateescape") for word in argv]
        # Its words name files that are opened.
        named = posixpath.basename(words[0]) == "opensm"
        if named and runs(tree, pid, ROOT, "opensm"):
            found.append(_process(pid, words[1:], tree))
    return tuple(found)


def partitions_file(tree: FileTree) -> str:
    """Return the file that opensm reads by default: the first that exists, or whose
    folder does.
    """
    parts = [(path, *posixpath.split(path)) for path in PARTITIONS_FILES]
    present = [path for path, folder, name in parts if name in tree.names(folder)]
    likely = [path for path, folder, _ in parts if tree.is_folder(folder)]
    return (*present, *likely, PARTITIONS_FILES[0])[0]


def _process(pid: int, words: Sequence[str], tree: FileTree) -> OpensmProcess:
    told = _options(words)
    settings: dict[str, str] = {}
    for path in [told["F"]] if "F" in told else _CONFIGS:
        for line in (tree.text(path) or "").splitlines():
            match = _SETTING.match(line)
            if match:
                settings[_LETTERS[match[1]]] = match[2]
    # The command line overrides the configuration.
    told = {**settings, **told}
    return OpensmProcess(
        pid,
        told.get("P") if told.get("P") != "(null)" else None,
        _guid(told.get("g", "")),
        whole(told.get("p", ""), 0),
        told.get("F"),
    )


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return the values of options by their letters."""
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            continue
        letter = _letter(name)
        if letter:
            found[letter] = value if equals else next(rest, "")
        elif not word.startswith("--") and name[0] in _WITH_VALUE:
            found[name[0]] = word[2:] or next(rest, "")
    return found


def _letter(name: str) -> Optional[str]:
    if len(name) == 1:
        return None
    return next((one for full, one in _NAMES.items() if full.startswith(name)), None)


def _guid(text: str) -> Optional[str]:
    number = whole(text, 0)
    return f"0x{number:016x}" if number else None
