# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind PROFILE: set properties of NetworkManager profiles.

A changed profile is reapplied or activated, so that NetworkManager's applied connection
is the same as the profile (:mod:`ovirt_rdma.host.rules.profiles`). An activation also
sets the other properties of the profile, and addresses are removed and added. Mode, MTU
and TSO that somebody has set on the netdev otherwise are not ours to change: they are
restored.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.changes.kinds import network_manager
from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.kind import (
    MODE,
    NETDEV,
    NUMBER,
    PKEY,
    SWITCH,
    Kind,
    Property,
    normal_text,
)
from ovirt_rdma.host.changes.kinds.network_manager import NoSuchProfile
from ovirt_rdma.host.changes.kinds.offload import OffloadState
from ovirt_rdma.host.changes.kinds.sysfs import MODE_FILE, MTU_FILE, Sysfs
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import OFFLOAD, PROFILE, SYSFS, Change
from ovirt_rdma.host.rules.ipoib import TSO_FEATURES
from ovirt_rdma.host.rules.profiles import (
    CONNECTION_ID,
    CONNECTION_TYPE,
    ETHERNET_MTU,
    INFINIBAND_TYPE,
    INTERFACE_NAME,
    MTU,
    NEW,
    P_KEY,
    PARENT,
    TRANSPORT_MODE,
    TSO,
    UNSET,
    needs_activation,
)
from ovirt_rdma.host.system.safe_file import read_file

_METHOD = r"disabled|auto|manual|link-local|shared|ignore|dhcp"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NEW_PROFILE = re.compile(re.escape(NEW) + NETDEV)
_PROPERTIES = {
    CONNECTION_TYPE: INFINIBAND_TYPE,
    CONNECTION_ID: NETDEV,
    INTERFACE_NAME: NETDEV,
    TRANSPORT_MODE: MODE,
    MTU: NUMBER,
    P_KEY: PKEY,
    PARENT: NETDEV,
    TSO: SWITCH,
    ETHERNET_MTU: NUMBER,
    "ipv4.method": _METHOD,
    "ipv6.method": _METHOD,
}
# A netdev may be called "auto" or "0".
_NAMES = (CONNECTION_ID, INTERFACE_NAME, PARENT)


