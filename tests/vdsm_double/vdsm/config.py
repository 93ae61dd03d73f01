# SPDX-License-Identifier: GPL-2.0-or-later
"""vdsm.conf: the options for NFS mounts, and for the start of daemons."""

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
