# SPDX-License-Identifier: GPL-2.0-or-later
"""Read and write files of an NFS mount in the hypervisor guest, until it is killed.

``python steady_load.py FOLDER READERS WRITERS BLOCK PAUSE``: so many threads read and
write files of FOLDER, BLOCK bytes at a time and without the page cache, as QEMU does
with virtual disks; each waits PAUSE seconds after a block. A thread continues after an
error. FOLDER/started is created when each thread has done one block.
"""

# Imports only modules that load quickly, so no pathlib:
# ruff: noqa: PTH118, PTH123

from __future__ import annotations

import mmap
import os
import sys
import threading
import time

BLOCKS = 16
# A server that is away answers each call with an error, perhaps at once.
_AFTER_ERROR_S = 0.5


class Load:
    """The threads, and how many of them have done their first block."""

    def __init__(self, folder: str, block: int, pause_s: float, threads: int) -> None:
        self._folder, self._block, self._pause_s = folder, block, pause_s
        self._left = threading.Semaphore(0)
        self._threads = threads

    def run(self, readers: int) -> None:
        """Start all threads, of which ``readers`` read; return never."""
        for number in range(self._threads):
            arguments = (number, number >= readers)
            threading.Thread(target=self._work, args=arguments, daemon=True).start()
        for _ in range(self._threads):
            self._left.acquire()
        open(os.path.join(self._folder, "started"), "w").close()
        while True:
            time.sleep(3600)

    def _work(self, number: int, writes: bool) -> None:
        # O_DIRECT needs memory that begins at a page.
        block = mmap.mmap(-1, self._block)
        block.write(os.urandom(self._block))
        flags = os.O_RDWR | os.O_CREAT | os.O_DIRECT | (os.O_DSYNC if writes else 0)
        path = os.path.join(self._folder, f"disk{number}")
        descriptor = -1
        done = 0
        while True:
            try:
                if descriptor < 0:
                    descriptor = os.open(path, flags)
                # A reader needs something to read.
                if writes or done == 0:
                    os.pwrite(descriptor, block, done % BLOCKS * self._block)
                else:
                    os.preadv(descriptor, [block], 0)
            except OSError:
                time.sleep(_AFTER_ERROR_S)
                continue
            done += 1
            if done == 1:
                self._left.release()
            time.sleep(self._pause_s)


def main(folder: str, readers: int, writers: int, block: int, pause_s: float) -> None:
    """Make the load; never returns."""
    Load(folder, block, pause_s, readers + writers).run(readers)


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]),
        float(sys.argv[5]),
    )
