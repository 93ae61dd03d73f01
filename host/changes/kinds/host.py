# SPDX-License-Identifier: GPL-2.0-or-later
"""Access the host, for all kinds of change, and find a netdev again after netdevs were
renamed.

An IPoIB netdev is identified by its port's GUID, the last 8 bytes of its address (the
other 12 change), a P_Key child by its P_Key too, and any other netdev by its PCI
function and port.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.devices import ARPHRD_INFINIBAND, Guid, Netdev
from ovirt_rdma.host.facts.infiniband import partition_of
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import NET_CLASS, SYSTEMD_BOOTED, under
from ovirt_rdma.host.rules.ipoib_children import PARENT_LENGTH
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    NotInstalled,
    Runner,
    run_command,
)
from ovirt_rdma.host.system.tree import FileTree

# NetworkManager's activation of a profile may take a while; nmcli gets less.
COMMAND_TIMEOUT_S = 60.0
_POLL_S = 0.1
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

run_effect: Runner = partial(run_command, timeout_s=COMMAND_TIMEOUT_S, own_session=True)
"""Runs the tools that change the host, for at most COMMAND_TIMEOUT_S each. They have a
session of their own: Ctrl-C ends the run, but only after the tool has ended.
"""


class EffectFailed(Problem):
    """A change could not be made or undone. ``untouched``: it has certainly changed
    nothing, so there is nothing of ours to undo.
    """

    untouched = False


@dataclass(frozen=True)
class Reading:
    """The present value; None if there is none. If it is unknown, ``problem`` is a
    sentence without a full stop.
    """

    value: Optional[str] = None
    problem: str = ""


def write_kernel_file(path: Path, data: bytes) -> None:
    """Write ``data`` to an existing file with one write(2). Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


