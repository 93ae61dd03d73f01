# SPDX-License-Identifier: GPL-2.0-or-later
"""Define what a kind of change is: all that a plan, a run and an undo ask of it; and
access the host, for all kinds.

A netdev is found again after netdevs were renamed. An IPoIB netdev is identified by its
port's GUID, the last 8 bytes of its address (the other 12 change), a P_Key child by its
P_Key too, and any other netdev by its PCI function and port.

A kind is a subclass of :class:`Kind` beside this module, and an entry in
:mod:`.registry`. An instance is about one change: ``kind_of(change).read(host)``. What
a method does is said here; a subclass says what is different. Methods with a ``host``
look at it, all others are pure.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Callable, ClassVar, Optional, Union
from uuid import uuid4

from ovirt_rdma.host.collect.netdevs import port_on_device
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.devices import ARPHRD_INFINIBAND, Guid
from ovirt_rdma.host.facts.infiniband import partition_of
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.paths import NET_CLASS, SYSTEMD_BOOTED, under
from ovirt_rdma.host.rules.base import LIVE, Change
from ovirt_rdma.host.rules.ipoib import PARENT_LENGTH
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    NotInstalled,
    Runner,
    run_command,
)
from ovirt_rdma.host.system.files import write_kernel_file
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
    """A change could not be made or undone. ``untouched``: nothing was changed."""

    untouched = False


@dataclass(frozen=True)
class Reading:
    """The present value; None if there is none. If it is unknown, ``problem`` is a
    sentence without a full stop.
    """

    value: Optional[str] = None
    problem: str = ""


NO_VALUE = Reading()


class Host:
    """The host below ``root``.

    ``run`` runs tools, by default on this machine if ``root`` is ``/``, and not at all
    below another root: a change that needs one then fails. ``write`` writes to a file
    of /sys, ``clock`` returns seconds since 1970, ``sleep`` waits. ``activates`` is
    False for a hook: VDSM's network setup activates changed profiles itself.
    ``disconnected`` has the netdevs, by the profile's UUID, on which an activation of
    ours has failed: NetworkManager takes the profile down first.
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
        self.disconnected: dict[str, str] = {}

    def new_uuid(self, netdev: str) -> str:
        """Return the UUID of a new profile of ``netdev``."""
        return str(uuid4())

    def make_folder(self, path: str) -> None:
        """Make a folder of configfs. Raises OSError."""
        self.path(path).mkdir()

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
        """Run a tool and return its output. Raises CommandFailed."""
        if self.run is None:
            raise NotInstalled(f"{self.root} is not this host's root")
        return self.run(argv)

    def run_or_fail(self, failure: str, argv: Sequence[str], fix: str = "") -> str:
        """Run a tool and return its output. Raises EffectFailed, with a sentence that
        begins with ``failure``.
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

    A child that the plan makes, ``ib0.8001``, is identified by its parent.
    """
    for netdev in facts.netdevs:
        if netdev.name == name:
            child = netdev.ipoib is not None and netdev.ipoib.parent is not None
            infiniband = netdev.type == ARPHRD_INFINIBAND
            return Place(
                name,
                guid=_guid(netdev.address) if infiniband else None,
                pkey=netdev.ipoib.pkey if netdev.ipoib and child else None,
                pci=netdev.pci.address if netdev.pci else None,
                port=netdev.rdma_port,
            )
    head, dot, digits = name.rpartition(".")
    pkey = f"0x{digits}"
    for parent in facts.netdevs if dot and partition_of(pkey) is not None else ():
        if parent.name[:PARENT_LENGTH] == head and parent.type == ARPHRD_INFINIBAND:
            return Place(name, guid=_guid(parent.address), pkey=pkey)
    return Place(name)


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
    names = [n for n in host.tree.names(NET_CLASS) if _is_at(host.tree, n, place)]
    return place.netdev if place.netdev in names else next(iter(names), None)


