# SPDX-License-Identifier: GPL-2.0-or-later
"""NFSRDMA-01 to -03: what an NFS mount over RDMA needs of this host.

Where the policy, or a mount that is there, wants RDMA, what is missing is a failure;
else it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.facts.devices import RdmaDevice
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    PASS,
    SKIP,
    WARN,
    Finding,
    Rule,
    no_device,
)
from ovirt_rdma.host.rules.module_loading import (
    blocking_line,
    is_available,
    is_loaded,
    place_of,
)
from ovirt_rdma.host.rules.rdma_stack import misfit, wants_nfs_over_rdma
from ovirt_rdma.host.rules.view import View

MODULE, REGISTRATION, PORT = "NFSRDMA-01", "NFSRDMA-02", "NFSRDMA-03"

RPCRDMA = "rpcrdma"
_ACTIVE = "ACTIVE"

# By the driver of the bus device. Those whose devices set IB_DEVICE_MEM_MGT_EXTENSIONS
# (drivers/infiniband in Linux 6.1): mlx4, mlx5, hfi1, irdma on ice and i40e, bnxt_re on
# bnxt_en, cxgb4, qedr on qede, ocrdma on be2net, pvrdma, erdma, hns on hns3, rxe.
_NVIDIA_AND_INTEL = "mlx4_core mlx5_core hfi1 ice i40e irdma"
_OTHERS = "bnxt_en cxgb4 qede be2net vmw_pvrdma erdma hns3 hns rdma_rxe"
WITH_REGISTRATION = frozenset(f"{_NVIDIA_AND_INTEL} {_OTHERS}".split())
# And those that do not.
WITHOUT_REGISTRATION = frozenset(("ib_qib", "ib_mthca"))


def decide_module(view: View) -> Iterator[Finding]:
    """Say whether rpcrdma is there."""
    modules = view.facts.modules
    bad = FAIL if wants_nfs_over_rdma(view) else WARN
    line = blocking_line(modules, RPCRDMA)
    if is_loaded(modules, RPCRDMA):
        yield Finding(MODULE, RPCRDMA, PASS, "rpcrdma is loaded")
    elif is_available(modules, RPCRDMA) is False:
        if not view.facts.rdma_devices and bad == WARN:
            yield no_device(MODULE)
            return
        sentence = "this kernel has no rpcrdma, so NFS cannot be mounted over RDMA"
        fix = "STACK-01 and KERNEL-01 say why"
        yield Finding(MODULE, RPCRDMA, bad, sentence, fix)
    elif line and line.command == "install":
        sentence = f"{place_of(line)} keeps rpcrdma from being loaded (install)"
        yield Finding(MODULE, RPCRDMA, bad, sentence, "take that line away")
    elif misfit(modules):
        sentence = "rpcrdma cannot be loaded: it does not fit the other RDMA modules"
        yield Finding(MODULE, RPCRDMA, bad, sentence, "see STACK-01")
    elif is_available(modules, RPCRDMA):
        sentence = "rpcrdma is there; the kernel loads it at the first mount"
        yield Finding(MODULE, RPCRDMA, PASS, sentence)
    else:
        sentence = "whether this kernel has rpcrdma cannot be told"
        yield Finding(MODULE, RPCRDMA, SKIP, sentence, "modprobe rpcrdma")


def decide_registration(view: View) -> Iterator[Finding]:
    """Say of each device whether NFS over RDMA can register memory with it."""
    bad = FAIL if wants_nfs_over_rdma(view) else WARN
    if not view.facts.rdma_devices:
        yield no_device(REGISTRATION)
    others = any(d.driver in WITH_REGISTRATION for d in view.facts.rdma_devices)
    for device in view.facts.rdma_devices:
        yield _registration(device, WARN if others else bad)


def _registration(device: RdmaDevice, bad: str) -> Finding:
    name, driver = device.name, device.driver
    if driver in WITH_REGISTRATION:
        sentence = f"{driver} can register memory as NFS over RDMA wants it"
        return Finding(REGISTRATION, name, PASS, sentence)
    if driver in WITHOUT_REGISTRATION:
        return Finding(
            REGISTRATION,
            name,
            bad,
            f"{driver} has no fast registration of memory: a mount over {name} fails "
            "(frwr mode is not supported by device)",
            "mount over TCP there (IPoIB), or use another adapter",
        )
    return Finding(
        REGISTRATION,
        name,
        SKIP,
        f"whether {driver or 'the driver of ' + name} has fast registration of memory "
        "is not known",
        "ibv_devinfo -v shows MEM_MGT_EXTENSIONS among device_cap_flags",
    )


def decide_port(view: View) -> Iterator[Finding]:
    """Say whether a port is ACTIVE."""
    if not view.facts.rdma_devices:
        yield _nothing(view)
        return
    ports = [
        (f"{device.name}/{port.number}", port)
        for device in view.facts.rdma_devices
        for port in device.ports
    ]
    active = [name for name, port in ports if port.state == _ACTIVE]
    if active:
        verb = "is" if len(active) == 1 else "are"
        yield Finding(PORT, HOST, PASS, f"{', '.join(active)} {verb} ACTIVE")
        return
    states = ", ".join(f"{n} is {p.state} ({p.physical_state})" for n, p in ports)
    yield Finding(
        PORT,
        HOST,
        FAIL if wants_nfs_over_rdma(view) else WARN,
        f"no RDMA port is ACTIVE: {states or 'no port at all'}",
        "check cable and switch; on InfiniBand also that a subnet manager runs",
    )


def _nothing(view: View) -> Finding:
    if not wants_nfs_over_rdma(view):
        return no_device(PORT)
    sentence = "the policy wants NFS over RDMA, and this host has no RDMA device"
    return Finding(PORT, HOST, FAIL, sentence, "see DRIVER-01")


MODULE_RULE = Rule(
    id=MODULE,
    title="rpcrdma, the transport module",
    what="The kernel should have rpcrdma, loaded or ready to be loaded.",
    why=(
        "rpcrdma is both halves of NFS over RDMA; xprtrdma and svcrdma are its old "
        "names. The kernel loads it by itself when something is mounted over RDMA. "
        "Without it mount.nfs says that an incorrect mount option was specified, "
        "which points anywhere but here."
    ),
    fix="Install the kernel's modules package, or see STACK-01 for MLNX_OFED.",
    sources=("Linux net/sunrpc/xprt.c, net/sunrpc/xprtrdma/module.c", "nfs(5)"),
    decide=decide_module,
)

REGISTRATION_RULE = Rule(
    id=REGISTRATION,
    title="fast registration of memory",
    what=(
        "The device should be able to register memory by work requests "
        "(IB_DEVICE_MEM_MGT_EXTENSIONS)."
    ),
    why=(
        "NFS over RDMA registers memory in no other way today. mlx4, mlx5, hfi1, "
        "irdma, bnxt_re, cxgb4, qedr, ocrdma, hns, pvrdma, erdma and Soft-RoCE "
        "have it. ib_qib (TrueScale) and ib_mthca (InfiniHost) have not: the kernel "
        "logs that frwr mode is not supported by the device, and the mount fails."
    ),
    fix="Use TCP over IPoIB with such an adapter, or another adapter.",
    sources=("Linux net/sunrpc/xprtrdma/frwr_ops.c, drivers/infiniband/hw",),
    decide=decide_registration,
)

PORT_RULE = Rule(
    id=PORT,
    title="an ACTIVE port",
    what="At least one RDMA port should be ACTIVE.",
    why=(
        "A port that is DOWN has no link; one that is INIT waits for the subnet "
        "manager. Over neither can a connection be made, and a mount waits for "
        "minutes before it gives up."
    ),
    fix=(
        "Check the cable and the switch port. On InfiniBand a subnet manager has to "
        "run somewhere: on a switch, or opensm on a host; see IB-PORT-01."
    ),
    sources=("Linux drivers/infiniband/core/sysfs.c", "ibstat(8)"),
    decide=decide_port,
)

RULES = (MODULE_RULE, REGISTRATION_RULE, PORT_RULE)
