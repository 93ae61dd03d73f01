# SPDX-License-Identifier: GPL-2.0-or-later
"""What connecting a named export needs of VDSM's own connection."""

from __future__ import annotations

from typing import Optional, Protocol


class StockConnection(Protocol):
    """What a named export needs of VDSM's own connection."""

    @property
    def local_path(self) -> str:
        """Where the export gets mounted."""

    def is_mounted(self) -> bool:
        """Whether VDSM sees the export mounted."""

    def use(self, extra_options: str) -> None:
        """Mount with these in place of the engine's extra options from now on."""

    def mount(self) -> Optional[bytes]:
        """Mount as stock VDSM does; mount's standard error if mount failed.

        Everything else that can go wrong is raised as it is.
        """

    def unmount(self) -> None:
        """Unmount as stock VDSM does."""
