# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in the hypervisor guest: writes to an NFS mount until that fails.

``python fault_writer.py FILE STATE``: writes blocks to FILE past the page cache, as
QEMU writes a virtual disk. Creates STATE.started after the first one, ends at an error
or when STATE.stop appears, and prints what the last write got (an errno's name, or
null) and the longest that one took in seconds, as JSON.
"""

# Imports only what starts quickly, so no pathlib:
# ruff: noqa: PTH110

from __future__ import annotations

import errno
import json
import mmap
import os
import sys
import time
from typing import Optional

BLOCK = 64 * 1024
BLOCKS = 64
PAUSE_S = 0.05


def main(file: str, state: str) -> None:
    """Write, and print what came of it."""
    # O_DIRECT wants memory that begins at a page.
    block = mmap.mmap(-1, BLOCK)
    block.write(os.urandom(BLOCK))
    error: Optional[str] = None
    longest = 0.0
    number = 0
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_DSYNC)
    while error is None and not os.path.exists(f"{state}.stop"):
        began = time.monotonic()
        try:
            os.pwrite(descriptor, block, number % BLOCKS * BLOCK)
        except OSError as problem:
            error = errno.errorcode[problem.errno or 0]
        longest = max(longest, time.monotonic() - began)
        if number == 0:
            os.close(os.open(f"{state}.started", os.O_CREAT | os.O_WRONLY))
        number += 1
        time.sleep(PAUSE_S)
    print(json.dumps({"error": error, "longest": longest, "writes": number}))


if __name__ == "__main__":
    main(*sys.argv[1:])
