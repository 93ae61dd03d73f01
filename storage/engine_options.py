# SPDX-License-Identifier: GPL-2.0-or-later
"""What the engine takes as an NFS storage connection's mount options. Pure."""

from __future__ import annotations

from ovirt_rdma.storage.options import MountOptions

# storage_server_connections.mount_options is varchar(500) and the engine itself
# does not look at the length.
ENGINE_LIMIT = 500
# NFS_MANAGED_OPTIONS in the engine's ConnectStorageToVdsCommand.
ENGINE_REFUSES = (
    "timeo",
    "retrans",
    "vfs_type",
    "protocol_version",
    "nfsvers",
    "vers",
    "minorversion",
    "addr",
    "clientaddr",
)


def engine_problems(text: str) -> tuple[str, ...]:
    """Say why the engine would not take ``text`` as an NFS domain's mount options.

    Returns sentences, none where it would. The limits are those of the database
    column and of the engine's list of options that it manages itself.
    """
    problems = []
    if len(text) > ENGINE_LIMIT:
        problems.append(
            f"the mount options have {len(text)} characters; "
            f"the engine stores at most {ENGINE_LIMIT}"
        )
    names = {option.name.lower() for option in MountOptions.parse(text).items}
    refused = [name for name in ENGINE_REFUSES if name in names]
    if refused:
        problems.append(
            f"the engine refuses {', '.join(refused)} among the mount options; "
            "set version, timeout and retransmissions in the storage connection's "
            "own fields"
        )
    return tuple(problems)
