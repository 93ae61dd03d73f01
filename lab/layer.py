# SPDX-License-Identifier: GPL-2.0-or-later
"""List the packages of a guest layer, and compute the key that identifies it."""

from __future__ import annotations

import hashlib
from pathlib import Path

KERNEL_METAPACKAGE = "linux-image-amd64"
GUEST_PACKAGES = (
    "busybox-static",  # the initramfs
    "dbus",
    "e2fsprogs",  # mkfs.ext4, for a disk that lasts
    "ethtool",
    "ibverbs-providers",
    "ibverbs-utils",
    "infiniband-diags",  # ibstat
    "iproute2",  # ip, and rdma
    "iputils-ping",
    "kmod",
    "lldpad",
    "network-manager",
    "nfs-common",
    "nfs-kernel-server",
    "procps",
    "python3",  # runs the command agent
    "python3-pyverbs",
    "rdma-core",
    "rdmacm-utils",  # rping, ucmatose
    "rpcbind",
    "systemd",
    "systemd-sysv",
    "udev",
)
# Increased when the handling of the packages changes. 3: the layer contains the kernel
# headers, to build the InfiniBand fabric's module (lab/ib_fabric_build.py).
LAYOUT = 3


def layer_key(release: str, packages: tuple[str, ...]) -> str:
    """Return the key of a layer. Pure.

    Versions of packages are not part of it, so a working layer is not fetched again
    when the archive changes. Remove the cache folder to get the newest versions.
    """
    text = "\n".join([str(LAYOUT), release, KERNEL_METAPACKAGE, *sorted(packages)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def debian_release() -> str:
    """Return the code name of the machine's release, or ``unknown``."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return "unknown"
    fields = dict(line.partition("=")[::2] for line in lines)
    return fields.get("VERSION_CODENAME", "unknown").strip('"')
