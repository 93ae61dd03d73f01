# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading and writing our own configuration files."""

from __future__ import annotations

import pytest
from support.fakes.fake_hosts import without_rdma

from ovirt_rdma.host.facts.model import OwnFile
from ovirt_rdma.host.system.files import (
    MODPROBE,
    MODULES_LOAD,
    foreign_reason,
    own_text,
)

pytestmark = pytest.mark.hypervisor


def test_files_that_are_not_there(tmp_path):
    assert without_rdma(tmp_path).reader().facts().software.own_files == ()


def test_text_as_it_is(tmp_path):
    host = without_rdma(tmp_path)
    text = own_text(["nvme_rdma"])
    host.write(MODULES_LOAD, text.encode())
    host.write(MODPROBE, b"\n options mlx4_core a=1 \xff\n\n")
    facts = host.reader().facts()
    assert facts.software.own_files == (
        OwnFile(MODPROBE, "\n options mlx4_core a=1 \\xff\n\n"),
        OwnFile(MODULES_LOAD, text),
    )


def test_file_that_cannot_be_read(tmp_path):
    host = without_rdma(tmp_path)
    host.unreadable(MODULES_LOAD)
    facts = host.reader().facts()
    assert facts.software.own_files == (OwnFile(MODULES_LOAD, None),)
    assert any(MODULES_LOAD in problem for problem in facts.problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (own_text([]), ""),
        (own_text(["nvme_rdma"]), ""),
        ("# ovirt-rdma revision 0\nnvme_rdma\n", ""),  # any number
        (own_text(["nvme_rdma"]) + "# mine\n", "left alone"),
        ("# mine\n", "left alone"),
        ("nvme_rdma\n" + own_text([]), "is not from ovirt-rdma"),
        ("", "is not from ovirt-rdma"),
        (None, "cannot be read"),
    ],
)
def test_whose_a_file_is(text, words):
    found = foreign_reason(MODULES_LOAD, text)
    assert words in found
    assert bool(found) == bool(words)
