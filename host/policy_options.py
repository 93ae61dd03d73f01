# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mount options a policy may carry. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BY_TRANSPORT = "say it with transport:"
_BY_PORT = "say it with port:"
_BY_PROGRAM = "ovirt-rdma sets it for every export that a rule names"
_BY_DOMAIN = (
    "set it in the storage domain (NFS version, retransmissions, timeout), "
    "the engine sends it"
)
_BY_MOUNT = "mount.nfs finds it out"
_BY_ENGINE = "it is a field of the engine's storage connection"

# What owns an option that a policy must not carry. The engine's words are its
# NFS_MANAGED_OPTIONS (ConnectStorageToVdsCommand).
_OWNED_ELSEWHERE = {
    **dict.fromkeys(
        ("proto", "rdma", "rdma6", "tcp", "tcp6", "udp", "udp6"), _BY_TRANSPORT
    ),
    "port": _BY_PORT,
    "retry": _BY_PROGRAM,
    **dict.fromkeys(("timeo", "retrans", "vers", "nfsvers"), _BY_DOMAIN),
    "minorversion": _BY_DOMAIN,
    **dict.fromkeys(("addr", "clientaddr", "mountproto"), _BY_MOUNT),
    **dict.fromkeys(("vfs_type", "protocol_version"), _BY_ENGINE),
    "bg": "vdsmd would see a mount that does not exist yet",
}
_VERSION_WORD = re.compile(r"v[2-4](\.\d+)?")

# NFS_MAX_CONNECTIONS in the kernel's fs/nfs/internal.h.
_MAX_NCONNECT = 16


def option_mistakes(options: str) -> Iterator[str]:
    """Yield a sentence for everything in ``options`` that a policy may not say."""
    if not options:
        return
    if options.count('"') % 2:
        yield "has a quote without its partner"
    seen: set[str] = set()
    for item in options.split(","):
        name, _, value = item.partition("=")
        if not item:
            yield "has an empty item; write a,b with single commas between options"
            continue
        if any(c.isspace() or not c.isprintable() for c in item):
            yield f"{item!r} has a blank in it; write a,b without blanks"
            continue
        if name in seen:
            yield f"{name} is given twice, and only the last would count"
        seen.add(name)
        owner = _OWNED_ELSEWHERE.get(name)
        if _VERSION_WORD.fullmatch(name):
            owner = _BY_DOMAIN
        if owner:
            yield f"{name} is not for a policy; {owner}"
        elif name == "nconnect" and not _is_connection_count(value):
            yield f"{item} is out of range; allowed: nconnect=1 to {_MAX_NCONNECT}"


def _is_connection_count(text: str) -> bool:
    number = text.isascii() and text.isdecimal() and len(text) < 10
    return number and 1 <= int(text) <= _MAX_NCONNECT
