# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.command_line import run
from support.fakes.fake_hosts import soft_roce
from support.storage.fake_mount import FakeMount
from support.storage.fake_network import FakeNetwork

from ovirt_rdma.cli.host import bench as verb
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.storage.benchmark import measure
from ovirt_rdma.storage.benchmark.measure import MIB
from ovirt_rdma.storage.benchmark.model import load
from ovirt_rdma.storage.benchmark.scratch import Scratch
from ovirt_rdma.storage.readiness import READY, Network

EXPORT = "10.0.0.1:/x"
QUICK = ("--repeats", "2", "--seconds", "1", "--size-mib", "1")


def _fio(rates):
    """Return answers of fio: bytes per second by transport."""

    class Canned(Scratch):
        rate = 0.0

        def mount(self, export, options, *, over_rdma):
            self.rate = rates["rdma" if over_rdma else "tcp"]
            super().mount(export, options, over_rdma=over_rdma)

        def fio(self, arguments, seconds):
            if "--name=layout" in arguments:
                Path(self.file).write_bytes(b"x" * MIB)
            names = ("50.000000", "90.000000", "99.000000", "99.900000")
            side = {
                "bw_bytes": self.rate,
                "iops": self.rate / 4096,
                "io_bytes": MIB,
                "clat_ns": {"percentile": dict.fromkeys(names, 250_000)},
            }
            return json.dumps({"jobs": [{"error": 0, "read": side, "write": side}]})

    return Canned


@pytest.fixture
def bench(tmp_path, capsys, monkeypatch):
    """Run bench on a host with Soft-RoCE whose server answers."""
    host = soft_roce(tmp_path)
    mounts = FakeMount(tmp_path)
    network = FakeNetwork()
    network.rdma["10.0.0.1", 20049] = READY
    for name in ("resolve", "tcp_answers", "rdma_listener"):
        monkeypatch.setattr(Network, name, staticmethod(getattr(network, name)))
    monkeypatch.setattr(verb, "engine", lambda run: measure.Engine("3.35", "libaio"))
    canned = _fio({"rdma": 3e8, "tcp": 1e8})

    def on_host(*words, wanted=canned):
        def made(root="/", **keys):
            return wanted(root, mounts, **keys)

        monkeypatch.setattr(verb, "Scratch", made)
        return run(capsys, "bench", *words, "--root", str(host.path))

    on_host.host, on_host.mounts, on_host.network = host, mounts, network
    return on_host


def test_the_verdict_is_one_sentence_after_the_table(bench):
    result = bench(EXPORT, *QUICK)
    assert (result.code, result.err) == (0, "")
    assert "sequential-read 1 MiB, depth 32" in result.out
    assert "NFS 4.2 over RDMA" in result.out
    assert "RDMA reads 3.0 times TCP here: keep it; no limit was found." in result.out
    assert "RDMA 3.00 times TCP" in result.out
    assert re.search(r"^compared +NFS 4.2$", result.out, re.MULTILINE)
    assert bench.mounts.is_clean()


def test_the_document_is_read_again(bench, tmp_path):
    bench.host.write("/proc/sys/sunrpc/rdma_slot_table_entries", "16")
    result = bench(EXPORT, *QUICK, "-o", "json")
    document = result.document
    assert (document["kind"], document["schema_version"]) == ("benchmark", 1)
    assert document["slots"] == 16
    assert document["verdict"]["better"] == "rdma"
    assert len(document["jobs"]) == 2 * 2 * 5
    file = tmp_path / "old.json"
    file.write_text(result.out)
    assert load(file).hostname == document["hostname"]


def test_the_route_to_the_server_is_read(bench, monkeypatch):
    facts, asked = HostReader.facts, []

    def recorded(reader, routes_to=()):
        asked.extend(routes_to)
        return facts(reader, routes_to)

    monkeypatch.setattr(HostReader, "facts", recorded)
    document = bench(EXPORT, *QUICK, "-o", "json").document
    assert (asked, document["path"]["address"]) == (["10.0.0.1"], "10.0.0.1")


def test_a_server_without_rdma_is_measured_over_tcp(bench):
    bench.network.rdma.clear()
    result = bench(EXPORT, *QUICK)
    assert result.code == 0
    assert "note: RDMA was not measured: 10.0.0.1 refuses RDMA" in result.out
    assert "Only TCP was measured (100 MB/s): nothing can be compared" in result.out


def test_a_dry_run_mounts_nothing(bench):
    result = bench(EXPORT, "--dry-run", "--nfs-version", "3", "-o", "json")
    document = result.document
    assert document["kind"] == "benchmark-plan"
    assert {mount["version"] for mount in document["mounts"]} == {"3"}
    shown = bench(EXPORT, "--dry-run").out
    assert "About 2 min. Nothing was changed." in shown
    assert bench.mounts.commands == []


def test_a_storage_domain_is_refused(bench):
    domain = "c1b2ef3e-0c5e-4f5c-9d3a-6a1b2c3d4e5f"
    (bench.mounts.server / domain / "dom_md").mkdir(parents=True)
    result = bench(EXPORT, *QUICK)
    result.refused(4, f"has the storage domain {domain}", "--yes-write")
    assert bench(EXPORT, *QUICK, "--yes-write").code == 0


@pytest.mark.parametrize(
    "words, part",
    [
        ((), "SERVER:/PATH"),
        (("10.0.0.1",), "is not SERVER:/PATH"),
        ((EXPORT, "--nfs-version", "5"), "'5' is none of 3, 4.0, 4.1, 4.2"),
        ((EXPORT, "--nconnect", "17"), "'17' is not a number from 1 to 16"),
        ((EXPORT, "--seconds", "0"), "'0' is not a number from 1 to 60"),
        ((EXPORT, "--facts", "x"), "unknown arguments: --facts"),
    ],
)
def test_a_usage_error_is_one_sentence(bench, words, part):
    bench(*words).refused(2, part)
    assert bench.mounts.commands == []
