# SPDX-License-Identifier: GPL-2.0-or-later
"""Build facts and policies in a line or two, for the tests of rules."""

from __future__ import annotations

from typing import Any, Optional

from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    Adapter,
    Gid,
    Ipoib,
    Netdev,
    PciIdentity,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import (
    Facts,
    LoadLine,
    ModprobeLine,
    ModuleFile,
    ModuleParameter,
    Modules,
    NfsExport,
    NfsServer,
    Software,
    Unit,
    module_name,
)
from ovirt_rdma.host.policy.model import (
    HostPolicy,
    InterfaceRule,
    ModuleOption,
    NfsPolicy,
    NfsRule,
    Policy,
)
from ovirt_rdma.host.rules.base import Finding, Outcome, Rule, Step, View

MELLANOX = "0x15b3"
REQUIRE_RDMA = Policy(nfs=NfsPolicy((NfsRule(1, "rule 1", "*", "*", "require-rdma"),)))


def facts(**parts: Any) -> Facts:
    """A host; ``modules`` and ``software`` may be dicts."""
    for name, kind in (("modules", Modules), ("software", Software)):
        if isinstance(parts.get(name), dict):
            parts[name] = kind(**parts[name])
    return Facts("hv1", "5.14.0-427.el9.x86_64", 3600.0, **parts)


def sound_server() -> NfsServer:
    """An NFS server on which nothing is wrong, and of which everything is known."""
    export = NfsExport(
        "/srv/vm",
        "/srv/vm",
        "*",
        "rw,sync,root_squash,sec=sys",
        uid=36,
        gid=36,
        mode=0o755,
        read_only=False,
        free=200 << 30,
        size=400 << 30,
        free_files=1000,
    )
    return NfsServer(
        threads=16,
        listeners=("rdma 20049", "tcp 2049"),
        versions=("3", "4.1", "4.2"),
        clients=2,
        queued=5000,
        woken=4900,
        max_requests=64,
        max_block_size=1 << 20,
        exports=(export,),
        configured=("/srv/vm",),
    )


def host_policy(**parts: Any) -> Policy:
    """A policy with a host part."""
    return Policy(host=HostPolicy(**parts))


def interface_rule(number: int = 1, **parts: Any) -> InterfaceRule:
    """An interface rule; ``name`` is made from the number."""
    parts.setdefault("name", f"interface {number}")
    return InterfaceRule(number, **parts)


def option(text: str) -> ModuleOption:
    """``mlx4_core num_vfs=8``."""
    module, _, rest = text.partition(" ")
    name, _, value = rest.partition("=")
    return ModuleOption(module, name, value)


def pci(
    device: str,
    vendor: str = MELLANOX,
    revision: str = "0x00",
    address: str = "0000:04:00.0",
) -> PciIdentity:
    """A PCI function."""
    return PciIdentity(address, vendor, device, revision)


def adapter(device: str, driver: Optional[str] = None, **parts: Any) -> Adapter:
    """An adapter by its PCI device id, ``0x6732``."""
    identity = pci(
        device, **{k: parts.pop(k) for k in ("vendor", "revision") if k in parts}
    )
    return Adapter(identity, driver, **parts)


def ib_device(
    name: str = "mlx4_0", driver: Optional[str] = "mlx4_core", **port: Any
) -> RdmaDevice:
    """An InfiniBand HCA with one port, ACTIVE."""
    port.setdefault("guid", "0002:c903:00fb:1231")
    return RdmaDevice(
        name,
        "CA",
        "0002:c903:00fb:1230",
        driver=driver,
        pci=pci("0x1003"),
        ports=(RdmaPort(**{**_port(), "link_layer": "InfiniBand", **port}),),
    )


def roce_device(
    name: str = "mlx5_0", driver: Optional[str] = "mlx5_core", **port: Any
) -> RdmaDevice:
    """A RoCE device with one port, ACTIVE; ``gids`` as a tuple of Gid."""
    return RdmaDevice(
        name,
        "CA",
        "b859:9f03:0000:000a",
        driver=driver,
        pci=pci("0x1017", address="0000:3b:00.0"),
        ports=(RdmaPort(**{**_port(), "link_layer": "Ethernet", **port}),),
    )


def _port() -> dict[str, Any]:
    return {"number": 1, "state": "ACTIVE", "physical_state": "LinkUp"}


