# SPDX-License-Identifier: GPL-2.0-or-later
"""VDSM-01: a VDSM that sees IPoIB netdevs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.rules.absence import HOST
from ovirt_rdma.host.rules.rule import FAIL, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.view import View

ID = "VDSM-01"
# VDSM commit 5c5a1c47e: link kind "ipoib" counts as a NIC.
FIRST = (4, 50, 1, 1)
_FIRST_TEXT = ".".join(map(str, FIRST))
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6})*)", re.ASCII)


def decide(view: View) -> Iterator[Finding]:
    """Give one finding for the host."""
    if not view.ipoib:
        yield Finding(ID, HOST, SKIP, "no IPoIB netdev, so any VDSM will do")
        return
    text = view.facts.software.vdsm_version
    version = parsed(text)
    if version is None:
        sentence = "VDSM's version is not known"
        if text:
            sentence = f"VDSM's version {text!a} is not one that can be compared"
        yield Finding(ID, HOST, SKIP, sentence, f"rpm -q vdsm; {_FIRST_TEXT} is needed")
    elif version >= FIRST:
        yield Finding(ID, HOST, PASS, f"VDSM {text} shows IPoIB netdevs as NICs")
    else:
        names = ", ".join(one.name for one in view.ipoib)
        used = any(one.wanted for one in view.ipoib)
        yield Finding(
            ID,
            HOST,
            FAIL if used else WARN,
            f"VDSM {text} does not show {names} to the engine",
            f"update VDSM to {_FIRST_TEXT} or later",
        )


def parsed(text: Optional[str]) -> Optional[tuple[int, ...]]:
    """Return a version as numbers, what follows them left out; None: no version."""
    match = _VERSION.match(text or "")
    return tuple(int(n) for n in match.group(1).split(".")) if match else None


RULE = Rule(
    id=ID,
    title="VDSM that knows IPoIB",
    what=f"With IPoIB netdevs, VDSM should be {_FIRST_TEXT} or later.",
    why=(
        "Kernels since the end of 2020, EL9's too, give IPoIB netdevs the link kind "
        "ipoib. Older VDSM knows no such kind and leaves them out of what it reports, "
        "so the engine shows no ib0 to attach a network to."
    ),
    fix="Update VDSM on the host, through the engine.",
    sources=("VDSM lib/vdsm/network/ipwrapper.py, commit 5c5a1c47e (v4.50.1.1)",),
    decide=decide,
)

RULES = (RULE,)
