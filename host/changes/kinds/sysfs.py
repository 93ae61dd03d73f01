# SPDX-License-Identifier: GPL-2.0-or-later
"""Change kernel values in /sys, and create or remove P_Key children.

Writing to the kernel's files: transport mode and MTU of a netdev, and the MTU of an
mlx4 port, which makes the adapter's netdevs anew.

Making a P_Key child through ``create_child``, and removing it again, where
NetworkManager does not manage the parent.
"""

from __future__ import annotations

import errno
from collections import Counter
from typing import Optional

from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.location import NET_CLASS, netdevs_of_pci
from ovirt_rdma.host.changes.kinds.properties import (
    MODE_FILE,
    child_name,
    netdev_file,
    port_mtu_of,
)
from ovirt_rdma.host.policy.model import FULL_MEMBER, partition_read
from ovirt_rdma.host.rules.base import SYSFS, Change
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import FileTree

# mlx4 takes the ports' links down and up, and udev renames the netdevs.
NETDEVS_BACK_S = 30.0

_READ_ONLY = "this host's /sys is read-only, or this is not root"
_GONE = "the device is gone"
_MEANINGS = {
    errno.EPERM: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EROFS: _READ_ONLY,
    errno.ENOENT: _GONE,
    errno.ENODEV: _GONE,
    errno.EBUSY: "the device is busy",
    errno.EINVAL: "the device cannot do that",
    errno.ENOTUNIQ: "there is one for that P_Key already",
}


def read(host: Host, change: Change) -> Reading:
    """Return the file's text; None where the file is not there."""
    try:
        data = read_file(host.path(change.target))
    except (FileNotFoundError, NotADirectoryError):
        return Reading()
    except OSError as e:
        if e.errno == errno.ENODEV:
            return Reading()
        return Reading(problem=f"{change.target} cannot be read: {e.strerror}")
    return Reading(data.decode("utf-8", "surrogateescape").strip())


def do(host: Host, change: Change) -> None:
    """Write ``change.after``. Raises EffectFailed with what the kernel means."""
    port = port_mtu_of(change)
    before = netdevs_of_pci(host, port[0]) if port else {}
    write(host, change.target, change.after or "")
    if port:
        _wait_for_netdevs(host, port[0], before)


def undo(host: Host, change: Change, before: Optional[str]) -> None:
    """Write ``before``; without it, or without the file, there is nothing to do."""
    present = read(host, change)
    if before is None or (present.value is None and not present.problem):
        return
    if present.value == before:
        return
    do(host, Change(change.kind, change.target, change.after, before))


def write(host: Host, path: str, value: str) -> None:
    """Write a value and a newline, in one go; without the newline the kernel refuses a
    transport mode (ipoib_set_mode, Linux ulp/ipoib/ipoib_main.c).

    Raises EffectFailed.
    """
    try:
        host.write(host.path(path), value.encode("utf-8", "surrogateescape") + b"\n")
    except OSError as e:
        raise EffectFailed("sysfs-write-failed", *_words(path, value, e)) from None


def _words(path: str, value: str, error: OSError) -> tuple[str, str]:
    meaning = _MEANINGS.get(error.errno or 0, "")
    fix = ""
    file = netdev_file(Change(SYSFS, path, None, value))
    if error.errno == errno.EINVAL and file and file[1] == MODE_FILE:
        meaning = f"the adapter of {file[0]} has no {value} mode"
        fix = "write transport_mode: auto or datagram for it in the policy"
    elif error.errno == errno.EINVAL and file:
        meaning = f"{value} is no value that {file[0]} takes"
    elif meaning == _READ_ONLY:
        fix = "run this as root, on the host itself and not in a container"
    said = error.strerror or str(error)
    sentence = f"{path}: the kernel does not take {value}: {meaning or said}"
    return (f"{sentence} ({said})" if meaning else sentence), fix


def _wait_for_netdevs(host: Host, address: str, before: dict[str, int]) -> None:
    """Wait until each port has as many netdevs as before; they may be called
    otherwise.
    """
    wanted = Counter(before.values())

    def back() -> bool:
        now = Counter(netdevs_of_pci(host, address).values())
        return not wanted - now

    if not host.wait_for(back, NETDEVS_BACK_S):
        names = " and ".join(sorted(before))
        raise EffectFailed(
            "netdevs-not-back",
            f"{names} of the adapter {address} did not come back within "
            f"{NETDEVS_BACK_S:g} s",
            "look into the kernel's log (journalctl -k), and see ip link",
        )


def is_gone(host: Host, change: Change) -> bool:
    """Whether the file is not there (any more)."""
    folder, _, name = change.target.rpartition("/")
    return name not in FileTree(host.root).names(folder)


# Both are done by the kernel's workqueue, or seen only after udev has been at it.
CHILD_S = 5.0


def read_child(host: Host, change: Change) -> Reading:
    """Return the P_Key as the change has it where its child is there, else None."""
    return Reading(change.after if present_child(host, change) else None)


def do_child(host: Host, change: Change) -> None:
    """Make the child, wait until it is there, and set it up: nobody else does."""
    parent, pkey = _parts(change)
    name = child_name(parent, pkey)
    try:
        if name in FileTree(host.root).names(NET_CLASS):
            raise EffectFailed("netdev-exists", f"there is a netdev {name} already")
        write(host, change.target, pkey)
    except EffectFailed as failed:
        failed.untouched = True  # one that somebody has just made is theirs
        raise
    if not host.wait_for(lambda: present_child(host, change) is not None, CHILD_S):
        raise EffectFailed(
            "netdev-not-created", f"{name} did not appear within {CHILD_S:g} s"
        )
    host.must(f"{name} cannot be set up", ("ip", "link", "set", name, "up"))


def undo_child(host: Host, change: Change) -> None:
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
            "netdev-not-removed",
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
        raise EffectFailed(
            "change-not-allowed", f"{change.target} makes no P_Key child"
        )
    return file[0], change.after
