# SPDX-License-Identifier: GPL-2.0-or-later
"""Unpack a kernel, because QEMU boots an unpacked one faster.

A packed kernel unpacks itself at each boot, which takes some 3 s under emulation. QEMU
can start an unpacked kernel by its PVH entry.
"""

from __future__ import annotations

import lzma
import struct
from typing import Optional

# Documentation/x86/boot.rst, "The Real-Mode Kernel Header".
_SETUP_SECTS = 0x1F1
_MAGIC = 0x202
_PAYLOAD = 0x248
_SECTOR = 512


def unpacked(image: bytes) -> Optional[bytes]:
    """Return the ELF kernel in a bzImage; None if it is not packed with xz."""
    if image[_MAGIC : _MAGIC + 4] != b"HdrS":
        return None
    setup = (image[_SETUP_SECTS] or 4) + 1
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = setup * _SECTOR + offset
    try:
        # The payload ends with its unpacked size, which is not part of the xz data.
        unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        kernel = unpacker.decompress(image[start : start + length])
    except lzma.LZMAError:
        return None
    return kernel if kernel.startswith(b"\x7fELF") else None
