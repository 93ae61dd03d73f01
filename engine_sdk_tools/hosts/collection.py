# SPDX-License-Identifier: GPL-2.0-or-later
"""Find our Ansible collection on this machine, as the engine finds it."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.errors import Problem

# The user of ovirt-engine.service, which runs Ansible.
ENGINE_USER = "ovirt"
_COLLECTION = "ansible_collections/ovirt_rdma/host"
_SYSTEM = "/usr/share/ansible/collections"
# More folders, by colon; for tests and developers.
_MORE = "OVIRT_RDMA_COLLECTIONS"


def collection_paths() -> list[Path]:
    """Return the folders in which the engine's user finds collections (the default of
    ansible-core's COLLECTIONS_PATHS; the engine sets no other).
    """
    more = [Path(path) for path in os.environ.get(_MORE, "").split(":") if path]
    try:
        home = Path(pwd.getpwnam(ENGINE_USER).pw_dir)
        more.append(home / ".ansible/collections")
    except KeyError:
        pass
    return [*more, Path(_SYSTEM)]


def collection_folder() -> Optional[Path]:
    """Return the folder of our collection, None if there is none."""
    return _first(collection_paths())


def trusted_collections() -> list[Path]:
    """Return the folders of :func:`collection_paths` from which this user may run
    something: the engine's user must not become root through what root runs. Raises
    Problem if our collection is in others only.
    """
    paths = [path for path in collection_paths() if is_trusted(path)]
    found = collection_folder()
    if found is not None and _first(paths) is None:
        raise Problem(
            "collection-not-trusted",
            f"the collection in {found} is not used, because others can change it, "
            "and this user would run what they have written",
            f"install it below {_SYSTEM}: dnf install ovirt-rdma-engine",
        )
    return paths


def _first(paths: list[Path]) -> Optional[Path]:
    for path in paths:
        if is_folder(path / _COLLECTION):
            return path / _COLLECTION
    return None


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder that this user can look at."""
    # Path.is_dir raises for a folder of others, and for a long name.
    return os.path.isdir(path)  # noqa: PTH112


def is_trusted(path: Path) -> bool:
    """Whether only root and this user can change the folder or file ``path``, and can
    put another one there: by owner and mode of it and of what leads to it.
    """
    try:
        absolute = path.absolute()  # fails if the current folder is removed
        absolute.stat()  # fails for a link to itself, or to nothing
        for each in [*reversed(absolute.parents), absolute]:
            status = each.lstat()
            if status.st_uid not in (0, os.geteuid()):
                return False
            if stat.S_ISLNK(status.st_mode):
                rest = absolute.relative_to(each)
                return is_trusted(each.parent / each.readlink() / rest)
            # In a sticky folder nobody replaces what another user has made.
            sticky = each != absolute and status.st_mode & stat.S_ISVTX
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
                return False
    except OSError:
        return False
    return True
