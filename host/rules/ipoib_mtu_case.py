# SPDX-License-Identifier: GPL-2.0-or-later
"""One IPoIB netdev's MTU: what it is, what it should be, and what has to change. Pure.

A datagram MTU is the smaller of what is asked for and what the broadcast group has,
which is the subnet manager's to say. The kernel takes a larger number without a word,
as long as the port could do it, and shows the smaller one. The group's MTU itself is
nowhere to be read, so two things tell that it decided: the profile asks for more, or
nothing asks and the netdev has one of the MTUs that a group can give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.policy_host import DATAGRAM
from ovirt_rdma.host.rules.ipoib_limits import (
    CONNECTED_MTU,
    GROUP_MTUS,
    HEADER,
    MtuLimit,
    coming_port_mtu,
    port_limit,
)
from ovirt_rdma.host.rules.ipoib_settings import MTU, Settings, write
from ovirt_rdma.host.rules.rule import Change
from ovirt_rdma.host.rules.view import Interface


@dataclass(frozen=True)
class MtuCase:
    """An IPoIB netdev whose MTU is ours to set: the modes that it has ``now`` and in
    the ``end``, the ``limit`` of the latter, and the ``target`` in bytes.
    """

    interface: Interface
    settings: Settings
    now: str
    end: str
    limit: MtuLimit
    target: int
    auto: bool

    @property
    def mtu(self) -> int:
        """The present MTU."""
        return self.interface.netdev.mtu

    @property
    def kept(self) -> Optional[int]:
        """The MTU that the profile asks for."""
        text = self.settings.value(MTU) or ""
        return int(text) if text.isdecimal() else None

    @property
    def made_anew(self) -> Optional[int]:
        """The MTU with which a new port MTU makes the netdev anew; None: none does."""
        port_mtu = coming_port_mtu(self.interface)
        datagram = self.now == self.end == DATAGRAM
        return port_mtu - HEADER if port_mtu and datagram else None

    @property
    def may_be_group(self) -> bool:
        """Whether the group may be what keeps the present MTU below the target."""
        datagram = self.now == self.end == DATAGRAM
        return datagram and self.mtu in GROUP_MTUS and self.mtu < self.target

    @property
    def follows_group(self) -> bool:
        """Whether the present MTU is the group's, as far as one can tell."""
        asked = self.kept is not None and self.kept >= self.target
        free = self.kept is None and self.auto
        return self.may_be_group and (asked or free)


def refusal_of(case: MtuCase) -> str:
    """Say, as a clause, why the target is not possible, or nothing."""
    if case.target <= case.limit.mtu:
        return ""
    possible = port_limit(case.interface)
    text = f"at most {case.limit.mtu}, {case.limit.because}"
    if case.end == DATAGRAM and possible and case.target <= possible.mtu:
        return f"{text}; the kernel would take it and stay below"
    return text


def changes_of(case: MtuCase) -> tuple[Change, ...]:
    """Return what has to change in the profile, then in sysfs, for the target."""
    profile: tuple[Change, ...] = ()
    if _profile_errs(case):
        profile = case.settings.change(MTU, str(case.target))
    live: tuple[Change, ...] = ()
    if not _live_will_do(case):
        change = write(case.interface, "mtu", str(case.target))
        made = case.made_anew
        if made is not None:
            change = replace(change, before=str(made))
        live = (replace(change, clamped=case.auto and case.end == DATAGRAM),)
    return (*profile, *live)


def _profile_errs(case: MtuCase) -> bool:
    """Whether the profile asks for something else than the policy. With ``auto`` it
    may ask for nothing: then the kernel takes what the mode and the group give.
    """
    if not case.auto:
        return True
    if case.kept is None:
        return False
    if case.end == DATAGRAM:
        possible = port_limit(case.interface)
        most = possible.mtu if possible else case.limit.mtu
        return not case.target <= case.kept <= most
    return case.kept != case.target


def _live_will_do(case: MtuCase) -> bool:
    if case.now != case.end:
        # The change of mode sets it, of a new child to the most.
        return not case.interface.planned or case.target == CONNECTED_MTU
    if case.made_anew is not None:
        return case.auto or case.target == case.made_anew
    return case.mtu == case.target or case.follows_group
