# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide the packages, and machines to install them on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from support.packages.built import built
from support.packages.machine import Machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.rpm)


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    if shutil.which("rpmbuild") is None:
        pytest.skip("rpmbuild is not installed: apt install rpm")


@pytest.fixture(scope="session", params=[9, 10], ids=["el9", "el10"])
def el(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="session")
def packages(el: int) -> dict[str, Path]:
    """The packages for each EL."""
    return built(el)


@pytest.fixture(scope="session")
def new() -> dict[str, Path]:
    """The packages for EL9."""
    return built(9)


@pytest.fixture(scope="session")
def earlier() -> dict[str, Path]:
    """The packages of an earlier version for EL9."""
    return built(9, earlier=True)


@pytest.fixture
def make_machine(
    tmp_path: Path, new: dict[str, Path], earlier: dict[str, Path]
) -> Iterator[Callable[..., Machine]]:
    """Returns a machine that has the packages of both versions as files."""
    made: list[Machine] = []

    def make(**options: bool) -> Machine:
        packages = [*new.values(), *earlier.values()]
        machine = Machine(tmp_path / f"machine{len(made)}", packages, **options)
        made.append(machine)
        return machine

    yield make
    for machine in made:
        machine.close()


@pytest.fixture
def machine(make_machine: Callable[..., Machine]) -> Machine:
    return make_machine()
