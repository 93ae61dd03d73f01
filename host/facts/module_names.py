# SPDX-License-Identifier: GPL-2.0-or-later
"""List the kernel modules that concern RDMA and NFS."""

from __future__ import annotations

# drivers/infiniband, net/sunrpc, fs and drivers/nvme in Linux 6.12, and the drivers
# below them that have module options; i40iw is irdma's predecessor.
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

# rpcrdma is client and server of NFS/RDMA. Their old names, and one for IPv6, are its
# aliases (net/sunrpc/xprtrdma/module.c).
ALIASES = dict.fromkeys(("xprtrdma", "svcrdma", "rpcrdma6"), "rpcrdma")


def module_name(name: str) -> str:
    """Return the kernel's name of a module: ``rdma_cm`` for ``rdma-cm``, ``rpcrdma``
    for ``svcrdma``.
    """
    plain = name.replace("-", "_")
    return ALIASES.get(plain, plain)
