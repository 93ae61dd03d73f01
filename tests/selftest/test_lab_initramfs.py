# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the initramfs: the order of modules, the archive, and the unpacked kernel."""

from __future__ import annotations

import lzma
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.initramfs import archive, load_order
from lab.kernel_image import unpacked
from lab.problem import LabProblem

pytestmark = pytest.mark.selftest

MODULES_DEP = """\
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet.ko:
kernel/fs/netfs/netfs.ko:
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/drivers/infiniband/ulp/ipoib/ib-ipoib.ko.xz:
"""


def test_modules_come_after_what_they_need_and_once() -> None:
    order = [Path(m).stem for m in load_order(MODULES_DEP, ["9pnet_virtio", "9p"])]
    assert order == ["9pnet", "virtio", "9pnet_virtio", "netfs", "9p"]


def test_dashes_and_compression_do_not_hide_a_module() -> None:
    assert load_order(MODULES_DEP, ["ib_ipoib"]) == [
        "kernel/drivers/infiniband/ulp/ipoib/ib-ipoib.ko.xz"
    ]


def test_what_is_built_in_needs_no_file() -> None:
    built_in = "kernel/drivers/virtio/virtio_pci.ko\nkernel/fs/x.ko\n"
    order = load_order(MODULES_DEP, ["virtio_pci", "ib_ipoib"], built_in)
    assert [Path(m).name for m in order] == ["ib-ipoib.ko.xz"]


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(LabProblem, match="no module overlay"):
        load_order(MODULES_DEP, ["overlay"])


def test_the_archive_is_made_of_aligned_members_that_end_in_a_trailer() -> None:
    made = archive({"a/bc": b"12345"})
    names = []
    while made:
        assert made.startswith(b"070701")
        size, name_size = int(made[54:62], 16), int(made[94:102], 16)
        names.append(made[110 : 110 + name_size - 1].decode())
        body = -(-(110 + name_size) // 4) * 4
        made = made[body + -(-size // 4) * 4 :]
    assert names == ["a", "a/bc", "TRAILER!!!"]


def test_scripts_and_programs_can_be_executed_and_texts_not() -> None:
    made = archive({"a": b"#!/bin/sh", "b": b"\x7fELF", "c": b"[Unit]"})
    modes = [made[member + 14 : member + 22] for member in _members(made)]
    assert modes == [b"000081ED", b"000081ED", b"000081A4", b"00000000"]


def _members(made: bytes) -> list[int]:
    """Return the offsets of the members."""
    found = [0]
    while (following := made.find(b"070701", found[-1] + 6)) > 0:
        found.append(following)
    return found


def zstd(data: bytes) -> bytes:
    return subprocess.run(
        ["zstd", "-q"], input=data, stdout=subprocess.PIPE, check=True
    ).stdout


def bz_image(payload: bytes) -> bytes:
    header = bytearray(0x250)
    header[0x1F1] = 1
    header[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", header, 0x248, 16, len(payload))
    return bytes(header).ljust(2 * 512 + 16, b"\0") + payload


@pytest.mark.parametrize("pack", [lzma.compress, zstd])
def test_a_packed_kernel_is_unpacked(pack: Callable[[bytes], bytes]) -> None:
    kernel = b"\x7fELF" + b"code" * 1000
    payload = pack(kernel) + struct.pack("<I", len(kernel))
    assert unpacked(bz_image(payload)) == kernel


@pytest.mark.parametrize(
    "image",
    [
        bz_image(b"\x28\xb5\x2f\xfd zstd"),
        bz_image(b"\x04\x22\x4d\x18 lz4"),
        b"\x7fELF".ljust(0x300, b"\0"),
        b"",
    ],
)
def test_a_kernel_packed_otherwise_is_left_to_unpack_itself(image: bytes) -> None:
    assert unpacked(image) is None
