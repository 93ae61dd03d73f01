# SPDX-License-Identifier: GPL-2.0-or-later
"""What this host tells about its readiness, read once for all who ask at a time.

A GID table alone may have 1024 files: twenty servers asked at once would read it
twenty times.
"""

from __future__ import annotations

import threading
from typing import Optional

from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.reader import HostReader


class LocalFacts:
    """Reads what :func:`ovirt_rdma.storage.readiness.local_steps` looks at.

    Nobody gets what was read before they asked: those who ask during a reading wait
    for the next one and share that. Safe for several threads.
    """

    def __init__(self, reader: HostReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._begun = 0
        self._facts: Optional[Facts] = None

    def read(self) -> Facts:
        """Return facts whose reading begins after this call."""
        wanted = self._begun + 1
        with self._lock:
            if self._begun < wanted or self._facts is None:
                self._begun += 1
                self._facts = None
                self._facts = self._read()
            return self._facts

    def _read(self) -> Facts:
        reader = self._reader
        return Facts(
            hostname="",
            kernel_release=reader.kernel_release(),
            uptime_s=reader.uptime(),
            rdma_devices=reader.rdma_devices(),
            netdevs=reader.netdevs(),
            modules=reader.modules(),
        )
