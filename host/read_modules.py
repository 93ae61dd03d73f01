# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel modules that concern RDMA and NFS: loaded, built in, available."""

from __future__ import annotations

import posixpath
import re

from ovirt_rdma.host.facts import Modules
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.module_names import CONCERNED, module_name

LOADED = "/proc/modules"

_FILE = re.compile(r"(.+)\.ko(?:\.[a-z0-9]+)?")


def read_modules(tree: FileTree, release: str, problems: list[str]) -> Modules:
    """Return the modules out of CONCERNED, for the running kernel ``release``.

    Where there is no modules.dep for that kernel, what is available is not known;
    both that and an unreadable /proc/modules get a sentence in ``problems``.
    """
    loaded = _loaded(tree.data(LOADED, problems) or b"")
    folder = f"/lib/modules/{release}"
    built_in = _files(tree.data(f"{folder}/modules.builtin") or b"")
    dependencies = tree.data(f"{folder}/modules.dep", problems)
    return Modules(
        loaded=_concerned(loaded | built_in),
        available=None
        if dependencies is None
        else _concerned(_files(dependencies) | built_in),
    )


def _concerned(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(CONCERNED & {module_name(name) for name in names}))


def _loaded(data: bytes) -> set[str]:
    """Read ``name size users dependants state address``; a module that is still
    loading or on its way out is not loaded.
    """
    found = set()
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.split()
        if fields and (len(fields) < 5 or fields[4] == "Live"):
            found.add(fields[0])
    return found


def module_paths(data: bytes, folder: str = "") -> dict[str, str]:
    """Read modules.dep (``path: paths it needs``) or modules.builtin (``path``): the
    path of each module, under its file's name. depmod writes paths below ``folder``;
    absolute ones, as other tools write them, lose it.

    A file is name.ko, or compressed: name.ko.xz (EL9), name.ko.zst.
    """
    starts = tuple(f"{usr}{folder}/" for usr in ("", "/usr")) if folder else ()
    found = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        path = line.partition(":")[0].strip()
        match = _FILE.fullmatch(posixpath.basename(path))
        if match:
            start = next((s for s in starts if path.startswith(s)), "")
            found[match.group(1)] = path[len(start) :]
    return found


def _files(data: bytes) -> set[str]:
    return set(module_paths(data))
