# SPDX-License-Identifier: GPL-2.0-or-later
"""Imitate the buffer in which opensm reads lines, where it reads too far. Pure.

For a multicast group without flags, opensm reads flags behind the end of the text: in
the comment of the same line, or in what a longer earlier line has left in the buffer.
There only comments still have flags with values: elsewhere opensm has put an end after
each name (osm_prtn_config.c, mgroup_create and parse_name_token).
"""

from __future__ import annotations

from ovirt_rdma.host.fabric.flags import GROUP_FLAGS

# fgets() into 4096 bytes, of which it uses one less: a longer line is read as two.
LONGEST_LINE = 4094


class LineBuffer:
    """The buffer, with the line that was read last."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        # Where opensm reads on: behind the number sign, or behind the end.
        self._behind = 0

    def fill(self, line: bytes) -> None:
        """Read the next line, which has no newline at its end."""
        content, sign, comment = line.partition(b"#")
        kept = b"\0" * (len(content) + len(sign)) + comment + b"\n\0"
        self._bytes[: len(kept)] = kept
        self._behind = len(content) + 1 if sign else len(kept)

    def stray_flag(self) -> str:
        """Return the first flag that opensm reads behind the line, "" if none."""
        left = bytes(self._bytes[self._behind :]).partition(b"\0")[0]
        for word in left.decode("latin-1").split(","):
            name, equals, _ = word.partition("=")
            # An empty name is the beginning of every name.
            if equals and any(one.startswith(name.strip()) for one in GROUP_FLAGS):
                return word.strip()
        return ""
