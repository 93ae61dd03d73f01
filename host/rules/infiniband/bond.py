# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-BOND-01: check bonds, bridges and VLANs on IPoIB netdevs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.facts.devices import Bond, Profile
from ovirt_rdma.host.facts.ipoib import ACTIVE_BACKUP, DEFAULT_BOND_MODE
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.view import View

ID = "IPOIB-BOND-01"

_BOND_FIX = (
    "set the bond's mode to active-backup: in the engine's host networks, custom bond "
    "mode 'mode=1 miimon=100 fail_over_mac=1'"
)


def decide(view: View) -> Iterator[Finding]:
    """Yield findings for bonds of IPoIB netdevs, profiles that configure one, and
    logical networks that would need a bridge or a VLAN on IPoIB.
    """
    findings = [*_bonds(view), *_profiles(view), *_networks(view)]
    if not findings:
        sentence = "no bond, bridge or VLAN is on an IPoIB netdev"
        findings = [Finding(ID, "host", SKIP, sentence)]
    yield from findings


def _bonds(view: View) -> Iterator[Finding]:
    names = {interface.name for interface in view.ipoib}
    for netdev in view.facts.netdevs:
        if netdev.bond is None:
            continue
        lowers = dict.fromkeys((*netdev.bond.members, *netdev.lowers))
        members = tuple(name for name in lowers if name in names)
        if members:
            yield _bond(view, netdev.name, netdev.bond, members)


def _bond(view: View, name: str, bond: Bond, members: tuple[str, ...]) -> Finding:
    shown = f"{name} of {', '.join(members)} is in mode {bond.mode}"
    if bond.mode not in ACTIVE_BACKUP:
        sentence = f"{shown}, but IPoIB supports only {ACTIVE_BACKUP[0]}"
        return Finding(ID, name, FAIL, sentence, _BOND_FIX)
    if bond.fail_over_mac not in (None, "active"):
        sentence = f"{shown} with fail_over_mac {bond.fail_over_mac} instead of active"
        fix = "set fail_over_mac=active: an IPoIB address cannot move to another port"
        return Finding(ID, name, FAIL, sentence, fix)
    modes = {
        interface.netdev.ipoib.mode
        for interface in view.ipoib
        if interface.name in members
        and interface.netdev.ipoib
        and interface.netdev.ipoib.mode
    }
    if len(modes) > 1:
        sentence = f"{shown}, but its members have different transport modes"
        fix = "name all members in one policy rule: a failover must not change the MTU"
        return Finding(ID, name, WARN, sentence, fix)
    return Finding(ID, name, PASS, f"{shown}, which IPoIB requires")


def _profiles(view: View) -> Iterator[Finding]:
    """Yield a finding for each infiniband profile that is a port of a bridge, or of a
    bond in another mode than active-backup.
    """
    manager = view.facts.network_manager
    profiles = manager.profiles if manager else ()
    for profile in profiles:
        master = profile.value("connection.master") or profile.value(
            "connection.controller"
        )
        if profile.type != "infiniband" or not master:
            continue
        for above in profiles:
            if master not in (above.uuid, above.interface_name):
                continue
            mode = _bond_mode(above)
            if above.type == "bridge":
                yield _on_bridge(profile, above)
            elif above.type == "bond" and mode not in ACTIVE_BACKUP:
                yield Finding(
                    ID,
                    above.interface_name or above.name,
                    FAIL,
                    f"the profile {profile.name!r} makes an IPoIB netdev a port of the "
                    f"bond {above.name!r}, whose mode is {mode}: the kernel refuses it",
                    _BOND_FIX,
                )


def _on_bridge(profile: Profile, above: Profile) -> Finding:
    return Finding(
        ID,
        above.interface_name or above.name,
        FAIL,
        f"the profile {profile.name!r} makes an IPoIB netdev a port of the bridge "
        f"{above.name!r}: the kernel refuses it",
        "remove it from the bridge",
    )


def _bond_mode(profile: Profile) -> str:
    """Return the mode in ``bond.options``, or the default."""
    for option in (profile.value("bond.options") or "").split(","):
        key, _, value = option.partition("=")
        if key.strip() == "mode":
            return value.strip()
    return DEFAULT_BOND_MODE


def _networks(view: View) -> Iterator[Finding]:
    carriers = {
        name for interface in view.ipoib for name in view.carriers(interface.name)
    }
    for network in view.facts.ovirt_networks:
        southbound = network.southbound or ""
        base = southbound
        if network.vlan is not None:
            base = southbound.removesuffix(f".{network.vlan}")
        if southbound not in carriers and base not in carriers:
            continue
        if network.vlan is not None:
            yield Finding(
                ID,
                southbound,
                FAIL,
                f"network {network.name!r} has VLAN {network.vlan} on {base}, but "
                "IPoIB does not support VLANs",
                "remove the VLAN from the network and use a P_Key child (pkey_children "
                "in the policy)",
            )
        elif network.bridged:
            yield Finding(
                ID,
                southbound,
                FAIL,
                f"network {network.name!r} is a VM network on {southbound}, but IPoIB "
                "cannot be a port of a bridge",
                "change it to a non-VM network: clear 'VM network' in the engine",
            )


RULES = (Rule(ID, decide),)
