# SPDX-License-Identifier: GPL-2.0-or-later
"""Write to an NFS mount in the hypervisor guest until that fails.

``python fault_writer.py FILE STATE [THREADS]`` writes blocks to FILE, with more threads
to FILE.1, FILE.2 and so on, without the page cache, as QEMU writes virtual disks. It
creates STATE.started after each one's first block, and ends at an error or when
STATE.stop appears. Then it reads all blocks back, each of which has a stamp, and prints
JSON: the error of the last write (an errno's name, or null), the longest time of a
write in seconds and when it began in seconds after boot, the number of writes, and of
blocks that are not as they were written (null after an error, and if they cannot be
read).
"""

# Imports only modules that load quickly, so no pathlib:
# ruff: noqa: PTH110

from __future__ import annotations

import errno
import json
import mmap
import os
import sys
import threading
import time
from typing import Optional

BLOCK = 64 * 1024
BLOCKS = 64
PAUSE_S = 0.05


class Writer(threading.Thread):
    """Writes one file, until ``stop`` exists or a write fails."""

    def __init__(self, file: str, stop: str) -> None:
        super().__init__(daemon=True)
        self._file, self._until = file, stop
        self.error: Optional[str] = None
        self.longest = 0.0
        self.number = 0
        self.wrote = threading.Event()
        self._stamps: dict[int, bytes] = {}
        # O_DIRECT needs memory that begins at a page.
        self._block = mmap.mmap(-1, BLOCK)

    def run(self) -> None:
        """Write blocks."""
        flags = os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_DSYNC
        descriptor = os.open(self._file, flags)
        while self.error is None and not os.path.exists(self._until):
            place = self.number % BLOCKS
            stamp = os.urandom(16)
            self._block[:] = stamp * (BLOCK // len(stamp))
            began = time.monotonic()
            try:
                os.pwrite(descriptor, self._block, place * BLOCK)
                self._stamps[place] = stamp
            except OSError as problem:
                self.error = errno.errorcode[problem.errno or 0]
                self._stamps.pop(place, None)  # the server may have it or not
            self.longest = max(self.longest, time.monotonic() - began)
            self.number += 1
            self.wrote.set()
            time.sleep(PAUSE_S)
        self.wrote.set()
        os.close(descriptor)

    def differences(self) -> Optional[int]:
        """Read all blocks; return how many are not as written, None for an error."""
        wrong = 0
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_DIRECT)
            for place, stamp in self._stamps.items():
                os.preadv(descriptor, [self._block], place * BLOCK)
                wrong += self._block[:] != stamp * (BLOCK // len(stamp))
            os.close(descriptor)
        except OSError:
            return None
        return wrong


def main(file: str, state: str, threads: str = "1") -> None:
    """Write blocks, and print the result."""
    names = [f"{file}.{number}" if number else file for number in range(int(threads))]
    writers = [Writer(name, f"{state}.stop") for name in names]
    for one in writers:
        one.start()
    for one in writers:
        one.wrote.wait()
    os.close(os.open(f"{state}.started", os.O_CREAT | os.O_WRONLY))
    for one in writers:
        one.join()
    error = next((one.error for one in writers if one.error), None)
    # A server that is away would not answer.
    wrong = [None if error else one.differences() for one in writers]
    result = {
        "error": error,
        "longest": max(one.longest for one in writers),
        "writes": sum(one.number for one in writers),
        "differences": None if None in wrong else sum(filter(None, wrong)),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
