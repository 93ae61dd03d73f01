# SPDX-License-Identifier: GPL-2.0-or-later
"""Try faults on real kernels with VDSM's connection class; see lab/fault_table.py.

`make check` tries the chosen cases, `make faults` all of them, and writes
docs/faults.md if OVIRT_RDMA_FAULTS_REPORT names that file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lab.fault import Fault, Row
from lab.fault_report import report
from lab.fault_run import run
from lab.fault_site import CASES, FaultSite
from lab.fault_table import FAULTS
from lab.topology import Topology

pytestmark = pytest.mark.kernels("6.12")

CHOSEN = [fault for fault in FAULTS if fault.chosen]


@pytest.fixture(scope="module")
def site(two_guests: Topology) -> Iterator[FaultSite]:
    made = FaultSite(two_guests)
    yield made
    made.close()


@pytest.fixture(scope="module")
def all_rows() -> list[Row]:
    return []


def wrong(rows: list[Row]) -> list[str]:
    return [f"{row.case}: {what}" for row in rows for what in row.wrong]


@pytest.mark.parametrize("fault", CHOSEN, ids=lambda fault: fault.id)
def test_chosen_faults(site: FaultSite, fault: Fault) -> None:
    assert wrong(run(fault, site, fault.chosen)) == []


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_fault_matrix(site: FaultSite, fault: Fault, all_rows: list[Row]) -> None:
    rows = run(fault, site)
    assert wrong(rows) == []
    assert [row.case for row in rows] == list(CASES)
    all_rows += rows


@pytest.mark.faults
def test_the_report_has_every_fault(site: FaultSite, all_rows: list[Row]) -> None:
    assert {row.fault for row in all_rows} == {fault.id for fault in FAULTS}
    file = os.environ.get("OVIRT_RDMA_FAULTS_REPORT")
    if file is None:
        pytest.skip("OVIRT_RDMA_FAULTS_REPORT names no file")
    kernel = site.shell("uname -r").strip()
    # mount.nfs: (linux nfs-utils 2.6.2)
    nfs_utils = site.shell("mount.nfs -V").strip().rpartition(" ")[2].rstrip(")")
    versions = f"kernel {kernel}, nfs-utils {nfs_utils}, Soft-RoCE, two guests"
    today = datetime.now(timezone.utc).date().isoformat()
    Path(file).write_text(report(FAULTS, all_rows, versions, today))
