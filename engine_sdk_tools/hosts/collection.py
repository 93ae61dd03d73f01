# SPDX-License-Identifier: GPL-2.0-or-later
"""Find our Ansible collection on this machine, as the engine finds it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Optional

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
    for path in collection_paths():
        if (path / _COLLECTION).is_dir():
            return path / _COLLECTION
    return None
