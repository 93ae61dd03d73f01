# SPDX-License-Identifier: GPL-2.0-or-later
"""``partitions: follow``: which P_Key children a host lacks, and which of those that
it has are for a partition that the port is in no more. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.policy_host import partition_read
from ovirt_rdma.host.rules.ipoib_children import (
    follows,
    planned_children,
    table_entry,
)
from ovirt_rdma.host.rules.ipoib_settings import bonds_of, lasting_addresses
from ovirt_rdma.host.rules.rule import Step
from ovirt_rdma.host.rules.view import Interface, View

# Only then has the subnet manager given the port its P_Key table.
_ACTIVE = "ACTIVE"


@dataclass(frozen=True)
class Difference:
    """The names of children that are to be made (``missing``), and of those whose
    partition has left the table of an ACTIVE port (``gone``).
    """

    missing: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def difference(view: View) -> Difference:
    """Return how the children of netdevs that follow the P_Key table differ from it.

    A table that could not be read, or of a port that is not ACTIVE, is no reason to
    take anything away; nor is one of which an entry could not be read, which only the
    problems of the facts tell.
    """
    following = {one.name for one in view.ipoib if follows(one)}
    return Difference(
        tuple(c.name for c in planned_children(view) if c.parent in following),
        tuple(
            child.name
            for child in view.ipoib
            if child.parent in following and _has_left(child)
        ),
    )


def _has_left(child: Interface) -> bool:
    own = partition_read(child.netdev.ipoib.pkey if child.netdev.ipoib else None)
    port = child.port
    return (
        own is not None
        and port.state == _ACTIVE
        and bool(port.pkeys)
        and table_entry(port, own) is None
    )


def steps_of(steps: Iterable[Step], children: Iterable[str]) -> tuple[Step, ...]:
    """Return those of a plan's ``steps`` that are about ``children``, which the same
    plan makes, and can be done.
    """
    names = set(children)
    return tuple(step for step in steps if step.subject in names and not step.refused)


def who_uses(view: View, child: Interface) -> Optional[str]:
    """Say, as a clause, who uses ``child``, or that somebody has set it up for a use;
    None where nobody has. ``view`` is of all facts.
    """
    if child.uses:
        return f"it is used by {child.users[0]}"
    if child.network is not None:
        return f"it is in the logical network {child.network.name!r}"
    for bond in bonds_of(view, child):
        return f"it is a member of {bond}"
    if child.netdev.uppers:
        return f"{child.netdev.uppers[0]} is built on it"
    addresses = lasting_addresses(child.netdev)
    return f"it has the address {addresses[0]}" if addresses else None
