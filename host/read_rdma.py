# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA devices, their ports and GID tables, from /sys/class/infiniband.

The texts are those of the kernel's drivers/infiniband/core/sysfs.c.
"""

from __future__ import annotations

import re
from typing import Optional

from ovirt_rdma.host.facts import UNKNOWN, Gid, RdmaDevice, RdmaPort
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.ib_rate import data_rate_mbps, rate_mbps
from ovirt_rdma.host.pci import read_driver, read_pci

RDMA_CLASS = "/sys/class/infiniband"

_NUMBERED = re.compile(r"(?:\d+:\s*)?([A-Za-z<][^:]*)")
_GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")


def read_rdma_devices(tree: FileTree, problems: list[str]) -> tuple[RdmaDevice, ...]:
    """Return all RDMA devices by name; none where no RDMA module is loaded.

    A device that goes away meanwhile is left out, odd text shown as unknown, each
    with a sentence in ``problems``.
    """
    devices = []
    for name in tree.names(RDMA_CLASS):
        odd: list[str] = []
        device = _device(tree, name, odd)
        if odd and not tree.is_folder(f"{RDMA_CLASS}/{name}"):
            problems.append(f"RDMA device {name} went away while it was being read")
            continue
        problems.extend(odd)
        devices.append(device)
    return tuple(devices)


def _device(tree: FileTree, name: str, problems: list[str]) -> RdmaDevice:
    folder = f"{RDMA_CLASS}/{name}"
    driver = read_driver(tree, folder)
    if driver is None and tree.text(f"{folder}/parent"):
        # Of the drivers without a bus device only rxe has this attribute.
        driver = "rdma_rxe"
    ports = []
    for port in tree.names(f"{folder}/ports", problems):
        if port.isdecimal():
            place = f"{folder}/ports/{port}"
            ports.append(_port(tree, place, int(port), driver, problems))
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
            data_rate_mbps(rate, link_layer) if rate and driver != "rdma_rxe" else None
        ),
        gids=_gids(tree, folder, problems),
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


def _gids(tree: FileTree, folder: str, problems: list[str]) -> tuple[Gid, ...]:
    """Return the used entries of a GID table.

    Tables have up to 256 entries, nearly all zero; the attributes of a zero entry
    give EINVAL, so they are read for the used ones only.
    """
    gids = []
    for name in tree.names(f"{folder}/gids", problems):
        # An entry may be taken out at any moment: then it reads as zero or fails.
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
