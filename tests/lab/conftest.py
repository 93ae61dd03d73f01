# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures with the guests of this folder's tests; they boot at their first use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import topology
from lab.cache import provisioned
from lab.problem import LabProblem, NotProvisioned
from lab.topology import Topology
from lab.vdsm_daemon import VdsmDaemon

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if _HERE in item.path.parents]
    marks = [pytest.mark.lab]
    try:
        provisioned()
    except NotProvisioned as problem:
        marks.append(pytest.mark.skip(reason=f"the lab is not provisioned: {problem}"))
    except LabProblem as problem:
        raise pytest.UsageError(str(problem)) from None
    for item in ours:
        for mark in marks:
            item.add_marker(mark)


@pytest.fixture(scope="session")
def one_guest() -> Iterator[Topology]:
    """Server and hypervisor in one guest. A test that changes it restores it."""
    with topology.one_guest() as lab:
        yield lab


@pytest.fixture(scope="session")
def two_guests() -> Iterator[Topology]:
    """A server and a hypervisor; eth1 and eth2 join them too, and are not used. A test
    that changes anything restores it.
    """
    with topology.two_guests(spare_wires=2) as lab:
        yield lab


@pytest.fixture(scope="module")
def running_vdsmd(
    request: pytest.FixtureRequest, two_guests: Topology
) -> Iterator[VdsmDaemon]:
    """vdsmd with the module's ``POLICY``, and its ``EXPORT_PATHS`` on the server."""
    for path in request.module.EXPORT_PATHS:
        two_guests.nfs.add_export(path)
    daemon = VdsmDaemon(two_guests.hypervisor)
    daemon.load_policy(request.module.POLICY)
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def vdsmd(running_vdsmd: VdsmDaemon) -> Iterator[VdsmDaemon]:
    """The module's vdsmd; nothing is mounted afterwards."""
    yield running_vdsmd
    unmount = "umount -a -t nfs,nfs4 -f -l; rm -rf /rhev/data-center/mnt/*"
    running_vdsmd.guest.run(unmount)
