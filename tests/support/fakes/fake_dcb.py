# SPDX-License-Identifier: GPL-2.0-or-later
"""The data center bridging of an mlx5 port, as its driver does it.

Lines are those of Linux 6.1.192, drivers/net/ethernet/mellanox/mlx5/core: en_dcbnl.c,
and en/port_buffer.c. What dcb (iproute2 6.1) prints and accepts is that of dcb/dcb_*.c.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ovirt_rdma.host.system.commands import CommandFailed

# dcb/dcb.c
_ANSWER = "Attribute write: {}"
# A cell of a buffer; the largest total of some adapter.
CELL, TOTAL = 128, 262016
# What a lossless buffer needs at least: calculate_xoff with 7 m of cable at 100 Gbit/s
# and MTU 9000, and the largest MTU and a cell more (update_xoff_threshold).
_LOSSLESS = (301 + 216 * 7 // 100) * 100000 // 1000 + 272 * 9000 // 100 + 9216 + CELL


class Mlx5Dcb:
    """``flaps`` counts how often the link went down and up again. ``refused`` is the
    kernel's message for all that is set, if it refuses it.
    """

    def __init__(
        self, pfc: Sequence[int] = (), entries: Mapping[int, int] | None = None
    ) -> None:
        self.pfc = set(pfc)
        self.entries = dict(entries or {})
        # The firmware's map, which nobody sees without entries.
        self.dscp2prio = [dscp >> 3 for dscp in range(64)]
        for dscp, priority in self.entries.items():
            self.dscp2prio[dscp] = priority
        self.buffer_of = [0] * 8
        self.sizes = [TOTAL] + [0] * 7
        self.manual = False
        self.flaps = 0
        self.refused = ""

    @property
    def trust(self) -> str:
        """``dscp`` while there are entries (485, 553)."""
        return "dscp" if self.entries else "pcp"

    def shown(self, what: str) -> str:
        """Return what ``dcb -j WHAT show`` prints."""
        if what == "pfc":
            table = {"pfc_cap": 8, "macsec_bypass": False, "delay": 7}
            return json.dumps({**table, "prio_pfc": [p in self.pfc for p in range(8)]})
        if what == "buffer":
            return json.dumps(
                {
                    "prio_buffer": self.buffer_of,
                    "buffer_size": self.sizes,
                    "total_size": TOTAL,
                }
            )
        entries = sorted(self.entries.items())
        rows = [[dscp, prio] for dscp, prio in entries]
        return json.dumps({"dscp_prio": rows} if rows else {})

    def command(self, words: Sequence[str]) -> None:
        """Do what ``dcb WORDS`` does: ``pfc set dev NETDEV ...``."""
        if self.refused:
            raise CommandFailed(_ANSWER.format(self.refused), 1)
        what, verb, dev, _, *values = words
        assert dev == "dev"
        if (what, verb) == ("pfc", "set"):
            self._set_pfc(values)
        elif (what, verb) == ("buffer", "set"):
            self._set_buffers(values)
        else:
            assert what == "app"
            assert verb in ("add", "del")
            self._app(verb, values)

    def _set_pfc(self, values: Sequence[str]) -> None:
        assert values[0] == "prio-pfc"
        wanted = set(self.pfc)
        for value in values[1:]:
            key, _, on = value.partition(":")
            of = set(range(8)) if key == "all" else {int(key)}
            wanted = wanted | of if on == "on" else wanted - of
        if wanted != self.pfc:  # 390
            self.pfc = wanted
            self.flaps += 1  # 394
            if self.manual:
                self._check_sizes(self.sizes, self.buffer_of)

    def _app(self, verb: str, values: Sequence[str]) -> None:
        assert values[0] == "dscp-prio"
        for value in values[1:]:
            dscp, priority = map(int, value.split(":"))
            if verb == "add":  # 464-517: it replaces the earlier one itself
                self.dscp2prio[dscp] = self.entries[dscp] = priority
                continue
            if self.dscp2prio[dscp] != priority or dscp not in self.entries:  # 537
                raise CommandFailed(_ANSWER.format("No such file or directory"), 1)
            del self.entries[dscp]
            self.dscp2prio[dscp] = 0  # 546

    def _set_buffers(self, values: Sequence[str]) -> None:
        of, sizes, table = list(self.buffer_of), list(self.sizes), None
        for value in values:
            if value in ("prio-buffer", "buffer-size"):
                table = of if value == "prio-buffer" else sizes
                continue
            assert table is not None
            key, _, number = value.partition(":")
            table[int(key)] = int(number)
        # port_buffer.c, mlx5e_port_manual_buffer_config: the map first.
        if of != self.buffer_of:
            if self._lossless(of) != self._lossless(self.buffer_of):
                self._check_sizes(self.sizes, of)
            self.buffer_of = of
        if sizes != self.sizes:
            if sum(sizes) > TOTAL or not all(sizes[n] for n in self._lossless(of)):
                raise CommandFailed(_ANSWER.format("Invalid argument"), 1)
            self._check_sizes(sizes, of)
            self.sizes = [size // CELL * CELL for size in sizes]
        self.manual = True  # 1023

    def _lossless(self, of: Sequence[int]) -> set[int]:
        return {of[priority] for priority in self.pfc}

    def _check_sizes(self, sizes: Sequence[int], of: Sequence[int]) -> None:
        if any(sizes[number] < _LOSSLESS for number in self._lossless(of)):
            raise CommandFailed(_ANSWER.format("Cannot allocate memory"), 1)
