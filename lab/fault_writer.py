# SPDX-License-Identifier: GPL-2.0-or-later
"""Write to an NFS mount in the hypervisor guest until that fails.

``python fault_writer.py FILE STATE`` writes blocks to FILE without the page cache, as
QEMU writes a virtual disk. It creates STATE.started after the first block, and ends at
an error or when STATE.stop appears. Then it prints JSON: the error of the last write
(an errno's name, or null), the longest time of a write in seconds, and their number.
"""

# Imports only modules that load quickly, so no pathlib:
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
    """Write blocks, and print the result."""
    # O_DIRECT needs memory that begins at a page.
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
