# SPDX-License-Identifier: GPL-2.0-or-later
"""The sleep of 250 ms without a free slot: fio measures it, and NFS-SLOTS-01 agrees.

Debian's 6.1.170 has the defect, 6.1.192 has not; docs/health.md has the figures of
both. The test is right on either: fio decides what the rule must say.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.topology import Topology, one_guest

pytestmark = pytest.mark.faults

SLOTS = 16
# More reads at once than SLOTS have no free slot.
AT_ONCE = 40
MORE_SLOTS = 128
SECONDS = 6
# As long as a check takes in a guest.
CHECKED_SECONDS = 30
EXPORT_PATH = "/srv/cliff"
# In a burst with a sleep, fio sees each read end with the last one.
SLEEP_MS = 200.0
_BIN = Path(sys.executable).parent
_FIO = """
fio --name=bursts --filename=/mnt/file --size=16m --rw=randread --bs=4k --direct=1
  --ioengine=libaio --time_based --percentile_list=50:99.9
  --output-format=json
"""


@dataclass(frozen=True)
class Bursts:
    """What fio measured: reads a second, and milliseconds of a read."""

    reads_per_s: float
    median_ms: float
    p99_9_ms: float


class Host:
    """A guest that is its own server, so that replies come quickly."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab
        lab.nfs.add_export(EXPORT_PATH)
        self.said(f"head -c 16M /dev/zero > {EXPORT_PATH}/file; mkdir -p /mnt")
        self.said("echo 16 > /proc/fs/nfsd/threads")

    def said(self, line: str) -> str:
        """Run a shell line and return its output."""
        return self.lab.hypervisor.run(line, check=True, timeout=300).stdout

    def mount(self, slots: int) -> None:
        """Remount the export with so many slots."""
        self.said(
            "! mountpoint -q /mnt || umount /mnt;"
            f"echo {slots} > /proc/sys/sunrpc/rdma_slot_table_entries;"
            "mount -t nfs -o vers=3,nosharecache,rdma,port=20049"
            f" {self.lab.address}:{EXPORT_PATH} /mnt"
        )

    def bursts(self, reads: int) -> Bursts:
        """Read in bursts of so many reads; the next burst waits for the whole one."""
        return _measured(self.said(_fio(reads, SECONDS)))

    def checked_bursts(self, reads: int) -> tuple[Bursts, Any]:
        """Return that, and what ``check`` says of the slots of the mount meanwhile."""
        self.said(
            f"{_fio(reads, CHECKED_SECONDS)} > /tmp/fio.json & sleep 3;"
            f"{_BIN}/ovirt-rdma-host check -o json > /tmp/check.json; wait"
        )
        found = json.loads(self.said("cat /tmp/check.json"))["findings"]
        ours = [one for one in found if one["rule"] == "NFS-SLOTS-01"]
        (one,) = (one for one in ours if one["subject"].endswith(EXPORT_PATH))
        return _measured(self.said("cat /tmp/fio.json")), one


def _fio(reads: int, seconds: int) -> str:
    batches = ("iodepth", "iodepth_batch_submit", "iodepth_batch_complete_min")
    more = [f"--{name}={reads}" for name in batches]
    return shlex.join([*_FIO.split(), f"--runtime={seconds}", *more])


def _measured(output: str) -> Bursts:
    (job,) = json.loads(output)["jobs"]
    percentile = job["read"]["clat_ns"]["percentile"]
    return Bursts(
        job["read"]["iops"],
        percentile["50.000000"] / 1e6,
        percentile["99.900000"] / 1e6,
    )


@pytest.fixture
def host() -> Iterator[Host]:
    with one_guest() as lab:
        yield Host(lab)


def test_the_rule_agrees_with_fio_and_its_advice_helps(host: Host) -> None:
    host.mount(SLOTS)
    enough = host.bursts(SLOTS)
    assert enough.median_ms < SLEEP_MS
    too_few, found = host.checked_bursts(AT_ONCE)
    has_defect = too_few.median_ms > SLEEP_MS
    assert ("250 ms" in found["sentence"]) == has_defect, (too_few, found)
    host.mount(MORE_SLOTS)
    advised, found = host.checked_bursts(AT_ONCE)
    assert advised.median_ms < SLEEP_MS
    assert found["verdict"] == "PASS"
    kernel = host.said("uname -v").strip()
    print(f"{kernel}\n{SLOTS} slots: {enough}\n{too_few}\n{MORE_SLOTS}: {advised}")
