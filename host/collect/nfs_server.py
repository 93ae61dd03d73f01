# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the kernel's NFS server on this host, and what it exports.

The files of /proc/fs/nfsd are in fs/nfsd/nfsctl.c, pool_stats in net/sunrpc/svc_xprt.c,
those of /proc/sys/sunrpc/svc_rdma in net/sunrpc/xprtrdma/svc_rdma.c. The exports are in
/var/lib/nfs/etab, which exportfs writes with all options (nfs-utils,
support/nfs/exports.c, putexportent); with ``rootdir`` in the section ``exports`` of
nfs.conf(5) their folders are below that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.collect.storage import MOUNTINFO, parse_mountinfo
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.model import NfsExport, NfsServer
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.text import whole
from ovirt_rdma.host.system.tree import FileTree, conf_texts

NFSD = "/proc/fs/nfsd"
_ETAB, _EXPORTS, _CONF = "/var/lib/nfs/etab", "/etc/exports", "/etc/nfs.conf"
_SVC_RDMA = "/proc/sys/sunrpc/svc_rdma"
# Each folder costs two programs.
_MOST_EXPORTS = 64


def read_nfs_server(
    tree: FileTree, tools: Tools, problems: list[str], exports: bool
) -> Optional[NfsServer]:
    """Return the NFS server of this host; None if it never ran since boot. Exports,
    which tools look at, are read only with ``exports``.
    """
    if "threads" not in tree.names(NFSD):
        return None
    listeners = tree.data(f"{NFSD}/portlist", problems)
    versions = tree.text(f"{NFSD}/versions", problems)
    queued, woken = pool_statistics(tree.text(f"{NFSD}/pool_stats") or "")
    return NfsServer(
        threads=tree.number(f"{NFSD}/threads", problems),
        listeners=None if listeners is None else port_list(listeners.decode("latin-1")),
        versions=None if versions is None else offered(versions),
        clients=len(tree.names(f"{NFSD}/clients"))
        if tree.is_folder(f"{NFSD}/clients")
        else None,
        queued=queued,
        woken=woken,
        max_requests=tree.number(f"{_SVC_RDMA}/max_requests"),
        max_block_size=tree.number(f"{NFSD}/max_block_size"),
        exports=_exports(tree, tools, problems) if exports else None,
        configured=tuple(
            folder
            for text in _texts(tree, _EXPORTS, ".exports", problems)
            for folder in configured_folders(text)
        ),
    )


def _texts(
    tree: FileTree, file: str, suffix: str, problems: list[str]
) -> Iterator[str]:
    """Yield the texts of a file and of its folder ``FILE.d``."""
    yield _text(tree, file)
    for _, text in conf_texts(tree, (f"{file}.d",), suffix, problems):
        yield text


def _text(tree: FileTree, path: str) -> str:
    return (tree.data(path) or b"").decode("utf-8", "surrogateescape")


def port_list(text: str) -> tuple[str, ...]:
    """Return the listeners of portlist, ``rdma 20049``, each once: there is a line for
    each address family. Any text is accepted.
    """
    lines = (line.split() for line in text.splitlines())
    found = (f"{w[0]} {w[1]}" for w in lines if len(w) == 2 and whole(w[1]) is not None)
    return tuple(dict.fromkeys(found))


def offered(text: str) -> tuple[str, ...]:
    """Return the versions with a plus sign in ``-2 +3 +4 +4.1``. The kernel shows 4.0
    only if it is off (nfsd_print_version_support), and ``-4`` if all of NFS 4 is.
    """
    words = text.split()
    known = ("3", "4.0", "4.1", "4.2")
    implied = "4.0" if "+4" in words and "-4.0" not in words else ""
    return tuple(
        one
        for one in known
        if (f"+{one}" in words or one == implied) and (one == "3" or "-4" not in words)
    )


