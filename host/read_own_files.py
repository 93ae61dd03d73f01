# SPDX-License-Identifier: GPL-2.0-or-later
"""The text of our own configuration files, as far as they are there."""

from __future__ import annotations

from ovirt_rdma.host.facts import OwnFile
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.own_files import OWN_FILES


def read_own_files(tree: FileTree, problems: list[str]) -> tuple[OwnFile, ...]:
    """Return those of OWN_FILES that are there, with their text."""
    found = []
    for path in OWN_FILES:
        folder, _, name = path.rpartition("/")
        if name not in tree.names(folder):
            continue
        data = tree.data(path, problems)
        text = None if data is None else data.decode("utf-8", "backslashreplace")
        found.append(OwnFile(path, text))
    return tuple(found)
