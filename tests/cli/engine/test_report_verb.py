# SPDX-License-Identifier: GPL-2.0-or-later
"""``ovirt-rdma report`` writes a page whole or not at all, and prints a document."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from engine_double import EngineDouble
from support.engine.engine_command_line import run_engine
from support.engine.report_page import read_page
from support.engine.report_site import site
from support.storage.benchmarks import benchmark

from ovirt_rdma.cli.engine import session
from ovirt_rdma.host.facts.model import to_json
from ovirt_rdma.host.system import files
from ovirt_rdma.storage.benchmark.model import as_document
from ovirt_rdma.storage.benchmark.verdict import verdict

pytestmark = pytest.mark.engine

TOP = Path(__file__).parents[3]


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """Run the verb for four hosts in a folder of its own; ``door`` reports for them."""
    monkeypatch.setattr(session, "POLICY_YAML", str(tmp_path / "none.yaml"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    world, door = site(4, ("data1", "data2"))
    with EngineDouble(world) as double:

        def act(*words, door=door):
            return run_engine(capsys, double, door, "report", *words)

        act.world, act.door, act.double = world, door, double
        yield act
        assert double.strict_errors == []
        assert not any(seen.changes for seen in double.requests)


def names():
    return [path.name for path in Path().iterdir()]


def test_a_page_is_written(call):
    result = call("fabric.html")
    assert result.code == 0
    assert "Of 4 hosts, 1 has a failed check." in result.out
    assert "fabric.html is written:" in result.out
    text = read_page(Path("fabric.html").read_bytes()).text
    for words in ("host01", "data2", "mlx5_0/1 is DOWN"):
        assert words in text
    assert names() == ["fabric.html"]


def entries(page="fabric.html"):
    """Return what needs attention: the text of each entry by the id of its anchor."""
    html = read_page(Path(page).read_bytes())
    (section,) = (
        one
        for one in html.all("section")
        if one.attributes["aria-labelledby"] == "problems"
    )
    items = {
        i.attributes["id"]: [p.text for p in i.all("p")] for i in section.all("li")
    }
    links = [
        a.attributes["href"].lstrip("#")
        for table in html.all("table")
        if table.attributes.get("class") == "matrix"
        for a in table.all("a")
    ]
    return items, links


def test_a_dead_port_is_one_entry_with_all_that_follows(call):
    """Not four: the port, the rules, the servers, and the domains."""
    call("fabric.html")
    items, links = entries()
    ((id, texts),) = items.items()
    assert texts[:2] == [texts[0], "mlx5_0/1 is DOWN"]
    assert "Failed, 1 host:" in texts[0]
    assert "host03" in texts[0]
    below = " ".join(texts[texts.index("Seen with it:") + 1 :])
    for words in (
        "IB-PORT-01: mlx5_0/1 is DOWN",
        "NFSRDMA-03: no RDMA port is ACTIVE",
        "not ready for RDMA to nfs1.example.com",
        "data1, data2",
        "DOMAIN runs over tcp",
        "domain heal data1 data2",
    ):
        assert words in below
    # The cells of rules, ports, servers, data1 and data2 lead to it.
    assert links == [id] * 5


def test_another_host_on_tcp_is_another_entry(call):
    host = call.world.host("host04")
    host.mounts[next(iter(host.mounts))] = "tcp"
    call("fabric.html")
    (_, port), (_, tcp) = sorted(entries()[0].items(), key=lambda one: one[1][0])
    assert ("host03" in port[0], "host04" in tcp[0]) == (True, True)
    assert "Seen with it:" not in tcp


def test_a_host_without_the_add_on_is_one_entry(call):
    host = call.world.host("host03")
    host.addon, host.policy_text, host.hooks, host.rdma_ready = False, None, [], True
    call("fabric.html")
    ((_, texts),) = entries()[0].items()
    assert texts[1].startswith("the command ovirt-rdma-host is missing on host03")
    assert "the engine lists no hook of ovirt-rdma for the host" in texts


def test_the_document_has_its_schema(call):
    call.world.host("host02").reachable = False
    call.world.host("host04").addon = False
    found = call("-o", "json").document
    assert (found["kind"], found["schema_version"]) == ("report", 1)
    schema = json.loads((TOP / "docs/report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema)
    first, silent = found["hosts"][:2]
    assert first["devices"][0]["ports"][0]["attached"][0]["netdev"] == "ib0"
    assert first["paths"][0]["transports"] == {"rdma": 2}
    assert silent["devices"] is silent["steps"] is None
    assert found["domains"][0]["used"] == {"rdma": 1, "tcp": 1, "unknown": 2}
    assert found["transports"]["of"] == "domains"
    assert [row["name"] for row in found["checks"]["rows"]] == [
        host["name"] for host in found["hosts"]
    ]
    assert names() == []


def _result(path, **more):
    made = replace(benchmark(), export="nfs1.example.com:/exports/data1", **more)
    path.write_text(json.dumps(as_document(made, verdict(made))))
    return str(path)


def test_results_of_bench_are_shown(call, tmp_path):
    one = _result(tmp_path / "1.json", hostname="host01")
    other = _result(tmp_path / "2.json", hostname="host02.example.com")
    result = call("a.html", "-o", "json", "--bench", one, "--bench", other)
    schema = json.loads((TOP / "docs/report.schema.json").read_text())
    jsonschema.validate(result.document, schema)
    found = result.document["benchmarks"]
    assert [(b["host"], b["domain"], b["better"]) for b in found] == [
        ("host01", "data1", "rdma"),
        ("host02", "data1", "rdma"),
    ]
    assert found[0]["rows"][0]["load"]["name"] == "sequential-write"
    assert found[0]["rows"][0]["bytes_per_s"]["middle"] == 5e9
    text = read_page(Path("a.html").read_bytes()).text
    assert "RDMA reads 2.0 times TCP here: keep it" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("{", "it is not JSON"),
        ('{"kind": "facts", "schema_version": 1}', "kind is 'facts'"),
        ('{"kind": "benchmark", "schema_version": 9}', "a newer version of ovirt-rdma"),
        ('{"kind": "benchmark", "schema_version": 1}', "taken_at is missing"),
    ],
)
def test_what_is_no_result_is_one_sentence_before_anyone_is_asked(
    call, tmp_path, text, words
):
    good, file = _result(tmp_path / "good.json"), tmp_path / "odd.json"
    if text is not None:
        file.write_text(text)
    refused = call("a.html", "--bench", good, "--bench", str(file))
    refused.refused(1, f"{file} is no result of bench", words)
    assert names() == []
    assert call.double.requests == []


def test_an_existing_file_is_replaced_only_on_request(call):
    Path("a.html").write_text("old")
    call("a.html").refused(1, "a.html exists", "--replace")
    assert Path("a.html").read_text() == "old"
    assert call("a.html", "--replace").code == 0
    assert Path("a.html").read_bytes().startswith(b"<!DOCTYPE html>")


def link_to_a_page(name):
    Path("../theirs.html").write_text("theirs")
    Path(name).symlink_to("../theirs.html")


@pytest.mark.parametrize("words", [(), ("--replace",)])
def test_a_link_is_no_file_of_report(call, words):
    link_to_a_page("a.html")
    call("a.html", *words).refused(1, "a.html is no plain file")
    assert Path("../theirs.html").read_text() == "theirs"
    assert Path("a.html").is_symlink()


@pytest.mark.parametrize(
    "make", [os.mkdir, os.mkfifo, lambda name: Path(name).symlink_to("/dev/null")]
)
def test_what_is_no_plain_file_is_never_replaced(call, make):
    make("a.html")
    call("a.html", "--replace").refused(1, "a.html is no plain file")
    assert not Path("a.html").is_file()
    assert len(names()) == 1


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        ((), 2, ("the file of the page is missing", "-o json")),
        (("fabric",), 2, ("'fabric' does not end in .html",)),
        (("",), 2, ("the file name is empty",)),
        (("no/such/a.html",), 1, ("there is no such folder",)),
        (("a.html", "--datacenter", "dc"), 2, ("no data center 'dc'",)),
    ],
)
def test_bad_arguments_are_one_sentence_and_leave_nothing(call, words, code, parts):
    call(*words).refused(code, *parts)
    assert names() == []


def test_hosts_are_not_asked_for_a_page_that_cannot_be_written(call):
    asked = []
    call.door.reports = lambda hosts, done=None: asked.append(hosts)
    Path("a.html").write_text("old")
    call("a.html").refused(1, "exists")
    call("no/such/a.html").refused(1, "no such folder")
    assert asked == []
    assert call.double.requests == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_write_that_fails_leaves_nothing(call, monkeypatch, number):
    def full(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", full)
    call("a.html").refused(1, f"a.html cannot be written: {os.strerror(number)}")
    assert names() == []
    Path("b.html").write_text("old")
    call("b.html", "--replace").refused(1, "b.html cannot be written")
    assert Path("b.html").read_text() == "old"
    assert names() == ["b.html"]


def test_a_file_that_came_meanwhile_is_not_replaced(call):
    reports = call.door.reports

    def slow(hosts, done=None):
        Path("a.html").write_text("somebody else's")
        return reports(hosts, done)

    call.door.reports = slow
    call("a.html").refused(1, "a.html exists")
    assert Path("a.html").read_text() == "somebody else's"
    assert names() == ["a.html"]


def test_the_mode_follows_the_umask(call):
    before = os.umask(0o027)
    try:
        call("a.html")
    finally:
        os.umask(before)
    assert Path("a.html").stat().st_mode & 0o777 == 0o640


def test_the_portal_gets_its_data_readable_for_root_alone(call):
    assert "p.json is written: " in call("--portal", "p.json").out
    first = json.loads(Path("p.json").read_text())
    assert (first["kind"], len(first["hosts"])) == ("portal", 4)
    assert Path("p.json").stat().st_mode & 0o777 == 0o600
    call.world.host("host02").reachable = False
    before = Path("p.json").stat().st_ino
    assert call("a.html", "--portal", "p.json").code == 0
    again = json.loads(Path("p.json").read_text())
    assert [host["worst"] for host in again["hosts"]].count("unknown") == 1
    # A new file: whoever reads the old one has all of it.
    assert Path("p.json").stat().st_ino != before
    assert sorted(names()) == ["a.html", "p.json"]


def test_where_the_portal_s_data_cannot_be_written(call):
    call("--portal", "p.html").refused(2, "'p.html' does not end in .json")
    link_to_a_page("p.json")
    call("--portal", "p.json").refused(1, "p.json is no plain file")
    assert call.double.requests == []


def test_without_access_to_hosts_the_report_says_so(call):
    result = call("a.html", door=None)
    assert result.code == 0
    assert "the hosts were not asked" in result.err
    text = read_page(Path("a.html").read_bytes()).text
    assert "The hosts were not asked" in text
    assert "no report from the host" in text


def test_dumps_of_other_versions(call, tmp_path):
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    its = call.door.reports(list(call.world.hosts.values()))
    for name in ("host01", "host02", "host03"):
        (dumps / f"{name}.facts.json").write_text(to_json(its[name].facts))
    newer = json.loads((dumps / "host02.facts.json").read_text())
    newer["schema_version"] = 99
    (dumps / "host02.facts.json").write_text(json.dumps(newer))
    (dumps / "host03.facts.json").write_text("{")
    result = call("a.html", "-o", "json", "--facts-dir", str(dumps), door=None)
    hosts = {host["name"]: host for host in result.document["hosts"]}
    assert "99" in hosts["host02"]["problem"]
    for name in ("host02", "host03", "host04"):
        assert hosts[name]["devices"] is None
        assert hosts[name]["problem"]
        assert hosts[name]["worst"] in ("fail", "unknown")
    assert "schema version 99" in read_page(Path("a.html").read_bytes()).text