class Host:
    """The host below ``root``.

    ``run`` runs tools. By default they are run on this machine if ``root`` is ``/``,
    and not at all below any other root: a change that needs one then fails. ``write``
    writes to a file of /sys, ``clock`` returns seconds since 1970, ``sleep`` waits.

    ``activates`` is False for a hook before VDSM's network setup: the setup activates
    changed profiles itself, and a hook has no time for it.
    """

    def __init__(
        self,
        root: Union[str, Path] = "/",
        run: Optional[Runner] = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
        write: Callable[[Path, bytes], None] = write_kernel_file,
        *,
        activates: bool = True,
    ) -> None:
        self.root = Path(root)
        self.tree = FileTree(self.root)
        if run is None and self.root == Path("/"):
            run = run_effect
        self.run, self.sleep, self.now, self.write = run, sleep, clock, write
        self.activates = activates

    @property
    def has_systemd(self) -> bool:
        """Whether systemd is running."""
        return self.path(SYSTEMD_BOOTED).is_dir()

    def boot_id(self) -> str:
        """Return the kernel's boot id, "" if it is unknown."""
        return self.tree.text(_BOOT_ID) or ""

    def path(self, path: str) -> Path:
        """Return where the absolute path ``path`` of the host is, below its root."""
        return under(self.root, path)

    def tool(self, *argv: str) -> str:
        """Run a tool and return its output.

        Raises CommandFailed as the runner does; NotInstalled if there is no runner.
        """
        if self.run is None:
            raise NotInstalled(f"{self.root} is not this host's root")
        return self.run(argv)

    def run_or_fail(self, failure: str, argv: Sequence[str], fix: str = "") -> str:
        """Run a tool and return its output.

        Raises EffectFailed if that fails; its sentence begins with ``failure``.
        """
        try:
            return self.tool(*argv)
        except CommandFailed as e:
            raise EffectFailed(
                "command-failed", f"{failure}: {' '.join(argv)}: {e}", fix
            ) from None

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``condition()`` is True, at most ``seconds``; return it."""
        for _ in range(round(seconds / _POLL_S)):
            if condition():
                return True
            self.sleep(_POLL_S)
        return condition()


@dataclass(frozen=True)
class Place:
    """Identifies a netdev or adapter by properties that stay when it is renamed.

    ``guid`` is the port's and ``pkey`` that of a P_Key child (IPoIB); ``pci`` is the
    PCI address, with ``port`` from 1 if it is for one port. ``netdev`` is the name that
    the netdev had.
    """

    netdev: Optional[str] = None
    guid: Optional[str] = None
    pkey: Optional[str] = None
    pci: Optional[str] = None
    port: Optional[int] = None


def place_of_netdev(name: str, facts: Facts) -> Place:
    """Return the place of the netdev ``name``, according to ``facts``. Pure.

    A child that the plan makes, ``ib0.8001``, is identified by its parent, which
    exists.
    """
    by_name = {netdev.name: netdev for netdev in facts.netdevs}
    if name in by_name:
        return _place(by_name[name])
    head, dot, digits = name.rpartition(".")
    pkey = f"0x{digits}"
    parents = [n for n in facts.netdevs if dot and n.name[:PARENT_LENGTH] == head]
    for parent in parents:
        if parent.type == ARPHRD_INFINIBAND and partition_of(pkey) is not None:
            return Place(netdev=name, guid=_guid(parent.address), pkey=pkey)
    return Place(netdev=name)


def _place(netdev: Netdev) -> Place:
    child = netdev.ipoib is not None and netdev.ipoib.parent is not None
    return Place(
        netdev=netdev.name,
        guid=_guid(netdev.address) if netdev.type == ARPHRD_INFINIBAND else None,
        pkey=netdev.ipoib.pkey if netdev.ipoib and child else None,
        pci=netdev.pci.address if netdev.pci else None,
        port=netdev.rdma_port,
    )


def _guid(address: str) -> Optional[str]:
    """Return the GUID in an IPoIB netdev's address; None if there is none, or only
    zeros, as in VFs without an assigned GUID.
    """
    guid = Guid.of_address(address)
    return guid.in_bytes if guid and guid.assigned else None


def present_name(host: Host, place: Place) -> Optional[str]:
    """Return the netdev that is at ``place`` now; None if there is none. Reads /sys
    only.

    If there are several, the one with the earlier name is returned. A child made with
    ``ip link`` has no P_Key in /sys: it is identified by its earlier name.
    """
    names = [
        name for name in host.tree.names(NET_CLASS) if _is_at(host.tree, name, place)
    ]
    if place.netdev in names:
        return place.netdev
    return names[0] if names else None


def netdevs_of_pci(host: Host, address: str) -> dict[str, int]:
    """Return the netdevs of a PCI function, with the port of each, from 1."""
    return {
        name: _port(host.tree, name)
        for name in host.tree.names(NET_CLASS)
        if _pci(host.tree, name) == address
    }


def _is_at(tree: FileTree, name: str, place: Place) -> bool:
    folder = f"{NET_CLASS}/{name}"
    if tree.is_folder(f"{folder}/bonding"):  # it has the address of a member
        return False
    if place.guid is not None:
        same = _guid(tree.text(f"{folder}/address") or "") == place.guid
        return same and _is_of_pkey(tree, name, place)
    if place.pci is None or place.pkey is not None:
        return name == place.netdev
    same = _pci(tree, name) == place.pci
    return same and place.port in (None, _port(tree, name), _only_port(tree, place))


def _is_of_pkey(tree: FileTree, name: str, place: Place) -> bool:
    """Whether the netdev has the P_Key of ``place``; if that has none, whether it is a
    base netdev.
    """
    files = tree.names(f"{NET_CLASS}/{name}")
    if place.pkey is None:
        return "create_child" in files
    if "create_child" in files or "parent" not in files:
        return "create_child" not in files and name == place.netdev
    pkey = partition_of(tree.text(f"{NET_CLASS}/{name}/pkey"))
    return pkey is not None and pkey == partition_of(place.pkey)


def _pci(tree: FileTree, name: str) -> Optional[str]:
    """Return the PCI address of a netdev's device. The device may be below the PCI
    function, as with virtio.
    """
    device = tree.real_path(f"{NET_CLASS}/{name}/device")
    parts = device.parts[::-1] if device else ()
    return next((part for part in parts if part.count(":") == 2), None)


def _port(tree: FileTree, name: str) -> int:
    text = tree.text(f"{NET_CLASS}/{name}/dev_port") or ""
    return int(text) + 1 if text.isdecimal() and len(text) < 6 else 1


def _only_port(tree: FileTree, place: Place) -> Optional[int]:
    """Return ``place.port`` if the PCI function has only one netdev, else None: then
    that is the right netdev, whatever dev_port says.
    """
    names = tree.names(NET_CLASS)
    alone = [name for name in names if _pci(tree, name) == place.pci]
    return place.port if len(alone) == 1 else None
