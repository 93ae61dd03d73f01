# SPDX-License-Identifier: GPL-2.0-or-later
"""How the running kernel was configured, as far as RDMA and NFS go."""

from __future__ import annotations

import re
from typing import Optional

from ovirt_rdma.host.facts import KernelOption
from ovirt_rdma.host.file_tree import FileTree

RUNNING = "/proc/config.gz"
# A configuration of Linux 6.12 has 0.3 MB.
MAX_BYTES = 8 << 20

# drivers/infiniband, drivers/net/ethernet/mellanox, net/sunrpc, fs/nfs, fs/configfs
# and net/dcb in Linux 6.12; without CONFIG_.
_CORE = "INFINIBAND INFINIBAND_USER_ACCESS INFINIBAND_USER_MAD CONFIGFS_FS DCB"
_IPOIB = "INFINIBAND_IPOIB INFINIBAND_IPOIB_CM MLX5_CORE_IPOIB"
_MELLANOX = "MLX4_CORE MLX4_CORE_GEN2 MLX4_INFINIBAND MLX5_CORE MLX5_INFINIBAND"
_OTHERS = "HFI1 QIB MTHCA IRDMA BNXT_RE CXGB4 QEDR OCRDMA USNIC VMWARE_PVRDMA"
_SOFT = "RDMA_RXE RDMA_SIW"
_NFS = "SUNRPC_XPRT_RDMA NFS_FS NFS_V3 NFS_V4"
_BLOCK = "INFINIBAND_SRP INFINIBAND_ISER NVME_RDMA"
SYMBOLS = frozenset(f"{_CORE} {_IPOIB} {_MELLANOX} {_SOFT} {_NFS} {_BLOCK}".split()) | {
    f"INFINIBAND_{name}" for name in _OTHERS.split()
}

_SET = re.compile(r"^CONFIG_(\w+)=(.*)$", re.MULTILINE | re.ASCII)
_NOT_SET = re.compile(r"^# CONFIG_(\w+) is not set$", re.MULTILINE | re.ASCII)


def read_kernel_config(
    tree: FileTree, release: str, problems: list[str]
) -> Optional[tuple[KernelOption, ...]]:
    """Return the symbols out of SYMBOLS, sorted, or None where there is no
    configuration of the kernel ``release``.

    A symbol that is not in the result is not in the configuration: this kernel does
    not have it, or what it depends on is not set.
    """
    for path in (
        f"/boot/config-{release}",
        f"/lib/modules/{release}/config",  # EL, and images without a /boot of theirs
        f"/usr/lib/modules/{release}/config",
        RUNNING,
    ):
        data = tree.data(path)
        if data is None:
            continue
        if path == RUNNING:
            data = _unpacked(path, data, problems)
        found = parse_kernel_config(data or b"")
        if found is not None:
            return found
        if data is not None:
            problems.append(f"{path} is no kernel configuration")
    return None


def parse_kernel_config(data: bytes) -> Optional[tuple[KernelOption, ...]]:
    """Return the symbols out of SYMBOLS; None where ``data`` sets none at all."""
    text = data[:MAX_BYTES].decode("utf-8", "surrogateescape")
    values = dict.fromkeys(_NOT_SET.findall(text), "n")
    values.update(_SET.findall(text))
    if not values:
        return None
    return tuple(
        KernelOption(name, values[name].strip().strip('"'))
        for name in sorted(SYMBOLS & values.keys())
    )


def _unpacked(path: str, data: bytes, problems: list[str]) -> Optional[bytes]:
    """Unpack gzip, but no more than MAX_BYTES."""
    import zlib  # noqa: PLC0415  (few kernels have the file)

    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        found = stream.decompress(data, MAX_BYTES)
    except zlib.error as e:
        problems.append(f"{path} cannot be unpacked: {e}")
        return None
    if not stream.eof:
        why = "it ends too early" if len(found) < MAX_BYTES else "it is far too large"
        problems.append(f"{path} cannot be unpacked: {why}")
        return None
    return found
