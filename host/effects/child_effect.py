# SPDX-License-Identifier: GPL-2.0-or-later
"""Making a P_Key child through ``create_child``, and removing it again, where
NetworkManager does not manage the parent.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.effects.effect import EffectFailed, Host, Reading
from ovirt_rdma.host.effects.place import NET_CLASS
from ovirt_rdma.host.effects.sysfs_effect import write
from ovirt_rdma.host.effects.targets import child_name, netdev_file
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.policy_host import FULL_MEMBER, partition_read
from ovirt_rdma.host.rules.rule import Change

# Both are done by the kernel's workqueue, or seen only after udev has been at it.
CHILD_S = 5.0


def read(host: Host, change: Change) -> Reading:
    """Return the P_Key as the change has it where its child is there, else None."""
    return Reading(change.after if present_child(host, change) else None)


def do(host: Host, change: Change) -> None:
    """Make the child, wait until it is there, and set it up: nobody else does."""
    parent, pkey = _parts(change)
    name = child_name(parent, pkey)
    try:
        if name in FileTree(host.root).names(NET_CLASS):
            raise EffectFailed(f"there is a netdev {name} already")
        write(host, change.target, pkey)
    except EffectFailed as failed:
        failed.untouched = True  # one that somebody has just made is theirs
        raise
    if not host.wait_for(lambda: present_child(host, change) is not None, CHILD_S):
        raise EffectFailed(f"{name} did not appear within {CHILD_S:g} s")
    host.must(f"{name} cannot be set up", ("ip", "link", "set", name, "up"))


def undo(host: Host, change: Change) -> None:
    """Remove the child, and wait until it is gone."""
    parent, pkey = _parts(change)
    name = present_child(host, change)
    if name is None:
        return
    # The file knows a child by its P_Key with the bit of full members.
    value = f"0x{int(pkey, 16) | FULL_MEMBER:04x}"
    target = f"{NET_CLASS}/{parent}/delete_child"
    try:
        write(host, target, value)
    except EffectFailed:
        if present_child(host, change) is None:
            return
        raise
    if not host.wait_for(lambda: present_child(host, change) is None, CHILD_S):
        raise EffectFailed(
            f"{name} is still there {CHILD_S:g} s after its removal",
            f"ip link delete {name}",
        )


def present_child(host: Host, change: Change) -> Optional[str]:
    """Return the child's netdev, whatever it is called now; None where it is not
    there.
    """
    parent, pkey = _parts(change)
    tree = FileTree(host.root)
    for name in tree.names(NET_CLASS):
        folder = f"{NET_CLASS}/{name}"
        same = partition_read(tree.text(f"{folder}/pkey")) == partition_read(pkey)
        if same and tree.text(f"{folder}/parent") == parent:
            return name
    return None


def _parts(change: Change) -> tuple[str, str]:
    file = netdev_file(change)
    if file is None or not change.after:
        raise EffectFailed(f"{change.target} makes no P_Key child")
    return file[0], change.after
