# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from ovirt_rdma.engine_sdk_tools.hosts import ansible


@pytest.fixture(autouse=True)
def no_engine_here(monkeypatch, tmp_path):
    """Hide the key of an engine on this machine."""
    monkeypatch.setattr(ansible, "ENGINE_KEY", str(tmp_path / "no-key"))
