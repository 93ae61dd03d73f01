# SPDX-License-Identifier: GPL-2.0-or-later
"""What enable and disable are made of: the steps and their ids. Data."""

from __future__ import annotations

from dataclasses import dataclass

# Step ids; stable, they appear in JSON.
MAKE_LINK = "make-link"
WRITE_NOTE = "write-folder-note"
WRITE_MARKER = "write-marker"
REMOVE_LINK = "remove-link"
REMOVE_CONF = "remove-nfsmount-conf"
SAVE_CONF = "save-nfsmount-conf"
REMOVE_DIRECTORY = "remove-directory"
REMOVE_NOTE = "remove-folder-note"
REMOVE_MARKER = "remove-marker"
REMOVE_LEFT_OVER = "remove-left-over"
RELOAD_SYSTEMD = "reload-systemd"
START_CAPS = "start-caps"
RESTART_VDSMD = "restart-vdsmd"


@dataclass(frozen=True)
class Step:
    """One change: its stable id, what it acts on, and a sentence about it."""

    id: str
    target: str
    sentence: str
