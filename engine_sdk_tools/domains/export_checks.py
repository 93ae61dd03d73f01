# SPDX-License-Identifier: GPL-2.0-or-later
"""Check export, mount options and name of a new NFS domain. Pure.

The engine checks only the names of options, and cuts off what is too long for its
database. Other mistakes would show only when hosts mount the domain, one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.engine_sdk_tools.domains.transport import nfs_export
from ovirt_rdma.engine_sdk_tools.model import Engine
from ovirt_rdma.engine_sdk_tools.networks.addresses import is_unusable_address
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.mount_options import (
    RDMA,
    TCP,
    MountOptions,
    OptionsProblem,
    engine_problems,
    is_rdma,
    netid_for,
)
from ovirt_rdma.host.policy.model import DEFAULT_PORT

# StorageDomainNameSizeLimit.
LONGEST_NAME = 50
# storage_server_connections.connection is varchar(250).
LONGEST_EXPORT = 250
# ValidationUtils.NO_SPECIAL_CHARACTERS, which the name of a domain must match
# (StorageDomainStatic.java:27): fewer characters than for other objects.
_IN_NAMES = re.compile("[0-9A-Za-z_-]")
# NfsMountPointConstraint.java:17-27: the patterns for a server that is no IPv6 address,
# and for a path. An IPv4 address may have leading zeros; one with a number above 255
# may match as a name.
_LABEL = "(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_BYTE = r"(?:25[0-5]|2[0-4]\d|[01]\d\d|\d?\d)"
_SERVER = re.compile(
    rf"(?:{_BYTE}\.){{3}}{_BYTE}|{_LABEL}|(?:{_LABEL}\.)+[A-Za-z0-9]{{2,63}}",
    re.ASCII,
)
_PATH = re.compile(r"/(?:(?:.*?[/\\])?[^./|^\\]+(?:\.[^\\]*)?/?)?")
# The API's name of each version. Not auto: VDSM would use the options of vdsm.conf, and
# nolock.
NFS_VERSIONS = {"3": "v3", "4": "v4", "4.0": "v4_0", "4.1": "v4_1", "4.2": "v4_2"}


def read_export(text: str) -> tuple[Optional[Export], list[Sentence]]:
    """Return the export, and why the engine would refuse it."""
    try:
        export = Export.parse(text)
    except ExportProblem as problem:
        sentence = f"{problem}; {problem.fix}" if problem.fix else str(problem)
        return None, [Sentence(problem.id, sentence)]
    return export, list(_unfit(export))


def address_of(export: Export) -> str:
    """Return the server in the form of the API: an IPv6 address in brackets."""
    return f"[{export.server}]" if ":" in export.server else export.server


def export_in_use(engine: Engine, export: Export, name: str) -> Iterator[Sentence]:
    """Refuse an export that another domain than ``name`` has, in any notation."""
    used = {d.connection.id: d for d in engine.domains if d.connection is not None}
    for row in engine.connections:
        if not export.same_as(nfs_export(row)):
            continue
        domain = used.get(row.id)
        if domain is not None and domain.name != name:
            yield Sentence(
                "export-in-use",
                f"{row.export} is already the export of the domain {domain.name}; an "
                "export holds one domain",
            )


def name_problems(name: str) -> Iterator[Sentence]:
    """Yield why the engine would refuse ``name`` for a domain."""
    if not 1 <= len(name) <= LONGEST_NAME:
        yield Sentence(
            "domain-name-length",
            f"the name of a domain must have 1 to {LONGEST_NAME} characters, this has "
            f"{len(name)}",
        )
    odd = sorted({c for c in name if not _IN_NAMES.match(c)})
    if odd:
        shown = " ".join(repr(c) for c in odd)
        yield Sentence(
            "domain-name-characters",
            "the name of a domain can only have ASCII letters, digits, '_' and '-', "
            f"not {shown}",
        )


def options_for(
    export: Export, transport: str, asked: str
) -> tuple[str, list[Sentence]]:
    """Return the mount options for ``transport`` (``rdma``, ``tcp``), including those
    ``asked`` for, and why they cannot be used.

    For RDMA, netid and port are added unless they are in ``asked``; an export with an
    IPv6 address needs ``rdma6``.
    """
    options = MountOptions.parse(asked)
    problems = [Sentence("mount-options-conflict", str(c)) for c in options.conflicts()]
    if any(c.isspace() for c in asked):
        sentence = "the mount options contain a blank"
        problems.append(Sentence("mount-options-with-blank", sentence))
    try:
        port = options.port
    except OptionsProblem as problem:
        return asked, [*problems, Sentence(problem.id, str(problem))]
    v6 = ":" in export.server
    added = []
    if transport == RDMA:
        problems += _against_rdma(options, v6)
        added += [] if options.netid else [f"proto={netid_for(RDMA, ipv6=v6)}"]
        added += [] if port else [f"port={DEFAULT_PORT}"]
    elif transport == TCP:
        if options.wants_rdma:
            sentence = f"the mount options request {options.netid}, not TCP"
            problems.append(Sentence("mount-options-other-transport", sentence))
        if port == DEFAULT_PORT:
            sentence = f"port {DEFAULT_PORT} is for NFS over RDMA, not for TCP"
            problems.append(Sentence("mount-options-other-transport", sentence))
    text = ",".join(filter(None, [asked, *added]))
    refused = (Sentence("mount-options-refused", p) for p in engine_problems(text))
    return text, [*problems, *refused]


def _against_rdma(options: MountOptions, v6: bool) -> Iterator[Sentence]:
    netid = options.netid
    if netid is not None and not is_rdma(netid):
        yield Sentence(
            "mount-options-other-transport",
            f"the mount options request {netid}, not RDMA; remove that, or give "
            "--transport tcp",
        )
    elif netid is not None and (netid == "rdma6") != v6:
        kind = "an IPv6" if v6 else "no IPv6"
        wanted = netid_for(RDMA, ipv6=v6)
        yield Sentence(
            "mount-options-other-netid",
            f"the server has {kind} address and needs proto={wanted}, not {netid}",
        )
    if options.port == 0:
        yield Sentence(
            "mount-options-port-zero",
            "port=0 asks the server's rpcbind, which does not know RDMA; write "
            "port=20049",
        )


def _unfit(export: Export) -> Iterator[Sentence]:
    text = str(export)
    head = f"export {text!r}: "
    if not text.isascii() or any(c.isspace() for c in text):
        sentence = "the engine accepts only ASCII without blanks"
        yield Sentence("export-characters-refused", head + sentence)
    if "%" in export.server:
        yield Sentence(
            "export-address-zone",
            f"{head}the engine accepts no address with a zone; a link-local address "
            "is a different server for each host anyway",
        )
    if ":" in export.path:
        # StorageDomainMapper.setPath splits there.
        sentence = "the engine cuts off a path at ':'"
        yield Sentence("export-path-refused", head + sentence)
    yield from _server(export)
    yield from _path(export)
    address = export.address
    if address is not None and address.is_loopback:
        sentence = "a loopback address is the host itself, on each host"
        yield Sentence("export-address-loopback", head + sentence)
    elif address is not None and is_unusable_address(address):
        sentence = "no server can have this address"
        yield Sentence("export-address-reserved", head + sentence)
    elif address is not None and address.version == 6 and address.is_link_local:
        yield Sentence(
            "export-address-link-local",
            f"{head}a link-local address needs a zone, which the engine does not "
            "accept",
        )
    if len(text) > LONGEST_EXPORT:
        yield Sentence(
            "export-too-long",
            f"the export has {len(text)} characters; the engine stores at most "
            f"{LONGEST_EXPORT}",
        )


def _server(export: Export) -> Iterator[Sentence]:
    """Refuse a server that does not match the engine's pattern."""
    server = export.server
    wrong = ""
    if ":" in server:
        if "." in server:
            wrong = (
                "no IPv6 address that ends like an IPv4 address: write it in "
                "hexadecimal digits"
            )
    elif "_" in server:
        wrong = "no server name with '_'"
    elif server.endswith("."):
        wrong = "no server name that ends in '.'"
    elif server.isascii() and not _SERVER.fullmatch(server):
        wrong = (
            f"no server name like {server!r}: its parts have letters and digits, '-' "
            "only inside, and the last of several parts has at least two characters "
            "and no '-'"
        )
    if wrong:
        sentence = f"export {str(export)!r}: the engine accepts {wrong}"
        yield Sentence("export-server-refused", sentence)


def _path(export: Export) -> Iterator[Sentence]:
    """Refuse a path that does not match the engine's pattern."""
    path = export.path
    if _PATH.fullmatch(path):
        return
    last = re.split(r"[/\\]", path)[-1]
    if last.startswith("."):
        wrong = "whose last part begins with '.'"
    elif not last:
        wrong = "that ends in '\\'"
    else:
        wrong = "whose last part has '|' or '^'"
    sentence = f"export {str(export)!r}: the engine accepts no path {wrong}"
    yield Sentence("export-path-refused", sentence)
