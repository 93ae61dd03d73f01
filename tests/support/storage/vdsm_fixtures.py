# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures with a VDSM in a known state; the conftest of a folder imports them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.storage.fake_kernel import FakeKernel
from support.storage.vdsm_under_test import VdsmUnderTest, load_vdsm


@pytest.fixture(scope="session")
def loaded_vdsm() -> VdsmUnderTest:
    return load_vdsm()


@pytest.fixture
def vdsm(loaded_vdsm: VdsmUnderTest, tmp_path: Path) -> Iterator[VdsmUnderTest]:
    """VDSM with its stock registry; mounts go below ``tmp_path/mnt``."""
    with loaded_vdsm.fresh(tmp_path / "mnt"):
        yield loaded_vdsm


@pytest.fixture
def kernel(vdsm: VdsmUnderTest, tmp_path: Path) -> Iterator[FakeKernel]:
    """The fake kernel of ``vdsm``; its root is ``tmp_path/root``."""
    with vdsm.fake_mounts(tmp_path / "root") as fake:
        yield fake
