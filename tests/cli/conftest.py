# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from command_line import Result, run
from vdsm_fixtures import loaded_vdsm

from ovirt_rdma.storage import network_probe

__all__ = ["loaded_vdsm"]


@pytest.fixture
def host(tmp_path, capsys):
    """Run ovirt-rdma-host below an empty root."""

    def on_host(*words: str) -> Result:
        return run(capsys, *words, "--root", str(tmp_path))

    on_host.root = tmp_path
    return on_host


@pytest.fixture
def call(capsys):
    """Run ovirt-rdma-host with exactly these words."""
    return lambda *words: run(capsys, *words)


@pytest.fixture
def no_network(monkeypatch):
    """Fail where anybody asks the network."""

    def asked(*words):
        raise AssertionError(f"the network was asked: {words}")

    for name in ("resolve", "tcp_answers", "rdma_listener", "mountd"):
        monkeypatch.setattr(network_probe, name, asked)
