# SPDX-License-Identifier: GPL-2.0-or-later
"""Root's work on behalf of vdsmd; here done in the same process."""

from __future__ import annotations

import functools
from typing import Any


class _Proxy:
    def mount(self, *args: Any, **kwargs: Any) -> None:
        from vdsm.storage import mount

        mount._mount(*args, **kwargs)

    def umount(self, *args: Any, **kwargs: Any) -> None:
        from vdsm.storage import mount

        mount._umount(*args, **kwargs)


@functools.cache
def getProxy() -> _Proxy:
    return _Proxy()
