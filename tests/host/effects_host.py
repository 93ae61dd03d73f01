# SPDX-License-Identifier: GPL-2.0-or-later
"""A host in memory for the engine: the kernel, ethtool and NetworkManager of the rules'
tests behind the engine's door, files and units beside them; strict. It can be killed
at any point, forget what was set, and be booted.
"""

from __future__ import annotations

from dataclasses import replace

from ipoib_kernel import Kernel
from ipoib_undo import _Undo

from ovirt_rdma.host.effects.effect import EffectFailed, Reading
from ovirt_rdma.host.effects.journal import Journal, JournalProblem
from ovirt_rdma.host.effects.journal_lines import line_of
from ovirt_rdma.host.effects.place import place_of
from ovirt_rdma.host.effects.properties import (
    adapter_of,
    file_of,
    made_netdev,
    makes_profile,
)
from ovirt_rdma.host.effects.run import RunRequest, apply_steps
from ovirt_rdma.host.effects.same_value import same_value
from ovirt_rdma.host.effects.targets import makes_child, netdev_of
from ovirt_rdma.host.rules.rule import (
    FILE,
    MODULE,
    OFFLOAD,
    PROFILE,
    UNIT,
    Change,
)
from ovirt_rdma.host.software_facts import OwnFile, Unit


class Killed(BaseException):
    """The process ends here, as by SIGKILL."""


class Points:
    """Counts the points at which a run can be killed; at number ``last`` it is."""

    def __init__(self, last=None):
        self.passed = 0
        self.last = last

    def point(self):
        self.passed += 1
        if self.passed == self.last:
            raise Killed


_READ = {}  # lines that were read once already, which takes its time


class MemoryJournal(Journal):
    """A journal whose bytes are ``data``; ``full_at`` is the append from which on the
    disk is full, or with ``full_once`` only at that one.
    """

    def __init__(self, points=None, full_at=None):
        super().__init__("/nowhere")
        self.data = b""
        self.points = points or Points()
        self.full_at = full_at
        self.full_once = False
        self.appends = 0

    def _bytes(self):
        return self.data

    def records(self):
        lines = self.data.splitlines()
        if not all(line in _READ for line in lines):
            _READ.update(zip(lines, super().records()))
        return tuple(_READ[line] for line in lines)

    def append(self, record):
        self.points.point()
        self.appends += 1
        if self.full_at is not None and self.appends >= self.full_at:
            if self.full_once:
                self.full_at = None
            raise JournalProblem("No space left on device")
        self.data = self.data[: self.data.rfind(b"\n") + 1] + line_of(record)
        self.points.point()


class Told:
    """Listens, and remembers."""

    def __init__(self):
        self.lines = []

    def doing(self, step_id, sentence):
        self.lines.append(f"doing {step_id}")

    def done(self, step_id, before, after):
        self.lines.append(f"done {step_id}")

    def note(self, sentence):
        self.lines.append(sentence)


