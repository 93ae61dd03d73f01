# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel modules that concern RDMA and NFS: loaded, built in, available."""

from __future__ import annotations

import posixpath
import re

from ovirt_rdma.host.facts import Modules
from ovirt_rdma.host.file_tree import FileTree

LOADED = "/proc/modules"

# drivers/infiniband, net/sunrpc, fs and drivers/nvme in Linux 6.12, and the drivers
# below them that carry module options; i40iw is irdma's predecessor.
_RDMA_CORE = "ib_core ib_cm iw_cm rdma_cm ib_uverbs rdma_ucm ib_umad"
_INFINIBAND = "mlx4_core mlx4_ib mlx4_en mlx5_core mlx5_ib ib_mthca ib_qib hfi1 rdmavt"
_ROCE_AND_IWARP = "bnxt_re irdma i40iw iw_cxgb4 ocrdma qedr hns_roce hns_roce_hw_v2"
_OTHER_ADAPTERS = "usnic_verbs vmw_pvrdma efa erdma mana_ib rdma_rxe siw"
_IP_AND_NFS = "ib_ipoib sunrpc rpcrdma lockd nfs nfsv3 nfsv4 nfsd"
_BLOCK = "ib_srp ib_srpt ib_iser ib_isert nvme_rdma nvmet_rdma"
CONCERNED = frozenset(
    f"{_RDMA_CORE} {_INFINIBAND} {_ROCE_AND_IWARP} {_OTHER_ADAPTERS} {_IP_AND_NFS} "
    f"{_BLOCK}".split()
)

# rpcrdma is both halves of NFS/RDMA, and carries their old names, and one that it has
# for IPv6, as aliases (net/sunrpc/xprtrdma/module.c).
ALIASES = dict.fromkeys(("xprtrdma", "svcrdma", "rpcrdma6"), "rpcrdma")

_FILE = re.compile(r"(.+)\.ko(?:\.[a-z0-9]+)?")


def module_name(name: str) -> str:
    """Return the kernel's name of a module: ``rdma_cm`` for ``rdma-cm``, ``rpcrdma``
    for ``svcrdma``.
    """
    plain = name.replace("-", "_")
    return ALIASES.get(plain, plain)


def read_modules(tree: FileTree, release: str, problems: list[str]) -> Modules:
    """Return the modules out of CONCERNED, for the running kernel ``release``.

    Where there is no modules.dep for that kernel, what is available is not known;
    both that and an unreadable /proc/modules get a sentence in ``problems``.
    """
    loaded = _loaded(tree.data(LOADED, problems) or b"")
    folder = f"/lib/modules/{release}"
    built_in = _files(tree.data(f"{folder}/modules.builtin") or b"")
    dependencies = tree.data(f"{folder}/modules.dep", problems)
    return Modules(
        loaded=_concerned(loaded | built_in),
        available=None
        if dependencies is None
        else _concerned(_files(dependencies) | built_in),
    )


def _concerned(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(CONCERNED & {module_name(name) for name in names}))


def _loaded(data: bytes) -> set[str]:
    """Read ``name size users dependants state address``; a module that is still
    loading or on its way out is not loaded.
    """
    found = set()
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.split()
        if fields and (len(fields) < 5 or fields[4] == "Live"):
            found.add(fields[0])
    return found


def module_paths(data: bytes, folder: str = "") -> dict[str, str]:
    """Read modules.dep (``path: paths it needs``) or modules.builtin (``path``): the
    path of each module, under its file's name. depmod writes paths below ``folder``;
    absolute ones, as other tools write them, lose it.

    A file is name.ko, or compressed: name.ko.xz (EL9), name.ko.zst.
    """
    starts = tuple(f"{usr}{folder}/" for usr in ("", "/usr")) if folder else ()
    found = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        path = line.partition(":")[0].strip()
        match = _FILE.fullmatch(posixpath.basename(path))
        if match:
            start = next((s for s in starts if path.startswith(s)), "")
            found[match.group(1)] = path[len(start) :]
    return found


def _files(data: bytes) -> set[str]:
    return set(module_paths(data))
