# SPDX-License-Identifier: GPL-2.0-or-later
"""Draw hosts and policies of which the rules of modules, RoCE, NFS, VDSM and names say
much, because their names match; and apply their steps to facts.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

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
from ovirt_rdma.host.rules.base import FILE, PROFILE, SYSFS
from ovirt_rdma.host.system.files import MODULES_LOAD, OWN_FILES, own_text
from support.host.change_places import values_of
from support.host.ipoib_kernel import Kernel
from support.host.rule_cases import load_line, modprobe

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
LINES = st.integers(1, 99)


def _one_of(*values):
    return st.sampled_from(values)


def _maybe(strategy):
    return st.none() | strategy


def _several(strategy, most=3, key=None):
    return st.lists(strategy, max_size=most, unique_by=key).map(tuple)


OPTION_LINES = st.builds(
    lambda m, n, v, file: ModprobeLine(file, 1, "options", m, f"{n}={v}"),
    *(MODULE_NAMES, OPTION_NAMES, VALUES, PLACES),
)
MODPROBE_LINES = OPTION_LINES | st.builds(
    ModprobeLine,
    *(PLACES, LINES),
    _one_of("options", "blacklist", "install", "alias", "softdep"),
    MODULE_NAMES,
    ODD | _one_of("/bin/true", "/bin/false x", "num_vfs=8 a"),
)
MODULES = st.builds(
    Modules,
    loaded=_several(MODULE_NAMES, 6),
    available=_maybe(_several(MODULE_NAMES, 8)),
    files=_several(
        st.builds(ModuleFile, MODULE_NAMES, ODD | _one_of("kernel/a", "extra/b"))
    ),
    parameters=_several(st.builds(ModuleParameter, MODULE_NAMES, OPTION_NAMES, VALUES)),
    modprobe_lines=_several(MODPROBE_LINES),
    load_lines=_several(st.builds(LoadLine, PLACES, LINES, MODULE_NAMES)),
)
SOFTWARE = st.builds(
    Software,
    distribution=_maybe(_one_of("el9", "el10", "debian12")),
    vdsm_version=_maybe(ODD | _one_of("4.50.0.13", "4.50.5.1")),
    rdma_core=_maybe(ODD),
    stacks=_several(st.builds(RdmaStack, ODD, _maybe(ODD), ODD)),
    kernel_config=_maybe(
        _several(
            st.builds(
                KernelOption,
                _one_of("INFINIBAND", "INFINIBAND_IPOIB_CM", "MLX4_CORE_GEN2"),
                _one_of("y", "m", "n", ""),
            )
        )
    ),
    units=_several(
        st.builds(
            Unit,
            ODD
            | _one_of(
                "rdma-hw.target", "rdma-load-modules@rdma.service", "openibd.service"
            ),
            _one_of("loaded", "not-found"),
            _one_of("active", "inactive", "failed", ""),
            _one_of("enabled", ""),
        )
    ),
    own_files=_several(
        st.builds(
            OwnFile,
            _one_of(*OWN_FILES),
            _maybe(ODD | _one_of(own_text(["ib_srp"]), "# mine\n")),
        ),
        2,
        lambda file: file.path,
    ),
)
PCI = st.builds(
    PciIdentity,
    # The name of a folder in sysfs: no other text is possible.
    _one_of("0000:04:00.0", "0000:3b:00.0"),
    _one_of("0x15b3", "0x1077") | ODD,
    _one_of("0x6732", "0x1003", "0x1017", "0x7322") | ODD,
    _one_of("0xa0", "0x00") | ODD,
)
GID_TYPES = _maybe(_one_of("RoCE v2", "IB/RoCE v1"))
PORTS = st.builds(
    RdmaPort,
    st.integers(1, 2),
    _one_of("ACTIVE", "DOWN", "unknown"),
    ODD,
    _one_of("InfiniBand", "Ethernet", "unknown"),
    max_mtu=_maybe(_one_of(1024, 2048, 4096)),
    guid=_maybe(st.just("0002:c903:00fb:1231")),
    default_gid_type=GID_TYPES,
    gids=_several(
        st.builds(
            Gid,
            st.integers(0, 9),
            ODD | st.just("0000:0000:0000:0000:0000:ffff:0a00:0002"),
            GID_TYPES,
            _maybe(_one_of("n0", "n1", "gone")),
        )
    ),
)
DEVICES = st.builds(
    RdmaDevice,
    _one_of("mlx4_0", "mlx5_0") | ODD,
    _one_of("CA", "RNIC"),
    ODD,
    driver=_maybe(
        _one_of("mlx4_core", "mlx5_core", "rdma_rxe", "ib_qib", "hfi1") | ODD
    ),
    pci=_maybe(PCI),
    ports=_several(PORTS, 2, lambda port: port.number),
)
PRIORITIES = _maybe(_several(st.integers(0, 7)))
NETDEVS = st.builds(
    Netdev,
    _one_of("n0", "n1", "n2"),
    _one_of(1, 32),
    st.integers(0, 65536),
    ODD,
    st.just("up"),
    driver=_maybe(st.just("bond")),
    uppers=_several(_one_of("n0", "n1", "n2", "gone"), 2),
    addresses=_several(
        _one_of("10.0.0.2/24", "fd00::2/64", "fe80::1/64", "", "x/y"), 2
    ),
    rdma_device=_maybe(_one_of("mlx4_0", "mlx5_0")),
    rdma_port=_maybe(st.integers(1, 2)),
    offloads=_several(
        st.builds(
            Offload,
            _one_of("tx-tcp-segmentation", "tx-tcp6-segmentation"),
            st.booleans(),
            st.booleans(),
        ),
        key=lambda offload: offload.name,
    ),
    dcb=_maybe(
        st.builds(
            Dcb,
            PRIORITIES,
            PRIORITIES,
            _maybe(_one_of("dscp", "pcp")),
            _maybe(st.booleans()),
            _maybe(st.booleans()),
        )
    ),
)
PROFILES = st.builds(
    Profile,
    ODD,
    _one_of("u0", "u1"),
    st.just("802-3-ethernet"),
    _maybe(_one_of("n0", "n1")),
    _maybe(_one_of("n0", "n1")),
    _maybe(st.just("/etc/x")),
    st.tuples(
        st.builds(Property, st.just("802-3-ethernet.mtu"), VALUES | ODD),
        st.builds(
            Property,
            st.just("ethtool.feature-tso"),
            _one_of("on", "off", "ignore", ""),
        ),
    ),
)


def _with_own_lines(host):
    """Return the facts with the lines of our files, as a reader would add them."""
    for file in host.software.own_files:
        host = _written(host, file.path, file.text, file.text)
    return host


HOSTS = st.builds(
    Facts,
    st.just("hv1"),
    st.just("5.14.0"),
    st.just(1.0),
    adapters=_several(
        st.builds(
            Adapter,
            PCI,
            ODD.map(lambda text: text.rstrip(".")),
            _maybe(_one_of("vfio-pci", "mlx4_core")),
        )
    ),
    rdma_devices=_several(DEVICES, key=lambda device: device.name),
    netdevs=_several(NETDEVS, key=lambda netdev: netdev.name),
    network_manager=_maybe(
        st.builds(
            NetworkManager,
            st.booleans(),
            profiles=_several(PROFILES, 2, lambda profile: profile.uuid),
        )
    ),
    ovirt_networks=_several(st.builds(OvirtNetwork, ODD, _one_of("n0", "n2")), 1),
    nfs_mounts=_several(
        st.builds(
            NfsMount,
            *(ODD, ODD, ODD, ODD),
            protocol=_maybe(_one_of("rdma", "tcp")),
        ),
        1,
    ),
    modules=MODULES,
    software=SOFTWARE,
    problems=_several(ODD),
).map(_with_own_lines)
POLICIES = st.builds(
    Policy,
    nfs=st.builds(
        NfsPolicy,
        _several(
            st.builds(
                lambda transport: NfsRule(1, "r", "*", "*", transport),
                _one_of("require-rdma", "tcp"),
            ),
            1,
        ),
    ),
    host=st.builds(
        HostPolicy,
        _several(
            st.builds(
                InterfaceRule,
                st.integers(1, 3),
                ODD,
                link_layer=_maybe(_one_of("infiniband", "ethernet")),
                device=_maybe(_one_of("mlx4_0", "mlx5_*", "mlx4_1")),
                pci=_maybe(st.just("0000:04:00.1")),
                guid=_maybe(st.just("0002:c903:00fb:1232")),
                port=_maybe(st.integers(1, 3)),
                pkey=_maybe(st.just("0x8001")),
                mtu=_maybe(_one_of("auto", 1500, 4200, 9000)),
                tso=_maybe(_one_of("auto", "on", "off")),
                pkey_children=_several(st.just("0x8001"), 1),
            ),
            2,
        ),
        _several(MODULE_NAMES, 2),
        _several(
            st.builds(ModuleOption, MODULE_NAMES, OPTION_NAMES, VALUES),
            2,
            lambda one: (one.module, one.name.replace("-", "_")),
        ),
    ),
)
# Hosts and rules of which a step is likely: RoCE with a profile on disk.
ROCE_HOSTS = st.builds(
    lambda host, port, netdev, profile: replace(
        host,
        rdma_devices=(
            RdmaDevice("mlx5_0", "CA", "", driver="mlx5_core", ports=(port,)),
        ),
        netdevs=(netdev,),
        network_manager=NetworkManager(True, profiles=(profile,)),
    ),
    HOSTS,
    PORTS.map(lambda one: replace(one, number=1, link_layer="Ethernet")),
    NETDEVS.map(
        lambda one: replace(
            one, name="n0", type=1, uppers=(), rdma_device="mlx5_0", rdma_port=1
        )
    ),
    PROFILES.map(lambda one: replace(one, active_on="n0", file="/etc/x")),
)
ROCE_POLICIES = st.builds(
    lambda policy, mtu, tso: replace(
        policy,
        host=replace(
            policy.host,
            interfaces=(
                InterfaceRule(1, "r", link_layer="ethernet", mtu=mtu, tso=tso),
            ),
        ),
    ),
    POLICIES,
    _one_of(1500, 4200, 9000),
    _maybe(_one_of("auto", "on", "off")),
)


def carried_out(host: Facts, change) -> Facts:
    """Return the facts of the host after a change; a netdev has a profile's values when
    the profile is activated again.
    """
    if change.kind == FILE:
        return _written(host, change.target, change.before, change.after)
    assert change.kind != SYSFS or change.target.endswith("/mtu")
    before = values_of(host).get((change.kind, change.target, change.name))
    # An odd value that was drawn for a profile counts as none.
    assert before == change.before or change.kind == PROFILE
    kernel = Kernel(host, group_mtu=0)
    kernel.do(replace(change, before=before))
    return kernel.facts


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