class ProfileProperty(Kind):
    """A property of a profile; ``after`` is None if it is unset."""

    name = PROFILE
    is_named = True
    may_be_removed = True
    outlives_netdev = True
    absent = "not set"
    title = "NetworkManager profile {}"

    def values(self) -> Optional[str]:
        target = self.change.target
        known = _UUID.fullmatch(target) or _NEW_PROFILE.fullmatch(target)
        return _PROPERTIES.get(self.change.name) if known else None

    @property
    def known_uuid(self) -> Optional[str]:
        """The profile's UUID; None if it is new and has none yet."""
        return self.uuid if self.needs_uuid else self.change.target

    def uuid_or_fail(self) -> str:
        """Return the profile's UUID. Raises EffectFailed if it has none."""
        if self.known_uuid is None:
            raise EffectFailed(
                "profile-no-uuid", f"the profile {self.change.target} has no UUID"
            )
        return self.known_uuid

    @property
    def sets(self) -> Property:
        change = self.change
        return Property(PROFILE, self.known_uuid or change.target, change.name)

    @property
    def needs_uuid(self) -> bool:
        return self.change.target.startswith(NEW)

    @property
    def netdev(self) -> Optional[str]:
        return self.change.target[len(NEW) :] if self.needs_uuid else None

    def interrupts(self, users: NetdevUsers) -> tuple[str, ...]:
        manager = users.facts.network_manager
        profiles = manager.profiles if manager and not self.needs_uuid else ()
        active = [p.active_on for p in profiles if p.uuid == self.change.target]
        names = [name for name in active if name]
        return users.of(*names) if names else super().interrupts(users)

    @property
    def undo_interrupts(self) -> bool:
        # A profile that was not active when it was changed may be active now.
        return self.is_maker or needs_activation(self.change)

    @property
    def is_mtu(self) -> bool:
        return self.change.name == MTU

    def normal(self, value: str) -> Optional[str]:
        text = value.strip()
        if self.change.name in _NAMES:
            return None if text in ("", "--") else text
        return None if text.lower() in UNSET else normal_text(text)

    def describe(self) -> str:
        new = f"new profile of {self.netdev}"
        profile = new if self.needs_uuid else f"profile {self.change.target}"
        return f"{self.change.name} of the {profile}"

    def manual_fix(self, value: Optional[str]) -> str:
        target = shlex.quote(self.sets.target)
        text = shlex.quote(value or "")
        return f"nmcli connection modify {target} {self.change.name} {text}"

    def read(self, host: Host) -> Reading:
        """Return the property as nmcli prints it; None if it is not set, or there is no
        such profile.

        A profile of ours that NetworkManager does not have, or that cannot be read now,
        is read from its file: a run may have been killed before NetworkManager loaded
        it.
        """
        uuid, name = self.known_uuid, self.change.name
        if uuid is None:
            return Reading()  # the profile is made after it gets a UUID
        problem = ""
        present = None
        try:
            present = network_manager.properties(host, uuid, name.partition(".")[0])
        except EffectFailed as e:
            problem = str(e)
        if present is not None:
            return self._set_value(present.get(name))
        text = self.own_file(host)
        if text is None:
            return Reading(problem=problem)
        return self._set_value(network_manager.value_in(text, name))

    def do(self, host: Host) -> None:
        network_manager.modify(
            host, self.uuid_or_fail(), self.change.name, self.change.after
        )

    def take_effect(self, host: Host) -> None:
        """Reapply or activate an active profile, if that is needed; only the value of
        this property changes. Raises EffectFailed.
        """
        self._activate(host, self.change.name)

    def undo(self, host: Host, before: Optional[str]) -> None:
        uuid = self.known_uuid
        present = self.read(host)
        if uuid is None or (not present.problem and self.same(present.value, before)):
            return
        try:
            network_manager.modify(host, uuid, self.change.name, before)
        except NoSuchProfile:
            return
        self._activate(host, "")

    def is_gone(self, host: Host) -> bool:
        uuid = self.known_uuid
        if uuid is None:
            return True
        try:
            present = network_manager.properties(host, uuid)
        except EffectFailed:
            return False
        return present is None and self.own_file(host) is None

    def own_file(self, host: Host) -> Optional[str]:
        """Return the text of the file that we made for a new profile; None if it does
        not exist, or is another profile's.
        """
        if self.netdev is None:
            return None
        try:
            path = host.path(network_manager.path_of(self.netdev))
            text = read_file(path).decode("utf-8", "surrogateescape")
        except OSError:
            return None
        ours = network_manager.value_in(text, network_manager.UUID) == self.uuid
        return text if ours else None

    def _set_value(self, value: Optional[str]) -> Reading:
        return Reading(None if self.same(value, None) else value)

    def _activate(self, host: Host, changed: str) -> None:
        """Make the changed profile take effect if it is active and must be activated
        for that. Only the value that its property ``changed`` sets on the netdev
        changes; others are restored.
        """
        uuid = self.known_uuid
        if not (host.activates and uuid and needs_activation(self.change)):
            return
        failure = f"the profile {uuid} cannot be activated"
        name = network_manager.active_on(host, failure, uuid)
        if name is None or "," in name:
            # If it is active on several netdevs (connection.multi-connect, which
            # nmstate never sets), an activation may use another one. It takes effect
            # with the next setup of each.
            return
        earlier = [(kind, kind.read(host).value) for kind in _set_on(name, changed)]
        network_manager.reapply_or_activate(host, failure, uuid, name)
        for kind, value in earlier:
            kind.undo(host, value)


def _set_on(netdev: str, changed: str) -> Iterator[Kind]:
    """Yield what a profile may set on a netdev, except by its property ``changed``; the
    mode first, because it sets an MTU.
    """
    for file in () if changed == TRANSPORT_MODE else (MODE_FILE, MTU_FILE):
        yield Sysfs(Change(SYSFS, f"{NET_CLASS}/{netdev}/{file}", None, None))
    for feature in () if changed == TSO else TSO_FEATURES:
        yield OffloadState(Change(OFFLOAD, netdev, None, None, feature))
