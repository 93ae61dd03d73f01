# SPDX-License-Identifier: GPL-2.0-or-later
"""Domain types of connectStorageServer that can be NFS."""

from __future__ import annotations

NFS_DOMAIN = 1
POSIXFS_DOMAIN = 6
