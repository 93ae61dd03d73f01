# SPDX-License-Identifier: GPL-2.0-or-later
"""Draw hosts with InfiniBand and policies for them, at random or by hardware."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from ovirt_rdma.host.facts.devices import Adapter, PciIdentity
from ovirt_rdma.host.policy.model import PORT_MTUS
from support.host.ipoib_host import (
    A0,
    HFI1,
    MLX5,
    bond,
    child,
    host,
    netdev,
    network,
    policy,
    port,
    profile,
)

HARDWARE = {
    "connectx-3": {},
    "rev-a0": A0,
    "rev-a0-fixed": {**A0, "tso": "fixed"},
    "mlx5": MLX5,
    "hfi1": HFI1,
    "no-tso": {"tso": "fixed"},
    "port-mtu": {
        "adapter": Adapter(
            PciIdentity("0000:04:00.0", "0x15b3", "0x1003", "0x00"),
            "mlx4_core",
            port_types=("ib",),
            port_mtus=(4096,),
        )
    },
}


@st.composite
def hosts(draw):
    """A host with ib0, perhaps a child and a second port, in any state."""
    hardware = dict(draw(st.sampled_from(list(HARDWARE.values()))))
    able = hardware.get("connections", True)
    tso = hardware.pop("tso", draw(st.sampled_from(["on", "off", "fixed", None])))
    most = hardware.get("max_mtu", 4096)
    # On Omni-Path, 9000 bytes would fit the port but perhaps not the group.
    link = draw(st.sampled_from([2048, most])) if most == 4096 else most
    group = draw(st.sampled_from([2044, link - 4])) if most == 4096 else link - 4
    ports = tuple(
        port(
            number,
            max_mtu=most,
            active_mtu=draw(st.sampled_from([link, None])),
            state=draw(st.sampled_from(["ACTIVE", "ACTIVE", "DOWN", "INIT"])),
            pkeys=draw(
                st.sampled_from([(), ("0xffff",), ("0xffff", "0x8001", "0x0002")])
            ),
        )
        for number in (1, 2)
    )
    names = draw(st.sampled_from(["ib0", "ibp4s0", "ibp129s0f0d1"]))
    netdevs = []
    for number, name in ((1, names), (2, "ib9")):
        modes = ["datagram", "connected"] if able else ["datagram"]
        mode = draw(st.sampled_from(modes))
        now = "asked" if mode == "connected" and tso == "on" else tso
        mtu = 65520 if mode == "connected" else group
        other = 9000 if mode == "connected" else 1500
        mtu = draw(st.sampled_from([mtu, mtu, 1500, other]))
        netdevs.append(netdev(name, mtu, mode, now, port=number, connections=able))
        if draw(st.booleans()):
            made_by_sysfs = draw(st.booleans())
            netdevs.append(
                replace(
                    child(f"{name[:10]}.8001", parent=name, sysfs=made_by_sysfs),
                    rdma_port=number,
                    address=netdevs[-1].address,
                    mtu=group,
                    offloads=netdevs[-1].offloads if mode == "datagram" else (),
                )
            )
    bonded = draw(st.booleans())
    if bonded:
        netdevs[0] = replace(netdevs[0], uppers=("bond0",))
        netdevs.append(bond(members=(names,)))
    profiles = draw(
        st.sampled_from(
            [
                None,
                (),
                (profile(names),),
                (profile(names, mode="connected", mtu=65520),),
                (profile(names, mtu=2044, tso="on"),),
                (profile(names, file=""),),
                (profile("old", mac=netdevs[0].address, active=False),),
            ]
        )
    )
    networks = draw(
        st.sampled_from(
            [
                (),
                (network(southbound=names, mtu=9000),),
                (network(southbound="bond0", mtu=None),),
            ]
        )
    )
    if draw(st.booleans()):
        netdevs[0] = replace(netdevs[0], addresses=("10.0.0.1/24", "fe80::1/64"))
    facts = host(
        *netdevs,
        ports=ports,
        profiles=profiles,
        networks=networks,
        uses=draw(st.sampled_from([(), (names,)])),
        **hardware,
    )
    return facts, group


@st.composite
def policies(draw):
    """Draw a policy for all InfiniBand ports; an MTU as a number fits any group."""
    return policy(
        transport_mode=draw(st.sampled_from([None, "auto", "datagram", "connected"])),
        mtu=draw(st.sampled_from([None, "auto", 1500, 2044, 9000, 65520])),
        tso=draw(st.sampled_from([None, "auto", "on", "off"])),
        port_mtu=draw(st.sampled_from([None, None, *PORT_MTUS[-2:]])),
        pkey_children=draw(st.sampled_from([(), ("0x8001",), ("0x8002", "0x8003")])),
    )
