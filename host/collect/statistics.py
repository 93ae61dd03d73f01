# SPDX-License-Identifier: GPL-2.0-or-later
"""Read a sample of what the kernel counts: mounts, connections, ports.

Only files of /proc and /sys are read, no tool is run, and nothing here asks a server:
a server that does not respond delays nothing. Drivers ask their device for some
counters, so a device whose firmware hangs can delay the read of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import chain
from typing import Any, Optional

from ovirt_rdma.host.collect.storage import (
    MOUNTINFO,
    MOUNTSTATS,
    Section,
    parse_mountinfo,
    parse_mountstats,
)
from ovirt_rdma.host.collect.tools import read_each
from ovirt_rdma.host.facts.statistics import (
    COLUMNS,
    MountStatistics,
    OperationStatistics,
    PortCounters,
    Statistics,
    SunrpcTransport,
    Transport,
    option_value,
)
from ovirt_rdma.host.system.text import whole
from ovirt_rdma.host.system.tree import FileTree, read_uptime

_RDMA = "/sys/class/infiniband"
SWITCHES = "/sys/kernel/sunrpc/xprt-switches"

# How many numbers the line of an operation has.
_OPERATION = 9
# Most operations are never used, so most lines end like this.
_UNUSED = [b"0"] * _OPERATION
_BYTES = 8
_OPERATIONS_FOLLOW = b"per-op"
# Unsigned 64 bit numbers.
_DIGITS = 20
_TRANSPORT = re.compile(r"xprt-[0-9]+-(.+)")
# N/A: drivers without a performance management agent (drivers/infiniband/core/sysfs.c,
# show_pma_counter).
_VALUE = re.compile(r"([0-9]{1,20})|N/A.*")
# A setting, how long the kernel keeps the values (drivers/infiniband/core/sysfs.c).
_LIFESPAN = "lifespan"


def read_statistics(
    tree: FileTree, *, ports: bool = True, counters: Optional[Collection[str]] = None
) -> Statistics:
    """Return a sample of the host below ``tree``. Never raises.

    What cannot be read, or disappears meanwhile, is a sentence in ``problems``, and the
    rest is complete. Without ``ports`` no device is asked; ``counters`` are the names
    of those that are read, all if it is None.
    """
    problems: list[str] = []
    mounts, odd = parse_mount_statistics(tree.data(MOUNTSTATS, problems) or b"")
    problems += odd
    if mounts:
        entries, _ = parse_mountinfo(tree.data(MOUNTINFO, problems) or b"")
        options = {place: entry.options for place, entry in entries.items()}
        mounts = tuple(
            one._replace(address=option_value(options.get(one.mountpoint, ""), "addr"))
            for one in mounts
        )
    # Directly after the mounts, whose counters it dates.
    return Statistics(
        taken_s=read_uptime(tree, problems),
        mounts=mounts,
        transports=read_transports(tree, problems),
        ports=read_ports(tree, problems, counters) if ports else (),
        problems=tuple(dict.fromkeys(problems)),
    )


def parse_mount_statistics(
    data: bytes,
) -> tuple[tuple[MountStatistics, ...], list[str]]:
    """Return the NFS mounts in mountstats, in its order, and a sentence if lines are
    torn or have another number of columns than the kernels that we know.
    """
    odd: list[int] = []
    sections = parse_mountstats(data).items()
    mounts = tuple(_counted(place, section, odd) for place, section in sections)
    if not odd:
        return mounts, []
    more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
    sentence = (
        f"{MOUNTSTATS} line {odd[0]}{more} has another form than in the kernels that "
        "we know: what can be read of it counts"
    )
    return mounts, [sentence]


def _counted(mountpoint: str, section: Section, odd: list[int]) -> MountStatistics:
    """Read the lines that nfs_show_stats() and rpc_clnt_show_stats() print
    (fs/nfs/super.c, net/sunrpc/stats.c).
    """
    found: dict[str, Any] = {}
    transports: list[Transport] = []
    operations: dict[str, OperationStatistics] = {}
    options, in_operations = "", False
    for number, (key, *words) in section.lines:
        known = True
        if in_operations:
            known = _operation(key, words, operations)
        elif key == b"xprt:":
            known = _transport_line(words, transports)
        elif key == _OPERATIONS_FOLLOW:
            in_operations = True
        elif key == b"opts:" and words:
            options = words[0].decode("utf-8", "surrogateescape")
        elif key == b"nfsv4:":
            # bm0=0x1,...,pnfs=LAYOUT_FLEX_FILES,lease_time=90 (show_pnfs)
            text = b" ".join(words).decode("utf-8", "surrogateescape")
            layout = option_value(text, "pnfs")
            found["layout"] = None if layout == "not configured" else layout or None
        elif key == b"age:":
            numbers = _numbers(words)
            known = len(numbers) == 1 == len(words)
            found["age_s"] = numbers[0] if known else None
        elif key == b"bytes:":
            numbers = _numbers(words)
            known = len(numbers) == _BYTES == len(words)
            if known:
                found["server_read"], found["server_written"] = numbers[4:6]
        if not known:
            odd.append(number)
    rsize, wsize, nconnect = (
        whole(option_value(options, name) or "")
        for name in ("rsize", "wsize", "nconnect")
    )
    return MountStatistics(
        mountpoint,
        section.source,
        version=option_value(options, "vers"),
        rsize=rsize,
        wsize=wsize,
        nconnect=nconnect,
        transports=tuple(transports),
        operations=tuple(operations.values()),
        **found,
    )


def _transport_line(words: list[bytes], transports: list[Transport]) -> bool:
    """Add a connection; return whether all of the line is known."""
    if not words:
        return False
    protocol = words[0].decode("utf-8", "surrogateescape")
    columns, numbers = COLUMNS.get(protocol, ()), _numbers(words[1:])
    transports.append(Transport(protocol, dict(zip(columns, numbers))))
    return len(numbers) == len(words) - 1 and len(columns) in (0, len(numbers))


def _operation(
    key: bytes, words: list[bytes], operations: dict[str, OperationStatistics]
) -> bool:
    """Read ``READ: 37 37 0 6068 8393132 1 61 63 0``; return whether all is known."""
    if words == _UNUSED and key.endswith(b":"):
        return True
    name = key.rstrip(b":").decode("utf-8", "surrogateescape")
    numbers = _numbers(words)
    complete = len(words) == len(numbers) >= _OPERATION
    if not key.endswith(b":") or not complete:
        return False
    if any(numbers):
        operations[name] = OperationStatistics(name, *numbers[:_OPERATION])
    return len(numbers) <= _OPERATION


def _numbers(words: list[bytes]) -> list[int]:
    """Return the numbers up to the first word that is none."""
    if b"".join(words).isdigit() and max(map(len, words)) <= _DIGITS:
        return [*map(int, words)]
    numbers = []
    for word in words:
        if not word.isdigit() or len(word) > _DIGITS:
            break
        numbers.append(int(word))
    return numbers


def read_transports(
    tree: FileTree, problems: list[str]
) -> Optional[tuple[SunrpcTransport, ...]]:
    """Return the connections of this network namespace; None if the kernel does not
    show any.

    ``srcaddr`` is never read: it is meaningless with RDMA, and the first kernels that
    have it take an RDMA connection for a socket (rpc_sysfs_xprt_srcaddr_show).
    """
    if not tree.is_folder(SWITCHES):
        return None

    def read(name: str, failures: list[str]) -> Optional[SunrpcTransport]:
        match = _TRANSPORT.fullmatch(name.partition("/")[2])
        folder = f"{SWITCHES}/{name}"
        return _transport(tree, folder, match[1], failures) if match else None

    names = [
        f"{switch}/{name}"
        for switch in tree.names(SWITCHES, problems)
        for name in tree.names(f"{SWITCHES}/{switch}")
    ]
    return tuple(read_each(tree, SWITCHES, names, problems, read))


def _transport(
    tree: FileTree, folder: str, protocol: str, problems: list[str]
) -> Optional[SunrpcTransport]:
    # Without the NUL that sysfs.c counts as part of the text.
    state, destination, info = (
        (tree.text(f"{folder}/{name}", failures) or "").replace("\0", "").strip()
        # Older kernels refuse the read of xprt_info while it is not connected
        # (ENOTCONN), later ones show `<closed>`.
        for name, failures in (
            ("xprt_state", problems),
            ("dstaddr", problems),
            ("xprt_info", None),
        )
    )
    switch, name = folder.split("/")[-2:]
    return SunrpcTransport(
        switch,
        name,
        protocol,
        destination=None if destination.startswith("<") else destination or None,
        state=tuple(state.partition("=")[2].split()),
        # net/sunrpc/sysfs.c, rpc_sysfs_xprt_info_show
        counters={
            key: number
            for key, _, text in (line.partition("=") for line in info.split("\n"))
            if (number := whole(text)) is not None
        },
    )


def read_ports(
    tree: FileTree, problems: list[str], wanted: Optional[Collection[str]] = None
) -> tuple[PortCounters, ...]:
    """Return the counters of all ports, and of devices that have some as a whole; only
    those with names in ``wanted``, unless it is None.
    """

    def read(device: str, failures: list[str]) -> list[PortCounters]:
        folder = f"{_RDMA}/{device}"
        of_all = _counters(tree, f"{folder}/hw_counters", failures, wanted)
        counted = [PortCounters(device, 0, of_all)] if of_all else []
        names = (name for name in tree.names(f"{folder}/ports") if name.isdecimal())
        for port in sorted(names, key=int):
            counters: dict[str, Optional[int]] = {}
            # Of a name in both folders, the one of hw_counters is the driver's own.
            for kind in ("counters", "hw_counters"):
                place = f"{folder}/ports/{port}/{kind}"
                counters |= _counters(tree, place, failures, wanted)
            counted.append(PortCounters(device, int(port), counters))
        return counted

    names = tree.names(_RDMA)
    return tuple(chain(*read_each(tree, _RDMA, names, problems, read)))


def _counters(
    tree: FileTree,
    folder: str,
    problems: list[str],
    wanted: Optional[Collection[str]],
) -> dict[str, Optional[int]]:
    """Return the counters of a folder by name, with one sentence about all that have no
    value: a virtual function may refuse every one of them.
    """
    counters: dict[str, Optional[int]] = {}
    reasons: list[str] = []
    for name in tree.names(folder):
        if name == _LIFESPAN or (wanted is not None and name not in wanted):
            continue
        found = tree.match(f"{folder}/{name}", _VALUE, "a number", reasons)
        counters[name] = int(found[1]) if found and found[1] else None
    if reasons:
        others = len(reasons) - 1
        left_out = f"it and {others} more there are" if others else "it is"
        problems.append(f"{reasons[0]}; {left_out} left out")
    return counters