def netdevs_of_pci(host: Host, address: str) -> dict[str, int]:
    """Return the netdevs of a PCI function, with the port of each, from 1."""
    return {
        name: port_on_device(host.tree, name)
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
    if _pci(tree, name) != place.pci:
        return False
    names = tree.names(NET_CLASS)
    # The only one is the right one, whatever dev_port says.
    alone = [other for other in names if _pci(tree, other) == place.pci] == [name]
    return alone or place.port in (None, port_on_device(tree, name))


def _is_of_pkey(tree: FileTree, name: str, place: Place) -> bool:
    """Whether the netdev has the P_Key of ``place``; without one, is a base one."""
    files = tree.names(f"{NET_CLASS}/{name}")
    base = "create_child" in files
    if place.pkey is None or base:
        return base and place.pkey is None
    if "parent" not in files:  # made with ip link
        return name == place.netdev
    pkey = partition_of(tree.text(f"{NET_CLASS}/{name}/pkey"))
    return pkey is not None and pkey == partition_of(place.pkey)


def _pci(tree: FileTree, name: str) -> Optional[str]:
    """Return the netdev's PCI address. Its device may be below that, as with virtio."""
    device = tree.real_path(f"{NET_CLASS}/{name}/device")
    parts = device.parts[::-1] if device else ()
    return next((part for part in parts if part.count(":") == 2), None)


# Patterns of allowed targets and values, which several kinds have.
# The kernel's dev_valid_name: no white space, "/" or ":", at most 15 bytes.
NETDEV = r"(?!\.{1,2}(?:/|$))[^\s/:]{1,15}"
NUMBER = r"[0-9]{1,6}"
PKEY = r"0x[0-9a-fA-F]{1,4}"
MODE = r"datagram|connected"
SWITCH = r"on|off"

_SWITCHES = {"on": "on", "true": "on", "yes": "on"}
_SWITCHES.update({"off": "off", "false": "off", "no": "off"})


Values = tuple[Optional[str], ...]
"""A value for each of some changes; None if there is none."""


@dataclass(frozen=True)
class AtomicChange:
    """An atomic change: what is made, recorded and undone as one, and its state.

    ``changes`` is one Change, or all those that make a new profile, which is made
    completely or not at all. ``step`` is the step's id, and ``effect`` its class.
    ``uuid`` is the profile's, chosen before it is made, if the target of the changes is
    ``new:NETDEV``. The ``before`` of each change is the value from before the run, None
    if there was none. ``lasting`` is True if a profile or file keeps the value over a
    boot; other values are set again by our units (``ovirt-rdma-host unit netdev``).

    ``run`` and ``number`` are its place in the journal, and ``boot`` is the kernel's
    boot id when it was made. ``found`` are the values that were read back, None if it
    was not completed. While it is undone, ``undoing`` are the values that the run
    ``undoing_run`` sets: the earlier ones, or somebody else's, which stay.
    ``undone_by`` is the run in which it was undone. ``why`` says why it was left, or
    nothing had to be done.
    """

    step: str
    effect: str
    changes: tuple[Change, ...]
    uuid: Optional[str] = None
    place: Optional[Place] = None
    lasting: bool = True
    run: int = 0
    number: int = 0
    boot: str = ""
    found: Optional[Values] = None
    undoing: Optional[Values] = None
    undoing_run: Optional[int] = None
    undone_by: Optional[int] = None
    why: str = ""

    @property
    def before(self) -> Values:
        """The ``before`` of each change."""
        return tuple(change.before for change in self.changes)

    def with_before(self, values: Values) -> AtomicChange:
        """Return it with these values as the ``before`` of its changes."""
        changes = (replace(c, before=value) for c, value in zip(self.changes, values))
        return replace(self, changes=tuple(changes))

    @property
    def is_applied(self) -> bool:
        """Whether it was made, or may have been, and was not undone."""
        return self.undone_by is None

    @property
    def group(self) -> tuple[int, str]:
        """Run and step: the changes that are undone together."""
        return self.run, self.step


Property = tuple[str, str, str]
"""Kind, target and name of something that has one value. The target is a profile's UUID
if that of the change is ``new:NETDEV``.
"""


@dataclass(frozen=True)
class Kind:
    """A change, with all that is known of its kind. ``uuid`` is that of a new profile.

    This class is for kinds that do not exist: it allows nothing. A subclass overrides
    ``name``, ``values``, ``read``, ``put`` (or ``do`` and ``undo``), and whatever else
    is different for it:

    - ``is_named``: its changes have a ``name`` besides the target.
    - ``may_be_removed``: its ``after`` may be None.
    - ``is_volatile``: the kernel forgets the value at a boot.
    - ``is_text``: the values are whole texts of files.
    - ``is_maker``: it makes something that other changes can set, and is undone with
      all later changes to that.
    - ``outlives_netdev``: its target and value stay when the netdev is renamed or
      removed.
    - ``stays``: why an undo has nothing to do; else None.
    """

    change: Change
    uuid: Optional[str] = None

    name: ClassVar[str] = ""
    is_named: ClassVar[bool] = False
    may_be_removed: ClassVar[bool] = False
    is_volatile: ClassVar[bool] = False
    is_text: ClassVar[bool] = False
    is_maker: ClassVar[bool] = False
    outlives_netdev: ClassVar[bool] = False
    stays: ClassVar[Optional[str]] = None

    @classmethod
    def is_for(cls, change: Change) -> bool:
        """Whether ``change`` is of this kind."""
        return change.kind == cls.name

    # What is allowed: root acts on journals and plan files.

    def values(self) -> Optional[str]:
        """Return the pattern of allowed values; None for a target that is not ours."""
        return None

    def refusal(self) -> str:
        """Return why no rule of ours makes such a change, as a clause; else ""."""
        change = self.change
        described = f"{change.target} {change.name}".strip()
        wanted = None if change.name and not self.is_named else self.values()
        if wanted is None:
            what = f"{change.kind} {described!a}"
            return f"{what} is not something that ovirt-rdma changes"
        for value in (change.before, change.after):
            if value is not None and not re.fullmatch(wanted, value, re.DOTALL):
                return f"{value[:60]!a} is not a valid value for {described}"
        if change.after is None and not self.may_be_removed:
            return f"{change.target} needs a value"
        return ""

    # What the change is about.

    @property
    def sets(self) -> Property:
        """The property that the change sets."""
        return self.change.kind, self.change.target, self.change.name

    @property
    def netdev(self) -> Optional[str]:
        """The netdev whose setting it is; None for others."""
        return None

    @property
    def port(self) -> Optional[tuple[str, int]]:
        """The PCI address and port of an adapter if it sets the port's MTU or type,
        which recreates all netdevs of the adapter; None for others.
        """
        return None

    @property
    def adapter(self) -> Optional[str]:
        """The PCI address of the adapter that it sets; None for others."""
        return self.port[0] if self.port else None

    def interrupts(self, users: NetdevUsers) -> tuple[str, ...]:
        """Return who loses something if its link goes down, or what it made goes."""
        if self.port:
            return users.of_adapter(self.port[0], removed=True)
        names = self.touched(users.facts)
        return users.of(*names, removed=self.is_maker) if names else ()

    def touched(self, facts: Facts) -> tuple[str, ...]:
        """Return the netdevs in ``facts`` that it makes or sets, with their present
        names.
        """
        name = self.made_netdev or self.netdev
        return (name,) if name else ()

    @property
    def undo_interrupts(self) -> bool:
        """Whether its undo takes a link down, even if it was live."""
        return self.is_maker

    @property
    def undo_goes_on(self) -> bool:
        """Whether its undo does more after the value is restored, as to start a program
        again. Only then is it called again if it failed or was interrupted.
        """
        return False

    @property
    def sysfs_file(self) -> str:
        """The name of the netdev's file that it writes (``mode``, ``mtu``), or ""."""
        return ""

    @property
    def is_mtu(self) -> bool:
        """Whether it sets the MTU of a netdev, at once or in its profile."""
        return self.sysfs_file == "mtu"

    @property
    def goes_with_mode(self) -> bool:
        """Whether it is decided for the transport mode that its netdev will have."""
        return self.is_mtu

    @property
    def needs_uuid(self) -> bool:
        """Whether the target is a new object, which gets a UUID of ours."""
        return False

    @property
    def effect(self) -> str:
        """The class of setting the value again at a boot."""
        return LIVE

    def lasts(self, managed: bool) -> bool:
        """Whether the value survives a boot. ``managed``: by NetworkManager."""
        return not self.is_volatile

    def place(self, facts: Facts) -> Optional[Place]:
        """Return where its netdev or adapter is in ``facts``; None without either."""
        if self.port:
            return Place(pci=self.port[0], port=self.port[1])
        return None if self.netdev is None else place_of_netdev(self.netdev, facts)

    def on_netdev(self, name: str) -> Change:
        """Return the change for the netdev ``name`` instead of its own."""
        return self.change

    @property
    def made_netdev(self) -> Optional[str]:
        """The netdev that it makes, a P_Key child; None if it makes none."""
        return None

    def owns(self, other: Kind) -> bool:
        """Whether ``other`` has changed something that this makes."""
        made = self.made_netdev
        return made is not None and other.netdev == made and not other.outlives_netdev

    # Values.

    def normal(self, value: str) -> Optional[str]:
        """Return ``value`` in its one form; None if it means that nothing is set."""
        return normal_text(value.strip()) or None

    def same(self, one: Optional[str], other: Optional[str]) -> bool:
        """Whether ``one`` and ``other`` mean the same."""
        return self._normal(one) == self._normal(other)

    def accepts(self, value: Optional[str]) -> bool:
        """Whether the host has accepted the change: ``value`` is its ``after``, or a
        smaller number if the change is ``clamped``.
        """
        wanted, present = self._normal(self.change.after), self._normal(value)
        if wanted == present:
            return True
        if not (self.change.clamped and wanted and present):
            return False
        return wanted.isdecimal() and present.isdecimal() and int(present) < int(wanted)

    def still_holds(self, value: Optional[str]) -> bool:
        """Whether the plan holds although the host has ``value`` now."""
        # A plan may not know a kernel value: the netdev did not exist yet.
        unknown = self.is_volatile and self.change.before is None
        return unknown or self.same(self.change.before, value)

    def _normal(self, value: Optional[str]) -> Optional[str]:
        return None if value is None else self.normal(value)

    # Text.

    def describe(self) -> str:
        """Return the property as text: ``mtu of ib0``."""
        return self.change.target

    def value_text(self, value: Optional[str]) -> str:
        """Return ``value`` for a sentence or a table."""
        return "none" if value is None else value.strip() or "empty"

    def manual_fix(self, value: Optional[str]) -> str:
        """Return the command that restores ``value``, None if there was none; or ""."""
        return ""

    # On the host.

    def is_due(self, host: Host) -> bool:
        """Whether it can be set again at a boot now; else something comes later that
        starts the unit again.
        """
        return True

    def make_readable(self, host: Host) -> None:
        """Do what the value needs to be read; nothing for most."""

    def read(self, host: Host) -> Reading:
        """Return the present value; never raises."""
        raise NotImplementedError

    def do(self, host: Host) -> None:
        """Set ``after``. Raises EffectFailed."""
        self.put(host, self.change.after or "")

    def put(self, host: Host, value: str) -> None:
        """Set a value. Raises EffectFailed."""
        raise NotImplementedError

    def take_effect(self, host: Host) -> None:
        """Do what the value needs to take effect; it may take the link down."""

    def undo(self, host: Host) -> None:
        """Restore ``before`` of what still exists. Raises EffectFailed."""
        before, present = self.change.before, self.read(host)
        if before is not None and present != NO_VALUE and present.value != before:
            self.put(host, before)

    def is_gone(self, host: Host) -> bool:
        """Whether the target does not exist any more; False if that is unknown."""
        return False

    def at(self, host: Host, place: Optional[Place]) -> Optional[Kind]:
        """Return it with the present name of the netdev at ``place``; None if that no
        longer exists. Another netdev that has its name now does not count: without the
        first adapter, ib1 is called ib0. Reads /sys only.
        """
        if place is None or self.netdev is None or self.outlives_netdev:
            return self
        name = present_name(host, place)
        return replace(self, change=self.on_netdev(name)) if name else None


def normal_text(text: str) -> str:
    """Return a number in decimal digits, switches as on or off, else small letters."""
    text = text.lower()
    try:
        return str(int(text, 16 if text.startswith("0x") else 10))
    except ValueError:
        return _SWITCHES.get(text, text)
