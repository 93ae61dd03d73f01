# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the links of a recorded fabric as ibnetdiscover prints them. Pure.

ibsim reads that text as its topology, so that a fabric can be replayed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).parents[2] / "data/fabric/edr-tree.txt"
_EDR, _VENDOR, _SWITCH, _HCA = "4xEDR", 0x2C9, 0xCB20, 0x1017
_SWITCH_PORTS = 36


class End(NamedTuple):
    """One end of a link: the GUID of its node in 16 digits, and the port."""

    node: str
    port: int


class RecordedFabric:
    """``links`` has for both ends of each link the other end and the speed (``4xEDR``).

    ``hosts`` are the GUIDs of the HCAs, by their switch; each has one port, with the
    same GUID, as ConnectX-4 and later have. ``manager`` and ``storage`` are HCAs.
    """

    def __init__(self, table: str) -> None:
        self.links: dict[End, tuple[End, str]] = {}
        self.hosts: dict[str, list[str]] = {}
        named = {}
        for line in table.splitlines():
            kind, *words = line.split()
            if kind == "hosts":
                switch, first, prefix, *rest = words
                for port, suffix in enumerate(rest, int(first)):
                    guid = prefix + suffix
                    self.hosts.setdefault(switch, []).append(guid)
                    self._join(End(switch, port), End(guid, 1), _EDR)
            elif kind == "trunk":
                switch, first, other, start, count, speed = words
                for n in range(int(count)):
                    ends = End(switch, int(first) + n), End(other, int(start) + n)
                    self._join(*ends, speed)
            elif kind != "#":
                named[kind] = words
        (self.manager,), self.storage = named["manager"], named["storage"]
        self.hcas = [guid for guids in self.hosts.values() for guid in guids]
        nodes = dict.fromkeys(end.node for end in self.links)
        self.switches = [guid for guid in nodes if guid not in self.hcas]
        self._lids = {guid: lid for lid, guid in enumerate(nodes, 1)}

    def text(self) -> str:
        """Return what ibnetdiscover prints (infiniband-diags/ibnetdiscover.c)."""
        lines = ["#", f"# Initiated from node {self.manager} port {self.manager}"]
        for guid in [*self.switches, *self.hcas]:
            lines += self._node(guid)
        return "\n".join(lines) + "\n"

    def _node(self, guid: str) -> list[str]:
        short, is_hca = f"{int(guid, 16):x}", guid in self.hcas
        device = _HCA if is_hca else _SWITCH
        lines = ["", f"vendid={_VENDOR:#x}", f"devid={device:#x}"]
        lines.append(f"sysimgguid=0x{short}")
        if is_hca:
            lines += [f"caguid=0x{short}", f'Ca\t1 "H-{guid}"\t\t# "{guid} HCA-1"']
        else:
            about = f'"{guid}" base port 0 lid {self._lids[guid]} lmc 0'
            lines.append(f"switchguid=0x{short}({short})")
            lines.append(f'Switch\t{_SWITCH_PORTS} "S-{guid}"\t\t# {about}')
        for end in sorted(end for end in self.links if end.node == guid):
            (peer, port), speed = self.links[end]
            to = f'"{peer}" lid {self._lids[peer]} {speed}'
            if is_hca:
                to = f"lid {self._lids[guid]} lmc 0 {to}"
                lines.append(f'[1]({short}) \t"S-{peer}"[{port}]\t\t# {to}')
            elif peer in self.hcas:
                at = f'"H-{peer}"[{port}]({int(peer, 16):x}) '
                lines.append(f"[{end.port}]\t{at}\t\t# {to}")
            else:
                lines.append(f'[{end.port}]\t"S-{peer}"[{port}]\t\t# {to}')
        return lines

    def _join(self, one: End, other: End, speed: str) -> None:
        for end, peer in ((one, other), (other, one)):
            assert end not in self.links, f"two links at {end}"
            self.links[end] = (peer, speed)
