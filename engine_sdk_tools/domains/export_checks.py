# SPDX-License-Identifier: GPL-2.0-or-later
"""What is against an export, its mount options and a name, for a new NFS domain. Pure.

The engine looks at the options' names only, and stores what it cannot store whole; the
rest would come out at a mount, on one host after another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.transport import nfs_export
from ovirt_rdma.engine_sdk_tools.model import Engine
from ovirt_rdma.engine_sdk_tools.networks.addresses import no_one_hosts
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.policy.model import DEFAULT_PORT
from ovirt_rdma.storage.mount_options import (
    MountOptions,
    OptionsProblem,
    engine_problems,
    is_rdma,
)
from ovirt_rdma.storage.proof import RDMA, TCP

# StorageDomainNameSizeLimit.
LONGEST_NAME = 50
# storage_server_connections.connection is varchar(250).
LONGEST_EXPORT = 250
# ValidationUtils.NO_SPECIAL_CHARACTERS, which a domain's name has to match
# (StorageDomainStatic.java:27): narrower than that of other objects.
_IN_NAMES = re.compile("[0-9A-Za-z_-]")
# NfsMountPointConstraint.java:17-27: what the engine takes for a server that is no
# IPv6 address, and for a path. An IPv4 address may have leading zeros, or be beyond
# 255 where it passes for a name.
_LABEL = "(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_BYTE = r"(?:25[0-5]|2[0-4]\d|[01]\d\d|\d?\d)"
_SERVER = re.compile(
    rf"(?:{_BYTE}\.){{3}}{_BYTE}|{_LABEL}|(?:{_LABEL}\.)+[A-Za-z0-9]{{2,63}}",
    re.ASCII,
)
_PATH = re.compile(r"/(?:(?:.*?[/\\])?[^./|^\\]+(?:\.[^\\]*)?/?)?")
# The API's word for each version that a person writes; never auto: VDSM would take
# vdsm.conf's options, and nolock.
NFS_VERSIONS = {"3": "v3", "4": "v4", "4.0": "v4_0", "4.1": "v4_1", "4.2": "v4_2"}


def read_export(text: str) -> tuple[Optional[Export], list[str]]:
    """Return the export, and what the engine would not take of it."""
    try:
        export = Export.parse(text)
    except ExportProblem as problem:
        return None, [f"{problem}; {problem.fix}" if problem.fix else str(problem)]
    return export, list(_unfit(export))


def address_of(export: Export) -> str:
    """Return the server as the API takes it: an IPv6 address in brackets."""
    return f"[{export.server}]" if ":" in export.server else export.server


def known_already(engine: Engine, export: Export, name: str) -> Iterator[str]:
    """Say which domain of the engine has ``export``, however it is written there, but
    for the domain ``name``.
    """
    used = {d.connection.id: d for d in engine.domains if d.connection is not None}
    for row in engine.connections:
        if not _same(nfs_export(row), export):
            continue
        domain = used.get(row.id)
        if domain is not None and domain.name != name:
            yield (
                f"{row.export} is the export of the domain {domain.name} already, and "
                "one export holds one domain"
            )


def name_problems(name: str) -> Iterator[str]:
    """Say why the engine would not take ``name`` for a domain."""
    if not 1 <= len(name) <= LONGEST_NAME:
        many = len(name)
        yield f"a domain's name has 1 to {LONGEST_NAME} characters, this has {many}"
    odd = sorted({c for c in name if not _IN_NAMES.match(c)})
    if odd:
        shown = " ".join(repr(c) for c in odd)
        yield (
            f"a domain's name has ASCII letters, digits, '_' and '-' only, not {shown}"
        )


def options_for(export: Export, transport: str, asked: str) -> tuple[str, list[str]]:
    """Return the mount options for ``transport`` (``rdma``, ``tcp``) with those
    ``asked`` for, and what is against them.

    For RDMA the netid and the port are added where they are not in ``asked``; an
    export with an IPv6 address needs ``rdma6``.
    """
    options = MountOptions.parse(asked)
    problems = [str(conflict) for conflict in options.conflicts()]
    if any(c.isspace() for c in asked):
        problems.append("the mount options have a blank in them")
    try:
        port = options.port
    except OptionsProblem as problem:
        return asked, [*problems, str(problem)]
    v6 = ":" in export.server
    wanted = "rdma6" if v6 else "rdma"
    added = []
    if transport == RDMA:
        problems += _against_rdma(options, v6)
        added += [] if options.netid else [f"proto={wanted}"]
        added += [] if port else [f"port={DEFAULT_PORT}"]
    elif transport == TCP:
        if options.wants_rdma:
            problems.append(f"the mount options ask for {options.netid}, not for TCP")
        if port == DEFAULT_PORT:
            problems.append(f"port {DEFAULT_PORT} is NFS over RDMA's, not TCP's")
    text = ",".join(filter(None, [asked, *added]))
    return text, [*problems, *engine_problems(text)]


def _against_rdma(options: MountOptions, v6: bool) -> Iterator[str]:
    netid = options.netid
    if netid is not None and not is_rdma(netid):
        yield (
            f"the mount options ask for {netid}, not for RDMA; leave that out, or ask "
            "for --transport tcp"
        )
    elif netid is not None and (netid == "rdma6") != v6:
        kind = "IPv6" if v6 else "no IPv6"
        wanted = "rdma6" if v6 else "rdma"
        yield f"the server has {kind} address, so it takes proto={wanted}, not {netid}"
    if options.port == 0:
        yield "port=0 asks the server's rpcbind, which knows no RDMA; write port=20049"


def _unfit(export: Export) -> Iterator[str]:
    text = str(export)
    if not text.isascii() or any(c.isspace() for c in text):
        yield f"export {text!r}: the engine takes ASCII without blanks only"
    if "%" in export.server:
        yield (
            f"export {text!r}: the engine takes no address with a zone; a link-local "
            "one means something else on each host anyway"
        )
    if ":" in export.path:
        # StorageDomainMapper.setPath splits there.
        yield f"export {text!r}: the engine cuts a path off at ':'"
    yield from _server(export)
    yield from _path(export)
    address = export.address
    if address is not None and address.is_loopback:
        yield f"export {text!r}: each host would look for it on itself"
    elif address is not None and no_one_hosts(address):
        yield f"export {text!r}: no server can have this address"
    elif address is not None and address.version == 6 and address.is_link_local:
        yield (
            f"export {text!r}: a link-local address means something else on each "
            "netdev, and the engine takes no zone"
        )
    if len(text) > LONGEST_EXPORT:
        yield (
            f"the export has {len(text)} characters; the engine stores at most "
            f"{LONGEST_EXPORT}"
        )


def _server(export: Export) -> Iterator[str]:
    """Say what of the server the engine's pattern does not take."""
    server = export.server
    text = str(export)
    if ":" in server:
        if "." in server:
            yield (
                f"export {text!r}: the engine takes no IPv6 address that ends as an "
                "IPv4 one: write it in hexadecimal digits"
            )
    elif "_" in server:
        yield f"export {text!r}: the engine takes no server name with '_' in it"
    elif server.endswith("."):
        yield f"export {text!r}: the engine takes no server name that ends in '.'"
    elif server.isascii() and not _SERVER.fullmatch(server):
        yield (
            f"export {text!r}: the engine takes no server name like {server!r}: its "
            "parts are letters, digits and '-' inside, and the last of several has two "
            "characters at least and no '-'"
        )


def _path(export: Export) -> Iterator[str]:
    """Say what of the path the engine's pattern does not take."""
    path = export.path
    text = str(export)
    if _PATH.fullmatch(path):
        return
    last = re.split(r"[/\\]", path)[-1]
    if last.startswith("."):
        wrong = "whose last part begins with '.'"
    elif not last:
        wrong = "that ends in '\\'"
    else:
        wrong = "whose last part has '|' or '^' in it"
    yield f"export {text!r}: the engine takes no path {wrong}"


def _same(one: Optional[Export], other: Export) -> bool:
    if one is None or one.path != other.path:
        return False
    if one.address is not None or other.address is not None:
        return one.address == other.address
    return one.server.rstrip(".").lower() == other.server.rstrip(".").lower()
