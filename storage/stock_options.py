# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes wrong with the engine's options on an export that no rule names. Pure.

VDSM passes them to mount as they are, so mount's silence is the admin's problem.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.export import IpAddress
from ovirt_rdma.host.policy import DEFAULT_PORT
from ovirt_rdma.storage.options import RETRY, MountOptions


def stock_warnings(
    engine_options: str, address: Optional[IpAddress] = None
) -> tuple[str, ...]:
    """Return sentences about the engine's options, none where they are in order.

    ``address`` is the server's, None where the export has a name. A port is not
    missed: the kernel has one for RDMA, 20049 (fs/nfs/fs_context.c). Source: nfs(5).
    """
    options = MountOptions.parse(engine_options)
    warnings = [str(conflict) for conflict in options.conflicts()]
    netid, port = options.netid, options.port
    if options.wants_rdma:
        warnings.append(
            "RDMA without a rule: readiness is not checked and there is no fallback"
        )
        if options.last(RETRY) is None:
            # nfs(5), retry=: two minutes for a mount in the foreground.
            warnings.append(
                "without retry=0 a server that does not listen blocks the mount for "
                "two minutes"
            )
        wanted = "rdma6" if address is not None and address.version == 6 else "rdma"
        if address is not None and netid != wanted:
            warnings.append(
                f"{netid} does not reach an IPv{address.version} server: write "
                f"proto={wanted}"
            )
    elif port == DEFAULT_PORT:
        warnings.append(
            f"port={DEFAULT_PORT} is the port of NFS over RDMA, but the transport is "
            f"{netid or 'TCP'}: no server answers there over TCP"
        )
    return tuple(warnings)
