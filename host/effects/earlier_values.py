# SPDX-License-Identifier: GPL-2.0-or-later
"""The values that a host has before a run: what its undo sets, and whether they are
those that the plan was made for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.effects.act import Act
from ovirt_rdma.host.effects.door import Door
from ovirt_rdma.host.effects.properties import (
    Property,
    adapter_of,
    file_of,
    goes_with,
    is_maker,
    is_volatile,
    makes_profile,
    property_of,
    said,
    shown,
)
from ovirt_rdma.host.effects.run_result import Refused
from ovirt_rdma.host.effects.same_value import same_value
from ovirt_rdma.host.rules.rule import MODULE, Change

_FIX = "run ovirt-rdma-host plan again"


def with_earlier_values(host: Door, acts: Iterable[Act]) -> tuple[Act, ...]:
    """Return ``acts`` with what ``host`` has now as ``before``. Nothing is changed.

    Where a run sets a property twice, the second time it has what the first one set;
    what a run makes has no value before. Raises Refused where a change is none that
    our rules give, a value cannot be read, or is not the one that the plan is for.
    """
    found: list[Act] = []
    known: dict[Property, Optional[str]] = {}
    anew = False
    for act in acts:
        for change in act.changes:
            words = host.refusal(change)
            if words:
                raise Refused(words, _FIX)
        made = makes_profile(act) or any(
            goes_with(act, one) for one in found if is_maker(one)
        )
        before = []
        for change in act.changes:
            place = property_of(change, act.uuid)
            if place not in known:
                # A new port MTU makes netdevs anew: the plan says what they get.
                of_new = anew and file_of(change) == "mtu"
                value = None if made else _read(host, act, change)
                if of_new:
                    value = _smaller(value, change.before)
                elif not made:
                    _check(change, value)
                known[place] = value
            before.append(known[place])
            known[place] = change.after
            anew = anew or adapter_of(change) is not None
        found.append(replace(act, before=tuple(before)))
    return tuple(found)


def _read(host: Door, act: Act, change: Change) -> Optional[str]:
    reading = host.read(change, act.uuid, act.place)
    if reading.problem:
        raise Refused(f"{act.step}: {reading.problem}; nothing was changed", _FIX)
    return reading.value


def _smaller(now: Optional[str], planned: Optional[str]) -> Optional[str]:
    """Return the MTU ``now``, or the one ``planned`` where the new port MTU allows no
    more: it comes back before that of the port.
    """
    if now and planned and now.isdecimal() and planned.isdecimal():
        return min(now, planned, key=int)
    return now


def _check(change: Change, value: Optional[str]) -> None:
    # Of what the kernel has, a plan may not know it: the netdev is not there yet.
    unknown = is_volatile(change) and change.before is None
    if unknown or change.kind == MODULE or same_value(change, change.before, value):
        return
    was = said(change, change.before, "another text")
    now = said(change, value, "this one")
    raise Refused(
        f"{shown(change)} has changed since the plan was made: it was {was}, and is "
        f"{now}; nothing was changed",
        _FIX,
    )
