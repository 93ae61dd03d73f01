# SPDX-License-Identifier: GPL-2.0-or-later
"""A backend with a host in memory: the kernel, ethtool and NetworkManager of the rules'
tests, with files, units and virtual functions; strict.

It can be killed at any point, ignore values that are set, and be booted. From the
product it uses data types only.
"""

from __future__ import annotations

from dataclasses import replace

from ovirt_rdma.host.changes.kinds.kind import Reading
from ovirt_rdma.host.facts.model import OwnFile, Unit
from ovirt_rdma.host.rules.base import FILE, MODULE, PROFILE, UNIT, VF
from support.host import vf_kernel
from support.host.change_places import (
    adapter_of,
    child_of,
    file_of,
    is_at,
    makes_child,
    makes_profile,
    naming,
    netdev_of,
    uuid_of,
    values_of,
)
from support.host.ipoib_kernel import InMemory, Kernel
from support.host.ipoib_undo import UndoKernel
from support.killed import Killed


class Points:
    """Counts the points at which a run can be killed, and kills it at ``last``."""

    def __init__(self, last=None):
        self.passed = 0
        self.last = last

    def point(self):
        self.passed += 1
        if self.passed == self.last:
            raise Killed


class FakeHost(InMemory):
    def __init__(self, facts, group_mtu=4092):
        super().__init__(facts, group_mtu)
        self.boot = "boot-1"
        self.time = 1_700_000_000.0
        self.points = Points()
        self.effects = 0
        # Called with the change before it is made, or undone.
        self.on_do = self.on_undo = lambda act: None
        # (kind, name or file) that accept a value and ignore it: when it is set, and
        # when it is undone.
        self.forgets = set()
        self.forgets_undo = set()
        self.files = {one.path: one.text for one in facts.software.own_files}
        self.units = {}
        # The netdevs that NetworkManager has made itself, by the UUID of the profile.
        # It deletes them when that is deactivated (priv->nm_owned in
        # delete_on_deactivate_check_and_schedule, src/core/devices/nm-device.c).
        self.made = {}
        self._values = None, {}

    # The methods of HostEffects.

    def new_uuid(self, netdev):
        return f"ours-{netdev}"

    def make_readable(self, change, place=None):
        """Nothing: all values here can be read."""

    def restore_meanwhile(self):
        """Nothing: no change sets something else meanwhile."""

    def refusal(self, change):
        return f"{change.target} is not ours" if "passwd" in change.target else ""

    def read(self, change, uuid=None, place=None):
        if change.kind == PROFILE:
            return Reading(self._value(PROFILE, uuid_of(change, uuid), change.name))
        if change.kind == FILE:
            return Reading(self.files.get(change.target))
        if change.kind == UNIT:
            return Reading(self.units.get(change.target, "disabled"))
        if change.kind == MODULE:
            return Reading(self._value(MODULE, change.target))
        if change.kind == VF:
            return Reading(vf_kernel.value_of(self.facts, change))
        if self._nothing_at(change, place):
            return Reading(None)
        change = self._now(change, place)
        if makes_child(change):
            return Reading(change.after if self._child(change) else None)
        return Reading(self._value(change.kind, change.target, change.name))

    def do(self, act):
        self.points.point()
        self.effects += 1
        self.on_do(act)
        kernel = Kernel(self.facts, self.group_mtu)
        there = {netdev.name for netdev in self.facts.netdevs}
        for change in act.changes:
            if _key(change) not in self.forgets:
                self._set(kernel, act, change, change.after)
        kernel.check_new_profiles()
        if makes_profile(act):
            new = {netdev.name for netdev in self.facts.netdevs} - there
            self.made[act.uuid] = new
        self.points.point()

    def undo(self, act):
        self.points.point()
        self.effects += 1
        self.on_undo(act)
        first = act.changes[0]
        if makes_profile(act):
            self._keep(act.uuid)
            for name in self.made.pop(act.uuid, ()):
                self._delete(name)
        elif makes_child(first):
            child = self._child(self._now(first, act.place))
            if child:
                self._delete(child.name)
        elif first.kind != MODULE:
            assert len(act.changes) == len(act.before) == 1
            if _key(first) not in self.forgets_undo:
                kernel = UndoKernel(self.facts, self.group_mtu)
                self._set(kernel, act, first, act.before[0])
        self.points.point()

    def gone(self, act):
        first = act.changes[0]
        if first.kind == PROFILE:
            return self._profile(uuid_of(first, act.uuid)) is None
        if first.kind == VF:
            return vf_kernel.is_gone(self.facts, first)
        if self._nothing_at(first, act.place):
            return True
        first = self._now(first, act.place)
        if makes_child(first):
            return self._child(first) is None
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

    # Other events on a host.

    def put(self, change, value):
        """Set a property, as somebody else does."""
        act = _Foreign(change.target if change.kind == PROFILE else None)
        self._set(UndoKernel(self.facts, self.group_mtu), act, change, value)

    def rename(self, old, new):
        netdev = self._netdev(old)
        others = tuple(n for n in self.facts.netdevs if n.name != old)
        renamed = replace(netdev, name=new)
        self.facts = replace(self.facts, netdevs=(*others, renamed))

    def reboot(self, boot="boot-2"):
        """Boot: set the kernel's own values, then those of profiles."""
        self.boot = boot
        self.facts = vf_kernel.without_virtual_functions(self.facts)
        for netdev in self.facts.netdevs:
            if not netdev.ipoib:
                continue
            kept = [p for p in self.profiles if p.interface_name == netdev.name]
            mode = kept[0].value("infiniband.transport-mode") if kept else None
            mode = mode or "datagram"
            mtu = 65520 if mode == "connected" else self.group_mtu
            self._put(replace(netdev, mtu=mtu, ipoib=replace(netdev.ipoib, mode=mode)))

    def settings(self):
        """Return all values that a plan changes and an undo restores."""
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
            for p in self.profiles
        }
        ports = {
            a.pci.address: (a.port_mtus, a.vfs, a.virtual_functions)
            for a in self.facts.adapters
        }
        units = {n: v for n, v in self.units.items() if v != "disabled"}
        return netdevs, profiles, ports, dict(self.files), units

    # Internals.

    def _set(self, kernel, act, change, value):
        change = self._now(change, act.place)
        if change.kind == FILE:
            self._set_file(change.target, value)
        elif change.kind == UNIT:
            self._set_unit(change.target, value)
        elif change.kind == VF:
            self.facts = vf_kernel.with_value(self.facts, change, value)
        elif change.kind == PROFILE:
            self._set_profile(kernel, act, change, value)
        else:
            # Whatever the plan has as the value before: the product has read it again.
            before = None if file_of(change) == "mode" else change.before
            if adapter_of(change):
                before = self._value(change.kind, change.target)
            clamped = change.clamped or isinstance(kernel, UndoKernel)
            kernel.do(replace(change, before=before, after=value, clamped=clamped))
            self.facts = kernel.facts

    def _set_profile(self, kernel, act, change, value):
        uuid = uuid_of(change, act.uuid)
        profile = self._profile(uuid)
        if profile is not None:
            undo = isinstance(kernel, UndoKernel)
            assert undo or change.before == profile.value(change.name)
            if value is None:
                # NetworkManager refuses an infiniband profile without a mode.
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

    def _profile(self, uuid):
        found = [p for p in self.profiles if p.uuid == uuid]
        return found[0] if found else None

    def _netdev(self, name):
        found = [n for n in self.facts.netdevs if n.name == name]
        return found[0] if found else None

    def _child(self, change):
        """Return the netdev that ``create_child`` has made, whatever its name is."""
        wanted = child_of(change)
        for netdev in self.facts.netdevs:
            ipoib = netdev.ipoib
            if ipoib and ipoib.parent and (ipoib.parent, int(ipoib.pkey, 16)) == wanted:
                return netdev
        return None

    def _value(self, *key):
        if self._values[0] is not self.facts:
            self._values = self.facts, values_of(self.facts)
        return self._values[1].get((*key, "")[:3])

    def _at(self, place):
        return [netdev.name for netdev in self.facts.netdevs if is_at(netdev, place)]

    def _nothing_at(self, change, place):
        """Whether the hardware of the change's netdev was removed."""
        if netdev_of(change) is None or place is None:
            return False
        return bool(place.guid or place.pci) and not self._at(place)

    def _now(self, change, place):
        """Return the change with the present name of its netdev."""
        if netdev_of(change) is None or not (place and (place.guid or place.pci)):
            return change
        names = self._at(place)
        if not names or place.netdev in names:
            return naming(change, place.netdev) if names else change
        return naming(change, names[0])


class _Foreign:
    step = "IPOIB-PROFILE-01/foreign"
    place = None

    def __init__(self, uuid):
        self.uuid = uuid


def _key(change):
    return change.kind, file_of(change) or change.name
