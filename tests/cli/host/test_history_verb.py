# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from support.host import sample_journal
from support.host.sample_journal import (
    AT,
    BOOT,
    MODE,
    OPTIONS,
    TSO,
    done_run,
    rolled_back_run,
)

from ovirt_rdma.host.changes import journal
from ovirt_rdma.host.changes.journal import APPLY, Run
from ovirt_rdma.host.paths import JOURNAL, under

TABLE = """\
RUN  WHEN (UTC)        BY                 OUTCOME      APPLIED  STEPS
3    2026-01-02 03:04  apply              interrupted  1        MODOPT-02/mlx4_core
2    2026-01-02 03:04  before_vdsm_start  rolled back  0        IPOIB-MODE-01/ib0
                                                                the adapter is gone
1    2026-01-02 03:04  apply              done         2        IPOIB-TSO-01/ib0, \
IPOIB-MODE-01/ib0
"""
ACTS = """\

run 3
  STATE       STEP                 VALUE
  incomplete  MODOPT-02/mlx4_core  /etc/modprobe.d/ovirt-rdma.conf: none -> \
a file of 2 lines

run 2
  STATE        STEP               VALUE
  rolled back  IPOIB-MODE-01/ib0  infiniband.transport-mode of the profile 5f1a: \
datagram -> connected

run 1
  STATE    STEP               VALUE
  applied  IPOIB-TSO-01/ib0   tx-tcp-segmentation of ib0: on -> off
  applied  IPOIB-MODE-01/ib0  infiniband.transport-mode of the profile 5f1a: \
datagram -> connected
"""


@pytest.fixture
def written(host):
    sample_journal.write(
        host.root,
        done_run(1, TSO, MODE),
        rolled_back_run(2, MODE, "the adapter is gone"),
        Run(
            *(3, APPLY, AT.format(3)),
            by="ovirt-rdma-host apply",
            acts=(replace(OPTIONS, run=3, boot=BOOT),),
        ),
    )
    return host


def test_the_newest_run_comes_first(written):
    shown = written("history")
    assert (shown.code, shown.err) == (0, "")
    more = "3 steps can be reverted.\nnext: ovirt-rdma-host history -v\n"
    assert shown.out == TABLE + more


def test_each_change_with_its_values(written):
    shown = written("history", "-v")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == TABLE + ACTS


def test_document(written):
    document = written("history", "-o", "json").document
    assert (document["schema_version"], document["kind"]) == (1, "history")
    three, two, one = document["runs"]
    assert (three["outcome"], three["ended"]) == (None, None)
    assert (two["verb"], two["outcome"]) == ("hook", "rolled back")
    assert two["acts"][0]["undone_by"] == 2
    assert [act["held"] for act in one["acts"]] == [True, True]
    assert one["acts"][0]["changes"] == [
        {
            "kind": "offload",
            "target": "ib0",
            "name": "tx-tcp-segmentation",
            "before": "on",
            "after": "off",
        }
    ]


def test_a_run_that_awaits_confirmation(host):
    run = done_run(1, TSO, confirm_by=1767323000)
    sample_journal.write(host.root, run)
    told = "awaits confirmation until 2026-01-02 03:03:20 UTC\n"
    assert told in host("history").out
    sample_journal.write(host.root, replace(run, confirmed=AT.format(2)))
    assert told not in host("history").out


def test_no_journal(host):
    shown = host("history")
    assert (shown.code, shown.out) == (
        0,
        "Nothing has been changed on this host yet.\n",
    )
    assert host("history", "-o", "json").document["runs"] == []


def test_a_damaged_journal_is_a_sentence(written):
    path = under(written.root, JOURNAL)
    path.write_text(path.read_text().replace('"on"', '"of"'))
    written("history").refused(1, f"{path}: it is damaged", "fix: ")


def test_not_root(written, monkeypatch):
    def denied(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(journal, "read_own_file", denied)
    path = under(written.root, JOURNAL)
    written("history").refused(
        1, f"{path} may be read by root only", "fix: run this command as root"
    )
