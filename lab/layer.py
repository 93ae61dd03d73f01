# SPDX-License-Identifier: GPL-2.0-or-later
"""List the kernels and packages of guest layers, and compute a layer's key."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from lab.problem import LabProblem

# The kernels that guests can have, and Debian 12's packages that depend on the newest
# of each; 6.12 is what EL10 is made of. A kernel of the machine's own release is built
# by its compiler, which builds the fabric's module.
KERNELS = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}
# The releases whose other packages guests with a kernel have, if not the machine's: as
# EL10 has it, nfs-utils 2.8, systemd 257, NetworkManager 1.52, Python 3.13.
SUITES = {"6.12": "trixie"}
KERNEL = "OVIRT_RDMA_LAB_KERNEL"
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
    "python3-pycurl",  # the portal's service
    "python3-yaml",  # of our own package
    "rdma-core",
    "rdmacm-utils",  # rping, ucmatose
    "rpcbind",
    "systemd",
    "systemd-sysv",
    "udev",
)
# Increased when the handling of the packages changes. 4: /var/run is a link.
LAYOUT = 4


def asked_kernel(environment: Mapping[str, str] = os.environ) -> str:
    """Return the kernel that ``OVIRT_RDMA_LAB_KERNEL`` asks for, 6.1 without it.

    Raises LabProblem for one that the lab has not.
    """
    wanted = environment.get(KERNEL) or "6.1"
    if wanted not in KERNELS:
        raise LabProblem(f"{KERNEL} is {wanted!r}; it can be {' or '.join(KERNELS)}")
    return wanted


def layer_key(release: str, kernel: str, packages: tuple[str, ...]) -> str:
    """Return the key of a layer with the kernel of package ``kernel``. Pure.

    Versions of packages are not part of it, so a working layer is not fetched again
    when the archive changes. Remove the cache folder to get the newest versions.
    """
    text = "\n".join([str(LAYOUT), release, kernel, *sorted(packages)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def debian_release() -> str:
    """Return the code name of the machine's release, or ``unknown``."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return "unknown"
    fields = dict(line.partition("=")[::2] for line in lines)
    return fields.get("VERSION_CODENAME", "unknown").strip('"')