def gid(address: str, netdev: str, type: str = "RoCE v2", index: int = 0) -> Gid:
    """The GID of an IPv4 address."""
    octets = "{:02x}{:02x}:{:02x}{:02x}".format(*map(int, address.split(".")))
    return Gid(index, "0000:0000:0000:0000:0000:ffff:" + octets, type, netdev)


def ethernet(name: str = "ens1", mtu: int = 9000, **parts: Any) -> Netdev:
    """An Ethernet netdev, of mlx5_0/1 unless said otherwise."""
    parts = {"rdma_device": "mlx5_0", "rdma_port": 1, **parts}
    return Netdev(name, ARPHRD_ETHER, mtu, "b8:59:9f:00:00:0a", "up", **parts)


def above(name: str, lower: str, mtu: int = 9000, **parts: Any) -> Netdev:
    """A netdev above ``lower``, which must have it in its uppers."""
    return ethernet(
        name, mtu, rdma_device=None, rdma_port=None, lowers=(lower,), **parts
    )


def ipoib(name: str = "ib0", pkey: str = "0xffff", **parts: Any) -> Netdev:
    """The IPoIB netdev of mlx4_0/1."""
    return Netdev(
        name,
        ARPHRD_INFINIBAND,
        2044,
        "80:00:02:08",
        "up",
        rdma_device="mlx4_0",
        rdma_port=1,
        ipoib=Ipoib(mode="datagram", pkey=pkey),
        **parts,
    )


def modprobe(text: str, place: str = "/etc/modprobe.d/site.conf:3") -> ModprobeLine:
    """``options mlx4_core mtu_4k=1``."""
    file, _, line = place.rpartition(":")
    command, module, *rest = text.split(None, 2)
    module = module_name(module)
    return ModprobeLine(file, int(line), command, module, " ".join(rest))


def load_line(module: str, file: str = "/etc/modules-load.d/site.conf") -> LoadLine:
    """A line of modules-load.d, or of one of rdma-core's lists."""
    return LoadLine(file, 2, module)


def files(**paths: str) -> tuple[ModuleFile, ...]:
    """``files(ib_core="kernel/drivers/ib_core.ko.xz")``."""
    return tuple(ModuleFile(name, path) for name, path in paths.items())


def parameter(text: str) -> ModuleParameter:
    """``mlx4_core num_vfs=8``."""
    found = option(text)
    return ModuleParameter(found.module, found.name, found.value)


RDMA_CORE_UNITS = (
    Unit("rdma-hw.target", "loaded", "active", "static"),
    Unit("rdma-load-modules@rdma.service", "loaded", "active", "static"),
    Unit("rdma-load-modules@infiniband.service", "loaded", "active", "static"),
    Unit("rdma-load-modules@roce.service", "loaded", "active", "static"),
)
RDMA_CORE_LISTS = (
    *(
        load_line(module, "/etc/rdma/modules/rdma.conf")
        for module in ("ib_iser", "ib_uverbs", "rdma_ucm", "rpcrdma")
    ),
    load_line("ib_ipoib", "/etc/rdma/modules/infiniband.conf"),
    load_line("ib_umad", "/etc/rdma/modules/infiniband.conf"),
)
INFINIBAND_MODULES = (
    *("ib_core", "ib_ipoib", "ib_umad", "ib_uverbs", "rdma_cm", "rdma_ucm", "rpcrdma"),
    *("mlx4_core", "mlx4_ib"),
)


def outcomes(rule: Rule, host: Facts, policy: Optional[Policy] = None) -> list[Outcome]:
    """Return a rule's findings and steps, all with its own id."""
    found = list(rule.decide(View(host, policy or Policy())))
    assert found, f"{rule.id} yields nothing"
    assert {one.rule for one in found} == {rule.id}
    return found


def findings(
    rule: Rule, host: Facts, policy: Optional[Policy] = None
) -> dict[str, tuple[str, str]]:
    """Return a rule's findings: subject to verdict, and sentence with fix."""
    found = [one for one in outcomes(rule, host, policy) if isinstance(one, Finding)]
    assert len({one.subject for one in found}) == len(found)
    return {one.subject: (one.verdict, f"{one.sentence} | {one.fix}") for one in found}


def steps(rule: Rule, host: Facts, policy: Policy) -> dict[str, Step]:
    """Return a rule's steps by subject."""
    found = [one for one in outcomes(rule, host, policy) if isinstance(one, Step)]
    assert len({step.id for step in found}) == len(found)
    return {step.subject: step for step in found}
