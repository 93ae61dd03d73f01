# SPDX-License-Identifier: GPL-2.0-or-later
"""Unpack a kernel, because QEMU boots an unpacked one faster.

A packed kernel unpacks itself at each boot, which takes some 3 s under emulation. QEMU
can start an unpacked kernel by its PVH entry.
"""

from __future__ import annotations

import lzma
import struct
import subprocess
from typing import Optional

# Documentation/x86/boot.rst, "The Real-Mode Kernel Header".
_SETUP_SECTS = 0x1F1
_MAGIC = 0x202
_PAYLOAD = 0x248
_SECTOR = 512
# RFC 8878, section 3.1.1.
_ZSTD = b"\x28\xb5\x2f\xfd"


def unpacked(image: bytes) -> Optional[bytes]:
    """Return the ELF kernel in a bzImage; None if it is not packed with xz or zstd."""
    if image[_MAGIC : _MAGIC + 4] != b"HdrS":
        return None
    setup = (image[_SETUP_SECTS] or 4) + 1
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = setup * _SECTOR + offset
    # The last four bytes are the unpacked size.
    packed = image[start : start + length - 4]
    try:
        if packed.startswith(_ZSTD):
            zstd = ["zstd", "--decompress", "--stdout", "--quiet"]
            unpack = subprocess.run(zstd, input=packed, capture_output=True, check=True)
            kernel = unpack.stdout
        else:
            kernel = lzma.decompress(packed, format=lzma.FORMAT_XZ)
    except (lzma.LZMAError, OSError, subprocess.CalledProcessError):
        return None
    return kernel if kernel.startswith(b"\x7fELF") else None
