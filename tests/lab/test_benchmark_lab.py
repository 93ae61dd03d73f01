# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``bench`` on real kernels: servers that fail, and what is left behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from measured_host import EXPORT_PATH, PATIENT_S, MeasuredHost

from lab.ib_pair import ib_pair
from lab.topology import Topology

pytestmark = pytest.mark.faults

FULL_PATH = "/srv/full"
# Long enough for a server to end in the middle.
_LONG = "--repeats 1 --seconds 20 --size-mib 8"
# fio has 60 s more than its run, the scratch folder and each of three ways to unmount
# have a limit too (storage/benchmark/scratch.py), and a guest is slow.
_BOUND_S = 20 + 60 + 60 + 3 * 20 + 60


@pytest.fixture(scope="module")
def on_infiniband() -> Iterator[MeasuredHost]:
    with ib_pair(cpus=2) as pair:
        yield MeasuredHost(pair)


@pytest.fixture(scope="module")
def on_soft_roce(two_guests: Topology) -> MeasuredHost:
    return MeasuredHost(two_guests)


def test_a_server_that_freezes_is_one_sentence(on_soft_roce: MeasuredHost) -> None:
    lab = on_soft_roce.lab
    process = on_soft_roce.started(_LONG)
    lab.server.monitor.freeze()
    try:
        done = process.wait(_BOUND_S)
        assert on_soft_roce.left_here() == []
    finally:
        lab.server.monitor.thaw()
    error = json.loads(done.stdout)
    assert done.exit_code == 1
    assert error["id"] in ("bench-fio-failed", "bench-too-slow"), error
    # Only the folder on the server is left, and the error reports it.
    (name,) = on_soft_roce.left()
    assert f"the folder {name} stays in the export" in error["sentences"][-1]
    # The next run removes it, with what is in it.
    lab.server.run(f"touch /nfsroot{EXPORT_PATH}/{name}/more", check=True)
    on_soft_roce.measured("--seconds 1 --size-mib 2")


def test_a_server_that_loses_power_is_one_sentence(on_soft_roce: MeasuredHost) -> None:
    lab = on_soft_roce.lab
    process = on_soft_roce.started(_LONG)
    lab.server.kill()
    try:
        done = process.wait(_BOUND_S)
        assert on_soft_roce.left_here() == []
    finally:
        lab.start_server()
        lab.nfs.add_export(EXPORT_PATH)
    assert done.exit_code == 1
    error = json.loads(done.stdout)
    assert error["id"] in ("bench-fio-failed", "bench-too-slow"), error


def test_nothing_is_left_after_sigkill(on_infiniband: MeasuredHost) -> None:
    process = on_infiniband.started()
    process.signal(signal.SIGKILL)
    process.wait()
    on_infiniband.wait_until_gone()
    assert on_infiniband.left() == []


def test_a_domain_that_fills_up_is_one_sentence(on_infiniband: MeasuredHost) -> None:
    pair = on_infiniband.lab
    place = f"/nfsroot{FULL_PATH}"
    small = f"mkdir -p {place} && mount -t tmpfs -o size=12m tmpfs {place}"
    pair.server.run(small, check=True)
    pair.nfs.add_export(FULL_PATH)
    # Another writer, as soon as the space was found to be enough.
    scratch = f"until ls -A {place} | grep -q bench; do sleep 0.05; done"
    other = pair.server.start(f"{scratch}; dd if=/dev/zero of={place}/other bs=1M")
    code, error = on_infiniband.refused(path=FULL_PATH)
    other.wait(PATIENT_S)
    assert (code, error["id"], len(error["sentences"])) == (1, "bench-fio-failed", 1)
    assert "No space left on device" in error["sentences"][0]
    assert on_infiniband.left(FULL_PATH) == ["other"]
    code, error = on_infiniband.refused(path=FULL_PATH)
    assert (code, error["id"]) == (4, "bench-no-space")
    assert on_infiniband.left(FULL_PATH) == ["other"]
