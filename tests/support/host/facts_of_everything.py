# SPDX-License-Identifier: GPL-2.0-or-later
"""The facts of a host that has a value in every field, unlike any real host."""

from __future__ import annotations

from ovirt_rdma.host.facts.activity import (
    Activity,
    ConnectionActivity,
    MountActivity,
    PortActivity,
    PortError,
)
from ovirt_rdma.host.facts.devices import (
    Adapter,
    Bond,
    Dcb,
    Gid,
    Ipoib,
    Neighbour,
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
from ovirt_rdma.host.facts.functions import (
    VfPort,
    VirtualFunction,
)
from ovirt_rdma.host.facts.locality import IrqCpus, PciLink, Tuning
from ovirt_rdma.host.facts.model import (
    Facts,
    KernelOption,
    LoadLine,
    ModprobeLine,
    ModuleFile,
    ModuleParameter,
    Modules,
    NfsMount,
    RdmaStack,
    Route,
    SELinux,
    Software,
    UdevLine,
    Unit,
    VdsmDaemon,
)

PF = Adapter(
    PciIdentity("0000:04:00.0", "0x15b3", "0x1003", "0x01"),
    "0x028000",
    driver="mlx4_core",
    numa_node=0,
    vfs=3,
    max_vfs=8,
    virtual_functions=(
        VirtualFunction(
            0,
            "0000:04:00.1",
            "vfio-pci",
            node_guid="0e11:2233:4455:6600",
            link_state="auto",
            ports=(VfPort(1, "0e11:2233:4455:6601", (0, 3)),),
        ),
        VirtualFunction(1, "0000:04:00.2", "vfio-pci", "mlx4_1", "ib4"),
        VirtualFunction(2, "0000:04:00.3"),
    ),
    port_types=("ib", "auto (eth)"),
    port_mtus=(4096, 0),
    pci_link=PciLink(8.0, 4, 8.0, 8, 16.0, 16),
    local_cpus="0-7",
    interrupts=tuple(IrqCpus(str(cpu), 9 - cpu) for cpu in range(6)),
)
HCA = RdmaDevice(
    "mlx4_0",
    "CA",
    "0002:c903:00fb:1230",
    driver="mlx4_core",
    firmware="2.42.5000",
    pci=PF.pci,
    hw_rev="1",
    hca_type="MT4099",
    board_id="MT_1090120019",
    ports=(
        RdmaPort(
            1,
            "ACTIVE",
            "LinkUp",
            "InfiniBand",
            rate_mbps=56000,
            data_rate_mbps=54545,
            max_mtu=4096,
            active_mtu=2048,
            lid=5,
            sm_lid=1,
            guid="0002:c903:00fb:1231",
            pkeys=(PKey(0, "0xffff"), PKey(3, "0x0001")),
            neighbours=(
                Neighbour(
                    kind="switch",
                    id="ec0d:9a03:00f5:1230",
                    name="leaf1",
                    port="7",
                    description=None,
                    netdev=None,
                    source="smpquery",
                ),
            ),
        ),
        RdmaPort(
            2,
            "DOWN",
            "Polling",
            "Ethernet",
            lid=0,
            sm_lid=0,
            default_gid_type="RoCE v2",
            gids=(Gid(0, "fe80::1", "RoCE v2", "bond1"),),
            neighbours=(
                Neighbour(
                    kind=None,
                    id="00:1c:73:aa:00:01",
                    name=None,
                    port="588",
                    description="xe-0/0/4",
                    netdev="eth1",
                    source="lldptool",
                ),
            ),
        ),
    ),
)
EVERYTHING = Facts(
    "hv1",
    "5.14.0",
    7261.0,
    host_uuid="3c2ee5a2-1b1e-4c35-b2a5-6a56fd8f8f14",
    adapters=(
        PF,
        *(
            Adapter(
                PciIdentity(f"0000:04:00.{n}", "0x15b3", "0x1004", "0x00"),
                "0x028000",
                driver=driver,
                physical_function=PF.pci.address,
            )
            for n, driver in enumerate(("vfio-pci", "vfio-pci", None), 1)
        ),
        Adapter(PciIdentity("0000:05:00.0", "0x15b3", "0x673c", "0xb0"), "0x0c0600"),
    ),
    rdma_devices=(HCA,),
    netdevs=(
        Netdev(
            "bond0",
            32,
            2044,
            "",
            "up",
            driver="bond",
            lowers=("ib0",),
            addresses=("10.0.0.2/24",),
            bond=Bond("active-backup", "ib0", "active", ("ib0", "ib1")),
        ),
        Netdev(
            "eth1",
            1,
            4200,
            "",
            "down",
            driver="mlx4_en",
            rdma_device="mlx4_0",
            rdma_port=2,
            dcb=Dcb(pfc_priorities=(3,), ecn_priorities=(), pause_tx=True),
        ),
        Netdev(
            "ib0",
            32,
            2044,
            "",
            "up",
            driver="mlx4_core",
            rdma_device="mlx4_0",
            rdma_port=1,
            ipoib=Ipoib("datagram", "0xffff"),
            offloads=(Offload("tx-tcp-segmentation", on=False, fixed=True),),
        ),
        Netdev(
            "ib0.8001",
            32,
            2044,
            "",
            "up",
            driver="ipoib",
            rdma_device="mlx4_0",
            rdma_port=1,
            ipoib=Ipoib("connected", "0x8001", "ib0", sysfs=False),
        ),
    ),
    netdev_uses=(NetdevUse("bond0", "nfs", "nas:/data at /rhev/nas"),),
    network_manager=NetworkManager(
        True,
        "1.46.0",
        managed=("ib0",),
        unmanaged=("ib0.8001",),
        profiles=(
            Profile(
                "storage",
                "c0ffee",
                "infiniband",
                "ib0",
                "ib0",
                properties=(
                    Property("connection.id", "storage"),
                    Property("infiniband.transport-mode", "datagram"),
                    Property("infiniband.mtu", "2044"),
                ),
            ),
        ),
    ),
    ovirt_networks=(
        OvirtNetwork("ovirtmgmt", "eth0", bridged=True, mtu=1500, default_route=True),
        OvirtNetwork("storage", "bond0", vlan=7),
    ),
    routes=(
        Route("10.0.0.1", "bond0", "10.0.0.2"),
        Route("10.9.9.9", problem="Network is unreachable"),
    ),
    modules=Modules(
        loaded=("mlx4_core", "rpcrdma"),
        files=(
            ModuleFile("mlx4_core", "kernel/drivers/mlx4_core.ko.xz"),
            ModuleFile("rpcrdma", "extra/mlnx-nfsrdma/rpcrdma.ko"),
        ),
        parameters=(ModuleParameter("mlx4_core", "num_vfs", "3"),),
        modprobe_lines=(
            ModprobeLine(
                "/etc/modprobe.d/a.conf", 2, "options", "mlx4_core",
                "num_vfs=3 mtu_4k=1",
            ),
            ModprobeLine("/etc/modprobe.d/b.conf", 1, "blacklist", "ib_qib"),
        ),
        load_lines=(
            LoadLine("/etc/rdma/modules/rdma.conf", 4, "ib_iser"),
            LoadLine("/etc/rdma/modules/rdma.conf", 9, "xprtrdma"),
        ),
    ),
    software=Software(
        distribution="el9",
        vdsm_version="4.50.5.1",
        rdma_core="48.0",
        stacks=(RdmaStack("MLNX_OFED", "5.8", "ofed_info"),),
        kernel_config=(KernelOption("INFINIBAND", "m"), KernelOption("RDMA_RXE", "n")),
        units=(
            Unit("rdma-hw.target", "loaded", "active", "static"),
            Unit("openibd.service", "not-found", "inactive"),
        ),
        udev_lines=(UdevLine("/etc/udev/9.rules", 3, 'ATTR{mode}="connected"'),),
        subnet_manager="opensm.service",
        selinux=SELinux(
            enforcing=True,
            daemons=(VdsmDaemon("vdsmd", 700, "system_u:system_r:virtd_t:s0"),),
        ),
    ),
    nfs_mounts=(
        NfsMount(
            "nas:/data",
            "/rhev/nas",
            "nfs4",
            "rw",
            "4.2",
            "rdma",
            protocols=("rdma", "rdma"),
        ),
    ),
    tuning=Tuning(2, ("performance", "powersave"), 128),
    activity=Activity(
        1.5,
        mounts=(
            MountActivity(
                "/rhev/nas",
                operations=900,
                retransmissions=3,
                backlog=1,
                connects=4,
                connections=2,
            ),
        ),
        connections=(
            ConnectionActivity(
                "switch-0/xprt-1-rdma",
                "10.0.0.1",
                ("CONNECTED", "BOUND"),
                slots_max=128,
                requests=7,
                backlog=0,
            ),
            ConnectionActivity("switch-0/xprt-2-rdma"),
        ),
        ports=(
            PortActivity(
                "mlx4_0",
                1,
                True,
                9000,
                90,
                (PortError("symbol_error", 5, 2), PortError("link_downed", 1)),
            ),
        ),
    ),
    problems=("/sys/x is empty",),
)  # fmt: skip
