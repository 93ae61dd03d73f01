# SPDX-License-Identifier: GPL-2.0-or-later
"""Read configuration files from folders that override each other, as modprobe.d(5),
modules-load.d(5) and udev(7) define.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.system.tree import FileTree

# In the order of precedence. On EL, /lib is a link to /usr/lib, so the last one adds
# nothing.
_PLACES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")


def folders_named(name: str) -> tuple[str, ...]:
    """Return the folders of that name, such as ``modprobe.d``, by precedence."""
    return tuple(f"{place}/{name}" for place in _PLACES)


def conf_texts(
    tree: FileTree, folders: Sequence[str], suffix: str, problems: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield path and text of each file that is used, sorted by file name.

    Of files with the same name, the one in the first folder is used, even if it is
    empty or a link to /dev/null. Missing folders and dangling links (Debian has one)
    are ignored. A folder in a file's place and an unreadable file are problems.
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
                problems.append(f"{path} is a folder, so it is ignored")
    for name in sorted(chosen, key=os.fsencode):
        place = chosen[name]
        data = tree.data(place, problems) if place else None
        if place and data is not None:
            yield place, data.decode("utf-8", "surrogateescape")
