# SPDX-License-Identifier: GPL-2.0-or-later
"""Read a sample of what the kernel counts: mounts, connections, ports.

Only files of /proc and /sys are read, no tool is run, and nothing here asks a server:
a server that does not respond delays nothing. Drivers ask their device for some
counters, so a device whose firmware hangs can delay the read of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Optional

from ovirt_rdma.host.collect.storage import (
    MOUNTINFO,
    MOUNTSTATS,
    Section,
    number_in,
    parse_mountinfo,
    parse_mountstats,
    visible,
)
from ovirt_rdma.host.facts.statistics import (
    COLUMNS,
    Counter,
    MountBytes,
    MountStatistics,
    OperationStatistics,
    PortCounters,
    Statistics,
    SunrpcTransport,
    Transport,
    option_value,
)
from ovirt_rdma.host.system.tree import FileTree

_UPTIME = "/proc/uptime"
_RDMA = "/sys/class/infiniband"
SWITCHES = "/sys/kernel/sunrpc/xprt-switches"

# A file with more wrong lines than this is not mountstats; one sentence says the rest.
_MOST_SENTENCES = 20
# Operation lines have eight numbers, and nine with `errors`.
_OLD_OPERATION, _OPERATION = 8, 9
# Most operations are never used, so most lines end like this.
_UNUSED = [b"0"] * _OPERATION
_BYTES = 8
_OPERATIONS_FOLLOW = b"per-op"
# Unsigned 64 bit numbers.
_DIGITS = 20
_NUMBER = re.compile(r"[0-9]{1,20}")
_SECONDS = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\b.*", re.DOTALL)
_TRANSPORT = re.compile(r"xprt-[0-9]+-(.+)")
# What drivers without a performance management agent say
# (drivers/infiniband/core/sysfs.c, show_pma_counter).
_NO_PMA = "N/A"
# A setting, how long the kernel keeps the values (drivers/infiniband/core/sysfs.c).
_LIFESPAN = "lifespan"
# The names in xprt_info (net/sunrpc/sysfs.c, rpc_sysfs_xprt_info_show).
_INFO = {
    "max_num_slots": "slots_max",
    "min_num_slots": "slots_min",
    "num_reqs": "requests",
    "sending_q_len": "sending",
    "pending_q_len": "pending",
    "backlog_q_len": "backlog",
}


def read_statistics(
    tree: FileTree, *, ports: bool = True, counters: Optional[Collection[str]] = None
) -> Statistics:
    """Return a sample of the host below ``tree``. Never raises.

    What cannot be read, or disappears meanwhile, is a sentence in ``problems``, and the
    rest is complete. Without ``ports`` no device is asked; ``counters`` are the names
    of those that are read, all if it is None.
    """
    problems: list[str] = []
    mounts = _mounts(tree, problems)
    # Directly after the mounts, whose counters it dates.
    taken_s = _uptime(tree, problems)
    return Statistics(
        taken_s=taken_s,
        mounts=mounts,
        transports=read_transports(tree, problems),
        ports=read_ports(tree, problems, counters) if ports else (),
        problems=tuple(dict.fromkeys(problems)),
    )


def _uptime(tree: FileTree, problems: list[str]) -> float:
    match = _SECONDS.fullmatch(tree.text(_UPTIME, problems) or "")
    return float(match[1]) if match else 0.0


def _mounts(tree: FileTree, problems: list[str]) -> tuple[MountStatistics, ...]:
    mounts, odd = parse_mount_statistics(tree.data(MOUNTSTATS, problems) or b"")
    problems += odd
    if not mounts:
        return ()
    entries, _ = parse_mountinfo(tree.data(MOUNTINFO, problems) or b"")
    addresses = {
        entry.mountpoint: option_value(entry.options, "addr")
        for entry in visible(entries)
    }
    return tuple(
        mount._replace(address=addresses.get(mount.mountpoint)) for mount in mounts
    )


def parse_mount_statistics(
    data: bytes,
) -> tuple[tuple[MountStatistics, ...], list[str]]:
    """Return the NFS mounts in mountstats, in its order, and a sentence for each line
    that is torn or has another number of columns than the kernels that we know.
    """
    odd: list[str] = []
    mounts = tuple(_counted(one, odd) for one in parse_mountstats(data).values())
    more = len(odd) - _MOST_SENTENCES
    if more > 0:
        odd[_MOST_SENTENCES:] = [f"{MOUNTSTATS} has {more} more lines of that kind"]
    return mounts, odd


def _counted(section: Section, odd: list[str]) -> MountStatistics:
    """Read the lines that nfs_show_stats() and rpc_clnt_show_stats() print
    (fs/nfs/super.c, net/sunrpc/stats.c).
    """
    mount = section.mount
    found: dict[str, Any] = {}
    transports: list[Transport] = []
    operations: dict[str, OperationStatistics] = {}
    in_operations = False
    for number, words in section.lines:
        key, wrong = words[0], ""
        if in_operations:
            wrong = _operation(words, operations)
        elif key == b"xprt:":
            wrong = _transport_line(words[1:], transports)
        elif key == _OPERATIONS_FOLLOW:
            in_operations = True
        elif key == b"opts:" and len(words) > 1:
            found["options"] = words[1].decode("utf-8", "surrogateescape")
        elif key == b"nfsv4:":
            found["layout"] = _layout(b" ".join(words[1:]))
        elif key in {b"age:", b"bytes:"}:
            wrong = _numbers_line(key, words[1:], found)
        if wrong:
            odd.append(f"{MOUNTSTATS} line {number} {wrong}")
    options = found.get("options", "")
    return MountStatistics(
        mount.mountpoint,
        mount.source,
        mount.fstype,
        version=option_value(options, "vers"),
        rsize=number_in(option_value(options, "rsize")),
        wsize=number_in(option_value(options, "wsize")),
        nconnect=number_in(option_value(options, "nconnect")),
        transports=tuple(transports),
        operations=tuple(operations.values()),
        **found,
    )


def _numbers_line(key: bytes, words: list[bytes], found: dict[str, Any]) -> str:
    """Read an age or the bytes; return what is wrong with the line, or nothing."""
    numbers = _numbers(words)
    if key == b"age:" and len(numbers) == 1:
        found["age_s"] = numbers[0]
    elif key == b"bytes:" and len(numbers) == _BYTES == len(words):
        found["bytes"] = MountBytes(*numbers[4:6])
    elif key == b"age:":
        return "has an age that is not a number: ignored"
    else:
        return f"has not the {_BYTES} numbers of bytes: ignored"
    return ""


def _transport_line(words: list[bytes], transports: list[Transport]) -> str:
    """Add a connection; return what is wrong with the line, or nothing."""
    if not words:
        return "names no transport: skipped"
    protocol = words[0].decode("utf-8", "surrogateescape")
    columns = COLUMNS.get(protocol, ())
    numbers = _numbers(words[1:])
    transports.append(Transport(protocol, tuple(zip(columns, numbers))))
    if len(numbers) != len(words) - 1:
        return (
            f"has a counter of {protocol} that is not a number: it and the "
            "following ones are ignored"
        )
    if columns and len(numbers) != len(columns):
        return (
            f"has {len(numbers)} counters of {protocol}, not {len(columns)}: this "
            "kernel counts otherwise; the first ones are used"
        )
    return ""


def _operation(words: list[bytes], operations: dict[str, OperationStatistics]) -> str:
    """Read ``READ: 37 37 0 6068 8393132 1 61 63 0``."""
    if words[1:] == _UNUSED and words[0].endswith(b":"):
        return ""
    name = words[0].rstrip(b":").decode("utf-8", "surrogateescape")
    numbers = _numbers(words[1:])
    if (
        not words[0].endswith(b":")
        or len(numbers) != len(words) - 1
        or len(numbers) < _OLD_OPERATION
    ):
        return "is not the line of an operation: skipped"
    if any(numbers):
        operations[name] = OperationStatistics(name, *numbers[:_OPERATION])
    if len(numbers) > _OPERATION:
        return f"has {len(numbers)} numbers, not {_OPERATION}: the rest is ignored"
    return ""


def _layout(text: bytes) -> Optional[str]:
    """Return the layout in ``bm0=0x1,...,pnfs=LAYOUT_FLEX_FILES,lease_time=90``; None
    for ``not configured``, which show_pnfs() prints without one.
    """
    name = option_value(text.decode("utf-8", "surrogateescape"), "pnfs")
    return None if name == "not configured" else name or None


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
    found = []
    for switch in tree.names(SWITCHES, problems):
        for name in tree.names(f"{SWITCHES}/{switch}"):
            match = _TRANSPORT.fullmatch(name)
            if not match:
                continue
            folder = f"{SWITCHES}/{switch}/{name}"
            failures: list[str] = []
            transport = _transport(tree, folder, match[1], failures)
            if failures and not tree.is_folder(folder):
                failures = [f"{folder} disappeared during the read"]
                transport = None
            problems += failures
            if transport:
                found.append(transport)
    return tuple(found)


def _transport(
    tree: FileTree, folder: str, protocol: str, problems: list[str]
) -> Optional[SunrpcTransport]:
    switch, name = folder.split("/")[-2:]
    state = _clean(tree.text(f"{folder}/xprt_state", problems))
    words = tuple(state.partition("=")[2].split())
    destination = _clean(tree.text(f"{folder}/dstaddr", problems))
    transport = SunrpcTransport(
        switch,
        name,
        protocol,
        destination=destination if _is_value(destination) else None,
        state=words,
    )
    # Older kernels refuse the read while it is not connected (ENOTCONN), later ones
    # show `<closed>`; it may be closed between two reads.
    info = _clean(tree.text(f"{folder}/xprt_info"))
    values: dict[str, str] = {}
    for line in info.split("\n"):
        key, _, value = line.partition("=")
        values[key] = value.strip()
    known: dict[str, Any] = {
        field: int(values[key])
        for key, field in _INFO.items()
        if _NUMBER.fullmatch(values.get(key, ""))
    }
    return transport._replace(**known)


def _clean(text: Optional[str]) -> str:
    """Return the text without the NUL that sysfs.c counts as part of it."""
    return (text or "").replace("\0", "").strip()


def _is_value(text: str) -> bool:
    return bool(text) and not text.startswith("<")


def read_ports(
    tree: FileTree, problems: list[str], wanted: Optional[Collection[str]] = None
) -> tuple[PortCounters, ...]:
    """Return the counters of all ports, and of devices that have some as a whole; only
    those with names in ``wanted``, unless it is None.
    """
    found = []
    for device in tree.names(_RDMA):
        folder = f"{_RDMA}/{device}"
        failures: list[str] = []
        whole = _counters(tree, f"{folder}/hw_counters", failures, wanted)
        counted = [PortCounters(device, 0, hardware=whole)] if whole else []
        names = (name for name in tree.names(f"{folder}/ports") if name.isdecimal())
        for port in sorted(names, key=int):
            place = f"{folder}/ports/{port}"
            counted.append(
                PortCounters(
                    device,
                    int(port),
                    _counters(tree, f"{place}/counters", failures, wanted),
                    _counters(tree, f"{place}/hw_counters", failures, wanted),
                )
            )
        if failures and not tree.is_folder(folder):
            problems.append(f"RDMA device {device} disappeared during the read")
            continue
        problems += failures
        found += counted
    return tuple(found)


def _counters(
    tree: FileTree,
    folder: str,
    problems: list[str],
    wanted: Optional[Collection[str]],
) -> tuple[Counter, ...]:
    """Return the counters of a folder by name, with one sentence about all that have no
    value: a virtual function may refuse every one of them.
    """
    counters, silent = [], []
    reasons: list[str] = []
    for name in tree.names(folder):
        if name == _LIFESPAN or (wanted is not None and name not in wanted):
            continue
        text = tree.text(f"{folder}/{name}", reasons)
        value = int(text) if text and _NUMBER.fullmatch(text) else None
        if value is None and not (text or "").startswith(_NO_PMA):
            silent.append(name)
            if text:
                reasons.append(f"{folder}/{name} reads {text!a}, not a number")
        counters.append(Counter(name, value))
    if silent:
        others = len(silent) - 1
        left_out = f"it and {others} more there are" if others else "it is"
        problems.append(f"{reasons[0]}; {left_out} left out")
    return tuple(counters)
