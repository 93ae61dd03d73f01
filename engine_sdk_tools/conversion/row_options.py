# SPDX-License-Identifier: GPL-2.0-or-later
"""A storage connection's mount options with another transport. Pure.

Only what chooses the transport changes; all else stays as it is written.
"""

from __future__ import annotations

from ovirt_rdma.engine_sdk_tools.asked_transport import export_at
from ovirt_rdma.engine_sdk_tools.conversion.state import RDMA
from ovirt_rdma.engine_sdk_tools.engine_facts import StorageConnection
from ovirt_rdma.host.policy import DEFAULT_PORT
from ovirt_rdma.storage.options import PORT, TRANSPORT, MountOptions


def row_options(row: StorageConnection, to: str) -> str:
    """Return the options of ``row`` for ``to``; as they are where they say so.

    ``rdma6`` for an IPv6 address, because ``rdma`` means IPv4 to mount.nfs (nfs(5)).
    A host with a rule for the export does not look at it. Raises OptionsProblem for a
    port that is no number, ExportProblem for a row that names no export.
    """
    options = MountOptions.parse(row.mount_options)
    if to != RDMA:
        # Without a word TCP is mount's own choice; an RDMA port would be wrong then.
        return (
            str(options.without(TRANSPORT, PORT))
            if options.wants_rdma
            else (row.mount_options)
        )
    if options.wants_rdma and options.port is not None:
        return row.mount_options
    address = export_at(row.address, row.path or "").address
    netid = "rdma6" if address is not None and address.version == 6 else "rdma"
    added = MountOptions.parse(f"proto={netid},port={DEFAULT_PORT}")
    kept = options.without(TRANSPORT, PORT)
    return str(MountOptions(kept.items + added.items))
