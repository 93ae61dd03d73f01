# SPDX-License-Identifier: GPL-2.0-or-later
"""Folders of configuration files that stand for one another, as modprobe.d(5),
modules-load.d(5) and udev(7) have them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.system.tree import FileTree

# In the order of precedence. On EL /lib is a link to /usr/lib, so that the last one
# adds nothing there.
_PLACES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")


def folders_named(name: str) -> tuple[str, ...]:
    """Return the folders of that name, such as ``modprobe.d``, first one first."""
    return tuple(f"{place}/{name}" for place in _PLACES)


def conf_texts(
    tree: FileTree, folders: Sequence[str], suffix: str, problems: list[str]
) -> Iterator[tuple[str, str]]:
    """Give path and text of each file that counts, sorted by the files' names.

    Of files with the same name the one in the earliest folder counts, also when it
    is empty or a link to /dev/null. Folders that are not there are no problem, nor
    are links that lead nowhere (Debian has one); a folder in a file's place is, and a
    file that cannot be read.
    """
    chosen: dict[str, Optional[str]] = {}
    for folder in folders:
        if not tree.is_folder(folder):
            continue
        for name in tree.names(folder, problems):
            if name.startswith(".") or not name.endswith(suffix) or chosen.get(name):
                continue
            path = f"{folder}/{name}"
            if not tree.real_path(path):
                continue
            if not tree.is_folder(path):
                chosen[name] = path
            elif name not in chosen:  # the same folder may be seen through a link
                chosen[name] = None
                problems.append(f"{path} is a folder, so nothing in it counts")
    for name in sorted(chosen, key=os.fsencode):
        place = chosen[name]
        data = tree.data(place, problems) if place else None
        if place and data is not None:
            yield place, data.decode("utf-8", "surrogateescape")
