# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind of a P_Key child in /sys, where NetworkManager does not manage the parent.

A write to ``create_child`` makes a netdev; a write of the same P_Key to
``delete_child`` removes it. In journals and plans it is a change of the kind SYSFS.
"""

from __future__ import annotations

import shlex
from typing import ClassVar, Optional

from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.kind import PKEY, Property, normal_text
from ovirt_rdma.host.changes.kinds.sysfs import Sysfs
from ovirt_rdma.host.facts.pkeys import full_member, full_member_bits, partition_of
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import LIVE, SYSFS, Change
from ovirt_rdma.host.rules.ipoib_children import PARENT_LENGTH
from ovirt_rdma.host.system.tree import FileTree

CREATE_CHILD = "create_child"
DELETE_CHILD = "delete_child"

# For a child to appear or disappear: the kernel's workqueue does it, and udev takes
# part.
CHILD_S = 5.0


def child_name(parent: str, pkey: str) -> str:
    """Return the name that ``create_child`` gives: the parent's, cut to ten characters,
    and the P_Key that is written (Linux ulp/ipoib/ipoib_vlan.c).
    """
    return f"{parent[:PARENT_LENGTH]}.{int(pkey, 16):04x}"


class PkeyChild(Sysfs):
    """A child of ``netdev`` with the P_Key ``after``; its value is that P_Key if the
    child exists, else None. Each child is a property of its own.
    """

    is_maker = True
    FILES: ClassVar[dict[str, str]] = {CREATE_CHILD: PKEY}

    @classmethod
    def is_for(cls, change: Change) -> bool:
        return change.kind == SYSFS and cls(change).netdev is not None

    @property
    def sets(self) -> Property:
        # All children of a netdev have one file.
        return Property(SYSFS, self.change.target, self.change.after or "")

    @property
    def effect(self) -> str:
        return LIVE

    def lasts(self, managed: bool) -> bool:
        return False

    @property
    def made_netdev(self) -> Optional[str]:
        """The child's name as the kernel makes it."""
        parent, pkey = self.netdev, self.change.after
        return child_name(parent, pkey) if parent and pkey else None

    def describe(self) -> str:
        return f"the netdev {self.made_netdev}"

    def normal(self, value: str) -> Optional[str]:
        number = normal_text(value.strip())
        # The kernel sets the bit itself.
        return str(full_member_bits(int(number))) if number.isdecimal() else number

    def manual_fix(self, value: Optional[str]) -> str:
        target = shlex.quote(self.change.target).replace(CREATE_CHILD, DELETE_CHILD)
        return f"echo {shlex.quote(self.change.after or '')} > {target}"

    def read(self, host: Host) -> Reading:
        return Reading(self.change.after if self.child(host) else None)

    def do(self, host: Host) -> None:
        """Make the child, wait until it exists, and set it up: nobody else does."""
        parent, pkey = self._parts()
        name = child_name(parent, pkey)
        try:
            if name in FileTree(host.root).names(NET_CLASS):
                raise EffectFailed("netdev-exists", f"netdev {name} already exists")
            self.write(host, self.change.target, pkey)
        except EffectFailed as failed:
            failed.untouched = True  # a child that exists is somebody else's
            raise
        if not host.wait_for(lambda: self.child(host) is not None, CHILD_S):
            raise EffectFailed(
                "netdev-not-created", f"{name} did not appear within {CHILD_S:g} s"
            )
        host.run_or_fail(f"{name} cannot be set up", ("ip", "link", "set", name, "up"))

    def undo(self, host: Host, before: Optional[str]) -> None:
        parent, pkey = self._parts()
        name = self.child(host)
        if name is None:
            return
        # delete_child needs the P_Key with the bit of full members.
        value = full_member(int(pkey, 16))
        try:
            self.write(host, f"{NET_CLASS}/{parent}/{DELETE_CHILD}", value)
        except EffectFailed:
            if self.child(host) is None:
                return
            raise
        if not host.wait_for(lambda: self.child(host) is None, CHILD_S):
            raise EffectFailed(
                "netdev-not-removed",
                f"{name} still exists {CHILD_S:g} s after its removal",
                f"ip link delete {name}",
            )

    def is_gone(self, host: Host) -> bool:
        return self.child(host) is None

    def child(self, host: Host) -> Optional[str]:
        """Return the child's netdev, whatever its name; None if it does not exist."""
        parent, pkey = self._parts()
        tree = FileTree(host.root)
        for name in tree.names(NET_CLASS):
            folder = f"{NET_CLASS}/{name}"
            own = partition_of(tree.text(f"{folder}/pkey"))
            if own == partition_of(pkey) and tree.text(f"{folder}/parent") == parent:
                return name
        return None

    def _parts(self) -> tuple[str, str]:
        if self.netdev is None or not self.change.after:
            raise EffectFailed(
                "change-not-allowed",
                f"{self.change.target} does not make a P_Key child",
            )
        return self.netdev, self.change.after
