# SPDX-License-Identifier: GPL-2.0-or-later
"""Apply a plan's steps to facts, as the kernel's ib_ipoib, ethtool and NetworkManager
do (seen in the lab), as far as the rules depend on them.

Strict: anything that they refuse fails the test.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ovirt_rdma.host.facts.devices import Ipoib, Profile, Property
from ovirt_rdma.host.rules.base import MODULE, OFFLOAD, PROFILE, SYSFS, Change

_NET = re.compile(r"/sys/class/net/([^/]+)/(mode|mtu|create_child)")
_PORT_MTU = re.compile(r"/sys/bus/pci/devices/([^/]+)/mlx4_port(\d)_mtu")


def carried_out(facts, steps, group_mtu=4092):
    """Return ``facts`` after all ``steps`` that are not refused.

    ``group_mtu`` is the IPoIB MTU of every broadcast group.
    """
    kernel = Kernel(facts, group_mtu)
    for step in steps:
        for change in () if step.refused else step.changes:
            kernel.do(change)
    kernel.check_new_profiles()
    return kernel.facts


class InMemory:
    """A host as ``facts``, parts of which can be replaced."""

    def __init__(self, facts, group_mtu):
        self.facts = facts
        self.group_mtu = group_mtu

    @property
    def profiles(self):
        manager = self.facts.network_manager
        return manager.profiles if manager else ()

    def _put(self, netdev):
        self._delete(netdev.name)
        self.facts = replace(self.facts, netdevs=(*self.facts.netdevs, netdev))

    def _delete(self, name):
        others = tuple(n for n in self.facts.netdevs if n.name != name)
        self.facts = replace(self.facts, netdevs=others)

    def _keep(self, uuid, *instead):
        """Have ``instead`` in the place of a profile."""
        others = tuple(p for p in self.profiles if p.uuid != uuid)
        manager = self.facts.network_manager
        manager = replace(manager, profiles=(*others, *instead))
        self.facts = replace(self.facts, network_manager=manager)


class Kernel(InMemory):
    def __init__(self, facts, group_mtu):
        super().__init__(facts, group_mtu)
        self.new_profiles = set()

    def do(self, change):
        {
            SYSFS: self._sysfs,
            PROFILE: self._profile,
            OFFLOAD: self._offload,
            MODULE: self._load,
        }[change.kind](change)

    def check_new_profiles(self):
        """Check the profile: NetworkManager refuses others, or they fit no netdev."""
        for profile in self.profiles:
            if profile.uuid in self.new_profiles:
                assert profile.value("infiniband.transport-mode"), "is invalid"
                ipoib = self.netdev(profile.interface_name).ipoib
                pkey = profile.value("infiniband.p-key")
                assert profile.value("infiniband.parent") == ipoib.parent
                assert bool(pkey) == bool(ipoib.parent)
                if pkey:
                    name = f"{ipoib.parent}.{int(pkey, 16):04x}"
                    assert profile.interface_name == name

    def netdev(self, name):
        (one,) = [n for n in self.facts.netdevs if n.name == name]
        return one

    def _port(self, netdev):
        (device,) = [d for d in self.facts.rdma_devices if d.name == netdev.rdma_device]
        (port,) = [p for p in device.ports if p.number == netdev.rdma_port]
        return port

    def _sysfs(self, change):
        port_mtu = _PORT_MTU.fullmatch(change.target)
        if port_mtu:
            self._set_port_mtu(port_mtu[1], int(port_mtu[2]), change)
            return
        name, file = _NET.fullmatch(change.target).groups()
        netdev = self.netdev(name)
        if file == "create_child":
            self._create_child(netdev, change.after)
        elif file == "mode":
            self._set_mode(netdev, change)
        else:
            self._set_mtu(netdev, change)

    def _set_mode(self, netdev, change):
        mode = change.after
        assert change.before in (None, netdev.ipoib.mode)
        assert netdev.ipoib.sysfs, "no such file"
        assert mode in ("datagram", "connected"), "EINVAL"
        if mode == "connected":
            assert int(netdev.address[:2], 16) & 0x80, "EINVAL"
            mtu = 65520
        else:
            mtu = min(netdev.mtu, self.group_mtu)
        offloads = tuple(
            replace(o, on=False, requested=True)
            if mode == "connected" and o.on
            else replace(o, on=True, requested=None)
            if mode == "datagram" and o.requested
            else o
            for o in netdev.offloads
        )
        ipoib = replace(netdev.ipoib, mode=mode)
        self._put(replace(netdev, ipoib=ipoib, mtu=mtu, offloads=offloads))

    def _set_mtu(self, netdev, change):
        mtu = int(change.after)
        if not netdev.ipoib:
            now = mtu
        elif netdev.ipoib.mode == "connected":
            assert mtu <= 65520, "EINVAL"
            now = mtu
        else:
            most = self._port(netdev).max_mtu
            assert most is None or mtu <= most - 4, "EINVAL"
            now = min(mtu, self.group_mtu)
            assert now == mtu or change.clamped, "clamped: apply would roll back"
        self._put(replace(netdev, mtu=now))

    def _create_child(self, parent, pkey):
        assert parent.ipoib.parent is None, "EINVAL"
        assert int(pkey, 16) not in (0, 0x8000), "EINVAL"
        for one in self.facts.netdevs:
            twin = one.ipoib and one.ipoib.parent == parent.name
            assert not (twin and one.ipoib.pkey == pkey), "ENOTUNIQ"
        most = self._port(parent).max_mtu
        tso = tuple(
            replace(o, on=not o.fixed and (o.on or bool(o.requested)), requested=None)
            for o in parent.offloads
        )
        # IFNAMSIZ is 16: ipoib_intf_alloc's caller keeps ten characters of the name
        # (Linux ulp/ipoib/ipoib_vlan.c).
        name = f"{parent.name[:10]}.{int(pkey, 16):04x}"
        self._put(
            replace(
                parent,
                name=name,
                mtu=min(self.group_mtu, (most or 4096) - 4),
                ipoib=Ipoib("datagram", pkey, parent.name),
                addresses=(),
                uppers=(),
                offloads=tso,
            )
        )
        return name

    def _set_port_mtu(self, address, number, change):
        def mended(port):
            if port.number != number:
                return port
            mtu = int(change.after)
            active = min(port.active_mtu or mtu, mtu)
            return replace(port, max_mtu=mtu, active_mtu=active)

        adapters = []
        for adapter in self.facts.adapters:
            mtus = list(adapter.port_mtus)
            if adapter.pci.address == address:
                assert not adapter.vfs, "read-only"
                assert str(mtus[number - 1]) == change.before
                mtus[number - 1] = int(change.after)
            adapters.append(replace(adapter, port_mtus=tuple(mtus)))
        devices = tuple(
            replace(d, ports=tuple(mended(p) for p in d.ports))
            if d.pci and d.pci.address == address
            else d
            for d in self.facts.rdma_devices
        )
        self.facts = replace(self.facts, adapters=tuple(adapters), rdma_devices=devices)
        for netdev in self.facts.netdevs:
            if (
                netdev.ipoib
                and netdev.ipoib.mode == "datagram"
                and netdev.rdma_port == number
            ):
                most = min(self._port(netdev).max_mtu - 4, self.group_mtu)
                self._put(replace(netdev, mtu=self._kept_mtu(netdev.name, most)))

    def _kept_mtu(self, name, most):
        """Set what NetworkManager sets when the netdev appears, if the kernel accepts
        it.
        """
        for profile in self.profiles:
            if profile.interface_name == name:
                kept = profile.value("infiniband.mtu") or ""
                return int(kept) if kept.isdecimal() and int(kept) <= most else most
        return most

    def _offload(self, change):
        netdev = self.netdev(change.target)
        (feature,) = [o for o in netdev.offloads if o.name == change.name]
        on = change.after == "on"
        assert not feature.fixed, "Could not change any device features"
        connected = netdev.ipoib and netdev.ipoib.mode == "connected"
        assert not (on and connected), "Could not change any"
        offloads = tuple(
            replace(o, on=on, requested=None) if o is feature else o
            for o in netdev.offloads
        )
        self._put(replace(netdev, offloads=offloads))

    def _load(self, change):
        modules = self.facts.modules
        loaded = (*modules.loaded, change.target)
        self.facts = replace(self.facts, modules=replace(modules, loaded=loaded))

    def _profile(self, change):
        manager = self.facts.network_manager
        new = change.target.startswith("new:")
        uuid = "ours-" + change.target[4:] if new else change.target
        known = {p.uuid: p for p in manager.profiles}
        if new and uuid not in known:
            assert change.name == "connection.type", "a profile begins with its type"
            name = change.target[4:]
            self.new_profiles.add(uuid)
            known[uuid] = Profile(name, uuid, change.after, file=f"/etc/{name}")
        profile = known[uuid]
        assert profile.value(change.name) == change.before
        values = {p.name: p.value for p in profile.properties}
        values[change.name] = change.after
        name = values.get("connection.interface-name", profile.interface_name)
        known[uuid] = replace(
            profile,
            interface_name=name,
            properties=tuple(Property(*item) for item in values.items()),
        )
        managed = manager.managed
        if name and new and name not in managed:
            managed = (*managed, name)
        self.facts = replace(
            self.facts,
            network_manager=replace(
                manager, profiles=tuple(known.values()), managed=managed
            ),
        )
        # NetworkManager makes a child as soon as its profile is complete.
        parent, pkey = (
            values.get("infiniband.parent"),
            values.get("infiniband.p-key"),
        )
        there = {n.name for n in self.facts.netdevs}
        if new and parent and pkey and name not in there:
            mode = values.get("infiniband.transport-mode")
            assert mode, "property is invalid"
            assert self._create_child(self.netdev(parent), pkey) == name
            made = self.netdev(name)
            if mode != made.ipoib.mode:
                change = Change(SYSFS, f"/sys/class/net/{name}/mode", None, mode)
                self._set_mode(made, change)
