# SPDX-License-Identifier: GPL-2.0-or-later
"""Read RDMA devices and their ports: identity, GIDs, MTUs, LIDs and P_Keys.

The texts are those of the kernel's drivers/infiniband/core/sysfs.c and cma_configfs.c,
and of the drivers' hw_rev, hca_type and board_id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.collect.hcas import read_driver, read_numa_node, read_pci
from ovirt_rdma.host.collect.parsers.ibverbs import (
    PortMtus,
    data_rate_mbps,
    parse_port_mtus,
    rate_mbps,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import (
    SOFT_ROCE,
    Gid,
    Guid,
    PKey,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.system.tree import FileTree

RDMA_CLASS = "/sys/class/infiniband"

_NUMBERED = re.compile(r"(?:\d+:\s*)?([A-Za-z<][^:]*)")
_GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")


def read_rdma_devices(
    tree: FileTree, problems: list[str], most_gids: Optional[int] = None
) -> tuple[RdmaDevice, ...]:
    """Return all RDMA devices by name; none if no RDMA module is loaded.

    Only the first ``most_gids`` entries of each GID table are read; None: all, of which
    Soft-RoCE has 1024.

    A device that disappears during the read is left out, invalid text becomes UNKNOWN,
    each with a sentence in ``problems``.
    """
    devices = []
    for name in tree.names(RDMA_CLASS):
        failures: list[str] = []
        device = _device(tree, name, failures, most_gids)
        if failures and not tree.is_folder(f"{RDMA_CLASS}/{name}"):
            problems.append(f"RDMA device {name} disappeared during the read")
            continue
        problems.extend(failures)
        devices.append(device)
    return tuple(devices)


def _device(
    tree: FileTree, name: str, problems: list[str], most_gids: Optional[int]
) -> RdmaDevice:
    folder = f"{RDMA_CLASS}/{name}"
    driver = read_driver(tree, folder)
    if driver is None and tree.text(f"{folder}/parent"):
        # Only rxe of the drivers without a bus device has this attribute.
        driver = SOFT_ROCE
    ports = []
    for port in tree.names(f"{folder}/ports", problems):
        if port.isdecimal():
            place = f"{folder}/ports/{port}"
            its = int(port), driver, problems
            ports.append(_port(tree, place, *its, most_gids=most_gids))
        else:
            problems.append(f"{folder}/ports has a port named {port!a}")
    return RdmaDevice(
        name=name,
        node_type=_word(tree, f"{folder}/node_type", problems),
        node_guid=tree.text(f"{folder}/node_guid", problems) or UNKNOWN,
        driver=driver,
        firmware=tree.text(f"{folder}/fw_ver"),
        pci=read_pci(tree, folder),
        ports=tuple(sorted(ports, key=lambda port: port.number)),
    )


def _port(
    tree: FileTree,
    folder: str,
    number: int,
    driver: Optional[str],
    problems: list[str],
    *,
    most_gids: Optional[int],
) -> RdmaPort:
    link_layer = tree.text(f"{folder}/link_layer", problems) or UNKNOWN
    rate = _rate(tree, f"{folder}/rate", problems)
    return RdmaPort(
        number=number,
        state=_word(tree, f"{folder}/state", problems),
        physical_state=_word(tree, f"{folder}/phys_state", problems),
        link_layer=link_layer,
        rate_mbps=rate_mbps(rate) if rate else None,
        data_rate_mbps=(
            # Soft-RoCE has no link of its own.
            data_rate_mbps(rate, link_layer) if rate and driver != SOFT_ROCE else None
        ),
        gids=_gids(tree, folder, problems, most_gids),
    )


def _word(tree: FileTree, path: str, problems: list[str]) -> str:
    """Return ``ACTIVE`` for ``4: ACTIVE``."""
    text = tree.text(path, problems)
    if text is None:
        return UNKNOWN
    match = _NUMBERED.fullmatch(text)
    if not match:
        problems.append(f"{path} reads {text!a}, not NUMBER: WORD")
        return UNKNOWN
    return match.group(1)


def _rate(tree: FileTree, path: str, problems: list[str]) -> Optional[str]:
    """Return ``40 Gb/sec (4X QDR)``; None for a port without a rate."""
    text = tree.text(path)
    if text is not None and rate_mbps(text) is None:
        problems.append(f"{path} reads {text!a}, not a rate in Gb/sec")
        return None
    return text


def _gids(
    tree: FileTree, folder: str, problems: list[str], most: Optional[int]
) -> tuple[Gid, ...]:
    """Return the used ones of the first ``most`` entries of a GID table.

    Tables have up to 1024 entries, nearly all zero. To read the attributes of a zero
    entry fails with EINVAL, so they are read for used entries only.
    """
    gids = []
    for name in tree.names(f"{folder}/gids", problems):
        if most is not None and name.isdecimal() and int(name) >= most:
            continue
        # An entry may be removed at any time: then it reads as zero or fails.
        text = tree.text(f"{folder}/gids/{name}")
        if text is None or not text.strip("0:"):
            continue
        if not name.isdecimal() or not _GID.fullmatch(text):
            problems.append(f"{folder}/gids/{name} reads {text!a}, not a GID")
            continue
        gids.append(
            Gid(
                index=int(name),
                gid=text,
                type=tree.text(f"{folder}/gid_attrs/types/{name}"),
                netdev=tree.text(f"{folder}/gid_attrs/ndevs/{name}"),
            )
        )
    return tuple(sorted(gids, key=lambda gid: gid.index))


RDMA_CM_CONFIG = "/sys/kernel/config/rdma_cm"

_HEX = re.compile(r"0x[0-9a-f]{1,8}")
_PKEY = re.compile(r"0x[0-9a-f]{4}")
_NO_MTUS = PortMtus()
# For verbs hfi1 shows 4096 at most, even if Omni-Path's MTU is 8192 or 10240
# (query_port() of drivers/infiniband/hw/hfi1/verbs.c).
_SHOWN_AT_MOST = {"hfi1": 4096}
# Each failure may have taken the whole timeout of a tool.
_MOST_FAILURES = 3


def with_port_details(
    tree: FileTree, tools: Tools, devices: tuple[RdmaDevice, ...], problems: list[str]
) -> tuple[RdmaDevice, ...]:
    """Return ``devices`` with details that a mount does not need.

    A device that disappears during the read is left out, invalid text becomes None,
    each with a sentence in ``problems``.
    """
    mtus = _mtus(tools, devices, problems)
    detailed = []
    for device in devices:
        failures: list[str] = []
        details = _port_device(tree, device, mtus, failures)
        if failures and not tree.is_folder(f"{RDMA_CLASS}/{device.name}"):
            problems.append(f"RDMA device {device.name} disappeared during the read")
            continue
        problems.extend(failures)
        detailed.append(details)
    return tuple(detailed)


def _mtus(
    tools: Tools, devices: tuple[RdmaDevice, ...], problems: list[str]
) -> dict[tuple[str, int], PortMtus]:
    """Run ``ibv_devinfo`` for all devices together. If it fails, which it does if it
    cannot open one of them, run it for each device.
    """
    if not devices:
        return {}
    failed: list[str] = []
    text = tools.text(["ibv_devinfo"], failed, optional=True)
    if text is not None:
        return parse_port_mtus(text)
    if not failed:
        return {}
    if len(devices) == 1:
        problems.extend(failed)
        return {}
    mtus: dict[tuple[str, int], PortMtus] = {}
    failed.clear()
    for number, device in enumerate(devices):
        text = tools.text(["ibv_devinfo", "-d", device.name], failed, optional=True)
        mtus.update(parse_port_mtus(text or ""))
        if len(failed) == _MOST_FAILURES and number + 1 < len(devices):
            left = len(devices) - number - 1
            failed.append(
                f"ibv_devinfo was not run for {left} more RDMA devices: it had failed "
                f"{_MOST_FAILURES} times"
            )
            break
    problems.extend(failed)
    return mtus


def _port_device(
    tree: FileTree,
    device: RdmaDevice,
    mtus: Mapping[tuple[str, int], PortMtus],
    problems: list[str],
) -> RdmaDevice:
    folder = f"{RDMA_CLASS}/{device.name}"
    names = set(tree.names(folder, problems))
    hw_rev, hca_type, board_id = (
        _text(tree, f"{folder}/{name}", problems) if name in names else None
        for name in ("hw_rev", "hca_type", "board_id")
    )
    return replace(
        device,
        hw_rev=hw_rev,
        hca_type=hca_type,
        board_id=board_id,
        numa_node=read_numa_node(tree, f"{folder}/device"),
        ports=tuple(
            _port_facts(
                tree,
                device,
                port,
                _believable(mtus.get((device.name, port.number)), device.driver),
                problems,
            )
            for port in device.ports
        ),
    )


def _believable(mtus: Optional[PortMtus], driver: Optional[str]) -> PortMtus:
    most = _SHOWN_AT_MOST.get(driver or "")
    if mtus is None:
        return _NO_MTUS
    return PortMtus(
        max_mtu=None if mtus.max_mtu == most else mtus.max_mtu,
        active_mtu=None if mtus.active_mtu == most else mtus.active_mtu,
    )


def _port_facts(
    tree: FileTree,
    device: RdmaDevice,
    port: RdmaPort,
    mtus: PortMtus,
    problems: list[str],
) -> RdmaPort:
    folder = f"{RDMA_CLASS}/{device.name}/ports/{port.number}"
    names = set(tree.names(folder, problems))
    lid, sm_lid = (
        _number(tree, f"{folder}/{name}", problems) if name in names else None
        for name in ("lid", "sm_lid")
    )
    return replace(
        port,
        max_mtu=mtus.max_mtu,
        active_mtu=mtus.active_mtu,
        lid=lid,
        sm_lid=sm_lid,
        guid=None if port.is_ethernet else _guid(port),
        default_gid_type=(
            _default_gid_type(tree, device.name, port.number, problems)
            if port.is_ethernet
            else None
        ),
        pkeys=(
            _pkeys(tree, f"{folder}/pkeys", problems)
            if "pkeys" in names  # iWARP has none
            else ()
        ),
    )


def _default_gid_type(
    tree: FileTree, device: str, port: int, problems: list[str]
) -> Optional[str]:
    """Return ``RoCE v2``; None if the device has no folder in configfs.

    Its creation would show the type, but would change the host.
    """
    folder = f"{RDMA_CM_CONFIG}/{device}/ports/{port}"
    if not tree.is_folder(folder):
        return None
    return _text(tree, f"{folder}/default_roce_mode", problems)


def _guid(port: RdmaPort) -> Optional[str]:
    """Return the port GUID: the low half of the GID at index 0.

    A VF has none (all zero) until its physical function assigns one.
    """
    first = next((gid for gid in port.gids if gid.index == 0), None)
    guid = Guid.of_gid(first.gid) if first else None
    return guid.in_groups if guid and guid.assigned else None


def _number(tree: FileTree, path: str, problems: list[str]) -> Optional[int]:
    """Return 1 for ``0x1``."""
    text = tree.text(path, problems)
    if text is None:
        return None
    if not _HEX.fullmatch(text):
        problems.append(f"{path} reads {text!a}, not a hexadecimal number")
        return None
    return int(text, 16)


def _pkeys(tree: FileTree, folder: str, problems: list[str]) -> tuple[PKey, ...]:
    """Return the used entries of a P_Key table; most of its 128 or so are 0x0000."""
    pkeys = []
    for name in tree.names(folder, problems):
        text = tree.text(f"{folder}/{name}", problems)
        if text is None:
            continue
        if not (name.isascii() and name.isdecimal() and _PKEY.fullmatch(text)):
            problems.append(f"{folder}/{name} reads {text!a}, not a P_Key")
        elif partition_of(text) is not None:
            pkeys.append(PKey(int(name), text))
    return tuple(sorted(pkeys, key=lambda pkey: pkey.index))


def _text(tree: FileTree, path: str, problems: list[str]) -> Optional[str]:
    """Return a text, or None if it is empty, which is valid for some drivers."""
    data = tree.data(path, problems)
    return data.decode("utf-8", "surrogateescape").strip() or None if data else None
