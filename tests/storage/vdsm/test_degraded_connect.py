# SPDX-License-Identifier: GPL-2.0-or-later
"""Test degraded mounts: their marks have time and reason, are logged once, and end."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from unittest.mock import Mock

import pytest
from support.storage.vdsm_site import NAS, Site

from ovirt_rdma.host.facts.model import DegradedMark, Facts
from ovirt_rdma.storage.mounts import REMOUNT, UNPROVEN, review_all
from ovirt_rdma.storage.readiness import READY

pytestmark = pytest.mark.hypervisor

EXPORT = f"{NAS}:/e"
BOOTED_AT = 1_700_000_000  # 2023-11-14 22:13:20 UTC
DEGRADED_WARNING = "this mount is degraded"


def marks(site: Site) -> list[DegradedMark]:
    """Return the facts that a reader of the host gets."""
    problems: list[str] = []
    found = list(site.root.reader().degraded_marks(problems))
    assert problems == []
    return found


def told(caplog) -> int:
    """Return how often the log says that a mount is degraded, and clear it."""
    count = sum(
        DEGRADED_WARNING in record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING
    )
    caplog.clear()
    return count


def disconnect(site: Site) -> None:
    definition = {"id": "0", "connection": EXPORT, "protocol_version": "4.2"}
    assert site.vdsm.disconnect(definition)[0][1] == 0


@pytest.fixture
def fallen_back(site: Site, caplog) -> Site:
    """An export that prefers RDMA, mounted over TCP a minute ago without a listener."""
    site.rule("prefer-rdma")
    site.network.rdma.clear()
    assert site.connect(EXPORT) == [0]
    assert told(caplog) == 1
    site.pass_time(60)
    return site


def by_hand(site: Site, protocol: str = "tcp") -> None:
    port = ",port=20049" if protocol == "rdma" else ""
    site.kernel.mount_before(EXPORT, site.local_path(EXPORT), f"proto={protocol}{port}")


def _show_another_transport(site: Site) -> None:
    """Let mountstats say tcp although mountinfo says rdma."""
    reader = site.shared.surroundings.reader
    mounts = reader.nfs_mounts

    def odd(*arguments):
        return tuple(replace(mount, protocols=("tcp",)) for mount in mounts(*arguments))

    reader.nfs_mounts = odd


def _mount_facts(site: Site) -> Facts:
    reader = site.shared.surroundings.reader
    facts = reader.mount_facts()
    return replace(facts, nfs_mounts=reader.nfs_mounts())


class TestMark:
    def test_of_a_server_that_is_not_ready(self, fallen_back):
        (mark,) = marks(fallen_back)
        assert mark == DegradedMark(
            mountpoint=fallen_back.local_path(EXPORT),
            export=EXPORT,
            rule="storage",
            wanted="prefer-rdma",
            transport="tcp",
            reason=f"{NAS} refuses RDMA connections",
            since="2023-11-14T23:13:17Z",  # 3 s before an hour of uptime
            mounted_s=3597.0,
        )

    def test_of_a_mount_that_failed(self, site):
        site.rule("prefer-rdma")
        site.kernel.fail(NAS, "rdma")
        assert site.connect(EXPORT) == [0]
        (mark,) = marks(site)
        assert "mounting over RDMA failed: the server answers, but" in mark.reason
        assert "rdma=y" in mark.fix

    @pytest.mark.usefixtures("nfsmount_conf")
    def test_of_a_kernel_that_did_otherwise(self, site, caplog):
        site.rule("prefer-rdma")
        assert site.connect(EXPORT) == [0]
        assert site.kernel.mounted() == [(EXPORT, "tcp")]
        (mark,) = marks(site)
        assert "rdma was requested, but the kernel mounted over tcp" in mark.reason
        assert "nfsmount.conf" in mark.fix
        assert told(caplog) == 1

    @pytest.mark.parametrize(
        "transport, found", [("prefer-rdma", "tcp"), ("require-rdma", "tcp"),
                             ("tcp", "rdma")]
    )  # fmt: skip
    def test_of_a_mount_that_was_there_before(self, site, transport, found):
        site.rule(transport)
        by_hand(site, found)
        site.pass_time(600)
        assert site.connect(EXPORT) == [0]
        (mark,) = marks(site)
        assert (mark.wanted, mark.transport) == (transport, found)
        assert mark.since == "2023-11-14T23:13:17Z"
        assert mark.reason == (
            "it was already mounted when vdsmd first found it to differ from its rule, "
            "at 2023-11-14 23:23:20 UTC"
        )

    def test_of_a_transport_that_cannot_be_told(self, site, caplog):
        _show_another_transport(site)
        site.rule("prefer-rdma")
        assert site.connect(EXPORT) == [0]
        assert told(caplog) == 1
        (mark,) = marks(site)
        assert (mark.wanted, mark.transport) == ("prefer-rdma", "unproven")
        assert "mountinfo: proto=rdma, mountstats: xprt: tcp" in mark.reason
        # Neither the next connect nor a restart logs it again.
        assert site.connect(EXPORT) == [0]
        site.start_vdsmd()
        _show_another_transport(site)
        assert site.connect(EXPORT) == [0]
        assert told(caplog) == 0
        (found,) = review_all(_mount_facts(site), site.policy)
        assert (found.verdict, found.mark, found.since) == (UNPROVEN, mark, mark.since)
        assert REMOUNT in found.fix

    def test_of_one_that_stood_before(self, site, caplog):
        by_hand(site, "rdma")
        _show_another_transport(site)
        site.rule("require-rdma")
        assert site.connect(EXPORT) == [0]
        assert told(caplog) == 1
        (mark,) = marks(site)
        assert mark.transport == "unproven"
        assert "it was already mounted" in mark.reason

    def test_is_not_set_on_what_is_as_the_rule_says(self, site):
        site.rule("tcp")
        assert site.connect(EXPORT) == [0]
        site.rule("require-rdma", server="10.99.0.3")
        by_hand(site)
        assert site.connect(EXPORT) == [0]
        assert not site.marks_file.exists()

    def test_is_readable_for_everybody_and_says_what_it_is(self, fallen_back):
        assert fallen_back.marks_file.stat().st_mode & 0o777 == 0o644
        whole = json.loads(fallen_back.marks_file.read_bytes())
        assert (whole["schema_version"], whole["kind"]) == (1, "degraded-mounts")


class TestToldOnce:
    def test_at_later_connects_and_after_a_restart(self, fallen_back, caplog):
        before = marks(fallen_back)
        for _ in range(2):
            assert fallen_back.connect(EXPORT) == [0]
        fallen_back.start_vdsmd()
        fallen_back.pass_time(86400)
        assert fallen_back.connect(EXPORT) == [0]
        assert told(caplog) == 0
        assert marks(fallen_back) == before

    def test_for_a_mount_that_was_there_before(self, site, caplog):
        site.rule("require-rdma")
        by_hand(site)
        assert site.connect(EXPORT) == [0]
        assert site.kernel.mounts == site.kernel.umounts == []
        assert "already mounted over tcp" in caplog.text
        assert told(caplog) == 1
        before = marks(site)
        site.pass_time(3600)
        site.start_vdsmd()
        assert site.connect(EXPORT) == [0]
        assert told(caplog) == 0
        assert marks(site) == before

    def test_for_a_mount_of_its_own_that_a_later_policy_wants_otherwise(
        self, site, caplog
    ):
        """Without a rule and with one for TCP vdsmd mounts over TCP, rightly."""
        for earlier in ("10.9.9.9", NAS):
            site.rule("tcp", server=earlier)
            assert site.connect(EXPORT) == [0]
            site.rule("prefer-rdma")
            assert site.connect(EXPORT) == [0]
            (mark,) = marks(site)
            assert mark.reason == (
                "it was already mounted when vdsmd first found it to differ from its "
                "rule, at 2023-11-14 23:13:20 UTC"
            )
            disconnect(site)

    def test_again_for_a_new_mount_in_the_same_place(self, fallen_back, caplog):
        disconnect(fallen_back)
        by_hand(fallen_back)
        assert fallen_back.connect(EXPORT) == [0]
        assert told(caplog) == 1
        (mark,) = marks(fallen_back)
        assert mark.since == "2023-11-14T23:14:17Z"
        assert "first found it to differ" in mark.reason

    def test_again_when_the_rule_wants_something_else(self, fallen_back, caplog):
        fallen_back.rule("require-rdma")
        assert fallen_back.connect(EXPORT) == [0]
        assert told(caplog) == 1
        (mark,) = marks(fallen_back)
        # The reason has not changed.
        assert mark.wanted == "require-rdma"
        assert mark.reason == f"{NAS} refuses RDMA connections"
        assert mark.since == "2023-11-14T23:13:17Z"
        assert fallen_back.connect(EXPORT) == [0]
        assert told(caplog) == 0

    def test_although_the_clock_was_set(self, fallen_back, caplog):
        fallen_back.root.booted_at(BOOTED_AT + 7200)
        assert fallen_back.connect(EXPORT) == [0]
        assert told(caplog) == 0

    def test_a_rule_that_wants_tcp_takes_the_mark_away(self, fallen_back, caplog):
        fallen_back.rule("tcp")
        assert fallen_back.connect(EXPORT) == [0]
        assert told(caplog) == 0
        assert marks(fallen_back) == []


class TestHealed:
    def test_by_disconnect_and_connect(self, fallen_back, caplog):
        disconnect(fallen_back)
        fallen_back.network.rdma[NAS, 20049] = READY
        assert fallen_back.connect(EXPORT) == [0]
        assert fallen_back.kernel.mounted() == [(EXPORT, "rdma")]
        assert marks(fallen_back) == []
        assert told(caplog) == 0

    def test_marks_of_mounts_that_are_gone_go_with_the_next_mark(self, fallen_back):
        disconnect(fallen_back)
        assert fallen_back.connect(f"{NAS}:/f") == [0]
        assert [mark.export for mark in marks(fallen_back)] == [f"{NAS}:/f"]

    def test_marks_of_other_mounts_stay(self, fallen_back):
        assert fallen_back.connect(f"{NAS}:/f") == [0]
        assert [mark.export for mark in marks(fallen_back)] == [EXPORT, f"{NAS}:/f"]


class TestFileTrouble:
    @pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b'{"kind": "other"}'])
    def test_a_file_that_is_none_of_ours_counts_as_empty(self, site, caplog, content):
        site.marks_file.write_bytes(content)
        site.rule("prefer-rdma")
        site.network.rdma.clear()
        assert site.connect(EXPORT, f"{NAS}:/f") == [0, 0]
        assert caplog.text.count("is invalid and is ignored") == 1
        assert len(marks(site)) == 2

    def test_without_the_folder_all_goes_on_and_one_line_says_so(self, site, caplog):
        site.marks_file.parent.rmdir()
        site.rule("prefer-rdma")
        site.network.rdma.clear()
        assert site.connect(EXPORT, f"{NAS}:/f") == [0, 0]
        assert caplog.text.count("cannot be written (No such file or directory)") == 1
        assert "fix: systemd-tmpfiles --create" in caplog.text
        assert told(caplog) == 2
        # A mark that could not be written is still in memory.
        assert site.connect(EXPORT) == [0]
        assert told(caplog) == 0
        site.marks_file.parent.mkdir()
        assert site.connect(f"{NAS}:/g") == [0]
        assert len(marks(site)) == 3

    def test_a_bug_in_marking_fails_no_mount(self, site, caplog, monkeypatch):
        broken = Mock(side_effect=KeyError("a bug"))
        monkeypatch.setattr(type(site.shared.marks), "put", broken)
        site.rule("prefer-rdma")
        site.network.rdma.clear()
        assert site.connect(EXPORT) == [0]
        assert site.kernel.mounted() == [(EXPORT, "tcp")]
        assert "updating its mark failed; please report this" in caplog.text
        # At the next connect it is an existing mount.
        assert site.connect(EXPORT) == [0]
