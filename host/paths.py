# SPDX-License-Identifier: GPL-2.0-or-later
"""List the paths on a host. Every path is absolute, for use below a root."""

from __future__ import annotations

from pathlib import Path
from typing import Union

# Files of the admin and of ovirt-rdma.
POLICY_YAML = "/etc/ovirt-rdma/policy.yaml"
DROP_INS = "/etc/ovirt-rdma/policy.d"
POLICY_JSON = "/var/lib/ovirt-rdma/policy.json"
# Its copy, which is used if the file is damaged.
POLICY_COPY = f"{POLICY_JSON}.last"
ENABLED = "/etc/ovirt-rdma/enabled"
# Names the folder that enable created and that disable removes.
FOLDER_NOTE = "/etc/ovirt-rdma/folder-made"
# Every change to this host with the value before it; only for root.
JOURNAL = "/var/lib/ovirt-rdma/journal.json"
# Locked by the run that changes the host.
RUN_LOCK = "/run/ovirt-rdma/lock"
# The capabilities that the hook after_get_caps adds.
CAPS_JSON = "/run/ovirt-rdma/caps.json"
# The daemon: its tasks, their last runs and when they are due.
DAEMON_JSON = "/run/ovirt-rdma/daemon.json"
# The targets of block storage that the daemon leaves logged out.
LOGGED_OUT_JSON = "/run/ovirt-rdma/block-logged-out.json"
# The initiator_ext of sessions that we made, which the kernel does not show.
BLOCK_SESSIONS_JSON = "/run/ovirt-rdma/block-sessions.json"
# The health of the mounts, as the daemon saw it last.
HEALTH_JSON = "/run/ovirt-rdma/health.json"
# The network paths of NFS mounts, as the daemon saw and moved them last.
PATHS_JSON = "/run/ovirt-rdma/paths.json"
# What has to be undone of a move of connections that was killed.
PATHS_LEVER = "/run/ovirt-rdma/paths.lever"
# The file of /sys that has another value while VFs are made or bound, and its own.
VF_MEANWHILE = "/run/ovirt-rdma/vf-meanwhile"
# Processes that ask servers and cannot be ended; only for root.
PROBES = "/run/ovirt-rdma/probes"
# What a run of the exporter of metrics leaves for the next one.
METRICS_JSON = "/run/ovirt-rdma/metrics.json"
# Written by vdsmd; the package's tmpfiles.d file creates the folder.
RUN_MOUNTS = "/run/ovirt-rdma/mounts"
DEGRADED_JSON = f"{RUN_MOUNTS}/degraded.json"
# Written by the launcher: what it started, and its version, or why it is stock.
STARTED = f"{RUN_MOUNTS}/vdsmd"

# Files of the package ovirt-rdma-host.
LAUNCHER = "/usr/libexec/ovirt-rdma/launcher/vdsmd"
# The folders are VDSM's hook points (lib/vdsm/common/hooks.py), the file name is ours.
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
DAEMON_FILE = "/usr/lib/systemd/system/ovirt-rdmad.service"

# Files of VDSM, since 4.50.0.2 (before that in /usr/share/vdsm).
STOCK_VDSMD = "/usr/libexec/vdsm/vdsmd"
STOCK_SUPERVDSMD = "/usr/libexec/vdsm/supervdsmd"
VDSM_CONF = "/etc/vdsm/vdsm.conf"
# Of drop-ins with the same name, the one in the last folder is read last and wins.
VDSM_CONF_DROPIN_DIRECTORIES = (
    "/usr/lib/vdsm/vdsm.conf.d",
    "/run/vdsm/vdsm.conf.d",
    "/etc/vdsm/vdsm.conf.d",
)

# VDSM mounts NFS exports here: [irs] repository of vdsm.conf, which is never changed
# because SELinux and sanlock need the path, and "mnt" below it.
VDSM_MOUNTS = "/rhev/data-center/mnt"

# Files of systemd: systemd.unit(5), "Unit File Load Path", the admin's folder first.
SYSTEMD_BOOTED = "/run/systemd/system"
DROPIN_DIRECTORY = "/etc/systemd/system/vdsmd.service.d"
DROPIN_LINK = f"{DROPIN_DIRECTORY}/50-ovirt-rdma.conf"
OTHER_DROPIN_DIRECTORIES = (
    "/run/systemd/system/vdsmd.service.d",
    "/usr/local/lib/systemd/system/vdsmd.service.d",
    "/usr/lib/systemd/system/vdsmd.service.d",
)
# The partitions of opensm: EL's, and that of Debian and MLNX_OFED.
PARTITIONS_FILES = ("/etc/rdma/partitions.conf", "/etc/opensm/partitions.conf")
OPENSM = "/usr/sbin/opensm"
# The settings of our opensm at one port, and its unit, by the GUID of the port.
OPENSM_SETTINGS_FILE = "/etc/ovirt-rdma/opensm-{}.conf"
OPENSM_UNIT = "ovirt-rdma-opensm@{}.service"
# The daemon's unit, and VDSM's.
DAEMON_UNIT = "ovirt-rdmad.service"
VDSMD_UNIT = "vdsmd.service"

# The kernel's netdevs.
NET_CLASS = "/sys/class/net"
RDMA_CM_CONFIG = "/sys/kernel/config/rdma_cm"  # of configfs


def under(root: Union[str, Path], path: str) -> Path:
    """Return the absolute ``path`` below ``root``, which is ``/`` on a real host."""
    return Path(root) / path.lstrip("/")


def is_vdsms(mountpoint: str) -> bool:
    """Whether it is one of VDSM's, below VDSM_MOUNTS."""
    return mountpoint.startswith(f"{VDSM_MOUNTS}/")
