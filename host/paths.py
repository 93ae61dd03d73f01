# SPDX-License-Identifier: GPL-2.0-or-later
"""Where things are on a host. Every path is absolute and meant below a root."""

from __future__ import annotations

from pathlib import Path
from typing import Union

# The admin's and the program's own.
POLICY_YAML = "/etc/ovirt-rdma/policy.yaml"
POLICY_JSON = "/var/lib/ovirt-rdma/policy.json"
ENABLED = "/etc/ovirt-rdma/enabled"

# What the package ovirt-rdma-host installs.
LAUNCHER = "/usr/libexec/ovirt-rdma/launcher/vdsmd"
DROPIN_SOURCE = "/usr/share/ovirt-rdma/systemd/vdsmd.service.d/50-ovirt-rdma.conf"

# VDSM's, from 4.50.0.2 on (before that they were in /usr/share/vdsm).
STOCK_VDSMD = "/usr/libexec/vdsm/vdsmd"
VDSM_CONF = "/etc/vdsm/vdsm.conf"
# Of drop-ins with one name, that in the last folder is read last and wins.
VDSM_CONF_DROPIN_DIRECTORIES = (
    "/usr/lib/vdsm/vdsm.conf.d",
    "/run/vdsm/vdsm.conf.d",
    "/etc/vdsm/vdsm.conf.d",
)

# systemd's; systemd.unit(5), "Unit File Load Path", the admin's folder first.
SYSTEMD_BOOTED = "/run/systemd/system"
DROPIN_DIRECTORY = "/etc/systemd/system/vdsmd.service.d"
DROPIN_LINK = f"{DROPIN_DIRECTORY}/50-ovirt-rdma.conf"
OTHER_DROPIN_DIRECTORIES = (
    "/run/systemd/system/vdsmd.service.d",
    "/usr/local/lib/systemd/system/vdsmd.service.d",
    "/usr/lib/systemd/system/vdsmd.service.d",
)


def under(root: Union[str, Path], path: str) -> Path:
    """Return the absolute ``path`` below ``root``, which is ``/`` on a real host."""
    return Path(root) / path.lstrip("/")
