# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json

import pytest
from support.storage.metrics_host import MetricsHost

from ovirt_rdma.cli.host.main import main
from ovirt_rdma.host.paths import DEGRADED_JSON


@pytest.fixture
def host(tmp_path):
    made = MetricsHost(tmp_path)
    made.policy()
    made.mount("nas:/vm")
    made.port("mlx5_0")
    return made


def run(host, capfd, *words):
    code = main(["metrics", "--root", str(host.root), *words])
    out, err = capfd.readouterr()
    return code, out, err


def test_the_metrics_are_printed(host, capfd):
    code, out, err = run(host, capfd)
    assert (code, err) == (0, "")
    assert 'ovirt_rdma_mount_verdict{export="nas:/vm"' in out
    assert "# TYPE ovirt_rdma_mount_verdict gauge\n" in out


def test_they_are_written_into_a_folder(host, capfd, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    code, out, err = run(host, capfd, "--write", str(folder))
    assert (code, err) == (0, "")
    assert out == f"{folder}/ovirt_rdma.prom is written\n"
    assert "ovirt_rdma_port_active" in (folder / "ovirt_rdma.prom").read_text()


def test_a_folder_that_is_missing_is_an_error_with_a_fix(host, capfd):
    code, out, err = run(host, capfd, "--write", "/no/such/folder")
    assert (code, out) == (1, "")
    first, second = err.splitlines()
    assert "/no/such/folder" in first
    assert second.startswith("fix: ")


def test_what_cannot_be_read_is_a_note(host, capfd):
    (host.root / DEGRADED_JSON.strip("/")).write_text("garbage")
    code, out, err = run(host, capfd)
    assert code == 0
    assert err.startswith("note: ")
    assert "ovirt_rdma_exporter_problems 1\n" in out


def test_as_a_document(host, capfd):
    code, out, _ = run(host, capfd, "-o", "json")
    document = json.loads(out)
    assert (code, document["kind"], document["schema_version"]) == (0, "metrics", 1)
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
