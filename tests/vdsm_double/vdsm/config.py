# SPDX-License-Identifier: GPL-2.0-or-later
"""vdsm.conf: what changes how an NFS export is mounted, and how daemons start."""

from __future__ import annotations

import configparser

config = configparser.ConfigParser()
config.read_dict(
    {
        "irs": {"nfs_mount_options": "soft,nosharecache"},
        "vars": {
            "vdsm_nice": "-5",
            "libvirt_env_variable_debug": "",
            "libvirt_env_variable_log_filters": "",
            "libvirt_env_variable_log_outputs": "",
        },
    }
)
