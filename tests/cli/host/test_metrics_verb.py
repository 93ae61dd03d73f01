# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.storage.metrics_host import MetricsHost

from ovirt_rdma.host.paths import DEGRADED_JSON, under


@pytest.fixture
def metrics(tmp_path, call):
    """Run ``metrics`` on a host with a mount and a port."""
    made = MetricsHost(tmp_path)
    made.policy()
    made.mount("nas:/vm")
    made.port("mlx5_0")
    return lambda *words: call("metrics", "--root", str(made.root), *words)


def test_the_metrics_are_printed(metrics):
    result = metrics()
    assert (result.code, result.err) == (0, "")
    assert 'ovirt_rdma_mount_verdict{export="nas:/vm"' in result.out
    assert "# TYPE ovirt_rdma_mount_verdict gauge\n" in result.out


def test_they_are_written_into_a_folder(metrics, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    result = metrics("--write", str(folder))
    assert (result.code, result.err) == (0, "")
    assert result.out == f"{folder}/ovirt_rdma.prom is written\n"
    assert "ovirt_rdma_port_active" in (folder / "ovirt_rdma.prom").read_text()


def test_a_folder_that_is_missing_is_an_error_with_a_fix(metrics):
    result = metrics("--write", "/no/such/folder")
    result.refused(1)
    first, second = result.err.splitlines()
    assert "/no/such/folder" in first
    assert second.startswith("fix: ")


def test_what_cannot_be_read_is_a_note(metrics, tmp_path):
    under(tmp_path, DEGRADED_JSON).write_text("garbage")
    result = metrics()
    assert result.code == 0
    assert result.err.startswith("note: ")
    assert "ovirt_rdma_exporter_problems 1\n" in result.out


def test_as_a_document(metrics):
    result = metrics("-o", "json")
    document = result.document
    assert (result.code, document["kind"]) == (0, "metrics")
    assert document["schema_version"] == 1
    assert document["written"] is None
    assert document["problems"] == []
    rows = [
        row
        for row in document["rows"]
        if "ovirt_rdma_connection_sends_total" in row["values"]
    ]
    assert [row["labels"] for row in rows] == [
        {
            "export": "nas:/vm",
            "mountpoint": "/rhev/data-center/mnt/nas:_vm",
            "connection": "0",
            "protocol": "rdma",
        }
    ]
