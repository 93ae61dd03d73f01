# SPDX-License-Identifier: GPL-2.0-or-later
"""Set the boot settings again when a netdev appears.

Boot settings are values that neither a profile nor a file keeps: offloads; transport
mode and MTU where NetworkManager does not manage the netdev; P_Key children made in
sysfs; MTU and type of mlx4 ports; virtual functions; data center bridging and type of
service of RoCE. The journal has them. The unit ovirt-rdma-netdev@.service restores them
at boot, and after the driver of a netdev or RDMA device was loaded again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.changes.journal import Journal, Ledger
from ovirt_rdma.host.changes.kinds.kind import (
    AtomicChange,
    EffectFailed,
    Host,
    Kind,
    Place,
    netdevs_of_pci,
    present_name,
)
from ovirt_rdma.host.changes.kinds.registry import HostEffects, kind_of, kind_of_act
from ovirt_rdma.host.changes.kinds.virtual_function import VfDrivers, VfNumber
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.netdevs import port_of
from ovirt_rdma.host.collect.rdma import RDMA_CLASS, read_rdma_devices
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.facts.devices import ARPHRD_INFINIBAND, OvirtNetwork
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.paths import NET_CLASS, RUN_LOCK, under
from ovirt_rdma.host.rules.base import LINK_DOWN
from ovirt_rdma.host.rules.ipoib import static_addresses
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.safe_file import read_file


def boot_settings(ledger: Ledger) -> tuple[AtomicChange, ...]:
    """Return the boot settings: the applied changes of runs that have ended, for each
    property the last one, in the order in which they were made. Each has a place. Pure.
    """
    interrupted = ledger.interrupted
    settings: dict[Hashable, AtomicChange] = {}
    for entry in ledger.applied:
        if entry.lasting or (interrupted and entry.run == interrupted.number):
            continue
        for change in entry.changes:
            kind = kind_of(change)
            if not kind.is_volatile or change.after is None:
                continue
            place = entry.place or Place()
            key = _property(kind, place)
            as_it_was = isinstance(kind, VfDrivers) and change.before == change.after
            if as_it_was and key not in settings:
                continue  # for the undo only: whoever made the VF binds its driver
            settings.pop(key, None)  # so that it comes last
            settings[key] = replace(
                entry,
                effect=kind.effect,
                changes=(replace(change, before=None),),
                place=place,
            )
    return tuple(settings.values())


def _property(kind: Kind, place: Place) -> Hashable:
    if kind.adapter:
        place = Place(pci=kind.adapter, port=kind.port[1] if kind.port else None)
    if place.guid or place.pci:
        place = replace(place, netdev=None)  # it may have been renamed since
    return replace(kind, change=kind.on_netdev("netdev")).sets, place


# A netdev may be announced before it has all its files in /sys.
FILES_S = 2.0
# The netdev may have appeared because of a run that still has the lock.
LOCK_S = 120.0
_TRIED = f"{Path(RUN_LOCK).parent}/boot-"


def restore_netdev(
    root: Union[str, Path],
    run: Optional[Runner],
    name: str,
    say: Callable[[str], None],
    effects: Optional[HostEffects] = None,
) -> int:
    """Set the values again that a run has set for the netdev ``name`` and its adapter,
    unless they are already set; or those for the netdevs of the RDMA device ``name``.

    ``say`` gets a sentence for each value that is set or cannot be set. Returns 0, or 1
    if a value is still wrong. Never raises.
    """
    try:
        with one_run(root, LOCK_S, by=f"unit netdev {name}"):
            settings = boot_settings(Journal(root).ledger())
            host = effects or HostEffects(root, run)
            names = _netdevs_named(host, name) if settings else ()
            all_set = True
            for netdev in names:
                due = _about(host, settings, netdev)
                for _, alike in groupby(due, key=_of_vfs):
                    # Read once for all VFs: there may be more than a hundred.
                    facts = cache(HostReader(host.root, run).facts)
                    for setting in alike:
                        is_set, sentence = _restore(host, facts, setting)
                        if sentence:
                            what = kind_of_act(host.present(setting)).describe()
                            say(f"{what} {sentence}")
                        all_set = all_set and is_set
            return ExitCode.DONE if all_set else ExitCode.FAILED
    except Problem as problem:
        say(f"{name}: {problem}" + (f"; {problem.fix}" if problem.fix else ""))
    except Exception as error:  # noqa: BLE001  (a unit at boot, with no operator)
        say(f"{name}: its settings could not be set again: {error!r}")
    return ExitCode.FAILED


def _netdevs_named(host: Host, name: str) -> tuple[str, ...]:
    """Return ``name``, or the netdevs of the RDMA device with that name."""
    if name not in host.tree.names(RDMA_CLASS):
        return (name,)
    tree = host.tree
    devices = read_rdma_devices(tree, [], most_gids=1)
    ports = {one: port_of(tree, one, devices) for one in tree.names(NET_CLASS)}
    return tuple(netdev for netdev, port in ports.items() if port and port[0] == name)


def _about(
    host: HostEffects, settings: Iterable[AtomicChange], name: str
) -> list[AtomicChange]:
    """Return the settings for the netdev ``name`` or its adapter."""
    folder = f"{NET_CLASS}/{name}"
    if host.tree.text(f"{folder}/type") == str(ARPHRD_INFINIBAND):
        # The file that an IPoIB netdev gets last; a child that ``ip link`` made gets
        # none (Linux ulp/ipoib/ipoib_main.c and ipoib_vlan.c).
        last = {"delete_child", "parent"}
        host.wait_for(lambda: bool(last.intersection(host.tree.names(folder))), FILES_S)
    # Once for each adapter: it may have more than a hundred VFs, with settings each.
    netdevs_of = cache(partial(netdevs_of_pci, host))
    due = []
    for setting in settings:
        adapter = kind_of_act(setting).adapter
        if adapter:
            is_about = name in netdevs_of(adapter)
        else:
            is_about = present_name(host, setting.place or Place()) == name
        if is_about and kind_of_act(host.present(setting)).is_due(host):
            due.append(setting)
    # The adapter's settings first: they remove and recreate the netdevs.
    return sorted(due, key=lambda setting: kind_of_act(setting).port is None)


def _of_vfs(setting: AtomicChange) -> tuple[str, str]:
    """Return the same for a property of all VFs of an adapter, and for no others."""
    return setting.changes[0].target, setting.changes[0].name


def _restore(
    host: HostEffects, facts: Callable[[], Facts], setting: AtomicChange
) -> tuple[bool, str]:
    """Set one value; return whether it is set then, and a sentence if that is news."""
    change, kind = setting.changes[0], kind_of_act(setting)
    value = host.read(change, place=setting.place).value
    # The value that was written to a port of an adapter.
    tried = under(host.root, f"{_TRIED}{kind.change.target.replace('/', '-')}")
    if value is not None and kind.accepts(value):
        tried.unlink(missing_ok=True)
        return True, ""
    users: tuple[str, ...] = ()
    if isinstance(kind, VfNumber) and value not in (None, "0"):
        users = ("somebody else has set it, or its driver enables no more",)
    elif setting.effect == LINK_DOWN:
        # Read under the lock: somebody may have started to use the netdev meanwhile.
        present = kind_of_act(host.present(setting))
        users = present.interrupts(NetdevUsers(_without_stored(facts())))
    if users:
        return False, f"stays {value}: in use ({', '.join(users)})"
    if kind.port:
        # Writing it recreates the netdevs, which starts this unit again: without the
        # record, a value that the kernel never accepts would be written endlessly.
        if tried.exists() and read_file(tried).decode() == change.after:
            return False, f"stays {value}: an earlier write was not accepted"
        tried.write_text(change.after or "")
    try:
        host.do(setting)
    except EffectFailed as failed:
        return False, f"stays {value}: {failed}"
    now = host.read(change, place=setting.place).value
    if not kind.accepts(now):
        return False, f"is {now}, and should be {change.after}"
    return True, f"was {value}, is {now}"


def _without_stored(facts: Facts) -> Facts:
    """Return ``facts`` without the networks that VDSM has stored, and will set up later
    in the boot: they lose nothing.
    """
    stored = [n for n in facts.ovirt_networks if not _is_set_up(n, facts)]
    idle = {("management", f"network {network.name}") for network in stored}
    return replace(
        facts,
        ovirt_networks=tuple(n for n in facts.ovirt_networks if n not in stored),
        netdev_uses=tuple(
            use for use in facts.netdev_uses if (use.purpose, use.what) not in idle
        ),
    )


def _is_set_up(network: OvirtNetwork, facts: Facts) -> bool:
    """Whether the logical network has its VLAN, an address, or a bridge now."""
    name = network.southbound or ""
    on_it = NetdevUsers(facts).carriers(name)
    found = [netdev for netdev in facts.netdevs if netdev.name in on_it]
    vlan = network.vlan is not None and bool(found)
    return vlan or len(found) > 1 or any(map(static_addresses, found))
