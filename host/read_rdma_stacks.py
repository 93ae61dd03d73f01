# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA stacks that vendors put in the place of the distribution's."""

from __future__ import annotations

import re
from typing import Optional

from ovirt_rdma.host.facts import RdmaStack
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.read_modules import module_paths
from ovirt_rdma.host.tools import Tools

MLNX_OFED = "MLNX_OFED"
DOCA = "DOCA"
EITHER = "MLNX_OFED or DOCA"

OFED_INFO = ("ofed_info", "-s")
# MLNX_OFED_LINUX-23.10-5.1.4.0: in MLNX_OFED, OFED-internal-25.01-0.6.0: in DOCA.
_OFED = re.compile(r"(\S+?)-(\d[\w.-]*):?")
_OFED_NAMES = {"MLNX_OFED_LINUX": MLNX_OFED, "OFED-internal": DOCA}

# It is in no kernel, and NVIDIA's modules need it.
_OFED_MODULE = "mlx_compat"
_OFED_FILES = (
    "/usr/lib/systemd/system/openibd.service",
    "/etc/systemd/system/openibd.service",
    "/etc/init.d/openibd",
    "/etc/infiniband/openib.conf",
    "/etc/infiniband/info",
    "/usr/src/ofa_kernel",
)
# Folders of Intel's and Cornelis Networks' hfi1 and what goes with it. Their tools and
# fabric manager, with /etc/opa, are in EL too.
_OPA = {
    "ifs-kernel-updates": "Omni-Path IFS",
    "opxs-kernel-updates": "Omni-Path OPXS",
}


def read_rdma_stacks(
    tree: FileTree, tools: Tools, release: str, problems: list[str]
) -> tuple[RdmaStack, ...]:
    """Return the stacks that show on a host with the running kernel ``release``.

    Without ``ofed_info`` MLNX_OFED and DOCA look the same, and have no version.
    Files that one left behind show it too, so ``evidence`` names what was found.
    """
    folder = f"/lib/modules/{release}"
    paths = module_paths(tree.data(f"{folder}/modules.dep") or b"", folder)
    found = [_ofed(tree, tools, paths.get(_OFED_MODULE), problems)]
    for updates, name in _OPA.items():
        shown = [path for path in paths.values() if updates in path.split("/")]
        found.append(RdmaStack(name, None, min(shown)) if shown else None)
    return tuple(stack for stack in found if stack)


def _ofed(
    tree: FileTree, tools: Tools, module: Optional[str], problems: list[str]
) -> Optional[RdmaStack]:
    evidence = [module] if module else []
    evidence += [path for path in _OFED_FILES if tree.real_path(path)]
    name, version = EITHER, None
    said = (tools.text(OFED_INFO, problems, optional=True) or "").strip()
    if said:
        match = _OFED.fullmatch(said[:200])
        if match:
            name = _OFED_NAMES.get(match.group(1), match.group(1))
            version = match.group(2)
        else:
            problems.append(f"ofed_info -s printed no version: {said[:60]!a}")
        evidence.insert(0, " ".join(OFED_INFO))
    return RdmaStack(name, version, ", ".join(evidence)) if evidence else None
