# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the verbs of ``ovirt-rdma`` that only read: domains and hosts."""

from __future__ import annotations

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.hosts import our_hooks
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor

from ovirt_rdma.cli.engine import session
from ovirt_rdma.engine_sdk_tools.hosts.report import POINTS
from ovirt_rdma.host.facts.model import to_json

pytestmark = pytest.mark.hypervisor

RULE = (
    "version: 1\nnfs:\n  rules:\n"
    "  - name: nas\n    server: nfs1.example.com\n    path: /exports/data1\n"
    "    transport: prefer-rdma\n"
)


@pytest.fixture
def site(capsys, tmp_path, monkeypatch):
    """Three hosts with the add-on, and a function that runs the command.

    Two hosts mount data1 over RDMA, as their policy says; data2 is mounted over TCP.
    """
    monkeypatch.setattr(session, "POLICY_YAML", str(tmp_path / "none.yaml"))
    world = sample_world(hosts=3, iso=True, iscsi=True, addon=True)
    for name in ("host01", "host02", "host03"):
        host = world.host(name)
        host.policy_text = RULE
        host.hooks = our_hooks()
        if name != "host03":
            host.mounts["nfs1.example.com:/exports/data1"] = "rdma"
    with EngineDouble(world) as double:

        def call(*words, door=True):
            way = DoubleDoor(world) if door else None
            return run_engine(capsys, double, way, *words)

        call.world, call.double = world, double
        yield call
        assert double.strict_errors == []
        assert not any(seen.changes for seen in double.requests)


def cells(document):
    """Return the cells of a document by row and column name: verdict and text."""
    return {
        row["name"]: {
            column["name"]: (cell["verdict"], cell["text"])
            for column, cell in zip(document["columns"], line)
        }
        for row, line in zip(document["rows"], document["cells"])
    }


def into_maintenance(world):
    for host in world.hosts.values():
        host.status, host.mounts = "maintenance", {}


NOTHING = {
    "no host": ("hosts check", "There is no host.", lambda world: world.hosts.clear()),
    "no host of its domain": (
        "domain verify",
        "Nothing was verified: no host has to mount these domains now.",
        lambda world: world.hosts.clear(),
    ),
    "no domain": (
        "domain verify",
        "There is no NFS storage domain in a data center.",
        lambda world: world.domains.clear(),
    ),
    "in maintenance": (
        "domain verify data1",
        "Nothing was verified: no host has to mount these domains now.",
        into_maintenance,
    ),
}


@pytest.mark.parametrize(("verb", "said", "remove"), NOTHING.values(), ids=NOTHING)
def test_nothing_to_look_at_is_not_good(site, verb, said, remove):
    remove(site.world)
    result = site(*verb.split())
    assert result.code == 3
    assert said in result.out
    assert site(*verb.split(), "--allow-none").code == 0
    document = site(*verb.split(), "-o", "json")
    assert (document.code, document.document["worst"]) == (3, "none")
    assert said in document.err


def test_list_says_why_a_status_is_unknown(site):
    site.world.domain("iso").status = "unknown"
    cause = "iso is in an unknown status because host01, the SPM, has not reported it"
    assert f"note: {cause} yet" in " ".join(site("domain", "list").err.split())
    document = site("domain", "list", "-o", "json").document
    assert any(cause in text for text in document["problems"])


def test_list_shows_what_the_engine_requests(site):
    result = site("domain", "list")
    assert result.code == 0
    lines = {
        line.split()[0]: " ".join(line.split()) for line in result.out.splitlines()
    }
    assert set(lines) == {"DOMAIN", "data1", "data2", "iso"}
    its = "data (master) active nfs1.example.com:/exports/data1 4.2 tcp"
    assert lines["data1"].endswith(its)
    found = site("domain", "list", "-o", "json").document
    assert found["kind"] == "domain-list"
    first = found["domains"][0]
    assert (first["name"], first["engine_asks"]) == ("data1", "tcp")


def test_list_of_a_data_center(site):
    assert site("domain", "list", "--datacenter", "dc1").code == 0


def test_verify_fails_where_rdma_is_asked_for_and_not_used(site):
    result = site("domain", "verify", "-o", "json")
    assert result.code == 3
    found = cells(result.document)
    assert found["host01"]["data1"] == ("ok", "rdma")
    assert found["host03"]["data1"] == ("fail", "tcp")
    assert found["host03"]["data2"] == ("ok", "tcp")
    assert set(found["host01"]) == {"data1", "data2", "iso"}
    assert result.document["worst"] == "fail"


