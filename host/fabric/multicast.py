# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the GIDs of multicast groups. Pure.

RFC 4391 section 4 has the form of IPoIB's: ``ff12:401b:8001::ffff:ffff`` is the IPv4
broadcast group of the partition 0x8001, with scope 2.
"""

from __future__ import annotations

import ipaddress
from typing import Optional

from ovirt_rdma.host.errors import Sentence

# IPoIB's signatures for IPv4 and IPv6; SA_ASSIGNED is the subnet administrator's own.
_IPV4, _IPV6, _SA_ASSIGNED = 0x401B, 0x601B, 0xA01B
_LINK_LOCAL = 2
# osm_prtn_config.c, osm_ipoib_broadcast_mgid.
_BROADCAST = int(ipaddress.IPv6Address("ff12:401b:ffff::ffff:ffff"))


class MgidProblem(ValueError):
    """The text is not the GID of a multicast group; ``sentence`` says why."""

    def __init__(self, id: str, text: str) -> None:
        super().__init__(text)
        self.sentence = Sentence(id, text)


def mgid_of(text: str) -> str:
    """Return a multicast GID in its short form. Raises MgidProblem."""
    try:
        # Not of inet_pton(3), which opensm uses: a zone.
        address = ipaddress.IPv6Address("" if "%" in text else text)
    except ValueError:
        address = None
    if address is None or int(address) >> 120 != 0xFF:
        raise MgidProblem(
            "mgid-invalid",
            f"mgid={text} is not the GID of a multicast group; it begins with ff, such "
            "as ff12:401b::1 (opensm leaves the group out)",
        )
    bits = int(address)
    if not is_ip(str(address)):
        scope, signature = bits >> 112 & 0xF, _signature(bits)
        if bits >> 112 & 0xE0:
            raise MgidProblem(
                "mgid-reserved-flags",
                f"mgid={text} has reserved flags; its second byte is 0x00 to 0x1f",
            )
        if signature == _SA_ASSIGNED and scope == _LINK_LOCAL:
            raise MgidProblem(
                "mgid-reserved",
                f"mgid={text} is one that the subnet manager gives out itself",
            )
    return str(address)


def _signature(bits: int) -> int:
    return bits >> 96 & 0xFFFF


def is_ip(mgid: str) -> bool:
    """Whether it is a group of IPoIB."""
    return _signature(int(ipaddress.IPv6Address(mgid))) in (_IPV4, _IPV6)


def scope_of(mgid: str) -> int:
    """Return the scope in a multicast GID."""
    return int(ipaddress.IPv6Address(mgid)) >> 112 & 0xF


def pkey_in(mgid: str) -> Optional[int]:
    """Return the P_Key in the GID of a group of IPoIB; None if any partition may use
    the GID: opensm then puts the partition's own there.
    """
    bits = int(ipaddress.IPv6Address(mgid))
    return None if bits == _BROADCAST else bits >> 80 & 0xFFFF or None
