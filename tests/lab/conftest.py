# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures with the guests of this folder's tests; they boot at their first use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from lab import topology
from lab.cache import provisioned
from lab.guest import Guest
from lab.layer import KERNEL, KERNELS, asked_kernel
from lab.problem import LabProblem, NotProvisioned
from lab.topology import Topology
from lab.vdsm_daemon import VdsmDaemon

_HERE = Path(__file__).parent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test marked ``kernels`` run on each of those, unless one is asked for."""
    mark = metafunc.definition.get_closest_marker("kernels")
    if mark and not os.environ.get(KERNEL):
        metafunc.parametrize("kernel", mark.args, indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    try:
        missing = {kernel: _missing(kernel) for kernel in (asked_kernel(), *KERNELS)}
    except LabProblem as problem:
        raise pytest.UsageError(str(problem)) from None
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)
            if missing[_kernel(item)]:
                item.add_marker(pytest.mark.skip(reason=missing[_kernel(item)]))
    yield
    # Those of one kernel together: the guests of a session have one, and have to boot
    # again for another.
    places = [n for n, item in enumerate(items) if _HERE in item.path.parents]
    ours = [items[place] for place in places]
    kernels: dict[Path, set[str]] = {}
    for item in ours:
        kernels.setdefault(item.path, set()).add(_kernel(item))
    ours.sort(key=lambda item: (sorted(kernels[item.path]), item.path, _kernel(item)))
    for place, item in zip(places, ours):
        items[place] = item


def _kernel(item: pytest.Item) -> str:
    """Return the kernel of the guests of a test."""
    call = getattr(item, "callspec", None)
    return (call.params if call else {}).get("kernel") or asked_kernel()


def _missing(kernel: str) -> str:
    """Return why guests cannot have that kernel; nothing if they can."""
    with mock.patch.dict(os.environ, {KERNEL: kernel}):
        try:
            provisioned()
        except NotProvisioned as problem:
            return f"the lab is not provisioned: {problem}"
    return ""


@pytest.fixture(scope="session", autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kernel of guests that boot meanwhile: 6.1, unless test or variable say more.

    A fixture that boots guests for tests on several kernels asks for this one.
    """
    wanted: str = getattr(request, "param", None) or asked_kernel()
    with mock.patch.dict(os.environ, {KERNEL: wanted}):
        yield wanted


@pytest.fixture(scope="session")
def one_guest(kernel: str) -> Iterator[Topology]:
    """Server and hypervisor in one guest. A test that changes it restores it."""
    with topology.one_guest() as lab:
        yield lab


@pytest.fixture(scope="session")
def two_guests(kernel: str) -> Iterator[Topology]:
    """A server and a hypervisor; eth1 and eth2 join them too, and are not used. A test
    that changes anything restores it.
    """
    with topology.two_guests(spare_wires=2) as lab:
        yield lab


@pytest.fixture(scope="module")
def guest(kernel: str) -> Iterator[Guest]:
    """A hypervisor without a device of RDMA, for one module."""
    with Guest("hypervisor") as booted:
        yield booted


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
