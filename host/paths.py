# SPDX-License-Identifier: GPL-2.0-or-later
"""Where things are on a host. Every path is absolute and meant below a root."""

from __future__ import annotations

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Union

# The admin's and the program's own.
POLICY_YAML = "/etc/ovirt-rdma/policy.yaml"
POLICY_JSON = "/var/lib/ovirt-rdma/policy.json"
# Its copy, which counts where it is broken.
POLICY_COPY = f"{POLICY_JSON}.last"
ENABLED = "/etc/ovirt-rdma/enabled"
# Names the folder that enable had to make, which disable takes away again.
FOLDER_NOTE = "/etc/ovirt-rdma/folder-made"
# What was done to this host, and what brings it back; root's alone.
JOURNAL = "/var/lib/ovirt-rdma/journal"
# What our units set again at boot, because nothing else keeps it; root's alone.
BOOT_JSON = "/var/lib/ovirt-rdma/boot.json"
# Held by the run that changes the host.
RUN_LOCK = "/run/ovirt-rdma/lock"
# What the hook after_get_caps adds to the capabilities.
CAPS_JSON = "/run/ovirt-rdma/caps.json"
# Written by vdsmd, into a folder that the package's tmpfiles.d file makes.
RUN_MOUNTS = "/run/ovirt-rdma/mounts"
DEGRADED_JSON = f"{RUN_MOUNTS}/degraded.json"

# What the package ovirt-rdma-host installs.
LAUNCHER = "/usr/libexec/ovirt-rdma/launcher/vdsmd"
# The hook points' folders are VDSM's (lib/vdsm/common/hooks.py), the file name ours.
HOOKS = tuple(
    f"/usr/libexec/vdsm/hooks/{point}/50_ovirt_rdma"
    for point in (
        "after_get_caps",
        "after_network_setup",
        "before_network_setup",
        "before_vdsm_start",
    )
)
DROPIN_SOURCE = "/usr/share/ovirt-rdma/systemd/vdsmd.service.d/50-ovirt-rdma.conf"
CAPS_UNIT = "/usr/lib/systemd/system/ovirt-rdma-caps.service"

# VDSM's, from 4.50.0.2 on (before that they were in /usr/share/vdsm).
STOCK_VDSMD = "/usr/libexec/vdsm/vdsmd"
STOCK_SUPERVDSMD = "/usr/libexec/vdsm/supervdsmd"
VDSM_CONF = "/etc/vdsm/vdsm.conf"
# Of drop-ins with one name, that in the last folder is read last and wins.
VDSM_CONF_DROPIN_DIRECTORIES = (
    "/usr/lib/vdsm/vdsm.conf.d",
    "/run/vdsm/vdsm.conf.d",
    "/etc/vdsm/vdsm.conf.d",
)

# Where VDSM mounts NFS exports: [irs] repository of vdsm.conf, which nobody changes
# (SELinux and sanlock know the place), and "mnt" below it.
VDSM_MOUNTS = "/rhev/data-center/mnt"

# nfs-utils'; nfsmount.conf(5). Mode nfsmount of earlier versions wrote the file.
NFSMOUNT_DIRECTORY = "/etc/nfsmount.conf.d"
NFSMOUNT_FILE = f"{NFSMOUNT_DIRECTORY}/50-ovirt-rdma.conf"
# An edited file of ours is kept here: nfs-utils reads names that end in .conf only.
NFSMOUNT_SAVED = f"{NFSMOUNT_FILE}.saved"

# systemd's; systemd.unit(5), "Unit File Load Path", the admin's folder first.
SYSTEMD_BOOTED = "/run/systemd/system"
DROPIN_DIRECTORY = "/etc/systemd/system/vdsmd.service.d"
DROPIN_LINK = f"{DROPIN_DIRECTORY}/50-ovirt-rdma.conf"
OTHER_DROPIN_DIRECTORIES = (
    "/run/systemd/system/vdsmd.service.d",
    "/usr/local/lib/systemd/system/vdsmd.service.d",
    "/usr/lib/systemd/system/vdsmd.service.d",
)
# Our unit that keeps P_Key children equal to the P_Key tables.
PARTITIONS_UNIT = "ovirt-rdma-partitions.service"


def under(root: Union[str, Path], path: str) -> Path:
    """Return the absolute ``path`` below ``root``, which is ``/`` on a real host."""
    # Here, because --help names paths too and starts a tenth faster without.
    from pathlib import Path  # noqa: PLC0415

    return Path(root) / path.lstrip("/")
