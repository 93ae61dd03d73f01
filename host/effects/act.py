# SPDX-License-Identifier: GPL-2.0-or-later
"""What is done in one go: a change, or those that make a new profile together. Data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.rules.rule import Change


@dataclass(frozen=True)
class Place:
    """Which hardware a netdev or adapter is, by what stays when names change.

    ``guid`` is the port's and ``pkey`` that of a P_Key child (IPoIB); ``pci`` the PCI
    address, with ``port`` from 1 where it is about a port. ``netdev`` is the name that
    the netdev had.
    """

    netdev: Optional[str] = None
    guid: Optional[str] = None
    pkey: Optional[str] = None
    pci: Optional[str] = None
    port: Optional[int] = None


@dataclass(frozen=True)
class Act:
    """One effect. ``changes`` is one Change; or all those that make a new profile,
    which comes into being whole or not at all.

    ``step`` is the id and ``effect`` the class of the step that it is of, ``reason``
    the step's sentence. ``uuid`` is the profile's, given out before it is made, where
    the target of the changes is ``new:NETDEV``. ``before`` are the values that the
    host had before the run, one a change: None where there was nothing. ``lasting``
    says that something else keeps the value over a boot (a profile, a file): what is
    not is set again by our units (``ovirt-rdma-host unit netdev``).
    """

    step: str
    effect: str
    reason: str
    changes: tuple[Change, ...]
    before: tuple[Optional[str], ...] = ()
    uuid: Optional[str] = None
    place: Optional[Place] = None
    lasting: bool = True
