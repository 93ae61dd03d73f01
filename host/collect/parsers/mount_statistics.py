# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse all statistics in mountstats: transports by column, operations, bytes. Pure.

``mounts`` parses the protocols and ages only, which is what vdsmd needs at a mount. A
section is what nfs_show_stats() and rpc_clnt_show_stats() print (fs/nfs/super.c,
net/sunrpc/stats.c).
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.collect.parsers.mount_table import (
    MOUNTSTATS,
    NFS_TYPES,
    normalised_source,
    unescape,
)
from ovirt_rdma.host.facts.statistics import (
    COLUMNS,
    MountBytes,
    MountStatistics,
    OperationStatistics,
    Transport,
    option_value,
)

# The counters are unsigned 64 bit numbers: 20 digits at most.
_DIGITS = 20
# A file with more wrong lines than this is not mountstats; one sentence says the rest.
_MOST_SENTENCES = 20
# Operation lines have eight numbers, and nine with `errors`.
_OLD_OPERATION, _OPERATION = 8, 9
# Most operations are never used, so most lines end like this.
_UNUSED = [b"0"] * _OPERATION
_BYTES = 8
_OPERATIONS_FOLLOW = b"per-op"
_DEVICE = (b"device ", b"no device ")


def parse_mount_statistics(
    data: bytes,
) -> tuple[tuple[MountStatistics, ...], list[str]]:
    """Return the NFS mounts in mountstats, in its order, and a sentence for each line
    that is torn or has another number of columns than the kernels that we know.

    Any bytes are accepted. Of mounts stacked on one mount point the last one counts.
    """
    sections: dict[str, _Section] = {}
    odd: list[str] = []
    section: Optional[_Section] = None
    # Not splitlines(): names may have a carriage return or a form feed.
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.startswith(_DEVICE):
            section = None
            header = _header(line.split(b" "))
            if header is None:
                continue
            sections.pop(header.mountpoint, None)
            if header.fstype in NFS_TYPES:
                section = sections[header.mountpoint] = _Section(header)
        elif section is not None:
            sentence = section.take(line)
            if sentence:
                odd.append(f"{MOUNTSTATS} line {number} {sentence}")
    more = len(odd) - _MOST_SENTENCES
    if more > 0:
        odd[_MOST_SENTENCES:] = [f"{MOUNTSTATS} has {more} more lines of that kind"]
    return tuple(section.done() for section in sections.values()), odd


def _header(words: list[bytes]) -> Optional[MountStatistics]:
    """Read ``device SOURCE mounted on PATH with fstype TYPE [statvers=1.1]``."""
    if words[2:4] != [b"mounted", b"on"] or words[5:7] != [b"with", b"fstype"]:
        return None
    if len(words) == 7:
        return None
    return MountStatistics(
        mountpoint=unescape(words[4]),
        source=normalised_source(unescape(words[1])),
        fstype=unescape(words[7]),
    )


class _Section:
    """What was read of one mount so far."""

    def __init__(self, mount: MountStatistics) -> None:
        self.mount = mount
        self.transports: list[Transport] = []
        self.operations: dict[str, OperationStatistics] = {}
        self.in_operations = False

    def take(self, line: bytes) -> str:
        """Read a line; return what is wrong with it, or nothing."""
        words = line.split()
        if not words:
            return ""
        if self.in_operations:
            return self._operation(words)
        key = words[0]
        if key == b"xprt:":
            return self._transport(words[1:])
        if key == _OPERATIONS_FOLLOW:
            self.in_operations = True
        elif key == b"opts:" and len(words) > 1:
            options = words[1].decode("utf-8", "surrogateescape")
            self.mount = self.mount._replace(options=options)
        elif key == b"nfsv4:":
            layout = _layout(b" ".join(words[1:]))
            self.mount = self.mount._replace(layout=layout)
        elif key == b"age:":
            numbers = _numbers(words[1:])
            if len(numbers) != 1:
                return "has an age that is not a number: ignored"
            self.mount = self.mount._replace(age_s=numbers[0])
        elif key == b"bytes:":
            numbers = _numbers(words[1:])
            if len(numbers) != _BYTES or len(words) != 1 + _BYTES:
                return f"has not the {_BYTES} numbers of bytes: ignored"
            self.mount = self.mount._replace(bytes=MountBytes(*numbers))
        return ""

    def _transport(self, words: list[bytes]) -> str:
        if not words:
            return "names no transport: skipped"
        protocol = words[0].decode("utf-8", "surrogateescape")
        columns = COLUMNS.get(protocol, ())
        numbers = _numbers(words[1:])
        self.transports.append(
            Transport(
                protocol,
                tuple(zip(columns, numbers)),
                tuple(numbers[len(columns) :]),
            )
        )
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

    def _operation(self, words: list[bytes]) -> str:
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
            self.operations[name] = OperationStatistics(name, *numbers[:_OPERATION])
        if len(numbers) > _OPERATION:
            return f"has {len(numbers)} numbers, not {_OPERATION}: the rest is ignored"
        return ""

    def done(self) -> MountStatistics:
        options = self.mount.options
        return self.mount._replace(
            version=option_value(options, "vers"),
            rsize=_number(option_value(options, "rsize")),
            wsize=_number(option_value(options, "wsize")),
            nconnect=_number(option_value(options, "nconnect")),
            transports=tuple(self.transports),
            operations=tuple(self.operations.values()),
        )


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


def _number(text: Optional[str]) -> Optional[int]:
    if text is None or not (text.isascii() and text.isdecimal()):
        return None
    return int(text) if len(text) <= _DIGITS else None
