# SPDX-License-Identifier: GPL-2.0-or-later
"""NFSRDMA-01 to -03: check the host's requirements for NFS mounts over RDMA. Pure.

A missing requirement is a failure if the policy or an existing mount uses RDMA, else a
warning.
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
from ovirt_rdma.host.rules.rdma_stack import mismatch, wants_nfs_over_rdma
from ovirt_rdma.host.rules.view import View

MODULE, REGISTRATION, PORT = "NFSRDMA-01", "NFSRDMA-02", "NFSRDMA-03"

RPCRDMA = "rpcrdma"

# Drivers of bus devices whose RDMA devices set IB_DEVICE_MEM_MGT_EXTENSIONS
# (drivers/infiniband in Linux 6.1): mlx4, mlx5, hfi1, irdma on ice and i40e, bnxt_re on
# bnxt_en, cxgb4, qedr on qede, ocrdma on be2net, pvrdma, erdma, hns on hns3, rxe.
_NVIDIA_AND_INTEL = "mlx4_core mlx5_core hfi1 ice i40e irdma"
_OTHERS = "bnxt_en cxgb4 qede be2net vmw_pvrdma erdma hns3 hns rdma_rxe"
WITH_REGISTRATION = frozenset(f"{_NVIDIA_AND_INTEL} {_OTHERS}".split())
# Drivers whose devices do not set it.
WITHOUT_REGISTRATION = frozenset(("ib_qib", "ib_mthca"))


def decide_module(view: View) -> Iterator[Finding]:
    """Yield a finding: rpcrdma is loaded, available, blocked or missing."""
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
        fix = "see STACK-01 and KERNEL-01"
        yield Finding(MODULE, RPCRDMA, bad, sentence, fix)
    elif line and line.command == "install":
        sentence = f"{place_of(line)} prevents loading rpcrdma (install)"
        yield Finding(MODULE, RPCRDMA, bad, sentence, "remove that line")
    elif mismatch(modules):
        sentence = "rpcrdma cannot be loaded: it does not match the other RDMA modules"
        yield Finding(MODULE, RPCRDMA, bad, sentence, "see STACK-01")
    elif is_available(modules, RPCRDMA):
        sentence = "rpcrdma is available; the kernel loads it at the first mount"
        yield Finding(MODULE, RPCRDMA, PASS, sentence)
    else:
        sentence = "it is unknown if this kernel has rpcrdma"
        yield Finding(MODULE, RPCRDMA, SKIP, sentence, "modprobe rpcrdma")


def decide_registration(view: View) -> Iterator[Finding]:
    """Yield a finding for each device: its driver supports FRWR, or does not."""
    bad = FAIL if wants_nfs_over_rdma(view) else WARN
    if not view.facts.rdma_devices:
        yield no_device(REGISTRATION)
    others = any(d.driver in WITH_REGISTRATION for d in view.facts.rdma_devices)
    for device in view.facts.rdma_devices:
        yield _registration(device, WARN if others else bad)


def _registration(device: RdmaDevice, bad: str) -> Finding:
    name, driver = device.name, device.driver
    if driver in WITH_REGISTRATION:
        sentence = (
            f"{driver} supports the memory registration (FRWR) that NFS over RDMA "
            "requires"
        )
        return Finding(REGISTRATION, name, PASS, sentence)
    if driver in WITHOUT_REGISTRATION:
        return Finding(
            REGISTRATION,
            name,
            bad,
            f"{driver} does not support fast memory registration (FRWR): NFS mounts "
            f"over {name} fail (frwr mode is not supported by device)",
            "mount over TCP (IPoIB), or use another adapter",
        )
    return Finding(
        REGISTRATION,
        name,
        SKIP,
        f"it is unknown if {driver or 'the driver of ' + name} supports fast memory "
        "registration (FRWR)",
        "if it does, ibv_devinfo -v shows MEM_MGT_EXTENSIONS in device_cap_flags",
    )


def decide_port(view: View) -> Iterator[Finding]:
    """Yield a finding: an RDMA port is ACTIVE, or none is."""
    if not view.facts.rdma_devices:
        yield _without_device(view)
        return
    ports = [
        (f"{device.name}/{port.number}", port)
        for device in view.facts.rdma_devices
        for port in device.ports
    ]
    active = [name for name, port in ports if port.is_active]
    if active:
        verb = "is" if len(active) == 1 else "are"
        yield Finding(PORT, HOST, PASS, f"{', '.join(active)} {verb} ACTIVE")
        return
    states = ", ".join(f"{n} is {p.state} ({p.physical_state})" for n, p in ports)
    yield Finding(
        PORT,
        HOST,
        FAIL if wants_nfs_over_rdma(view) else WARN,
        f"no RDMA port is ACTIVE: {states or 'the devices have no port'}",
        "check cable and switch; on InfiniBand also check that a subnet manager is "
        "running",
    )


def _without_device(view: View) -> Finding:
    if not wants_nfs_over_rdma(view):
        return no_device(PORT)
    sentence = "the policy requires NFS over RDMA, but this host has no RDMA device"
    return Finding(PORT, HOST, FAIL, sentence, "see DRIVER-01")


MODULE_RULE = Rule(MODULE, decide_module)

REGISTRATION_RULE = Rule(REGISTRATION, decide_registration)

PORT_RULE = Rule(PORT, decide_port)

RULES = (MODULE_RULE, REGISTRATION_RULE, PORT_RULE)
