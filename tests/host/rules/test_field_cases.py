# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts of public reports: what is said of each is right, and nothing else.

Each case is a golden host with what its source reports. ``right`` has what must be
found, as rule, subject, verdict and words; ``never`` what must not be said.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, replace
from typing import Any, Callable

import pytest
from support.golden.golden_hosts import DATA
from support.host.rule_cases import REQUIRE_RDMA, modprobe

from ovirt_rdma.host.facts.devices import (
    Adapter,
    Dcb,
    PciIdentity,
    PKey,
    PriorityOf,
    Property,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import (
    Facts,
    KernelOption,
    ModuleFile,
    Route,
    load,
)
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN
from ovirt_rdma.host.rules.registry import decide

GITHUB = "https://github.com/"


def golden(name: str) -> Facts:
    """Return the facts of a golden host."""
    return load(DATA / name / "facts.json")


def nas(transport: str = "require-rdma") -> Policy:
    """A rule for the server of the cases."""
    text = f"version: 1\nnfs:\n  rules: [{{server: 10.20.0.1, transport: {transport}}}]"
    return parse_policy(text, "policy.yaml").policy


def modules(
    facts: Facts, *, loaded: str = "", without: str = "", **files: str
) -> Facts:
    """Change loaded and available modules, and their files."""
    old = facts.modules
    gone = set(without.split())
    paths = [file for file in old.files if file.name not in {*files, *gone}]
    paths += [ModuleFile(name, path) for name, path in files.items()]
    return replace(
        facts,
        modules=replace(
            old,
            loaded=tuple(sorted({*old.loaded, *loaded.split()} - gone)),
            available=tuple(sorted({*(old.available or ()), *files} - gone)),
            files=tuple(paths),
        ),
    )


def config(facts: Facts, **symbols: str) -> Facts:
    """Set symbols of the kernel's configuration."""
    old = facts.software.kernel_config or ()
    kept = [one for one in old if one.name not in symbols]
    new = (*kept, *(KernelOption(*one) for one in symbols.items()))
    return replace(facts, software=replace(facts.software, kernel_config=new))


def nic(
    device: str,
    driver: str,
    vendor: str = "0x8086",
    auxiliary: Any = None,
    listed: bool = True,
) -> Facts:
    """A host without an RDMA device; 10.20.0.1 is behind its NIC ens1f0."""
    facts = golden("without-rdma")
    pci = PciIdentity("0000:3b:00.0", vendor, device, "0x00")
    netdev = replace(facts.netdevs[0], name="ens1f0", driver=driver, pci=pci, uppers=())
    adapter = Adapter(pci, driver, auxiliary=auxiliary)
    return replace(
        facts,
        adapters=(adapter,) if listed else (),
        netdevs=(*facts.netdevs, netdev),
        routes=(Route("10.20.0.1", "ens1f0", "10.20.0.2"),),
        nfs_mounts=(),
    )


def of_ports(facts: Facts, **parts: Any) -> Facts:
    """Change all RDMA ports."""
    return replace(
        facts,
        rdma_devices=tuple(
            replace(one, ports=tuple(replace(port, **parts) for port in one.ports))
            for one in facts.rdma_devices
        ),
    )


def of_netdevs(facts: Facts, change: Callable[[Any], Any]) -> Facts:
    """Change all netdevs."""
    return replace(facts, netdevs=tuple(map(change, facts.netdevs)))


def profile(facts: Facts, netdev: str, **properties: str) -> Facts:
    """Set infiniband properties of the profile of a netdev."""
    manager = facts.network_manager
    assert manager is not None
    names = {f"infiniband.{key}": value for key, value in properties.items()}

    def changed(one):
        if netdev not in (one.active_on, one.interface_name):
            return one
        kept = [p for p in one.properties if p.name not in names]
        new = (Property(name, value) for name, value in names.items())
        return replace(one, properties=(*kept, *new))

    profiles = tuple(map(changed, manager.profiles))
    return replace(facts, network_manager=replace(manager, profiles=profiles))


def roce(tos: Any, dcb: Dcb, **vlan: Any) -> Facts:
    """The RoCE bond with a VLAN."""
    facts = of_ports(golden("connectx-6-dx-roce"), default_tos=tos)

    def changed(netdev):
        if netdev.dcb:
            return replace(netdev, dcb=dcb)
        return replace(netdev, **vlan) if netdev.driver == "vlan" else netdev

    return of_netdevs(facts, changed)


def one_device(driver: str, node_type: str = "CA", layer: str = "Ethernet") -> Facts:
    """A host with one RDMA device of another driver."""
    facts = golden("without-rdma")
    port = RdmaPort(1, "ACTIVE", "LinkUp", layer)
    device = RdmaDevice("rdma0", node_type, "0:0:0:1", driver, ports=(port,))
    return replace(facts, rdma_devices=(device,))


def two_ports(arp_ignore: Any) -> Facts:
    """Two InfiniBand ports with addresses of one network."""

    def changed(netdev):
        number = {"ib0": 2, "ib1": 3}.get(netdev.name)
        addresses = (f"10.0.0.{number}/24",) if number else ("192.0.2.11/24",)
        return replace(netdev, addresses=addresses, arp_ignore=arp_ignore)

    return of_netdevs(golden("two-hcas"), changed)


def without_vf_details(facts: Facts) -> Facts:
    """The VFs as an ``ip`` shows them that cuts its list short."""

    def cut(adapter):
        functions = tuple(
            replace(vf, node_guid=None, link_state=None, ports=())
            for vf in adapter.virtual_functions
        )
        return replace(adapter, virtual_functions=functions)

    return replace(facts, adapters=tuple(map(cut, facts.adapters)))


def mellanox(facts: Facts, core: str) -> Facts:
    """MLNX_OFED's core modules; the distribution's rpcrdma stays, not loaded."""
    folder = f"{core}/drivers/infiniband/core"
    return modules(
        facts,
        without="rpcrdma",
        ib_core=f"{folder}/ib_core.ko",
        rdma_cm=f"{folder}/rdma_cm.ko",
        rpcrdma="kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz",
    )


LOSSLESS = Dcb((3,), None, "dscp", False, False, (PriorityOf(26, 3),))
BY_TAG = Dcb((3,), None, "pcp", False, False, ())
VASTNFS = "extra/vastnfs/bundle/net/sunrpc"
UEK7 = "5.15.0-209.161.7.2.el9uek.x86_64"
ABI = (
    "ibv_devinfo failed: libibverbs: Warning: Driver bnxt_re does not support the "
    "kernel ABI of 6 (supports 1 to 1) for device /sys/class/infiniband/bnxt_re0"
)
OPTIONS = (
    "options irdma roce_ena=1 limits_sel=3",
    "options mlx4_core enable_sys_tune=1 num_vfs=8",
    "options sunrpc rdma_slot_table_entries=256",
    "options xprtrdma xprt_rdma_max_inline_read=65536",
    "options hfi1 krcvqs=4",
)


RELEASE = golden("without-rdma").kernel_release


def package(module: str, release: str) -> str:
    """A pattern of the fix that installs a module of this kernel."""
    return re.escape(f"dnf install '*/{release}/*/{module}.ko*'")


@dataclass(frozen=True)
class Case:
    """A host with a policy; see the module."""

    source: str
    facts: Facts
    right: tuple[tuple[str, str, str, str], ...]
    never: tuple[str, ...] = ()
    policy: Policy = dataclasses.field(default_factory=Policy)


CASES = {
    "E810, irdma is not loaded": Case(
        f"{GITHUB}siderolabs/pkgs/issues/1297",
        nic("0x1592", "ice", listed=False),
        (
            ("DRIVER-01", "0000:3b:00.0", FAIL, "E810.*irdma is available but not"),
            ("DRIVER-01", "0000:3b:00.0", FAIL, "modprobe irdma"),
            ("NFSRDMA-03", "host", FAIL, "see DRIVER-01"),
        ),
        ("no RDMA adapter was found",),
        nas(),
    ),
    "E810, irdma is blocked": Case(
        f"{GITHUB}intel/ethernet-linux-ice/issues/12",
        replace(
            nic("0x159b", "ice"),
            modules=replace(
                golden("without-rdma").modules,
                modprobe_lines=(modprobe("blacklist irdma"),),
            ),
        ),
        (("DRIVER-01", "0000:3b:00.0", FAIL, "site.conf:3 prevents loading irdma"),),
        policy=nas(),
    ),
    "E810 whose firmware has RDMA off": Case(
        f"{GITHUB}linux-nvme/nvme-cli/issues/2391",
        modules(nic("0x1593", "ice", auxiliary=()), loaded="irdma"),
        (("DRIVER-01", "0000:3b:00.0", FAIL, "ice offers none to irdma.*journalctl"),),
        policy=nas(),
    ),
    "an E810 as ordinary NIC is no fault": Case(
        "drivers/net/ethernet/intel/ice",
        replace(
            golden("connectx-5-ib"),
            netdevs=(
                *golden("connectx-5-ib").netdevs,
                *nic("0x1592", "ice").netdevs[-1:],
            ),
        ),
        (("DRIVER-01", "0000:3b:00.0", SKIP, "E810"),),
    ),
    "Broadcom, a kernel without bnxt_re": Case(
        f"{GITHUB}siderolabs/pkgs/issues/1557",
        config(
            modules(nic("0x16d7", "bnxt_en", "0x14e4"), without="bnxt_re"),
            INFINIBAND_BNXT_RE="n",
        ),
        (("DRIVER-01", "0000:3b:00.0", FAIL, "BCM5741x.*built without bnxt_re"),),
        policy=nas(),
    ),
    "Chelsio, the package is missing": Case(
        "drivers/net/ethernet/chelsio/cxgb4/t4_pci_id_tbl.h",
        config(
            modules(nic("0x6407", "cxgb4", "0x1425"), without="iw_cxgb4"),
            INFINIBAND_CXGB4="m",
        ),
        (
            (
                "DRIVER-01",
                "0000:3b:00.0",
                FAIL,
                r"Chelsio T6.*package that has it is not installed \| "
                f"{package('iw_cxgb4', RELEASE)}",
            ),
        ),
        policy=nas(),
    ),
    "an NFS client of a vendor, loaded": Case(
        f"{GITHUB}NVIDIA/gds-nvidia-fs/issues/26",
        modules(
            golden("connectx-5-ib"),
            loaded="rpcrdma",
            rpcrdma=f"{VASTNFS}/xprtrdma/rpcrdma.ko",
            sunrpc=f"{VASTNFS}/sunrpc.ko",
        ),
        (("STACK-01", "host", PASS, "kernel.s own, except.*vastnfs"),),
        ("cannot be loaded",),
        REQUIRE_RDMA,
    ),
    "the same, not loaded yet": Case(
        "http://unstructureddatatips.com/tag/ai",
        modules(
            modules(golden("connectx-5-ib"), without="rpcrdma"),
            rpcrdma=f"{VASTNFS}/xprtrdma/rpcrdma.ko",
            sunrpc=f"{VASTNFS}/sunrpc.ko",
        ),
        (("STACK-01", "host", SKIP, "known when it is loaded"),),
        ("cannot be loaded",),
        REQUIRE_RDMA,
    ),
    "MLNX_OFED beside the distribution's rpcrdma": Case(
        f"{GITHUB}cifsd-team/ksmbd/issues/574",
        mellanox(golden("connectx-5-ib"), "extra/mlnx-ofa_kernel"),
        (("STACK-01", "host", FAIL, "cannot be loaded.*--with-nfsrdma"),),
        policy=REQUIRE_RDMA,
    ),
    "MLNX_OFED's module that does nothing": Case(
        f"{GITHUB}spdk/spdk/issues/900",
        replace(
            modules(
                mellanox(golden("connectx-5-ib"), "extra/mlnx-ofa_kernel"),
                loaded="rpcrdma",
                rpcrdma="extra/mlnx-nfsrdma/rpcrdma.ko",
            ),
        ),
        (("NFSRDMA-01", "rpcrdma", WARN, "placeholder that does nothing"),),
        policy=REQUIRE_RDMA,
    ),
    "a limited member of the default partition": Case(
        f"{GITHUB}linux-rdma/rdma-core/pull/413",
        of_ports(golden("connectx-5-ib"), pkeys=(PKey(0, "0x7fff"),)),
        (("IB-PORT-01", "ib0", WARN, "limited member.*full members only"),),
    ),
    "a full member elsewhere, an unused base netdev": Case(
        f"{GITHUB}linux-rdma/rdma-core/pull/465",
        of_netdevs(
            replace(
                of_ports(
                    golden("virtual-functions-wanted"),
                    pkeys=(PKey(0, "0x7fff"), PKey(1, "0x8001")),
                ),
                netdev_uses=(),
                ovirt_networks=(),
            ),
            lambda netdev: replace(netdev, addresses=()),
        ),
        (),
        ("limited member",),
    ),
    "RoCE with PFC, and no type of service": Case(
        f"{GITHUB}chimera-nas/chimera/pull/617",
        roce(0, LOSSLESS),
        (
            (
                "ROCE-PFC-01",
                "ens1f0np0",
                WARN,
                "type of service 0 and so priority 0.*"
                r"write roce: \{priority: 3\} for it in the policy",
            ),
        ),
    ),
    "the same, in a dump without that fact": Case(
        f"{GITHUB}openebs/mayastor/pull/1953",
        roce(None, LOSSLESS),
        (("ROCE-PFC-01", "ens1f0np0", SKIP, "is unknown"),),
    ),
    "RoCE with PFC and DSCP 26": Case(
        f"{GITHUB}dmf-mxl/mxl/pull/603",
        roce(106, LOSSLESS),
        (("ROCE-PFC-01", "ens1f0np0", PASS, "type of service 106 and so priority 3"),),
    ),
    "RoCE with the VLAN tag trusted, and no egress map": Case(
        "https://kubernetes.recipes/recipes/networking/"
        "ets-pfc-dscp-trust-mellanox-quickstart/",
        roce(0, BY_TAG, egress=()),
        (
            (
                "ROCE-PFC-01",
                "ens1f0np0",
                WARN,
                "priority 0, because a VLAN's tag decides.*"
                r"write roce: \{priority: 3\} for it in the policy",
            ),
        ),
    ),
    "the same with an egress map": Case(
        f"{GITHUB}Mellanox/network-operator/issues/179",
        roce(0, BY_TAG, egress=(PriorityOf(0, 3),)),
        (
            (
                "ROCE-PFC-01",
                "ens1f0np0",
                PASS,
                "priority 3, because a VLAN's tag decides",
            ),
        ),
    ),
    "the same, in a dump without egress maps": Case(
        f"{GITHUB}Mellanox/network-operator/issues/179",
        roce(0, BY_TAG),
        (("ROCE-PFC-01", "ens1f0np0", SKIP, "the priority of .* is unknown"),),
    ),
    "options of other drivers": Case(
        "find_string 47184301835: options irdma roce_ena=1",
        replace(
            golden("connectx-5-ib"),
            modules=replace(
                golden("connectx-5-ib").modules,
                modprobe_lines=tuple(map(modprobe, OPTIONS)),
            ),
        ),
        (
            ("MODOPT-01", "irdma.roce_ena", WARN, "does not have"),
            ("MODOPT-01", "irdma.limits_sel", WARN, "does not have"),
            ("MODOPT-01", "mlx4_core.enable_sys_tune", WARN, "does not have"),
            ("MODOPT-01", "sunrpc.rdma_slot_table_entries", WARN, "does not have"),
            ("MODOPT-01", "rpcrdma.xprt_rdma_max_inline_read", WARN, "does not"),
            ("MODOPT-01", "hfi1.krcvqs", SKIP, "unknown if hfi1 has"),
            ("MODOPT-01", "host", PASS, "have these options: mlx4_core.num_vfs"),
        ),
    ),
    "a profile with connected mode on mlx5": Case(
        f"{GITHUB}clearlinux/distribution/issues/1095",
        profile(
            golden("virtual-functions-wanted"),
            "ib0",
            **{"transport-mode": "connected", "mtu": "65520"},
        ),
        (
            (
                "IPOIB-PROFILE-01",
                "ib0",
                WARN,
                "cannot have.*readied for configuration.*transport-mode datagram "
                "infiniband.mtu 2044",
            ),
        ),
    ),
    "the same on a kernel without connected mode": Case(
        f"{GITHUB}clearlinux/distribution/issues/2770",
        config(
            profile(golden("two-hcas"), "ib0", **{"transport-mode": "connected"}),
            INFINIBAND_IPOIB_CM="n",
        ),
        (("IPOIB-PROFILE-01", "ib0", WARN, "built without CONFIG_INFINIBAND_IPOIB"),),
    ),
    "UEK 7 without its module packages": Case(
        "https://oracle.hydrogen.sagittarius.connect.product.adaptavist.com/en/"
        "operating-systems/uek/7/relnotes7.0/"
        "uek7.0-ChangestoUEKContentDistributionandPackaging.html",
        modules(
            replace(golden("connectx-5-ib"), kernel_release=UEK7),
            without="rpcrdma ib_umad",
        ),
        (
            ("NFSRDMA-01", "rpcrdma", FAIL, package("rpcrdma", UEK7)),
            ("MODULE-01", "ib_umad", WARN, package("ib_umad", UEK7)),
        ),
        (f" kernel-modules-{UEK7}", "see STACK-01", "see DRIVER-01"),
        REQUIRE_RDMA,
    ),
    "a vendor's bnxt_re, and an old rdma-core": Case(
        f"{GITHUB}k8snetworkplumbingwg/sriov-cni/issues/348",
        replace(
            modules(one_device("bnxt_en"), bnxt_re="weak-updates/bnxt_re/bnxt_re.ko"),
            problems=(ABI,),
        ),
        (
            (
                "FACTS-01",
                "host",
                WARN,
                "library of a vendor's driver.*NFS is not affected",
            ),
        ),
        ("journalctl -k",),
    ),
    "no library for the adapter": Case(
        f"{GITHUB}SoftRoCE/rxe-dev/issues/48",
        replace(
            one_device("rdma_rxe"),
            problems=(
                "ibv_devinfo failed: libibverbs: Warning: no userspace device-specific "
                "driver found for /sys/class/infiniband_verbs/uverbs0",
            ),
        ),
        (("FACTS-01", "host", WARN, "update rdma-core.*NFS is not affected"),),
    ),
    "a list of VFs that is cut short": Case(
        f"{GITHUB}nasty-project/nasty/pull/611",
        without_vf_details(golden("virtual-functions")),
        (("VF-02", "mlx5_0", SKIP, "unknown"),),
        policy=parse_policy(
            (DATA / "virtual-functions" / "policy.yaml").read_text(), "policy.yaml"
        ).policy,
    ),
    "EFA has no memory registration": Case(
        "drivers/infiniband/hw/efa/efa_main.c: no alloc_mr",
        one_device("efa"),
        (("NFSRDMA-02", "rdma0", FAIL, "efa does not support"),),
        policy=REQUIRE_RDMA,
    ),
    "MANA is not judged": Case(
        "drivers/infiniband/hw/mana",
        one_device("mana"),
        (("NFSRDMA-02", "rdma0", SKIP, "unknown if mana supports"),),
        policy=REQUIRE_RDMA,
    ),
    "the route does not use the RDMA port": Case(
        f"{GITHUB}NVIDIA/deepops/issues/1189",
        replace(
            golden("connectx-5-ib"),
            routes=(Route("10.20.0.1", "eno1", "192.0.2.11"),),
        ),
        (("NFSRDMA-03", "10.20.0.1", FAIL, "reached by eno1.*no RDMA port"),),
        policy=nas(),
    ),
    "no route to the server": Case(
        f"{GITHUB}canonical/cloud-init/issues/3959",
        replace(
            golden("connectx-5-ib"),
            routes=(Route("10.20.0.1", problem="Network is unreachable"),),
        ),
        (("NFSRDMA-03", "10.20.0.1", FAIL, "Network is unreachable"),),
        policy=nas(),
    ),
    "two ports in one network": Case(
        "https://www.systemfabricworks.com/"
        "double-double-packet-trouble-too-many-nics-too-many-problems-in-three-acts/",
        two_ports(0),
        (("SUBNET-01", "10.0.0.0/24", WARN, "ib0, ib1 .*arp_ignore=1"),),
    ),
    "the same in an older dump": Case(
        "rdma-core Documentation/librdmacm.md",
        two_ports(None),
        (("SUBNET-01", "10.0.0.0/24", SKIP, "unknown if arp_ignore"),),
    ),
    "the same with arp_ignore": Case(
        "rdma-core Documentation/librdmacm.md",
        two_ports(2),
        (("SUBNET-01", "10.0.0.0/24", PASS, "for its own only"),),
    ),
    "no adapter at all": Case(
        f"{GITHUB}uccl-project/rdmatop/issues/9",
        golden("without-rdma"),
        (("NFSRDMA-03", "host", FAIL, "put an adapter that can do RDMA"),),
        ("see DRIVER-01",),
        nas(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_right(name):
    case = CASES[name]
    findings = decide(case.facts, case.policy).findings
    said = {}
    for one in findings:
        text = f"{one.verdict} {one.sentence} | {one.fix}"
        said.setdefault((one.rule, one.subject), []).append(text)
    for rule, subject, verdict, words in case.right:
        found = said.get((rule, subject), [])
        wanted = re.compile(f"{verdict} .*{words}")
        assert any(map(wanted.search, found)), (rule, subject, verdict, words, found)
    everything = "\n".join(text for found in said.values() for text in found)
    for words in case.never:
        assert words not in everything


_SEE = re.compile(r"\bsee ([A-Z]+(?:-[A-Z]+)*-\d\d)\b")


@pytest.mark.parametrize(
    "facts, policy",
    [
        *((case.facts, case.policy) for case in CASES.values()),
        *(
            (golden(path.parent.name), REQUIRE_RDMA)
            for path in DATA.glob("*/facts.json")
        ),
    ],
)
def test_a_fix_never_leads_to_a_rule_that_is_satisfied(facts, policy):
    findings = decide(facts, policy).findings
    worried = {one.rule for one in findings if one.verdict in (WARN, FAIL)}
    for one in findings:
        if one.verdict in (WARN, FAIL):
            for rule in _SEE.findall(one.fix):
                assert rule in worried, one


@pytest.mark.parametrize(
    "release",
    [
        "5.14.0-427.13.1.el9_4.x86_64",
        "6.12.0-55.9.1.el10_0.aarch64+64k",
        "5.14.0-427.el9.x86_64+rt",
        "6.12.0-0.20.20.el9uek.x86_64",
        "6.9.7-1.el9.elrepo.x86_64",
        "6.8.11-300.fc40.x86_64",
        "6.1.0-56-amd64",
        "6.9.0",
    ],
)
def test_packages_are_those_of_the_running_kernel(release):
    facts = modules(golden("connectx-5-ib"), without="rpcrdma")
    facts = replace(facts, kernel_release=release)
    (fix,) = (
        one.fix
        for one in decide(facts, REQUIRE_RDMA).findings
        if one.rule == "NFSRDMA-01"
    )
    assert fix == f"dnf install '*/{release}/*/rpcrdma.ko*'"


def test_a_nic_that_no_policy_needs_for_rdma_is_no_problem():
    """Neither without a driver nor with a kernel that has no RDMA."""
    host = nic("0x37d0", "i40e")
    unbound = replace(host, adapters=(replace(host.adapters[0], driver=None),))
    for facts in (host, unbound, config(host, INFINIBAND="n")):
        found = decide(facts, Policy()).findings
        assert [f for f in found if f.verdict in (FAIL, WARN)] == []
