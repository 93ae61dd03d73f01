# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_changes import changing
from support.fakes.fake_hosts import connectx3_ib


@pytest.fixture
def host(tmp_path):
    """ib0 and ib1 of a ConnectX-3, which changes can be made to."""
    return changing(connectx3_ib, tmp_path)
