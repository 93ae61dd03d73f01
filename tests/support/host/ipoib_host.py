# SPDX-License-Identifier: GPL-2.0-or-later
"""Build facts of hosts with IPoIB in a line or two, and show findings and steps."""

from __future__ import annotations

from dataclasses import replace

from ovirt_rdma.host.facts.devices import (
    ARPHRD_INFINIBAND,
    Adapter,
    Bond,
    Ipoib,
    Netdev,
    NetdevUse,
    NetworkManager,
    Offload,
    OvirtNetwork,
    PciIdentity,
    PKey,
    Profile,
    Property,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, Policy
from ovirt_rdma.host.rules.base import Finding, Step
from ovirt_rdma.host.rules.registry import (
    RULES,
    decide,
)

OURS = tuple(r.id for r in RULES if r.id.startswith(("IPOIB-", "IB-")))
OTHERS = tuple(r.id for r in RULES if r.id not in OURS)

TSO = ("tx-tcp-segmentation", "tx-tcp6-segmentation")
A0 = {"pci_id": "0x634a", "revision": "0xa0", "hw_rev": "a0"}
MLX5 = {"driver": "mlx5_core", "pci_id": "0x1017", "connections": False}
HFI1 = {
    "driver": "hfi1",
    "vendor": "0x8086",
    "pci_id": "0x24f0",
    "max_mtu": 10240,
    "tso": None,
}
EXTERNAL = "/run/NetworkManager/system-connections/ib0.nmconnection"
DISK = "/etc/NetworkManager/system-connections/{}.nmconnection"


def offloads(tso):
    """``on``, ``off``, ``fixed`` (off), ``asked`` (off, requested on), or None."""
    if tso is None:
        return ()
    return tuple(
        Offload(
            name,
            on=tso == "on",
            fixed=tso == "fixed",
            requested=True if tso == "asked" else None,
        )
        for name in TSO
    )


def port(number=1, **parts):
    """An ACTIVE InfiniBand port with 4096 bytes, in the default partition."""
    keys = parts.pop("pkeys", ("0xffff",))
    return RdmaPort(
        **{
            "number": number,
            "state": "ACTIVE",
            "physical_state": "LinkUp",
            "link_layer": "InfiniBand",
            "rate_mbps": 40000,
            "max_mtu": 4096,
            "active_mtu": 4096,
            "lid": 3,
            "sm_lid": 1,
            "guid": f"0002:c903:00fb:123{number}",
            "pkeys": tuple(PKey(i, value) for i, value in enumerate(keys)),
            **parts,
        }
    )


def netdev(name="ib0", mtu=4092, mode="datagram", tso="on", **parts):
    """The IPoIB netdev of mlx4_0/1."""
    first = "80" if parts.pop("connections", True) else "00"
    number = parts.pop("port", 1)
    parts.setdefault("ipoib", Ipoib(mode, parts.pop("pkey", "0xffff")))
    guid = f"00:02:c9:03:00:fb:12:3{number}"
    return Netdev(
        name,
        ARPHRD_INFINIBAND,
        mtu,
        f"{first}:00:02:08:fe:80:00:00:00:00:00:00:{guid}",
        "up",
        driver="mlx4_core",
        rdma_device="mlx4_0",
        rdma_port=number,
        carrier=True,
        offloads=offloads(tso),
        **parts,
    )


def child(name="ib0.8001", pkey="0x8001", parent="ib0", sysfs=True, **parts):
    """A P_Key child of ib0."""
    mode = parts.pop("mode", "datagram")
    return netdev(name, ipoib=Ipoib(mode, pkey, parent, sysfs), **parts)


def host(
    *netdevs,
    profiles=None,
    managed=None,
    driver="mlx4_core",
    vendor="0x15b3",
    pci_id="0x1003",
    revision="0x00",
    hw_rev="0",
    connections=True,
    tso="on",
    max_mtu=4096,
    active_mtu=None,
    ports=None,
    adapter=None,
    uses=(),
    networks=(),
    **parts,
):
    """A host with one HCA, mlx4_0.

    ``profiles`` None: NetworkManager is not installed; else all IPoIB netdevs are
    managed, or only those in ``managed``.
    """
    pci = PciIdentity("0000:04:00.0", vendor, pci_id, revision)
    active_mtu = active_mtu or max_mtu
    ports = ports or (port(max_mtu=max_mtu, active_mtu=active_mtu),)
    if not netdevs:
        netdevs = (netdev(mtu=active_mtu - 4, connections=connections, tso=tso),)
    manager = None
    if profiles is not None:
        names = tuple(n.name for n in netdevs) if managed is None else managed
        manager = NetworkManager(True, names, (), tuple(profiles))
    return Facts(
        "hv1",
        "5.14.0-427.el9.x86_64",
        3600.0,
        adapters=(adapter or Adapter(pci, driver),),
        rdma_devices=(
            RdmaDevice(
                "mlx4_0",
                "CA",
                "0002:c903:00fb:1230",
                driver=driver,
                pci=pci,
                hw_rev=hw_rev,
                ports=ports,
            ),
        ),
        netdevs=netdevs,
        netdev_uses=tuple(NetdevUse(n, "nfs", f"nas:/{n}") for n in uses),
        network_manager=manager,
        ovirt_networks=tuple(networks),
        **parts,
    )


def profile(name="ib0", mode="datagram", file=None, active=True, **properties):
    """A profile for ib0; ``mtu=4092``, ``tso="off"``, ``mac="80:..."``."""
    names = {
        "mode": "infiniband.transport-mode",
        "mtu": "infiniband.mtu",
        "tso": "ethtool.feature-tso",
        "mac": "infiniband.mac-address",
        "master": "connection.master",
        "pkey": "infiniband.p-key",
        "parent": "infiniband.parent",
        "interface": "connection.interface-name",
    }
    values = {"interface": name, "mode": mode, **properties}
    found = tuple(Property(names[k], str(v)) for k, v in values.items() if v)
    return Profile(
        name,
        f"uuid-{name}",
        "infiniband",
        values["interface"] or None,
        name if active else None,
        DISK.format(name) if file is None else file or None,
        found,
    )


def network(name="storage", southbound="ib0", **parts):
    """A logical network on ib0."""
    return OvirtNetwork(name, southbound, **parts)


def bond(mode="active-backup", fail_over_mac="active", members=("ib0", "ib1")):
    """bond0 of two IPoIB netdevs."""
    return replace(
        netdev("bond0", ipoib=None),
        rdma_device=None,
        rdma_port=None,
        lowers=members,
        bond=Bond(mode, members[0], fail_over_mac),
    )


def policy(**parts):
    """Return a policy with one rule, for all InfiniBand ports."""
    if not parts:
        return Policy()
    rule = InterfaceRule(1, "interface 1", **{"link_layer": "infiniband", **parts})
    return Policy(host=HostPolicy((rule,)))


def found(facts, wanted=None):
    """Return all findings of the InfiniBand rules: (rule, subject) to a list of
    ``VERDICT sentence | fix``.
    """
    result = {}
    for one in decide(facts, wanted or Policy(), OTHERS).findings:
        assert isinstance(one, Finding)
        text = f"{one.verdict} {one.sentence} | {one.fix}"
        result.setdefault((one.rule, one.subject), []).append(text)
    return result


def finding(facts, wanted, rule, subject="ib0"):
    """Return the only finding of a rule for a subject."""
    (text,) = found(facts, wanted)[rule, subject]
    return text


def steps(facts, wanted=None):
    """Return all steps of the InfiniBand rules, by id and in order."""
    plan = decide(facts, wanted or Policy(), OTHERS).steps
    assert all(isinstance(step, Step) for step in plan)
    result = {step.id: step for step in plan}
    assert len(result) == len(plan)
    return result


def shown(step):
    """Return a step's changes in short: ``uuid-ib0 infiniband.mtu 2044>4092``."""
    return [
        f"{c.target} {c.name} {c.before}>{c.after}".replace("  ", " ")
        for c in step.changes
    ]
