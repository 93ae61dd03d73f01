# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemon's entry; the double's main() prints which class mounts NFS."""

from __future__ import annotations

from vdsm.storage import storageServer


def main() -> None:
    """Print the registered NFS class, to show what a launcher installed."""
    nfs = storageServer.ConnectionFactory.registeredConnectionTypes["nfs"]
    print(f"vdsmd: nfs is {nfs.__module__}.{nfs.__qualname__}", flush=True)
