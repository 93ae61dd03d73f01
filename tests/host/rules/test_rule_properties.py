# SPDX-License-Identifier: GPL-2.0-or-later
"""Properties of the rules about modules, RoCE, NFS, VDSM and names, on any host."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.host.rule_cases import load_line, modprobe

from ovirt_rdma.host.facts.devices import (
    Adapter,
    Dcb,
    Gid,
    Netdev,
    NetworkManager,
    Offload,
    OvirtNetwork,
    PciIdentity,
    Profile,
    Property,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import (
    Facts,
    KernelOption,
    LoadLine,
    ModprobeLine,
    ModuleFile,
    ModuleParameter,
    Modules,
    NfsMount,
    OwnFile,
    RdmaStack,
    Software,
    Unit,
)
from ovirt_rdma.host.policy.model import (
    HostPolicy,
    InterfaceRule,
    ModuleOption,
    NfsPolicy,
    NfsRule,
    Policy,
)
from ovirt_rdma.host.rules.base import (
    CLASSES,
    FILE,
    MODULE,
    OFFLOAD,
    PROFILE,
    VERDICTS,
    Finding,
    Step,
    View,
)
from ovirt_rdma.host.rules.registry import RULES as TABLE
from ovirt_rdma.host.system.files import MODULES_LOAD, OWN_FILES, own_text

RULES = tuple(rule for rule in TABLE if not rule.id.startswith(("IB-", "IPOIB-")))

ODD = st.text(max_size=6)
_DRIVERS = "mlx4_core mlx4_ib mlx5_core mlx5_ib rdma_rxe"
_UPPER = "ib_ipoib rpcrdma xprtrdma nvme-rdma nvme_rdma ib_core rdma_cm 8021q"
MODULE_NAMES = st.sampled_from(f"{_DRIVERS} {_UPPER}".split())
OPTION_NAMES = st.sampled_from(["num_vfs", "num-vfs", "mtu_4k", "log_num_mtt"])
VALUES = st.sampled_from(["0", "1", "8", "Y", "1,2", "0x8"])
PLACES = st.sampled_from(
    [
        *("/etc/modprobe.d/a.conf", "/proc/cmdline", "/etc/modules-load.d/a.conf"),
        *("/etc/rdma/modules/rdma.conf", "/etc/rdma/modules/infiniband.conf"),
    ]
)
ADDRESSES = st.sampled_from(["10.0.0.2/24", "fd00::2/64", "fe80::1/64", "", "x/y"])
LINES = st.integers(1, 99)


def _several(strategy, most=3):
    return st.lists(strategy, max_size=most).map(tuple)


OPTION_LINES = st.builds(
    lambda m, n, v, file: ModprobeLine(file, 1, "options", m, f"{n}={v}"),
    *(MODULE_NAMES, OPTION_NAMES, VALUES, PLACES),
)
MODPROBE_LINES = OPTION_LINES | st.builds(
    ModprobeLine,
    *(PLACES, LINES),
    st.sampled_from(["options", "blacklist", "install", "alias", "softdep"]),
    MODULE_NAMES,
    ODD | st.sampled_from(["/bin/true", "/bin/false x", "num_vfs=8 a"]),
)
MODULES = st.builds(
    Modules,
    loaded=_several(MODULE_NAMES, 6),
    available=st.none() | _several(MODULE_NAMES, 8),
    files=_several(
        st.builds(
            ModuleFile, MODULE_NAMES, ODD | st.sampled_from(["kernel/a", "extra/b"])
        )
    ),
    parameters=_several(st.builds(ModuleParameter, MODULE_NAMES, OPTION_NAMES, VALUES)),
    modprobe_lines=_several(MODPROBE_LINES),
    load_lines=_several(st.builds(LoadLine, PLACES, LINES, MODULE_NAMES)),
)
OWN = st.builds(
    OwnFile,
    st.sampled_from(OWN_FILES),
    st.none() | ODD | st.sampled_from([own_text(["ib_srp"]), "# mine\n"]),
)
SOFTWARE = st.builds(
    Software,
    distribution=st.none() | st.sampled_from(["el9", "el10", "debian12"]),
    vdsm_version=st.none() | ODD | st.sampled_from(["4.50.0.13", "4.50.5.1"]),
    rdma_core=st.none() | ODD,
    stacks=_several(st.builds(RdmaStack, ODD, st.none() | ODD, ODD)),
    kernel_config=st.none()
    | _several(
        st.builds(
            KernelOption,
            st.sampled_from(["INFINIBAND", "INFINIBAND_IPOIB_CM", "MLX4_CORE_GEN2"]),
            st.sampled_from(["y", "m", "n", ""]),
        )
    ),
    units=_several(
        st.builds(
            Unit,
            ODD
            | st.sampled_from(
                ["rdma-hw.target", "rdma-load-modules@rdma.service", "openibd.service"]
            ),
            st.sampled_from(["loaded", "not-found"]),
            st.sampled_from(["active", "inactive", "failed", ""]),
            st.sampled_from(["enabled", ""]),
        )
    ),
    own_files=st.lists(OWN, max_size=2, unique_by=lambda f: f.path).map(tuple),
)
PCI = st.builds(
    PciIdentity,
    # The name of a folder in sysfs: no other text is possible.
    st.sampled_from(["0000:04:00.0", "0000:3b:00.0"]),
    st.sampled_from(["0x15b3", "0x1077"]) | ODD,
    st.sampled_from(["0x6732", "0x1003", "0x1017", "0x7322"]) | ODD,
    st.sampled_from(["0xa0", "0x00"]) | ODD,
)
PORTS = st.builds(
    RdmaPort,
    st.integers(1, 2),
    st.sampled_from(["ACTIVE", "DOWN", "unknown"]),
    ODD,
    st.sampled_from(["InfiniBand", "Ethernet", "unknown"]),
    max_mtu=st.none() | st.sampled_from([1024, 2048, 4096]),
    guid=st.none() | st.just("0002:c903:00fb:1231"),
    default_gid_type=st.none() | st.sampled_from(["RoCE v2", "IB/RoCE v1"]),
    gids=_several(
        st.builds(
            Gid,
            st.integers(0, 9),
            ODD | st.just("0000:0000:0000:0000:0000:ffff:0a00:0002"),
            st.none() | st.sampled_from(["RoCE v2", "IB/RoCE v1"]),
            st.none() | st.sampled_from(["n0", "n1", "gone"]),
        )
    ),
)
DEVICES = st.builds(
    RdmaDevice,
    st.sampled_from(["mlx4_0", "mlx5_0"]) | ODD,
    st.sampled_from(["CA", "RNIC"]),
    ODD,
    driver=st.none()
    | st.sampled_from(["mlx4_core", "mlx5_core", "rdma_rxe", "ib_qib", "hfi1"])
    | ODD,
    pci=st.none() | PCI,
    ports=_several(PORTS, 2),
)
NETDEVS = st.builds(
    Netdev,
    st.sampled_from(["n0", "n1", "n2"]),
    st.sampled_from([1, 32]),
    st.integers(0, 65536),
    ODD,
    st.just("up"),
    driver=st.none() | st.just("bond"),
    uppers=_several(st.sampled_from(["n0", "n1", "n2", "gone"]), 2),
    addresses=_several(ADDRESSES, 2),
    rdma_device=st.none() | st.sampled_from(["mlx4_0", "mlx5_0"]),
    rdma_port=st.none() | st.integers(1, 2),
    offloads=_several(
        st.builds(
            Offload,
            st.sampled_from(["tx-tcp-segmentation", "tx-tcp6-segmentation"]),
            st.booleans(),
            st.booleans(),
        )
    ).map(lambda found: tuple({one.name: one for one in found}.values())),
    dcb=st.none()
    | st.builds(
        Dcb,
        st.none() | _several(st.integers(0, 7)),
        st.none() | _several(st.integers(0, 7)),
        st.none() | st.sampled_from(["dscp", "pcp"]),
        st.none() | st.booleans(),
        st.none() | st.booleans(),
    ),
)
PROFILES = st.builds(
    Profile,
    ODD,
    st.sampled_from(["u0", "u1"]),
    st.just("802-3-ethernet"),
    st.none() | st.sampled_from(["n0", "n1"]),
    st.none() | st.sampled_from(["n0", "n1"]),
    st.none() | st.just("/etc/x"),
    st.tuples(
        st.builds(Property, st.just("802-3-ethernet.mtu"), VALUES | ODD),
        st.builds(
            Property,
            st.just("ethtool.feature-tso"),
            st.sampled_from(["on", "off", "ignore", ""]),
        ),
    ),
)
ANY_FACTS = st.builds(
    Facts,
    st.just("hv1"),
    st.just("5.14.0"),
    st.just(1.0),
    adapters=_several(
        st.builds(
            Adapter,
            PCI,
            ODD.map(lambda text: text.rstrip(".")),
            st.none() | st.sampled_from(["vfio-pci", "mlx4_core"]),
        )
    ),
    rdma_devices=_several(DEVICES).map(
        lambda found: tuple({device.name: device for device in found}.values())
    ),
    netdevs=_several(NETDEVS).map(
        lambda found: tuple({netdev.name: netdev for netdev in found}.values())
    ),
    network_manager=st.none()
    | st.builds(
        NetworkManager,
        st.booleans(),
        profiles=st.lists(PROFILES, max_size=2, unique_by=lambda p: p.uuid).map(tuple),
    ),
    ovirt_networks=_several(
        st.builds(OvirtNetwork, ODD, st.sampled_from(["n0", "n2"])), 1
    ),
    nfs_mounts=_several(
        st.builds(
            NfsMount,
            *(ODD, ODD, ODD, ODD),
            protocol=st.none() | st.sampled_from(["rdma", "tcp"]),
        ),
        1,
    ),
    modules=MODULES,
    software=SOFTWARE,
    problems=_several(ODD),
)


def _with_own_lines(host):
    """Return the facts with the lines of our files, as a reader would add them."""
    for file in host.software.own_files:
        host = _written(host, file.path, file.text, file.text)
    return host


FACTS = ANY_FACTS.map(_with_own_lines)
INTERFACE_RULES = st.builds(
    InterfaceRule,
    st.integers(1, 3),
    ODD,
    link_layer=st.none() | st.sampled_from(["infiniband", "ethernet"]),
    device=st.none() | st.sampled_from(["mlx4_0", "mlx5_*", "mlx4_1"]),
    pci=st.none() | st.just("0000:04:00.1"),
    guid=st.none() | st.just("0002:c903:00fb:1232"),
    port=st.none() | st.integers(1, 3),
    pkey=st.none() | st.just("0x8001"),
    mtu=st.none() | st.just("auto") | st.sampled_from([1500, 4200, 9000]),
    tso=st.none() | st.sampled_from(["auto", "on", "off"]),
    pkey_children=_several(st.just("0x8001"), 1),
)
POLICIES = st.builds(
    Policy,
    nfs=st.builds(
        NfsPolicy,
        _several(
            st.builds(
                lambda transport: NfsRule(1, "r", "*", "*", transport),
                st.sampled_from(["require-rdma", "tcp"]),
            ),
            1,
        ),
    ),
    host=st.builds(
        HostPolicy,
        _several(INTERFACE_RULES, 2),
        _several(MODULE_NAMES, 2),
        st.lists(
            st.builds(ModuleOption, MODULE_NAMES, OPTION_NAMES, VALUES),
            max_size=2,
            unique_by=lambda o: (o.module, o.name.replace("-", "_")),
        ).map(tuple),
    ),
)


def _decided(host, policy):
    view = View(host, policy)
    found = [(rule, one) for rule in RULES for one in rule.decide(view)]
    assert all(one.rule == rule.id for rule, one in found)
    return [one for _, one in found]


@given(FACTS, POLICIES)
def test_every_rule_says_something_about_any_host(host, policy):
    found = _decided(host, policy)
    assert {one.rule for one in found} == {rule.id for rule in RULES}
    for one in found:
        if isinstance(one, Finding):
            assert one.verdict in VERDICTS
            assert one.sentence
            assert not one.sentence.endswith(".")
        else:
            assert isinstance(one, Step)
            assert one.effect in CLASSES
            assert bool(one.changes) != bool(one.refused)
            assert one.reason
            assert one.undo
    ids = [one.id for one in found if isinstance(one, Step)]
    assert len(set(ids)) == len(ids)


@given(FACTS)
def test_empty_policy_touches_nothing(host):
    assert [one for one in _decided(host, Policy()) if isinstance(one, Step)] == []


@given(FACTS, POLICIES)
def test_after_the_steps_there_are_none(host, policy):
    for step in _steps(host, policy):
        for change in step.changes:
            host = _carried_out(host, change)
    assert _steps(host, policy) == []


def _steps(host, policy):
    found = _decided(host, policy)
    return [one for one in found if isinstance(one, Step) and not one.refused]


def _carried_out(host: Facts, change) -> Facts:
    """Return the facts of the host after a change."""
    if change.kind == MODULE:
        loaded = (*host.modules.loaded, change.target)
        return replace(host, modules=replace(host.modules, loaded=loaded))
    if change.kind == FILE:
        return _written(host, change.target, change.before, change.after)
    if change.kind == OFFLOAD:
        return _with_offload(host, change)
    assert change.kind == PROFILE
    return _with_property(host, change)


def _with_offload(host, change):
    def turned(one):
        if one.name != change.name:
            return one
        assert not one.fixed
        return replace(one, on=change.after == "on")

    return replace(
        host,
        netdevs=tuple(
            replace(n, offloads=tuple(map(turned, n.offloads)))
            if n.name == change.target
            else n
            for n in host.netdevs
        ),
    )


def _with_property(host, change):
    """Set the property; the netdev follows the profile that is active on it."""
    manager = host.network_manager
    (profile,) = (p for p in manager.profiles if p.uuid == change.target)
    others = tuple(p for p in manager.profiles if p != profile)
    kept = tuple(p for p in profile.properties if p.name != change.name)
    new = replace(profile, properties=(*kept, Property(change.name, change.after)))
    netdevs = host.netdevs
    if change.name == "802-3-ethernet.mtu":
        name = profile.active_on or profile.interface_name
        netdevs = tuple(
            replace(n, mtu=int(change.after)) if n.name == name else n for n in netdevs
        )
    manager = replace(manager, profiles=(new, *others))
    return replace(host, network_manager=manager, netdevs=netdevs)


def _written(host, path, before, after):
    there = next((f for f in host.software.own_files if f.path == path), None)
    assert before == (there.text if there else None)
    files = tuple(f for f in host.software.own_files if f.path != path)
    if after is not None or there == OwnFile(path):
        files += (OwnFile(path, after),)
    lines = [t for t in (after or "").splitlines() if t and not t.startswith("#")]
    lines = [t for t in lines if path == MODULES_LOAD or len(t.split()) > 1]
    mods = host.modules
    if path == MODULES_LOAD:
        kept = tuple(one for one in mods.load_lines if one.file != path)
        mods = replace(mods, load_lines=kept + tuple(load_line(t, path) for t in lines))
    else:
        kept = tuple(one for one in mods.modprobe_lines if one.file != path)
        mods = replace(
            mods,
            modprobe_lines=kept + tuple(modprobe(t, f"{path}:1") for t in lines),
        )
    return replace(host, modules=mods, software=replace(host.software, own_files=files))


def test_rules_are_in_the_table():
    assert set(RULES) <= set(TABLE)
