# SPDX-License-Identifier: GPL-2.0-or-later
"""Writing to the kernel's files: transport mode and MTU of a netdev, and the MTU of an
mlx4 port, which makes the adapter's netdevs anew.
"""

from __future__ import annotations

import errno
from collections import Counter
from typing import Optional

from ovirt_rdma.host.effects.effect import EffectFailed, Host, Reading
from ovirt_rdma.host.effects.place import netdevs_of_pci
from ovirt_rdma.host.effects.targets import MODE_FILE, netdev_file, port_mtu_of
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.rules.rule import SYSFS, Change
from ovirt_rdma.host.safe_file import read_file

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
        raise EffectFailed(*_words(path, value, e)) from None


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
            f"{names} of the adapter {address} did not come back within "
            f"{NETDEVS_BACK_S:g} s",
            "look into the kernel's log (journalctl -k), and see ip link",
        )


def is_gone(host: Host, change: Change) -> bool:
    """Whether the file is not there (any more)."""
    folder, _, name = change.target.rpartition("/")
    return name not in FileTree(host.root).names(folder)
