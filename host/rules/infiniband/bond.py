# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-BOND-01: what can be built on IPoIB netdevs, and what cannot: bonds, bridges,
VLANs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.facts.devices import Bond, Profile
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.view import View

ID = "IPOIB-BOND-01"
ACTIVE_BACKUP = "active-backup"
_ACTIVE_BACKUP_WORDS = (ACTIVE_BACKUP, "1")

_BOND_FIX = (
    "set the bond's mode to active-backup: in the engine's host networks, custom bond "
    "mode 'mode=1 miimon=100 fail_over_mac=1'"
)


def decide(view: View) -> Iterator[Finding]:
    """Give findings for bonds of IPoIB netdevs, profiles that want one, and logical
    networks that would need a bridge or a VLAN on IPoIB.
    """
    found = [*_bonds(view), *_profiles(view), *_networks(view)]
    if not found:
        found = [Finding(ID, "host", SKIP, "nothing is built on an IPoIB netdev")]
    yield from found


def _bonds(view: View) -> Iterator[Finding]:
    names = {one.name for one in view.ipoib}
    for netdev in view.facts.netdevs:
        if netdev.bond is None:
            continue
        both = dict.fromkeys((*netdev.bond.members, *netdev.lowers))
        members = tuple(name for name in both if name in names)
        if members:
            yield _bond(view, netdev.name, netdev.bond, members)


def _bond(view: View, name: str, bond: Bond, members: tuple[str, ...]) -> Finding:
    shown = f"{name} of {', '.join(members)} is in mode {bond.mode}"
    if bond.mode != ACTIVE_BACKUP:
        sentence = f"{shown}, and IPoIB can only be in {ACTIVE_BACKUP}"
        return Finding(ID, name, FAIL, sentence, _BOND_FIX)
    if bond.fail_over_mac not in (None, "active"):
        sentence = f"{shown} with fail_over_mac {bond.fail_over_mac}, not active"
        fix = "set fail_over_mac=active: an IPoIB address cannot move to another port"
        return Finding(ID, name, FAIL, sentence, fix)
    modes = {
        one.netdev.ipoib.mode
        for one in view.ipoib
        if one.name in members and one.netdev.ipoib and one.netdev.ipoib.mode
    }
    if len(modes) > 1:
        sentence = f"{shown}, and its members differ in transport mode"
        fix = (
            "let one policy rule name all members, so that the MTU outlives a failover"
        )
        return Finding(ID, name, WARN, sentence, fix)
    return Finding(ID, name, PASS, f"{shown}, as IPoIB wants it")


def _profiles(view: View) -> Iterator[Finding]:
    """Give a finding for each infiniband profile that is a port of another bond."""
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
            elif above.type == "bond" and mode not in _ACTIVE_BACKUP_WORDS:
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
        "take it out of the bridge",
    )


def _bond_mode(profile: Profile) -> str:
    """Return the mode in ``bond.options``; a bond without one is balance-rr."""
    for option in (profile.value("bond.options") or "").split(","):
        key, _, value = option.partition("=")
        if key.strip() == "mode":
            return value.strip()
    return "balance-rr"


def _networks(view: View) -> Iterator[Finding]:
    carriers = {name for one in view.ipoib for name in view.carriers(one.name)}
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
                f"network {network.name!r} has VLAN {network.vlan} on {base}, and "
                "IPoIB takes no VLAN",
                "take the VLAN out of the network and use a P_Key child (pkey_children "
                "in the policy)",
            )
        elif network.bridged:
            yield Finding(
                ID,
                southbound,
                FAIL,
                f"network {network.name!r} is a VM network on {southbound}, and IPoIB "
                "cannot be in a bridge",
                "make it a non-VM network: clear 'VM network' in the engine",
            )


RULES = (
    Rule(
        ID,
        "bonds, bridges and VLANs over IPoIB",
        "A bond of IPoIB netdevs is in mode active-backup with fail_over_mac active. "
        "No bridge has an IPoIB port, and no VLAN is on one: a logical network on "
        "IPoIB is a non-VM network without a VLAN tag.",
        "The kernel refuses InfiniBand in a bond of another mode and sets "
        "fail_over_mac itself, as a port's address is part of the hardware. A bridge "
        "takes Ethernet only, and IPoIB refuses VLANs. VDSM checks none of that "
        "beforehand: setting up such a network fails in the middle and is rolled back. "
        "VDSM's default for a bond without options is balance-rr.",
        "In the engine, bond with mode 1 and clear VM network and VLAN tag; use P_Key "
        "children in place of VLANs. VMs reach InfiniBand through SR-IOV or a routed "
        "network.",
        (
            "Linux drivers/net/bonding/bond_main.c, bond_enslave",
            "Linux net/bridge/br_if.c, br_add_if",
            "Linux drivers/infiniband/ulp/ipoib/ipoib_main.c, NETIF_F_VLAN_CHALLENGED",
            "nmstate rust/src/lib/ifaces/infiniband.rs",
            "VDSM lib/vdsm/network/nmstate/bond.py",
        ),
        decide,
    ),
)
