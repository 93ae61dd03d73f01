# SPDX-License-Identifier: GPL-2.0-or-later
"""Test what is read from the kernel's log of a guest that enforces SELinux."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.cache import Provision
from lab.labelled_root import POLICY, denials, labelled_root
from lab.problem import LabProblem

pytestmark = pytest.mark.selftest

# As Linux 6.12 writes it (kernel/audit.c, security/selinux/avc.c).
LINE = (
    "[   27.9] audit: type=1400 audit(1795930557.1:4): avc:  denied  {{ search }} for  "
    'pid={0} comm="x" {1}ino={0} scontext=u:r:a_t:s0 tclass=dir permissive=0\n'
)
SAID = '{ search } for  comm="x" scontext=u:r:a_t:s0 tclass=dir permissive=0'


def test_a_denial_is_named_once() -> None:
    other = "[    3.1] audit: type=1130 audit(1795930555.2:1): pid=1 res=success\n"
    assert denials(other) == []
    assert denials(LINE.format(1, "") + other + LINE.format(20, "")) == [SAID]


def test_only_the_labs_own_files_are_left_out() -> None:
    ours = "path=2F6D656D66643A7374646F757420 "
    assert denials(LINE.format(1, ours)) == []
    assert denials(LINE.format(1, "path=2F6D6E74 ")) != []


def test_a_process_that_lost_its_context_counts() -> None:
    line = "[ 1.2] audit: SELINUX_ERR op=security_compute_sid invalid_context=u:r:b_t"
    assert denials(line) == [line]


@pytest.mark.parametrize(
    "line",
    [
        "[ 25.6] audit: audit_lost=104 audit_rate_limit=0 audit_backlog_limit=64",
        "[ 25.7] audit: printk limit exceeded",
    ],
)
def test_a_log_that_is_not_complete_shows_nothing(line: str) -> None:
    with pytest.raises(LabProblem, match="not complete"):
        denials(line)


def test_a_folder_without_a_policy(tmp_path: Path) -> None:
    made = Provision("key", tmp_path, tmp_path / "kernel", "6.1")
    environment = {**os.environ, POLICY: str(tmp_path / "none")}
    with pytest.raises(LabProblem, match="has no policy"):
        labelled_root(made, environment)
