# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind PROFILE: set properties of NetworkManager profiles, with nmcli.

A new profile is a keyfile, see nm-settings-keyfile(5). Exit codes of nmcli are in
nmcli(1), "EXIT STATUS": 3 no answer in time, 4 and 5 (de)activation failed, 8
NetworkManager is not running, 10 no such profile, device or access point.

A changed profile is reapplied or activated, so that NetworkManager's applied connection
is the same as the profile (:mod:`ovirt_rdma.host.rules.ipoib`). An activation also
sets the other properties of the profile, and addresses are removed and added. Mode, MTU
and TSO that somebody has set on the netdev otherwise are not ours to change: they are
restored.

A new profile is made completely or not at all, and deleted again. It is written as a
file: only so can it have a UUID that was in the journal before the profile existed.
NetworkManager then loads the file, and the loaded profile is verified.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.changes.kinds.kind import (
    MODE,
    NETDEV,
    NUMBER,
    PKEY,
    SWITCH,
    AtomicChange,
    EffectFailed,
    Host,
    Kind,
    Property,
    Reading,
    normal_text,
)
from ovirt_rdma.host.changes.kinds.netdev import (
    CHILD_S,
    MODE_FILE,
    MTU_FILE,
    OffloadState,
    Sysfs,
)
from ovirt_rdma.host.collect.netdevs import profiles, table
from ovirt_rdma.host.facts.devices import TSO_FEATURES
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import OFFLOAD, PROFILE, SYSFS, Change
from ovirt_rdma.host.rules.ipoib import (
    CHILDREN,
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
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled
from ovirt_rdma.host.system.files import (
    remove_unfinished,
    sync_directory,
    write_atomically,
)

FOLDER = "/etc/NetworkManager/system-connections"
UUID = "connection.uuid"

_COMMENT = "# Made by ovirt-rdma-host; ovirt-rdma-host revert removes it."
# A keyfile has ethtool's switches as booleans (libnm-core nm-keyfile.c).
_SWITCHES = {"on": "true", "off": "false"}


def path_of(netdev: str) -> str:
    """Return the file of the profile that we make for a netdev."""
    return f"{FOLDER}/ovirt-rdma-{netdev}.nmconnection"


def text_of(properties: Mapping[str, str]) -> str:
    """Return the keyfile of a profile with ``properties``, which have nmcli's names:
    ``infiniband.transport-mode``. Pure.
    """
    sections: dict[str, list[str]] = {}
    for name, value in properties.items():
        section, _, key = name.partition(".")
        text = _SWITCHES[value] if section in _OPTIONAL else value
        if name == P_KEY:
            text = str(int(value, 16))  # in decimal digits
        escaped = text.replace("\\", "\\\\")
        sections.setdefault(section, []).append(f"{key}={escaped}")
    blocks = ["\n".join([f"[{name}]", *keys]) for name, keys in sections.items()]
    return "\n\n".join([_COMMENT, *blocks]) + "\n"


def value_in(text: str, name: str) -> Optional[str]:
    """Return a property of a keyfile; None if it has none, or is not valid. Pure."""
    parser = configparser.RawConfigParser(
        delimiters=("=",),
        comment_prefixes=("#",),
        strict=False,
        empty_lines_in_values=False,
    )
    section, _, key = name.partition(".")
    try:
        parser.read_string(text)
        value = parser.get(section, key)
    except configparser.Error:
        return None
    return value.replace("\\\\", "\\")


_NOT_RUNNING = 8
_NOT_FOUND = 10
_MEANINGS = {
    3: "it did not answer in time",
    _NOT_RUNNING: "NetworkManager is not running",
    _NOT_FOUND: "there is no such profile",
}
_START = "systemctl start NetworkManager"
_JOURNAL = "journalctl -b -u NetworkManager"
# Settings that a profile need not have. NetworkManager keeps a setting that has become
# empty ("[ethtool]" in the keyfile): the profile would not be the same as before.
_OPTIONAL = ("ethtool",)


class NoSuchProfile(EffectFailed):
    """NetworkManager does not know the profile."""


class NotRunning(EffectFailed):
    """NetworkManager is not running, or is not installed."""


def nmcli(host: Host, failure: str, *arguments: str) -> str:
    """Run nmcli and return its output. An error begins with ``failure``: ``the profile
    ... cannot be changed``.

    Raises NoSuchProfile, NotRunning, or EffectFailed.
    """
    try:
        return host.tool("nmcli", *arguments)
    except NotInstalled:
        raise NotRunning(
            "network-manager-not-running",
            f"{failure}: NetworkManager is not running: nmcli is not installed",
            "install NetworkManager, and start it",
        ) from None
    except CommandFailed as e:
        code = e.returncode
        sentence = f"{failure}: {_MEANINGS.get(code or 0) or str(e).rstrip('.')}"
        if code == _NOT_FOUND:
            raise NoSuchProfile("profile-gone", sentence) from None
        if code == _NOT_RUNNING:
            raise NotRunning("network-manager-not-running", sentence, _START) from None
        raise EffectFailed("network-manager-refused", sentence, _JOURNAL) from None


def properties(host: Host, uuid: str, *settings: str) -> Optional[dict[str, str]]:
    """Return the properties of the profile ``uuid`` in ``settings`` (``infiniband``),
    as nmcli prints them; None if NetworkManager has no such profile.

    Raises EffectFailed if they cannot be read.
    """
    # The UUID is in "connection", and shows which profile was printed.
    fields = ",".join(dict.fromkeys(("connection", *settings)))
    arguments = ("-t", "-f", fields, "connection", "show", "uuid", uuid)
    failure = f"the profile {uuid} cannot be read"
    try:
        profile = profiles(nmcli(host, failure, *arguments)).get(uuid)
    except NoSuchProfile:
        return None
    if profile is None:
        sentence = f"{failure}: nmcli does not show it"
        raise EffectFailed("network-manager-refused", sentence, _JOURNAL)
    return {item.name: item.value for item in profile}


def modify(host: Host, uuid: str, name: str, value: Optional[str]) -> None:
    """Set a property of a profile; None unsets it. Raises EffectFailed."""
    failure = f"the profile {uuid} cannot be changed ({name} {value or 'unset'})"
    nmcli(host, failure, "connection", "modify", "uuid", uuid, name, value or "")
    setting = name.partition(".")[0]
    if value is None and setting in _OPTIONAL:
        present = properties(host, uuid, setting) or {}
        if not any(one.startswith(f"{setting}.") for one in present):
            words = ("connection", "modify", "uuid", uuid, "remove", setting)
            nmcli(host, failure, *words)
    # NetworkManager syncs the text of the new file, but not its name in the folder
    # (nm_utils_file_set_contents): if /var is a separate file system, a power cut would
    # leave the journal ahead of the profile.
    with suppress(OSError):
        sync_directory(host.path(FOLDER))


# How long nmcli waits for an activation; below base.COMMAND_TIMEOUT_S. NetworkManager
# gives DHCP 45 s.
WAIT_S = "50"


def activate(host: Host, failure: str, uuid: str) -> None:
    """Activate a profile. Raises EffectFailed; its sentence begins with ``failure``."""
    nmcli(host, failure, "--wait", WAIT_S, "connection", "up", "uuid", uuid)


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
            sentence = f"the profile {self.change.target} has no UUID"
            raise EffectFailed("profile-no-uuid", sentence)
        return self.known_uuid

    @property
    def sets(self) -> Property:
        return PROFILE, self.known_uuid or self.change.target, self.change.name

    @property
    def needs_uuid(self) -> bool:
        return self.change.target.startswith(NEW)

    @property
    def netdev(self) -> Optional[str]:
        return self.change.target[len(NEW) :] if self.needs_uuid else None

    def touched(self, facts: Facts) -> tuple[str, ...]:
        manager = facts.network_manager
        profiles = manager.profiles if manager else ()
        active = [p.active_on for p in profiles if p.uuid == self.known_uuid]
        return tuple(filter(None, active)) or super().touched(facts)

    def interrupts(self, users: NetdevUsers) -> tuple[str, ...]:
        manager, found = users.facts.network_manager, super().interrupts(users)
        if manager is None or manager.running is not None:
            return found
        unknown = "unknown: nmcli failed: where the profile is active is unknown"
        return (*found, unknown)

    @property
    def undo_interrupts(self) -> bool:
        # A profile that was not active when it was changed may be active now.
        return self.is_maker or needs_activation(self.change)

    @property
    def undo_goes_on(self) -> bool:
        return self.undo_interrupts

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
        _, target, name = self.sets
        text = shlex.quote(value or "")
        return f"nmcli connection modify {shlex.quote(target)} {name} {text}"

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
            present = properties(host, uuid, name.partition(".")[0])
        except EffectFailed as e:
            problem = str(e)
        if present is not None:
            value = present.get(name)
        else:
            text = self.own_file(host)
            if text is None:
                return Reading(problem=problem)
            value = value_in(text, name)
        return Reading(None if self.same(value, None) else value)

    def do(self, host: Host) -> None:
        modify(host, self.uuid_or_fail(), self.change.name, self.change.after)

    def take_effect(self, host: Host) -> None:
        self._activate(host, self.change.name)

    def undo(self, host: Host) -> None:
        uuid, before = self.known_uuid, self.change.before
        present = self.read(host)
        if uuid is None:
            return
        try:
            if present.problem or not self.same(present.value, before):
                modify(host, uuid, self.change.name, before)
        except NoSuchProfile:
            return
        # Also if the value is there: the run may have been killed before this.
        self._activate(host, "")

    def is_gone(self, host: Host) -> bool:
        try:
            known = self.known_uuid and properties(host, self.known_uuid)
        except EffectFailed:
            return False
        return known is None and self.own_file(host) is None

    def own_file(self, host: Host) -> Optional[str]:
        """Return the text of the file that we made for a new profile; None if it does
        not exist, or is another profile's.
        """
        data = host.tree.data(path_of(self.netdev)) if self.netdev else None
        if data is None:
            return None
        text = data.decode("utf-8", "surrogateescape")
        return text if value_in(text, UUID) == self.uuid else None

    def _activate(self, host: Host, changed: str) -> None:
        """Make the changed profile take effect if it must be activated for that, and is
        active, or was until an activation of ours failed; on the netdev, only what its
        property ``changed`` sets changes.
        """
        uuid = self.known_uuid
        if not (host.activates and uuid and needs_activation(self.change)):
            return
        failure = f"the profile {uuid} cannot be activated"
        text = nmcli(host, failure, "-t", "-f", "UUID,DEVICE", "connection")
        active = {row[0]: row[1] for row in table(text, 2)}.get(uuid)
        name = active or host.disconnected.get(uuid)
        if not name or "," in name:
            # If it is active on several netdevs (connection.multi-connect, which
            # nmstate never sets), an activation may use another one. It takes effect
            # with the next setup of each.
            return
        earlier = [
            replace(kind, change=replace(kind.change, before=kind.read(host).value))
            for kind in _set_on(name, changed)
        ]
        try:
            # Interrupts nothing, but NetworkManager may refuse it.
            nmcli(host, failure, "--wait", WAIT_S, "device", "reapply", name)
        except EffectFailed:
            host.disconnected[uuid] = name
            try:
                activate(host, failure, uuid)
            except EffectFailed:
                for kind in earlier:
                    with suppress(EffectFailed):
                        kind.undo(host)
                raise
            del host.disconnected[uuid]
        for kind in earlier:
            kind.undo(host)


def _set_on(netdev: str, changed: str) -> Iterator[Kind]:
    """Yield what a profile may set on a netdev, except by its property ``changed``; the
    mode first, because it sets an MTU.
    """
    for file in () if changed == TRANSPORT_MODE else (MODE_FILE, MTU_FILE):
        yield Sysfs(Change(SYSFS, f"{NET_CLASS}/{netdev}/{file}", None, None))
    for feature in () if changed == TSO else TSO_FEATURES:
        yield OffloadState(Change(OFFLOAD, netdev, None, None, feature))


# How long nmcli waits until the profile is gone.
_WAIT_S = "30"
# No profile is active on it, or only one that NetworkManager has generated.
_FREE = ("disconnected", "connected (externally)")
_WITHOUT_CARRIER = "unavailable"


@dataclass(frozen=True)
class NewProfile(ProfileProperty):
    """All changes that make a new profile, ``changes``, of which ``change`` is the
    first. ``makes_child``: NetworkManager makes the P_Key child for it too;
    IPOIB-PROFILE-01 makes a profile for one that already exists and stays.
    """

    changes: tuple[Change, ...] = ()
    makes_child: bool = False

    is_maker = True

    @classmethod
    def of(cls, act: AtomicChange) -> Optional[NewProfile]:
        """Return the profile that ``act`` makes; None if it changes an existing one."""
        made = any(
            change.kind == PROFILE
            and change.name == CONNECTION_TYPE
            and change.target.startswith(NEW)
            for change in act.changes
        )
        makes_child = act.step.partition("/")[0] == CHILDREN.id
        first = act.changes[0]
        return cls(first, act.uuid, act.changes, makes_child) if made else None

    @property
    def made_netdev(self) -> Optional[str]:
        return self.netdev if self.makes_child else None

    def owns(self, other: Kind) -> bool:
        """Whether ``other`` has changed this profile, or its child."""
        if isinstance(other, ProfileProperty):
            return other.sets[1] == self.uuid
        return super().owns(other)

    def describe(self) -> str:
        return f"the profile of {self.netdev}"

    def manual_fix(self, value: Optional[str]) -> str:
        return f"nmcli connection delete {shlex.quote(self.sets[1])}"

    def do(self, host: Host) -> None:
        """Make the profile, and activate it if its netdev is free. With
        ``ignore-carrier=*`` (NetworkManager-config-server, which ovirt-host requires),
        a netdev without carrier is free too; otherwise NetworkManager activates the
        profile later by itself. Raises EffectFailed; there is no profile then.
        """
        uuid = self.uuid_or_fail()
        failure = "no profile can be made"
        running = nmcli(host, failure, "-t", "-f", "RUNNING", "general")
        if running.strip() != "running":
            sentence = f"{failure}: NetworkManager is not running"
            raise EffectFailed("network-manager-not-running", sentence)
        self._check_free(host)
        # Read before: NetworkManager activates a profile by itself when it loads it.
        is_free = self.makes_child or self._state(host) in _FREE
        try:
            self._write(host)
            failure = f"NetworkManager does not load {self._path}"
            nmcli(host, failure, "connection", "load", self._path)
            self._check_loaded(host, uuid)
            if is_free:
                self._activate_new(host, uuid)
        except EffectFailed as failed:
            try:
                self.undo(host)
            except EffectFailed as left:
                raise EffectFailed(
                    "profile-not-removed", f"{failed}; also, {left}", left.fix
                ) from None
            raise

    def take_effect(self, host: Host) -> None:
        """Do nothing: it is activated as soon as it is made."""

    def undo(self, host: Host) -> None:
        """Delete the profile, and wait until the child that it made is gone too."""
        uuid, child = self.uuid_or_fail(), self.made_netdev
        failure = f"the profile {uuid} cannot be deleted"
        delete = ("--wait", _WAIT_S, "connection", "delete", "uuid", uuid)
        running = True
        try:
            nmcli(host, failure, *delete)
        except NoSuchProfile:
            pass
        except NotRunning:  # only the file has to be removed
            running = False
        self._remove(host)
        if child and running and self._is_of_another(host, child):
            return
        if child and not running and _exists(host, child):
            # NetworkManager, started again, does not know that it has made it.
            command = ("ip", "link", "delete", child)
            host.run_or_fail(f"{child} cannot be removed", command)
        if child and not host.wait_for(lambda: not _exists(host, child), CHILD_S):
            raise EffectFailed(
                "netdev-not-removed",
                f"the profile of {child} was deleted, but {child} still exists",
                f"ip link delete {child}",
            )

    def _is_of_another(self, host: Host, child: str) -> bool:
        """Whether another profile is active on ``child``, which is not ours then."""
        failure = f"the profile of {child} could not be read"
        text = nmcli(host, failure, "-t", "-f", "UUID,DEVICE", "connection")
        return any(row[1] == child for row in table(text, 2))

    @property
    def _path(self) -> str:
        return path_of(self.netdev or "")

    def _state(self, host: Host) -> Optional[str]:
        """Return nmcli's state of the netdev: ``disconnected``. Raises EffectFailed."""
        failure = "NetworkManager's devices could not be read"
        text = nmcli(host, failure, "-t", "-f", "DEVICE,STATE", "device")
        return {row[0]: row[1] for row in table(text, 2)}.get(self.netdev or "")

    def _check_free(self, host: Host) -> None:
        place = host.path(self._path)
        if not place.parent.is_dir():
            sentence = f"no profile can be made: {FOLDER} does not exist"
            raise EffectFailed("profile-folder-missing", sentence)
        taken = place.is_symlink() or place.exists()
        if taken and self.own_file(host) is None:
            raise EffectFailed(
                "profile-file-exists",
                f"{self._path} already exists, and is not from this run",
                "read it, and delete that profile, or give the file another name",
            )

    def _write(self, host: Host) -> None:
        wanted = {c.name: c.after for c in self.changes if c.after is not None}
        text = text_of({UUID: self.uuid_or_fail(), **wanted})
        data = text.encode("utf-8", "surrogateescape")
        try:
            write_atomically(host.path(self._path), data, 0o600)
        except OSError as e:
            raise EffectFailed(
                "profile-not-written", f"{self._path} cannot be written: {e.strerror}"
            ) from None

    def _check_loaded(self, host: Host, uuid: str) -> None:
        """Verify that NetworkManager has the profile: nmcli exits with 0 even if
        NetworkManager has not accepted the file.
        """
        loaded = properties(
            host, uuid, *(c.name.partition(".")[0] for c in self.changes)
        )
        if loaded is None:
            raise EffectFailed(
                "profile-not-loaded",
                f"NetworkManager has not accepted the profile for {self.netdev}",
                f"its log says why: {_JOURNAL}",
            )
        for change in self.changes:
            value = loaded.get(change.name)
            if not ProfileProperty(change).same(change.after, value):
                raise EffectFailed(
                    "profile-value-differs",
                    f"{change.name} in the new profile is {value or 'unset'} in "
                    f"NetworkManager, not {change.after}",
                    _JOURNAL,
                )

    def _activate_new(self, host: Host, uuid: str) -> None:
        child = self.made_netdev
        failure = f"the new profile of {self.netdev} cannot be activated"
        try:
            activate(host, failure, uuid)
        except EffectFailed:
            # NetworkManager activates it as soon as there is carrier.
            if self._state(host) != _WITHOUT_CARRIER:
                raise
        if child and not host.wait_for(lambda: _exists(host, child), CHILD_S):
            sentence = f"{child} did not appear within {CHILD_S:g} s"
            raise EffectFailed("netdev-not-created", sentence, _JOURNAL)

    def _remove(self, host: Host) -> None:
        """Remove the file if NetworkManager has not removed it with the profile, and
        files that a run left that was killed while it wrote.
        """
        place = host.path(self._path)
        try:
            if self.own_file(host) is not None:
                place.unlink()
            remove_unfinished(place.parent)
            if place.parent.is_dir():
                sync_directory(place.parent)
        except OSError as e:
            raise EffectFailed(
                "profile-not-removed", f"{self._path} cannot be removed: {e.strerror}"
            ) from None


def _exists(host: Host, name: str) -> bool:
    return name in host.tree.names(NET_CLASS)
