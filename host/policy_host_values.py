# SPDX-License-Identifier: GPL-2.0-or-later
"""PCI addresses, GUIDs and P_Keys as an admin may write them, in the form of the facts.

Pure. Each function raises ValueError with a sentence where the text is none.
"""

from __future__ import annotations

import re

from ovirt_rdma.host.policy_host import FULL_MEMBER, partition

_PCI = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7])", re.ASCII
)
_PCI_WITHOUT_FUNCTION = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]")
_GUID_NUMBER = re.compile(r"0x[0-9a-f]{1,16}|[0-9a-f]{16}")
_GUID_GROUPS = re.compile(r"([0-9a-f]{4}:){3}[0-9a-f]{4}|([0-9a-f]{2}:){7}[0-9a-f]{2}")
_IPOIB_ADDRESS = re.compile(r"([0-9a-f]{2}:){19}[0-9a-f]{2}")
_GID = re.compile(r"([0-9a-f]{4}:){7}[0-9a-f]{4}")
_PKEY = re.compile(r"0x[0-9a-f]{1,4}")
_PKEY_DIGITS = re.compile(r"[0-9a-f]{1,4}")
_PKEYS_ALLOWED = "allowed: 0x0001 to 0xffff, but not 0x8000"

_DEFAULT_PKEY = 0xFFFF


def pci_address(text: str) -> str:
    """Return a PCI address as ``0000:04:00.0``; ``04:00.0`` is in domain 0000, and so
    is ``00000000:04:00.0``, the form of some tools.
    """
    found = _PCI.fullmatch(text.lower())
    if found:
        domain, bus, device, function = found.groups()
        return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}"
    sentence = f"{text!r} is not a PCI address; allowed: 0000:04:00.0 or 04:00.0"
    if _PCI_WITHOUT_FUNCTION.fullmatch(text.lower()):
        sentence = f"{text!r} lacks the function; write {text}.0 for the first"
    raise ValueError(sentence)


def port_guid(text: str) -> str:
    """Return a GUID as ``0002:c903:00fb:1231``.

    Taken are groups of four or of two hex digits, 16 hex digits, and numbers with 0x.
    """
    plain = text.lower()
    if _GUID_NUMBER.fullmatch(plain) or _GUID_GROUPS.fullmatch(plain):
        digits = plain.removeprefix("0x").replace(":", "").zfill(16)
        return _in_groups(digits)
    sentence = (
        f"{text!r} is not a GUID; allowed: 0002:c903:00fb:1231, 0x0002c90300fb1231"
    )
    # Both end with the GUID of the port (RFC 4391 section 9.1.1).
    for form, kind in ((_IPOIB_ADDRESS, "an IPoIB address"), (_GID, "a GID")):
        if form.fullmatch(plain):
            guid = _in_groups(plain.replace(":", "")[-16:])
            sentence = f"{text!r} is {kind}; write the GUID at its end: {guid}"
    raise ValueError(sentence)


def pkey(text: str) -> str:
    """Return a P_Key as ``0x8001``. Only hex with 0x is taken: 8001 could be either."""
    plain = text.lower()
    if _PKEY.fullmatch(plain):
        value = f"0x{int(plain, 16):04x}"
        if partition(value) == 0:
            raise ValueError(f"{text} is no partition; {_PKEYS_ALLOWED}")
        return value
    sentence = f"{text!r} is not a P_Key; {_PKEYS_ALLOWED}"
    if _PKEY_DIGITS.fullmatch(plain):
        sentence = f"{text!r} is not a P_Key; write 0x{plain} if it is hex"
    raise ValueError(sentence)


def child_pkey(text: str) -> str:
    """Return the P_Key of a child that is made with ``text``: a full member's.

    The kernel sets bit 15 itself (drivers/infiniband/ulp/ipoib/ipoib_main.c,
    create_child).
    """
    full = int(pkey(text), 16) | FULL_MEMBER
    if full == _DEFAULT_PKEY:
        raise ValueError(
            f"{text} is the default partition, which needs no child: "
            "it is the base netdev's"
        )
    return f"0x{full:04x}"


def _in_groups(digits: str) -> str:
    return ":".join(digits[start : start + 4] for start in range(0, 16, 4))
