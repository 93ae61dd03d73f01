# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.engine.told_hosts import facts, host, rules, status
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.hosts.report import (
    DumpFolder,
    FolderProblem,
    HostReport,
    reports_of,
)
from ovirt_rdma.host.facts.model import to_json

pytestmark = pytest.mark.hypervisor


def dump(folder, name, hostname="elsewhere"):
    (folder / name).write_text(to_json(replace(facts(), hostname=hostname)))


def told(folder, there=None):
    there = there or host()
    return DumpFolder(folder).reports([there])[there.name]


@pytest.mark.parametrize(
    "file", ["hv1.facts.json", "hv1.json", "hv1.example.com.facts.json"]
)
def test_facts_are_found_by_name_or_address(tmp_path, file):
    dump(tmp_path, file, "x")
    dump(tmp_path, "hv2.json", "hv1")
    found = told(tmp_path)
    assert (found.problem, found.facts.hostname) == ("", "x")
    assert found.status is None
    assert found.read_at == (tmp_path / file).stat().st_mtime


def test_name_goes_before_address(tmp_path):
    dump(tmp_path, "hv1.facts.json", "right")
    dump(tmp_path, "hv1.example.com.facts.json", "wrong")
    assert told(tmp_path).facts.hostname == "right"


def test_whole_report(tmp_path):
    dump(tmp_path, "hv1.facts.json")
    (tmp_path / "hv1.status.json").write_text(json.dumps(status(rules("tcp"))))
    (tmp_path / "hv1.policy.yaml").write_text(rules("tcp"))
    found = told(tmp_path)
    assert found.policy_text == rules("tcp")
    assert found.policy_digest == status(rules("tcp"))["policy"]["digest"]


def test_a_link_that_cannot_be_followed_is_no_dump(tmp_path):
    dump(tmp_path, "hv1.json")
    (tmp_path / "hv1.facts.json").symlink_to("x" * 300)
    assert told(tmp_path).problem == ""


def test_host_that_the_folder_does_not_have(tmp_path):
    dump(tmp_path, "hv2.json", "hv2")
    found = told(tmp_path)
    assert found.facts is None
    assert "has no facts of hv1" in found.problem
    assert "ovirt-rdma-host facts -o json > hv1.facts.json" in found.fix


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff", b'{"schema_version": 99}', b"null"]
)
def test_broken_dump_is_a_sentence(tmp_path, content):
    (tmp_path / "hv1.facts.json").write_bytes(content)
    found = told(tmp_path)
    assert found.facts is None
    assert "hv1.facts.json" in found.problem
    assert found.fix


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("hv1.status.json", b"{", "is not JSON"),
        ("hv1.status.json", b'{"kind": "facts"}', "status -o json"),
        ("hv1.status.json", b"\xff\xfe", "is not JSON"),
        ("hv1.policy.yaml", b"\xff", "is not UTF-8"),
    ],
)
def test_odd_file_beside_the_facts_is_told_and_facts_stay(
    tmp_path, name, content, words
):
    dump(tmp_path, "hv1.facts.json")
    (tmp_path / name).write_bytes(content)
    found = told(tmp_path)
    assert found.facts is not None
    assert words in found.problem
    assert (found.status, found.policy_text) == (None, None)


def test_folder_that_is_none(tmp_path):
    with pytest.raises(FolderProblem, match="No such file"):
        DumpFolder(tmp_path / "gone")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(FolderProblem, match="Not a directory"):
        DumpFolder(file)


def test_other_things_in_the_folder_are_passed_over(tmp_path):
    dump(tmp_path, "hv1.json")
    (tmp_path / "hv1.status.json").mkdir()
    (tmp_path / "README").touch()
    (tmp_path / ".json").touch()
    (tmp_path / "hv3.json").symlink_to("nowhere")
    assert told(tmp_path).problem == ""


def test_nothing_is_sent_through_a_folder(tmp_path):
    with problem("facts-dir-needs-dry-run", tmp_path, "--dry-run") as caught:
        DumpFolder(tmp_path).push_policy([host()], "version: 1\n")
    assert caught.type is FolderProblem


def test_reports_come_in_rounds_and_none_is_kept():
    asked = []

    class Door:
        def reports(self, hosts, done=None):
            asked.append([one.name for one in hosts])
            answers = {}
            for one in hosts:
                if one.name != "hv3":
                    answers[one.name] = HostReport(one.name, facts())
                done(one.name)
            return answers

        def push_policy(self, hosts, text, done=None):
            raise AssertionError("this must send nothing")

    hosts, done = [host(f"hv{number}") for number in range(5)], []
    found = list(reports_of(hosts, Door(), done.append, at_once=2))
    assert asked == [["hv0", "hv1"], ["hv2", "hv3"], ["hv4"]]
    assert [there.name for there, _ in found] == done
    assert found[3][1].problem == "no answer from hv3"
