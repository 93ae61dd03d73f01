# SPDX-License-Identifier: GPL-2.0-or-later
"""After the boot of another kernel, journal and ``status`` say which findings differ.

The task ``recheck`` of the daemon records them.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host.daemon_task import TaskRuns

from ovirt_rdma.host.daemon.tasks import (
    KernelFindings,
    Recheck,
    kernel_differences,
    record_after,
)
from ovirt_rdma.host.paths import FINDINGS_JSON, under
from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.system import files

OLD, NEW = "5.14.0-427.el9.x86_64", "5.14.0-503.el9.x86_64"
LOST = "kernel module rpcrdma is missing"


def rule(verdict: str, sentence: str = LOST) -> Rule:
    found = Finding("NFSRDMA-01", HOST, verdict, sentence, "install it")
    return Rule("NFSRDMA-01", lambda view: [found])


@pytest.fixture
def booted(sampled):
    """Boot a host with a kernel, on which the rule has this verdict, and check it.
    Return what the journal gets.
    """

    def boot(kernel: str, verdict: str, sentence: str = LOST):
        host = sampled(rule(verdict, sentence))
        under(host.root, "/proc/sys/kernel/osrelease").write_text(f"{kernel}\n")
        boot.host = host
        runs = TaskRuns(Recheck(str(host.root)), host.root)
        runs.run()
        return runs.said

    return boot


def test_what_another_kernel_lost_is_said_at_the_boot_and_in_status(booted):
    assert booted(OLD, PASS) == []
    assert booted(NEW, FAIL) == [
        f"kernel {NEW}: 1 finding changed since kernel {OLD}",
        f"FAIL NFSRDMA-01 host (was PASS): {LOST}",
    ]
    shown = " ".join(booted.host("status").out.split())
    assert f"With kernel {NEW}, 1 finding changed since kernel {OLD}: FAIL" in shown
    assert "systemctl reload ovirt-rdmad.service" in shown
    document = booted.host("status", "-o", "json").document["kernel_change"]
    assert (document["kernel"], document["before"]) == (NEW, OLD)
    (found,) = document["differences"]
    assert (found["verdict"], found["was"], found["fix"]) == (
        FAIL,
        PASS,
        "install it",
    )


def test_the_same_kernel_says_nothing(booted):
    booted(OLD, PASS)
    assert booted(OLD, FAIL) == []
    assert booted.host("status", "-o", "json").document["kernel_change"] is None


def test_another_kernel_without_a_difference_is_one_line(booted):
    booted(OLD, WARN)
    assert booted(NEW, WARN) == [f"kernel {NEW}: 0 findings changed since kernel {OLD}"]
    assert booted.host("status", "-o", "json").document["kernel_change"] is None


def test_it_is_said_until_it_is_solved(booted):
    booted(OLD, PASS)
    booted(NEW, FAIL)
    assert booted(NEW, FAIL) == []
    assert "since kernel" in " ".join(booted.host("status").out.split())
    booted(NEW, PASS)
    assert "since kernel" not in " ".join(booted.host("status").out.split())
    # And does not return.
    booted(NEW, FAIL)
    assert booted.host("status", "-o", "json").document["kernel_change"] is None


def test_what_another_kernel_solved_is_said_too(booted):
    booted(OLD, FAIL)
    assert booted(NEW, SKIP)[1] == "PASS NFSRDMA-01 host (was FAIL)"


def test_a_record_of_a_kernel_that_no_longer_runs_is_not_shown(booted):
    booted(OLD, PASS)
    booted(NEW, FAIL)
    osrelease = under(booted.host.root, "/proc/sys/kernel/osrelease")
    osrelease.write_text(f"{OLD}\n")
    assert booted.host("status", "-o", "json").document["kernel_change"] is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 9}', "\0"])
def test_a_damaged_record_is_replaced(booted, text):
    booted(OLD, PASS)
    path = under(booted.host.root, FINDINGS_JSON)
    path.write_text(text)
    result = booted.host("status")
    assert result.code == 0
    assert f"note: {path}" in result.err
    assert "it is replaced" in " ".join(booted(NEW, FAIL))
    assert json.loads(path.read_text())["now"]["kernel"] == NEW


def test_a_record_of_a_later_version_is_replaced(booted):
    booted(OLD, PASS)
    path = under(booted.host.root, FINDINGS_JSON)
    path.write_text(
        path.read_text().replace('"schema_version": 1', '"schema_version": 2')
    )
    (said,) = booted(NEW, PASS)
    assert "schema version 2; this one reads 1); it is replaced" in said


def test_a_disk_that_is_full_is_one_sentence(booted, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_atomically", full)
    (said,) = booted(OLD, PASS)
    assert said.startswith("failed: ")
    assert "cannot be written: No space left on device" in said
    assert "fix: free space on the file system of" in said


NAMES = st.sampled_from(("A-01", "B-01"))
BAD = st.builds(
    Finding, NAMES, st.sampled_from(("ib0", "host")), st.sampled_from((FAIL, WARN)),
    st.text(max_size=3), st.just(""),
)  # fmt: skip
FINDINGS = st.lists(BAD, max_size=4, unique_by=lambda f: (f.rule, f.subject)).map(tuple)
BOOTS = st.builds(KernelFindings, st.sampled_from((OLD, NEW)), st.none(), FINDINGS)


@given(st.lists(BOOTS, min_size=1, max_size=6))
def test_a_record_always_has_the_newest_findings_and_only_real_differences(boots):
    record = None
    for boot in boots:
        record = record_after(record, boot)
        assert record.now == boot
        assert (record.before is None) == (kernel_differences(record) == ())
        for found in kernel_differences(record):
            assert found.verdict != found.was
        if record.before is not None:
            assert record.before.kernel != boot.kernel
