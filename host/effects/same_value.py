# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether two texts are one value of a property: the host's own tools write ``on`` and
``yes``, ``0x8001`` and ``32769``, ``auto`` and nothing. Pure.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.effects.targets import makes_child
from ovirt_rdma.host.policy_host import FULL_MEMBER
from ovirt_rdma.host.rules.ipoib_settings import (
    CONNECTION_ID,
    INTERFACE_NAME,
    PARENT,
    UNSET,
)
from ovirt_rdma.host.rules.rule import FILE, PROFILE, Change

_NAMES = (CONNECTION_ID, INTERFACE_NAME, PARENT)
_SWITCHES = {"on": "on", "true": "on", "yes": "on"}
_SWITCHES.update({"off": "off", "false": "off", "no": "off"})


def same_value(change: Change, one: Optional[str], other: Optional[str]) -> bool:
    """Whether ``one`` and ``other`` mean the same for the property of ``change``."""
    return _normal(change, one) == _normal(change, other)


def came_true(change: Change, found: Optional[str]) -> bool:
    """Whether ``found`` is as good as ``change.after``: the same, or a smaller number
    where the change is ``clamped``.
    """
    if same_value(change, change.after, found):
        return True
    wanted, got = _normal(change, change.after), _normal(change, found)
    if not (change.clamped and wanted and got):
        return False
    return wanted.isdecimal() and got.isdecimal() and int(got) < int(wanted)


def _normal(change: Change, value: Optional[str]) -> Optional[str]:
    if value is None:
        return None
    if change.kind == FILE:
        # Facts show bytes that are no text as \x80, a reading keeps them.
        data = value.encode("utf-8", "surrogateescape")
        return data.decode("utf-8", "backslashreplace").rstrip("\n")
    text = value.strip()
    if change.kind == PROFILE:
        return _property(change.name, text)
    if makes_child(change):
        return _child_pkey(text)
    return _word(text) or None


def _property(name: str, text: str) -> Optional[str]:
    if name in _NAMES:
        return None if text in ("", "--") else text
    return None if text.lower() in UNSET else _word(text)


def _child_pkey(text: str) -> str:
    number = _word(text)
    # The kernel sets the bit of full members itself.
    return str(int(number) | FULL_MEMBER) if number.isdecimal() else number


def _word(text: str) -> str:
    """Return a whole number in decimal digits, a switch as on or off, other text in
    small letters.
    """
    text = text.lower()
    try:
        return str(int(text, 16 if text.startswith("0x") else 10))
    except ValueError:
        return _SWITCHES.get(text, text)
