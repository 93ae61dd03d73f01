# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of a host's nics are meant: by name, by port GUID or by PCI address. Pure.

A GUID needs no facts from the host: the last 8 of an IPoIB address's 20 bytes are its
port's (RFC 4391, 9.1.1).
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.policy_glob import glob_mistake
from ovirt_rdma.host.problem import UsageProblem

_GUID = re.compile(
    r"(?:0x)?([0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3}|[0-9a-f]{2}(?::[0-9a-f]{2}){7})"
)
_PCI = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_GUID_DIGITS = 16
_IPOIB_DIGITS = 40


@dataclass(frozen=True)
class NicMatch:
    """``text`` as written: alternatives with commas between them."""

    text: str
    names: tuple[str, ...] = ()
    guids: tuple[str, ...] = ()
    pcis: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> NicMatch:
        """Read ``ib*``, ``0002:c903:00fb:1231``, ``0000:04:00.0``, or several.

        Raises UsageProblem where there is nothing in it, or a glob that cannot be.
        """
        names, guids, pcis = [], [], []
        for word in filter(None, (part.strip() for part in text.split(","))):
            lowered = word.lower()
            guid, pci = _GUID.fullmatch(lowered), _PCI.fullmatch(lowered)
            if guid:
                guids.append(guid.group(1).replace(":", ""))
            elif pci:
                pcis.append(f"{pci.group(1) or '0000'}:{pci.group(2)}")
            elif mistake := glob_mistake(word):
                raise UsageProblem(f"--nic-match: {mistake}")
            else:
                names.append(word)
        if not (names or guids or pcis):
            raise UsageProblem(
                f"--nic-match {text!r} names no nic",
                "give a name or glob (ib*), a port GUID or a PCI address",
            )
        return cls(text, tuple(names), tuple(guids), tuple(pcis))

    def means(self, name: str, mac: Optional[str], pci: Optional[str]) -> bool:
        """Whether a nic is meant; ``mac`` and ``pci`` None: not known."""
        digits = (mac or "").replace(":", "").lower()
        guid = digits[-_GUID_DIGITS:] if len(digits) == _IPOIB_DIGITS else None
        return (
            any(fnmatch.fnmatchcase(name, glob) for glob in self.names)
            or guid in self.guids
            or pci in self.pcis
        )
