# SPDX-License-Identifier: GPL-2.0-or-later
"""vdsm.conf: only the option that changes how an NFS export is mounted."""

from __future__ import annotations

import configparser

config = configparser.ConfigParser()
config.read_dict({"irs": {"nfs_mount_options": "soft,nosharecache"}})
