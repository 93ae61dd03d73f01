# SPDX-License-Identifier: GPL-2.0-or-later
"""What is installed and configured on the host."""

from __future__ import annotations

from ovirt_rdma.host.facts import Software
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.kernel_config import read_kernel_config
from ovirt_rdma.host.os_release import read_distribution
from ovirt_rdma.host.package_version import package_version
from ovirt_rdma.host.read_own_files import read_own_files
from ovirt_rdma.host.read_rdma_stacks import read_rdma_stacks
from ovirt_rdma.host.read_udev_rules import read_udev_lines
from ovirt_rdma.host.read_units import read_units, subnet_manager
from ovirt_rdma.host.tools import Tools
from ovirt_rdma.host.vdsm_processes import read_selinux


def read_software(
    tree: FileTree, tools: Tools, release: str, problems: list[str]
) -> Software:
    """Return it, for the running kernel ``release``.

    Every tool is optional: what only a missing one could tell is None or empty.
    """
    units = read_units(tree, tools, problems)
    return Software(
        distribution=read_distribution(tree, problems),
        vdsm_version=package_version(tools, "vdsm", problems),
        rdma_core=package_version(tools, "rdma-core", problems),
        stacks=read_rdma_stacks(tree, tools, release, problems),
        kernel_config=read_kernel_config(tree, release, problems),
        units=units,
        udev_lines=read_udev_lines(tree, problems),
        subnet_manager=subnet_manager(units),
        own_files=read_own_files(tree, problems),
        selinux=read_selinux(tree),
    )
