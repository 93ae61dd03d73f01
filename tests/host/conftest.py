# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_root import FakeRoot
from support.storage.vdsm_fixtures import loaded_vdsm

__all__ = ["loaded_vdsm"]


@pytest.fixture
def host(tmp_path):
    """A host that has only ``lo``."""
    return FakeRoot(tmp_path)
