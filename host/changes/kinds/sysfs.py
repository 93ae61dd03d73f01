# SPDX-License-Identifier: GPL-2.0-or-later
"""Set kernel values in /sys, and make or remove P_Key children.

The values are transport mode and MTU of a netdev, and the MTU of an mlx4 port, which
recreates the adapter's netdevs. P_Key children are made with ``create_child`` where
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
from ovirt_rdma.host.policy.model import FULL_MEMBER, partition_of_facts
from ovirt_rdma.host.rules.base import SYSFS, Change
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import FileTree

# mlx4 takes the ports' links down and up, and udev renames the netdevs.
NETDEVS_BACK_S = 30.0

_READ_ONLY = "this host's /sys is read-only, or you are not root"
_GONE = "the device no longer exists"
_MEANINGS = {
    errno.EPERM: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EROFS: _READ_ONLY,
    errno.ENOENT: _GONE,
    errno.ENODEV: _GONE,
    errno.EBUSY: "the device is busy",
    errno.EINVAL: "the device does not support it",
    errno.ENOTUNIQ: "a child with that P_Key already exists",
}


def read(host: Host, change: Change) -> Reading:
    """Return the file's text; None if there is no such file."""
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
    """Write ``change.after``. Raises EffectFailed with the meaning of the error."""
    port = port_mtu_of(change)
    before = netdevs_of_pci(host, port[0]) if port else {}
    write(host, change.target, change.after or "")
    if port:
        _wait_for_netdevs(host, port[0], before)


def undo(host: Host, change: Change, before: Optional[str]) -> None:
    """Write ``before``; do nothing if it is None, or there is no such file."""
    present = read(host, change)
    if before is None or (present.value is None and not present.problem):
        return
    if present.value == before:
        return
    do(host, Change(change.kind, change.target, change.after, before))


def write(host: Host, path: str, value: str) -> None:
    """Write a value and a newline with one write(2); without the newline the kernel
    refuses a transport mode (ipoib_set_mode, Linux ulp/ipoib/ipoib_main.c).

    Raises EffectFailed.
    """
    try:
        host.write(host.path(path), value.encode("utf-8", "surrogateescape") + b"\n")
    except OSError as e:
        raise EffectFailed("sysfs-write-failed", *_explain(path, value, e)) from None


def _explain(path: str, value: str, error: OSError) -> tuple[str, str]:
    """Return the sentence and the fix for an error of a write."""
    meaning = _MEANINGS.get(error.errno or 0, "")
    fix = ""
    file = netdev_file(Change(SYSFS, path, None, value))
    if error.errno == errno.EINVAL and file and file[1] == MODE_FILE:
        meaning = f"the adapter of {file[0]} has no {value} mode"
        fix = "write transport_mode: auto or datagram for it in the policy"
    elif error.errno == errno.EINVAL and file:
        meaning = f"{value} is not a valid value for {file[0]}"
    elif meaning == _READ_ONLY:
        fix = "run this as root, on the host itself and not in a container"
    message = error.strerror or str(error)
    sentence = f"{path}: the kernel does not accept {value}: {meaning or message}"
    return (f"{sentence} ({message})" if meaning else sentence), fix


def _wait_for_netdevs(host: Host, address: str, before: dict[str, int]) -> None:
    """Wait until each port has as many netdevs as before; their names may differ."""
    wanted = Counter(before.values())

    def back() -> bool:
        now = Counter(netdevs_of_pci(host, address).values())
        return not wanted - now

    if not host.wait_for(back, NETDEVS_BACK_S):
        names = " and ".join(sorted(before))
        raise EffectFailed(
            "netdevs-not-back",
            f"{names} of the adapter {address} did not appear again within "
            f"{NETDEVS_BACK_S:g} s",
            "read the kernel's log (journalctl -k), and see ip link",
        )


def is_gone(host: Host, change: Change) -> bool:
    """Whether the file does not exist."""
    folder, _, name = change.target.rpartition("/")
    return name not in FileTree(host.root).names(folder)


# For a child to appear or disappear: the kernel's workqueue does it, and udev takes
# part.
CHILD_S = 5.0


def read_child(host: Host, change: Change) -> Reading:
    """Return the change's P_Key, as it is written there, if its child exists, else
    None.
    """
    return Reading(change.after if present_child(host, change) else None)


def do_child(host: Host, change: Change) -> None:
    """Make the child, wait until it exists, and set it up: nobody else does."""
    parent, pkey = _parts(change)
    name = child_name(parent, pkey)
    try:
        if name in FileTree(host.root).names(NET_CLASS):
            raise EffectFailed("netdev-exists", f"netdev {name} already exists")
        write(host, change.target, pkey)
    except EffectFailed as failed:
        failed.untouched = True  # a child that exists is somebody else's
        raise
    if not host.wait_for(lambda: present_child(host, change) is not None, CHILD_S):
        raise EffectFailed(
            "netdev-not-created", f"{name} did not appear within {CHILD_S:g} s"
        )
    host.run_or_fail(f"{name} cannot be set up", ("ip", "link", "set", name, "up"))


def undo_child(host: Host, change: Change) -> None:
    """Remove the child, and wait until it is gone."""
    parent, pkey = _parts(change)
    name = present_child(host, change)
    if name is None:
        return
    # delete_child needs the P_Key with the bit of full members.
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
            f"{name} still exists {CHILD_S:g} s after its removal",
            f"ip link delete {name}",
        )


def present_child(host: Host, change: Change) -> Optional[str]:
    """Return the child's netdev, whatever its name; None if it does not exist."""
    parent, pkey = _parts(change)
    tree = FileTree(host.root)
    for name in tree.names(NET_CLASS):
        folder = f"{NET_CLASS}/{name}"
        same = partition_of_facts(tree.text(f"{folder}/pkey")) == partition_of_facts(
            pkey
        )
        if same and tree.text(f"{folder}/parent") == parent:
            return name
    return None


def _parts(change: Change) -> tuple[str, str]:
    file = netdev_file(change)
    if file is None or not change.after:
        raise EffectFailed(
            "change-not-allowed", f"{change.target} does not make a P_Key child"
        )
    return file[0], change.after
