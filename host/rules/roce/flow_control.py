# SPDX-License-Identifier: GPL-2.0-or-later
"""ROCE-PFC-01 and ROCE-ECN-01: check flow control and congestion notification. Pure.

Without them the network below RoCE may lose packets. The rules only warn: it depends on
switches and adapters if a fabric needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ovirt_rdma.host.facts.devices import Dcb
from ovirt_rdma.host.rules.base import PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.pci_ids import MLX5
from ovirt_rdma.host.rules.roce.ports import RocePort, roce_ports, without_roce
from ovirt_rdma.host.rules.view import Interface, View

PFC, ECN = "ROCE-PFC-01", "ROCE-ECN-01"
_NOTHING = Dcb()
_LOSSLESS = "dcb pfc set dev {name} prio-pfc 3:on, for priority 3"


def decide_pfc(view: View) -> Iterator[Finding]:
    """Yield a finding about PFC for each netdev of a RoCE port."""
    yield from _skipped(view, PFC)
    for interface in _interfaces(view):
        yield _pfc(interface)


def decide_ecn(view: View) -> Iterator[Finding]:
    """Yield a finding about ECN for each netdev of a RoCE port."""
    yield from _skipped(view, ECN)
    for interface in _interfaces(view):
        yield _ecn(interface)


def _skipped(view: View, rule: str) -> Iterator[Finding]:
    """Yield a finding for each port that cannot be checked."""
    ports = list(roce_ports(view))
    if not ports:
        yield without_roce(view, rule)
    for port in ports:
        if port.is_soft:
            sentence = f"{port.name} is Soft-RoCE: it has no flow control of its own"
            yield Finding(rule, port.name, SKIP, sentence)
        elif not port.bases:
            yield Finding(rule, port.name, SKIP, f"{port.name} has no netdev")


def _interfaces(view: View) -> Iterator[Interface]:
    for port in roce_ports(view):
        yield from _hardware_netdevs(port)


def _hardware_netdevs(port: RocePort) -> tuple[Interface, ...]:
    return () if port.is_soft else port.bases


def _pfc(interface: Interface) -> Finding:
    name, dcb = interface.name, interface.netdev.dcb or _NOTHING
    paused = bool(dcb.pause_rx or dcb.pause_tx)
    if dcb.pfc_priorities is None and not paused:
        sentence = f"the priority flow control of {name} is unknown"
        return Finding(PFC, name, SKIP, sentence, f"dcb pfc show dev {name}")
    if dcb.pfc_priorities and paused:
        return Finding(
            PFC,
            name,
            WARN,
            f"{name} has both PFC (priority {_list(dcb.pfc_priorities)}) and global "
            "pause, but the adapter uses only one of them",
            f"ethtool -A {name} rx off tx off",
        )
    if dcb.pfc_priorities and dcb.trust == "pcp":
        return Finding(
            PFC,
            name,
            WARN,
            f"{name} has PFC for priority {_list(dcb.pfc_priorities)}, but takes the "
            "priority from the VLAN tag: untagged RoCE has priority 0",
            f"mlnx_qos -i {name} --trust dscp, or a VLAN with an egress priority map",
        )
    if dcb.pfc_priorities:
        sentence = f"{name} has PFC for priority {_list(dcb.pfc_priorities)}"
        return Finding(PFC, name, PASS, sentence)
    if paused:
        sentence = f"{name} has global pause, which stops all traffic of the link"
        return Finding(PFC, name, PASS, sentence)
    return Finding(
        PFC,
        name,
        WARN,
        f"{name} has no flow control: under congestion the switch drops RoCE packets",
        f"use the switch's setting, for example: {_LOSSLESS.format(name=name)}",
    )


def _ecn(interface: Interface) -> Finding:
    name, dcb = interface.name, interface.netdev.dcb or _NOTHING
    if dcb.ecn_priorities is None:
        sentence = f"the ECN state of RoCE on {name} is unknown"
        fix = "the vendor's tool for the adapter shows it"
        if interface.device.driver == MLX5:
            fix = (
                f"with MLNX_OFED: grep . /sys/class/net/{name}/ecn/roce_*/enable/*; "
                "with the kernel's mlx5: cc_params below /sys/kernel/debug/mlx5"
            )
        return Finding(ECN, name, SKIP, sentence, fix)
    without = sorted(set(dcb.pfc_priorities or ()) - set(dcb.ecn_priorities))
    folder = f"/sys/class/net/{name}/ecn"
    if not dcb.ecn_priorities:
        sentence = (
            f"{name} has no ECN for RoCE: senders slow down by PFC only, if at all"
        )
        fix = f"enable it for the priority of RoCE in roce_np and roce_rp of {folder}"
        return Finding(ECN, name, WARN, sentence, fix)
    if without:
        sentence = f"{name} has PFC but no ECN for priority {_list(without)}"
        fix = "; ".join(
            f"echo 1 > {folder}/{part}/enable/{priority}"
            for priority in without
            for part in ("roce_np", "roce_rp")
        )
        return Finding(ECN, name, WARN, sentence, fix)
    sentence = f"{name} has ECN for priority {_list(dcb.ecn_priorities)}"
    return Finding(ECN, name, PASS, sentence)


def _list(priorities: Iterable[int]) -> str:
    return ", ".join(str(priority) for priority in priorities)


PFC_RULE = Rule(PFC, decide_pfc)

ECN_RULE = Rule(ECN, decide_ecn)

RULES = (PFC_RULE, ECN_RULE)
