# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``bench`` on real kernels, and see what it leaves behind."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.command import Process
from lab.ib_pair import IbPair, ib_pair

pytestmark = pytest.mark.faults

EXPORT_PATH = "/srv/bench"
_PATIENT_S = 600.0
# The guests see the machine's files.
_BENCH = f"{Path(sys.executable).parent}/ovirt-rdma-host bench"
_SHORT = "--repeats 1 --seconds 1 --size-mib 2"
_MOUNT = "/run/ovirt-rdma/bench/mount"


@pytest.fixture(scope="module")
def lab() -> Iterator[IbPair]:
    with ib_pair(cpus=2) as pair:
        pair.nfs.add_export(EXPORT_PATH)
        yield pair


def started(lab: IbPair) -> Process:
    """Start a benchmark, and wait until fio is writing into the export."""
    command = f"exec {_BENCH} {lab.address}:{EXPORT_PATH} {_SHORT} -o json"
    process = lab.hypervisor.start(command)
    wait = "until pgrep -x fio > /dev/null && mountpoint -q $0; do sleep 0.1; done"
    lab.hypervisor.run(["bash", "-c", wait, _MOUNT], check=True, timeout=_PATIENT_S)
    return process


def left(lab: IbPair) -> list[str]:
    """Return what a benchmark left: a mount, a record, a folder in the export."""
    here = lab.hypervisor.run(
        f"grep -o {_MOUNT} /proc/mounts; ls -A /run/ovirt-rdma/bench | grep -vx lock"
    )
    there = lab.server.run(f"ls -A /nfsroot{EXPORT_PATH}", check=True)
    return [*here.stdout.split(), *there.stdout.split()]


def test_nothing_is_left_after_sigkill(lab: IbPair) -> None:
    process = started(lab)
    process.signal(signal.SIGKILL)
    process.wait()
    # The child that removes everything, and fio.
    gone = "while pgrep -x 'ovirt-rdma-host|fio'; do sleep 0.2; done"
    lab.hypervisor.run(gone, check=True, timeout=_PATIENT_S)
    assert left(lab) == []
