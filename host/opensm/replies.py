# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the output of infiniband-diags: sminfo, saquery and smpquery. Pure. All raise
ValueError for a text of another form.

The forms are those of infiniband-diags 44 and rdma-core 65 (infiniband-diags/sminfo.c,
saquery.c and smpquery.c), tried with opensm 3.3.23.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.fabric.model import guid_text
from ovirt_rdma.host.facts.pkeys import partition_bits
from ovirt_rdma.host.system.numbers import whole

# sminfo: sm lid 1 sm guid 0x2c9030000011, activity count 67 priority 0 state 3 ...
_SMINFO = re.compile(
    r"sm lid (\d+) sm guid (0x[0-9a-f]+), activity count \d+ priority (\d+) state (\d+)"
)
# MGID....................ff12:401b:8001::ffff:ffff
_FIELD = re.compile(r"\s*([A-Za-z_][\w ]*?)\.{2,}(.*)")
_TABLE = re.compile(r"\s*\d+:((?: 0x[0-9a-f]{4})+)\s*")

# enum SM states (include/iba/ib_types.h, IB_SMINFO_STATE_*).
STANDBY, MASTER = "standby", "master"
_STATES = {0: "not active", 1: "discovering", 2: STANDBY, 3: MASTER}

# The low 6 bits of MTU and rate; the others say "exactly" (ib_types.h).
_CODE = 0x3F
# The broadcast group of IPoIB, IPv4: ff1S:401b:PKEY::ffff:ffff (RFC 4391, 4).
_BROADCAST = re.compile(r"ff1[0-9a-f]:401b:([0-9a-f]{1,4})::ffff:ffff", re.IGNORECASE)


@dataclass(frozen=True)
class Manager:
    """A subnet manager: where it runs, its priority (0 to 15) and its state."""

    guid: str
    lid: int
    priority: int
    state: str

    @property
    def is_master(self) -> bool:
        """Whether it is the one that configures the fabric."""
        return self.state == MASTER


@dataclass(frozen=True)
class BroadcastGroup:
    """The broadcast group of a partition: its P_Key in 15 bits, MTU and rate codes."""

    pkey: int
    mtu: int
    rate: int


def manager(text: str) -> Manager:
    """Return the manager that ``sminfo`` prints."""
    match = _SMINFO.search(text)
    if match is None:
        raise ValueError("sminfo printed something else")
    return _manager(match[2], match[1], match[3], match[4])


def managers(text: str) -> tuple[Manager, ...]:
    """Return the managers that ``saquery SMIR`` prints."""
    return tuple(
        _manager(one["GUID"], one["LID"], one["Priority"], one["SMState"])
        for one in _records(text, "SMInfoRecord")
        if {"GUID", "LID", "Priority", "SMState"} <= one.keys()
    )


def broadcast_groups(text: str) -> tuple[BroadcastGroup, ...]:
    """Return the broadcast groups that ``saquery -g`` prints."""
    found = []
    for one in _records(text, "MCMemberRecord"):
        match = _BROADCAST.fullmatch(one.get("MGID", ""))
        if match and {"Mtu", "Rate"} <= one.keys():
            mtu, rate = (_number(one[key], 16) & _CODE for key in ("Mtu", "Rate"))
            pkey = partition_bits(_number(match[1], 16))
            found.append(BroadcastGroup(pkey, mtu, rate))
    return tuple(found)


def pkey_table(text: str) -> frozenset[int]:
    """Return the P_Keys that ``smpquery pkeys`` prints, without empty entries."""
    lines = filter(None, map(_TABLE.fullmatch, text.splitlines()))
    found = (_number(one, 16) for line in lines for one in line[1].split())
    return frozenset(found) - {0}


def _manager(guid: str, lid: str, priority: str, state: str) -> Manager:
    known = _STATES.get(_number(state), f"state {state}")
    its_guid = guid_text(_number(guid, 16))
    return Manager(its_guid, _number(lid), _number(priority), known)


def _number(text: str, base: int = 10) -> int:
    number = whole(text, base)
    if number is None:
        raise ValueError(f"{text[:40]!a} is not a number")
    return number


def _records(text: str, name: str) -> Iterator[dict[str, str]]:
    fields: Optional[dict[str, str]] = None
    for line in text.splitlines():
        if line.startswith(name):
            if fields:
                yield fields
            fields = {}
            continue
        match = _FIELD.fullmatch(line)
        if match and fields is not None:
            fields.setdefault(match[1].strip(), match[2].strip())
    if fields:
        yield fields
