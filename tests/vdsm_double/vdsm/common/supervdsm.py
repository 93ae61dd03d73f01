# SPDX-License-Identifier: GPL-2.0-or-later
"""Call supervdsmd, which does the work of root for vdsmd, over a socket."""

from __future__ import annotations

import functools
from multiprocessing.managers import BaseManager
from typing import Any

ADDRESS = "/run/vdsm/svdsm.sock"


class _Manager(BaseManager):
    pass


@functools.cache
def getProxy() -> Any:
    """Connect to supervdsmd once; its errors are raised here."""
    _Manager.register("instance")
    manager = _Manager(address=ADDRESS, authkey=b"")
    manager.connect()
    return manager.instance()  # type: ignore[attr-defined]