def test_verify_of_what_is_as_asked_is_0(site):
    result = site("domain", "verify", "data2", "iso")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[0].split() == ["HOST", "data2", "iso"]


def test_verify_names_host_reason_and_cure(site):
    out = site("domain", "verify", "data1").out
    assert "FAIL host03: data1 runs over tcp" in out
    assert "rule 'nas' prefers RDMA" in out
    # The kernel would share data2's and iso's connection over TCP again.
    assert "fix: first, choose one transport for all NFS 4 exports of the server" in out
    assert "; then ovirt-rdma domain heal data1\n" in out


def test_silent_host_is_unknown_and_never_good(site):
    site.world.host("host02").reachable = False
    result = site("domain", "verify", "data2")
    assert result.code == 3
    assert "? host02: host02.example.com does not answer over SSH" in result.out


def test_without_a_way_to_hosts_all_is_unknown(site):
    result = site("domain", "verify", "data2", door=False)
    assert result.code == 3
    assert result.out.count("? unknown") == 3
    assert "note: the hosts were not asked" in result.err


def test_a_domain_that_is_not_on_nfs(site):
    site("domain", "verify", "block1").refused(2, "block1 is on iscsi, not NFS")


def test_verify_from_a_folder_of_dumps(site, tmp_path):
    reports = DoubleDoor(site.world).reports(list(site.world.hosts.values()))
    for name in ("host01", "host02"):
        (tmp_path / f"{name}.facts.json").write_text(to_json(reports[name].facts))
    words = ("domain", "verify", "data1", "--facts-dir", str(tmp_path))
    result = site(*words, "-o", "json", door=False)
    found = cells(result.document)
    assert result.code == 3
    assert found["host01"]["data1"] == ("ok", "rdma")
    assert found["host03"]["data1"] == ("unknown", "unknown")
    site("domain", "verify", "--facts-dir", "/nonexistent", door=False).refused(
        1, "/nonexistent: No such file"
    )


def test_hosts_list_has_hooks_and_ipoib_nics(site):
    site.world.host("host02").status = "maintenance"
    out = site("hosts", "list", door=False).out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[1] == "host01 host01.example.com dc1 cl1 up (SPM) 0 4 of 4 ib0"
    assert "maintenance" in lines[2]
    first = site("hosts", "list", "-o", "json", door=False).document["hosts"][0]
    assert sorted(first["hooks"]) == sorted(POINTS)
    assert first["ipoib_nics"][0]["mtu"] == 2044


def test_hosts_check_knows_our_hooks(site):
    del site.world.host("host02").hooks[0]
    site.world.host("host03").hooks = []
    found = cells(site("hosts", "check", "-o", "json").document)
    assert [row["hooks"] for row in found.values()] == [
        ("ok", "ok"),
        ("fail", "incomplete"),
        ("fail", "missing"),
    ]
    assert found["host01"]["enabled"] == ("ok", "vdsmd")
    assert found["host01"]["running"] == ("ok", "launcher")
    assert found["host01"]["rdma ports"][0] == "ok"


def test_hosts_check_tells_drift(site, tmp_path):
    site.world.host("host02").policy_text = RULE.replace("prefer", "require")
    found = cells(site("hosts", "check", "-o", "json").document)
    assert [row["policy"][0] for row in found.values()] == ["ok", "fail", "ok"]
    mine = tmp_path / "mine.yaml"
    mine.write_text(site.world.host("host02").policy_text)
    result = site("hosts", "check", "host02", "--policy", str(mine), "-o", "json")
    assert cells(result.document)["host02"]["policy"][0] == "ok"


def test_hosts_check_of_some_hosts(site):
    result = site("hosts", "check", "host*2", "-o", "json")
    assert list(cells(result.document)) == ["host02"]


def test_hosts_check_wants_a_policy_in_order(site, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("version: 1\nnfs: 3\n")
    site("hosts", "check", "--policy", str(mine)).refused(3, "mine.yaml:2: nfs")


def test_hosts_list_counts_every_machine(site):
    host = site.world.host("host02")
    host.vms, host.inactive_vms = ["vm1", "vm2", "vm3"], ["vm2", "vm3"]
    hosts = site("hosts", "list", "-o", "json", door=False).document["hosts"]
    assert [one["vms"] for one in hosts] == [0, 3, 0]
