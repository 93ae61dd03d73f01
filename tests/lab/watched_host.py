# SPDX-License-Identifier: GPL-2.0-or-later
"""A hypervisor in the lab whose mounts are watched and measured as on a real host.

The watcher is the daemon; the exporter is its task, run alone. What it writes is shown
by Debian's node_exporter, scraped by its Prometheus, and raises our alerts there, or
does not.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from lab import steady_load
from lab.command import Process
from lab.prometheus import Server, node_exporter, prometheus
from lab.systemd_unit import exec_start
from lab.topology import Topology
from ovirt_rdma.host.paths import ENABLED
from ovirt_rdma.host.services.enablement import MODE_HOST, marker_text
from ovirt_rdma.storage.metrics.exporter import FILE
from tools.metrics_reference import RULES, TOP

Look = dict[str, Any]
"""What the watcher found of the mount, ``taken_at`` on the guest's clock, and
``starved``: for how much of the time around it the emulated machines had no processor.
"""

EXPORT_PATH = "/srv/watched"
OTHER_PATH = "/srv/other"
# As VDSM mounts.
OPTIONS = "soft,nosharecache,timeo=100,retrans=3"
INTERVAL_S = 5
# Between two runs of the exporter, and between two scrapes.
SCRAPE_S = 5
METRICS = "/run/metrics"
_JOURNAL = "/run/health.journal"
_PATIENT_S = 400.0
# The guests see the machine's files.
_BIN = Path(sys.executable).parent
# Without a journal, which would make several writes of each. Another module's tests may
# have made it in the same guest.
_MAKE_DISK = f"""
if [ -e /dev/mapper/slow ]; then exportfs -ra; exit 0; fi
modprobe brd rd_nr=1 rd_size=98304
modprobe -a dm-delay ext4
dmsetup create slow --table "0 $(blockdev --getsz /dev/ram0) delay /dev/ram0 0 0"
dmsetup mknodes
mkfs.ext4 -q -O ^has_journal /dev/mapper/slow
mount /dev/mapper/slow /nfsroot{EXPORT_PATH}
chown 36:36 /nfsroot{EXPORT_PATH}
exportfs -ra
"""
_EXPORT = "from ovirt_rdma.storage.metrics.exporter import export; export('/')"


@dataclass(frozen=True)
class Load:
    """Threads that read and write ``block`` bytes at a time (lab/steady_load.py)."""

    readers: int
    writers: int
    block: int = 64 << 10
    pause_s: float = 0.0


@dataclass(frozen=True)
class Monitoring:
    """node_exporter and Prometheus with our rules, on the machine: ``textfiles`` is the
    folder of node_exporter, ``server`` is Prometheus.
    """

    textfiles: Path
    server: Server

    def show(self, text: str) -> None:
        """Let node_exporter show what the exporter wrote in the guest."""
        draft = self.textfiles / "draft"
        draft.write_text(text)
        draft.rename(self.textfiles / FILE)


@contextmanager
def monitoring(folder: Path) -> Iterator[Monitoring]:
    """Run them, with their files in ``folder``."""
    textfiles = folder / "textfiles"
    textfiles.mkdir()
    with (
        node_exporter(folder, Path("/proc"), ["textfile"], textfiles) as target,
        prometheus(folder, target, RULES, SCRAPE_S) as server,
    ):
        yield Monitoring(textfiles, server)


class Starved:
    """For how much of the last seconds the guests had no processor.

    A look counts what happened since the one before, and a guest that gets no processor
    is slow: what the watcher says then is true, and says nothing about it.
    """

    def __init__(self, lab: Topology) -> None:
        self._guests = {lab.hypervisor, lab.server}
        # At the beginning of the last three looks.
        self._readings = deque([self._read()], maxlen=4)

    def share(self) -> float:
        """Return the seconds without a processor per second, since three calls ago."""
        self._readings.append(self._read())
        (begun, before), (now, waited) = self._readings[0], self._readings[-1]
        return (waited - before) / max(now - begun, 0.001)

    def _read(self) -> tuple[float, float]:
        return time.monotonic(), sum(guest.starved_s for guest in self._guests)


class WatchedHost:
    """The hypervisor of ``lab``, with a policy, the watcher, and a mount at a time."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab
        self.export = f"{lab.address}:{EXPORT_PATH}"
        self.place = _place(self.export)
        self._load: Optional[Process] = None
        # For all records: the first look of one was taken before the record began.
        self._starved = Starved(lab)
        self.export_all()

    def export_all(self) -> None:
        """Export EXPORT_PATH from a disk whose speed can be chosen, and OTHER_PATH."""
        for path in (EXPORT_PATH, OTHER_PATH):
            self.lab.nfs.add_export(path)
        self.server(_MAKE_DISK)

    def server(self, line: str) -> None:
        """Run a line on the server."""
        self.lab.server.run(f"set -e\n{line}", check=True, timeout=_PATIENT_S)

    def delay_disk(self, milliseconds: int) -> None:
        """Let each read and write of the server's disk take so long."""
        table = f"0 $(blockdev --getsz /dev/ram0) delay /dev/ram0 0 {milliseconds}"
        self.server(f'dmsetup reload slow --table "{table}"; dmsetup resume slow')

    @contextmanager
    def hung_disk(self, unread: str) -> Iterator[None]:
        """Hold back what the server's disk is asked for. The server has the folders
        of the file ``unread`` (below EXPORT_PATH) in memory, but nothing of its data.
        """
        self.server("sync; echo 3 > /proc/sys/vm/drop_caches")
        self.server(f"find /nfsroot{EXPORT_PATH}; stat /nfsroot{EXPORT_PATH}/{unread}")
        self.server("dmsetup suspend --nolockfs --noflush slow")
        try:
            yield
        finally:
            self.server("dmsetup resume slow")

    def threads(self, number: int) -> None:
        """Let the server have so many NFS threads."""
        self.server(f"echo {number} > /proc/fs/nfsd/threads")

    def shell(self, line: str) -> str:
        """Run a line in the hypervisor; return what it prints."""
        return self.lab.hypervisor.run(line, check=True, timeout=_PATIENT_S).stdout

    def clock_s(self) -> float:
        """Return the hypervisor's clock: seconds since 1970."""
        return float(self.shell("date +%s.%N"))

    def load_policy(self, text: str) -> None:
        """Load the policy ``text``."""
        self.shell(f"mkdir -p {METRICS}; rm -f {METRICS}/*")
        self.lab.hypervisor.run("cat > /run/policy.yaml", input=text, check=True)
        self.shell(f"{_BIN}/ovirt-rdma-host policy load -y /run/policy.yaml")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Run the program of the unit, from its first look on."""
        unit = (TOP / "host/systemd/ovirt-rdmad.service").read_text()
        self.shell("mkdir -p /etc/ovirt-rdma")
        marker = marker_text(MODE_HOST)
        self.lab.hypervisor.run(f"cat > {ENABLED}", input=marker, check=True)
        words = " ".join(exec_start([unit])[1:])
        watcher = self.lab.hypervisor.start(
            f"exec {_BIN}/ovirt-rdma-host {words} > {_JOURNAL} 2>&1"
        )
        try:
            self.shell("until [ -e /run/ovirt-rdma/health.json ]; do sleep 0.5; done")
            yield
        finally:
            watcher.signal(15)
            watcher.wait(_PATIENT_S)
            self.shell(f"rm {ENABLED}")

    def mount(self, options: str, version: str, path: str = EXPORT_PATH) -> None:
        """Mount an export of the server as VDSM does."""
        export = f"{self.lab.address}:{path}"
        place = _place(export)
        self.shell(
            f"mkdir -p {place} && mount -t nfs -o vers={version},{OPTIONS},{options} "
            f"{export} {place}"
        )

    def begin_load(self, load: Load) -> None:
        """Start threads that read and write, and wait until each has."""
        folder = f"{self.place}/load"
        self.shell(f"rm -rf {folder}; mkdir {folder}")
        words = (folder, load.readers, load.writers, load.block, load.pause_s)
        program = Path(steady_load.__file__)
        self._load = self.lab.hypervisor.start(
            ["/usr/bin/python3", str(program), *map(str, words)]
        )
        self.shell(f"until [ -e {folder}/started ]; do sleep 0.2; done")

    def end(self) -> None:
        """End the load, and unmount all."""
        self.end_load()
        self.end_mounts()

    def end_load(self) -> None:
        """End the load, if there is one."""
        if self._load is not None:
            self._load.signal(9)
        self._load = None

    def end_mounts(self) -> None:
        """Unmount all; what is in use stays without a name."""
        self.shell("umount -a -t nfs,nfs4 -f -l")

    def journal(self, since: int = 0) -> str:
        """Return what the watcher has written to the journal, from a character on."""
        return self.shell(f"cat {_JOURNAL}")[since:]

    def wait_until_seen(self) -> None:
        """Wait for a look of the watcher at the mount as it is now."""
        mounted = self.clock_s()
        seen: set[float] = set()
        # One may have begun before.
        while len(seen) < 2:
            time.sleep(1.0)
            taken, found = self.health()
            if found and taken >= mounted:
                seen.add(taken)

    def health(self) -> tuple[float, dict[str, Any]]:
        """Return when the watcher last looked, on the guest's clock, and what it found
        of the mount.
        """
        state = json.loads(self.shell("cat /run/ovirt-rdma/health.json"))
        found = {one["export"]: one for one in state["mounts"]}
        return state["taken_at"], found.get(self.export, {})

    def ask(self) -> dict[str, Any]:
        """Return what ``nfs health`` finds of the mount."""
        command = f"{_BIN}/ovirt-rdma-host nfs health {self.export} -o json"
        done = self.lab.hypervisor.run(command, timeout=_PATIENT_S)
        (found,) = json.loads(done.stdout)["mounts"]
        return dict(found)

    def sample(self) -> str:
        """Run the exporter, and return what it wrote."""
        return self.shell(f'{_BIN}/python -c "{_EXPORT}" && cat {METRICS}/{FILE}')

    def record(
        self, shown: Monitoring, enough: Callable[[list[Look]], bool]
    ) -> list[Look]:
        """Show samples until there is ``enough`` to see in the looks of the watcher,
        which are returned, each once.
        """
        looks: dict[float, Look] = {}
        end = time.monotonic() + _PATIENT_S
        while time.monotonic() < end:
            again = time.monotonic() + SCRAPE_S
            # The look comes first, so that the sample shows it or a later one.
            taken, found = self.health()
            if found:
                more = {"taken_at": taken, "starved": self._starved.share()}
                looks.setdefault(taken, {**found, **more})
            shown.show(self.sample())
            # Also the last time, so that the sample is scraped.
            time.sleep(max(0.0, again - time.monotonic()))
            if enough(list(looks.values())):
                break
        return list(looks.values())


def told(looks: Iterable[Look]) -> str:
    """Return a line for each look."""
    lines = [
        f"{one['taken_at']:.0f} {one['state']} {one['cause']} {one['reason']}"
        f" {one['evidence']} starved {one['starved']:.2f}"
        for one in looks
    ]
    return "\n".join(["the looks:", *lines])


def _place(export: str) -> str:
    return f"/rhev/data-center/mnt/{export.replace('/', '_')}"
