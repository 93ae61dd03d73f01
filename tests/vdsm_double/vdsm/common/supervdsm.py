# SPDX-License-Identifier: GPL-2.0-or-later
"""Root's work on behalf of vdsmd, done by supervdsmd and asked for over a socket."""

from __future__ import annotations

import functools
from multiprocessing.managers import BaseManager
from typing import Any

ADDRESS = "/run/vdsm/svdsm.sock"


class _Manager(BaseManager):
    pass


@functools.cache
def getProxy() -> Any:
    """Connect to supervdsmd, once; what it raises is raised here."""
    _Manager.register("instance")
    manager = _Manager(address=ADDRESS, authkey=b"")
    manager.connect()
    return manager.instance()  # type: ignore[attr-defined]