def pool_statistics(text: str) -> tuple[Optional[int], Optional[int]]:
    """Return the sums of sockets-enqueued and threads-woken over all pools."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    numbers = [[whole(word) for word in row] for row in rows if len(row) >= 4]
    queued, woken = ([row[n] for row in numbers] for n in (2, 3))
    if not numbers or None in queued or None in woken:
        return None, None
    return sum(filter(None, queued)), sum(filter(None, woken))


_ENTRY = re.compile(r"(\S+)\s+(\S*)\(([^()]*)\)")


def export_table(text: str) -> tuple[NfsExport, ...]:
    """Return the exports of etab; lines of another form are left out."""
    entries = (_ENTRY.match(line) for line in text.split("\n"))
    return tuple(
        NfsExport(unescaped(e[1]), unescaped(e[1]), unescaped(e[2]), e[3])
        for e in entries
        if e
    )


def configured_folders(text: str) -> Iterator[str]:
    """Yield the folders in the text of an exports(5) file."""
    for line in text.replace("\\\n", " ").split("\n"):
        found = re.match(r'\s*(?:"([^"]*)"|([^\s#"]\S*))', line)
        folder = unescaped(found[1] or found[2] or "") if found else ""
        if folder.startswith("/"):
            yield folder.rstrip("/") or "/"


def unescaped(text: str) -> str:
    r"""Return a name of these files; ``\040`` is a space."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), text)


def root_folder(text: str) -> str:
    """Return ``rootdir`` of the section ``exports`` in the text of nfs.conf(5)."""
    section, found = "", ""
    for line in text.split("\n"):
        heading = re.match(r"\s*\[\s*(\S+)", line)
        value = re.match(r"\s*rootdir\s*=\s*(/\S*)", line)
        section = heading[1].rstrip("]").lower() if heading else section
        if value and section == "exports":
            found = value[1].rstrip("/")
    return found


def _exports(
    tree: FileTree, tools: Tools, problems: list[str]
) -> Optional[tuple[NfsExport, ...]]:
    if tree.data(_ETAB, problems) is None:
        return None
    confs = [*_texts(tree, _CONF, ".conf", problems)]
    root = next(filter(None, map(root_folder, reversed(confs))), "")
    entries, _ = parse_mountinfo(tree.data(MOUNTINFO, problems) or b"")
    options = {place: one.options for place, one in entries.items()}
    found: list[NfsExport] = []
    for export in export_table(_text(tree, _ETAB)):
        if len(found) == _MOST_EXPORTS:
            problems.append(f"only the first {_MOST_EXPORTS} exports are looked at")
            break
        folder = f"{root}{export.path}"
        found.append(_looked_at(replace(export, folder=folder), options, tools))
    return tuple(found)


def _looked_at(export: NfsExport, options: dict[str, str], tools: Tools) -> NfsExport:
    """Add the folder and its file system. A tool with a time limit looks at them: a
    disk that hangs must not hang this process.
    """
    folder = export.folder
    owner, problem = _numbers(tools, ["stat", "-L", "-c", "%u %g %a", "--", folder])
    space, _ = _numbers(tools, ["stat", "-f", "-c", "%a %b %S %d %c", "--", folder])
    if owner is None or len(owner) != 3:
        return replace(export, problem=problem or None)
    # The mode is in octal digits.
    mode = int(str(owner[2]), 8) if set(str(owner[2])) <= set("01234567") else None
    export = replace(export, uid=owner[0], gid=owner[1], mode=mode)
    below = (p for p in options if f"{folder}/".startswith(f"{p.rstrip('/')}/"))
    place = max(below, key=len, default=None)
    if place is not None:
        export = replace(export, read_only=options[place].split(",")[0] == "ro")
    if space is not None and len(space) == 5:
        free, blocks, size, files, all_files = space
        export = replace(
            export,
            free=free * size,
            size=blocks * size,
            # File systems without a limit, such as btrfs, have no files in all.
            free_files=files if all_files else None,
        )
    return export


def _numbers(tools: Tools, argv: list[str]) -> tuple[Optional[list[int]], str]:
    if tools.run is None:
        return None, ""
    try:
        found = [whole(word) for word in tools.run(argv).split()]
    except CommandFailed as error:
        return None, str(error)
    numbers = [number for number in found if number is not None]
    return (numbers if len(numbers) == len(found) else None), ""