class FakeHost:
    def __init__(self, facts, group_mtu=4092):
        self.facts = facts
        self.group_mtu = group_mtu
        self.boot = "boot-1"
        self.time = 1_700_000_000.0
        self.points = Points()
        self.effects = 0
        # Called with the act before it is done, or undone.
        self.on_do = self.on_undo = lambda act: None
        # (kind, name or file) that take a value and forget it: when it is set, and
        # when it is set back.
        self.forgets = set()
        self.stuck = set()
        self.files = {one.path: one.text for one in facts.software.own_files}
        self.units = {}

    # The door.

    def refusal(self, change):
        return f"{change.target} is not ours" if "passwd" in change.target else ""

    def read(self, change, uuid=None, place=None):
        change = self._now(change, place)
        if change.kind == PROFILE:
            profile = self._profile(self._uuid(change, uuid))
            return Reading(profile.value(change.name) if profile else None)
        if change.kind == FILE:
            return Reading(self.files.get(change.target))
        if change.kind == MODULE:
            loaded = change.target in self.facts.modules.loaded
            return Reading("loaded" if loaded else None)
        if change.kind == UNIT:
            return Reading(self.units.get(change.target, "disabled"))
        if adapter_of(change):
            return Reading(str(self._port_mtu(change)))
        netdev = self._netdev(netdev_of(change))
        if netdev is None:
            return Reading(None)
        if makes_child(change):
            return Reading(change.after if self._child(change) else None)
        if change.kind == OFFLOAD:
            found = [o for o in netdev.offloads if o.name == change.name]
            on = found and (found[0].on or found[0].requested)
            return Reading(("on" if on else "off") if found else None)
        if file_of(change) == "mtu":
            return Reading(str(netdev.mtu))
        return Reading(netdev.ipoib.mode if netdev.ipoib else None)

    def do(self, act):
        self.points.point()
        self.effects += 1
        self.on_do(act)
        kernel = Kernel(self.facts, self.group_mtu)
        for change in act.changes:
            if _key(change) not in self.forgets:
                self._set(kernel, act, change, change.after)
        kernel.check_new_profiles()
        self.points.point()

    def undo(self, act):
        self.points.point()
        self.effects += 1
        self.on_undo(act)
        first = act.changes[0]
        if makes_profile(act) or makes_child(first):
            if makes_profile(act):
                self._delete_profile(act.uuid)
            self._delete(made_netdev(act))
        elif first.kind != MODULE:
            assert len(act.changes) == len(act.before) == 1
            if _key(first) not in self.stuck:
                kernel = _Undo(self.facts, self.group_mtu)
                self._set(kernel, act, first, act.before[0])
        self.points.point()

    def gone(self, act):
        first = self._now(act.changes[0], act.place)
        if first.kind == PROFILE:
            return self._profile(self._uuid(first, act.uuid)) is None
        netdev = netdev_of(first)
        return netdev is not None and self._netdev(netdev) is None

    def present(self, act):
        changes = tuple(self._now(one, act.place) for one in act.changes)
        return replace(act, changes=changes)

    def boot_id(self):
        return self.boot

    def now(self):
        self.time += 1
        return self.time

    # What else happens to a host.

    def put(self, change, value):
        """Somebody sets a property."""
        act = _Foreign(change.target if change.kind == PROFILE else None)
        self._set(_Undo(self.facts, self.group_mtu), act, change, value)

    def rename(self, old, new):
        netdev = self._netdev(old)
        others = tuple(n for n in self.facts.netdevs if n.name != old)
        renamed = replace(netdev, name=new)
        self.facts = replace(self.facts, netdevs=(*others, renamed))

    def reboot(self, boot="boot-2"):
        """The kernel's own values, but for what profiles say."""
        self.boot = boot
        for netdev in self.facts.netdevs:
            if not netdev.ipoib:
                continue
            kept = [
                p for p in self._manager().profiles if p.interface_name == netdev.name
            ]
            mode = kept[0].value("infiniband.transport-mode") if kept else None
            mode = mode or "datagram"
            mtu = 65520 if mode == "connected" else self.group_mtu
            self._put(replace(netdev, mtu=mtu, ipoib=replace(netdev.ipoib, mode=mode)))

    def settings(self):
        """All that a plan changes and an undo brings back."""
        netdevs = {
            n.name: (
                n.mtu,
                n.ipoib and n.ipoib.mode,
                {o.name: o.on or bool(o.requested) for o in n.offloads},
            )
            for n in self.facts.netdevs
        }
        profiles = {
            p.uuid: (
                p.interface_name,
                {o.name: o.value for o in p.properties if o.value is not None},
            )
            for p in self._manager().profiles
        }
        ports = {a.pci.address: a.port_mtus for a in self.facts.adapters}
        units = {n: v for n, v in self.units.items() if v != "disabled"}
        return netdevs, profiles, ports, dict(self.files), units

    # Inside.

    def _set(self, kernel, act, change, value):
        change = self._now(change, act.place)
        if change.kind == FILE:
            self._set_file(change.target, value)
        elif change.kind == UNIT:
            self._set_unit(change.target, value)
        elif change.kind == MODULE:
            modules = self.facts.modules
            loaded = (*modules.loaded, change.target)
            self.facts = replace(self.facts, modules=replace(modules, loaded=loaded))
        elif change.kind == PROFILE:
            self._set_profile(kernel, act, change, value)
        else:
            netdev = self._netdev(netdev_of(change))
            if file_of(change) == "mtu" and not netdev.ipoib:
                self._put(replace(netdev, mtu=int(value)))
                return
            before = None if file_of(change) == "mode" else change.before
            if adapter_of(change):
                before = str(self._port_mtu(change))
            clamped = change.clamped or isinstance(kernel, _Undo)
            kernel.do(replace(change, before=before, after=value, clamped=clamped))
            self.facts = kernel.facts

    def _set_profile(self, kernel, act, change, value):
        uuid = self._uuid(change, act.uuid)
        profile = self._profile(uuid)
        if profile is not None:
            assert same_value(change, profile.value(change.name), change.before) or (
                isinstance(kernel, _Undo)
            )
            if value is None:
                # NetworkManager lets no infiniband profile be without a mode.
                assert change.name != "infiniband.transport-mode"
                self._unset(profile, change.name)
                return
            change = replace(change, before=profile.value(change.name))
        kernel.do(replace(change, after=value))
        self.facts = kernel.facts

    def _unset(self, profile, name):
        kept = tuple(p for p in profile.properties if p.name != name)
        if name == "connection.interface-name":
            profile = replace(profile, interface_name=None)
        self._keep(profile.uuid, replace(profile, properties=kept))

    def _set_file(self, path, text):
        if text is None:
            self.files.pop(path, None)
        else:
            self.files[path] = text
        own = tuple(OwnFile(*item) for item in sorted(self.files.items()))
        software = replace(self.facts.software, own_files=own)
        self.facts = replace(self.facts, software=software)

    def _set_unit(self, name, value):
        self.units[name] = value
        active = "active" if value == "enabled" else "inactive"
        others = tuple(u for u in self.facts.software.units if u.name != name)
        units = (*others, Unit(name, "loaded", active, value))
        software = replace(self.facts.software, units=units)
        self.facts = replace(self.facts, software=software)

    def _delete_profile(self, uuid):
        if self._profile(uuid) is not None:
            self._keep(uuid)

    def _keep(self, uuid, *instead):
        manager = self._manager()
        others = tuple(p for p in manager.profiles if p.uuid != uuid)
        managed = manager.managed
        manager = replace(manager, profiles=(*others, *instead), managed=managed)
        self.facts = replace(self.facts, network_manager=manager)

    def _delete(self, name):
        others = tuple(n for n in self.facts.netdevs if n.name != name)
        self.facts = replace(self.facts, netdevs=others)

    def _put(self, netdev):
        others = tuple(n for n in self.facts.netdevs if n.name != netdev.name)
        self.facts = replace(self.facts, netdevs=(*others, netdev))

    def _manager(self):
        manager = self.facts.network_manager
        return manager or _NoManager()

    def _profile(self, uuid):
        found = [p for p in self._manager().profiles if p.uuid == uuid]
        return found[0] if found else None

    @staticmethod
    def _uuid(change, uuid):
        new = change.target.startswith("new:")
        assert not new or uuid, "a new profile has a UUID"
        return uuid if new else change.target

    def _netdev(self, name):
        found = [n for n in self.facts.netdevs if n.name == name]
        return found[0] if found else None

    def _child(self, change):
        made = netdev_of(change)
        return any(
            n.ipoib and n.ipoib.parent == made and n.ipoib.pkey == change.after
            for n in self.facts.netdevs
        )

    def _port_mtu(self, change):
        number = int(change.target.rpartition("/mlx4_port")[2].partition("_")[0])
        for adapter in self.facts.adapters:
            if adapter.pci.address == adapter_of(change):
                return adapter.port_mtus[number - 1]
        raise EffectFailed("no such adapter")

    def _now(self, change, place):
        """The change with the name that the netdev of its place has now."""
        name = netdev_of(change)
        if not (place and name and (place.guid or place.pci)):
            return change
        if self._is_at(place_of(change, self.facts), place):
            return change
        for netdev in self.facts.netdevs:
            found = place_of(_naming(change, name, netdev.name), self.facts)
            if self._is_at(found, place):
                return _naming(change, name, netdev.name)
        return change

    @staticmethod
    def _is_at(found, place):
        """Whether they are one place, whatever its netdev is called."""
        return found and (found.guid, found.pkey, found.pci, found.port) == (
            *(place.guid, place.pkey, place.pci, place.port),
        )


class _Foreign:
    step = "IPOIB-PROFILE-01/foreign"
    place = None

    def __init__(self, uuid):
        self.uuid = uuid


class _NoManager:
    profiles = ()


def _key(change):
    return change.kind, file_of(change) or change.name


def _naming(change: Change, old: str, new: str) -> Change:
    if change.kind == OFFLOAD:
        return replace(change, target=new)
    target = change.target.replace(f"/net/{old}/", f"/net/{new}/")
    return replace(change, target=target)


def request_for(host, steps, **parts):
    """A request whose new profiles get the UUIDs that the kernel's double gives."""
    new = [c.target for s in steps for c in s.changes if c.target.startswith("new:")]
    uuids = iter(f"ours-{name[4:]}" for name in dict.fromkeys(new))
    facts = parts.pop("facts", host.facts)
    return RunRequest(facts=facts, new_uuid=lambda: next(uuids), **parts)


def applied(host, journal, steps, told=None, **parts):
    """Apply ``steps``, but for what the rules refuse."""
    steps = [step for step in steps if not step.refused]
    return apply_steps(
        host, journal, steps, request_for(host, steps, **parts), told or Told()
    )
