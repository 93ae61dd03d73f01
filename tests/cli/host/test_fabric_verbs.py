# SPDX-License-Identifier: GPL-2.0-or-later
"""``fabric partitions render`` and ``validate``."""

from __future__ import annotations

import pytest

POLICY = """\
version: 1
fabric:
  hosts: {hv1: [0x2c9030000011], hv2: [0x2c9030000021]}
  partitions:
    storage: {pkey: 0x8001, mtu: 4096, rate: 10, members: [SELF, hv2=limited, hv1]}
"""
TEXT = """\
# Partitions of the InfiniBand fabric, for opensm.
# Made from the policy of ovirt-rdma by: ovirt-rdma-host fabric partitions render
# To keep the file as it is, add a line that reads: # mine

# IPoIB broadcast group: MTU 2048 and 10 Gb/s
Default=0x7fff,ipoib :
    ALL=full;

# IPoIB broadcast group: MTU 4096 and 10 Gb/s
storage=0x0001,ipoib,mtu=5,rate=3 :
    SELF=full,
    0x00002c9030000021=limited,
    0x00002c9030000011=full;
"""


@pytest.fixture
def files(tmp_path):
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def fabric(host, verb, *words):
    return host("fabric", "partitions", verb, *words)


def test_the_policy_is_rendered_and_valid(host, files):
    policy = files("p.yaml", POLICY)
    result = fabric(host, "render", "--policy", policy)
    assert (result.code, result.out, result.err) == (0, TEXT, "")
    file = files("partitions.conf", result.out)
    shown = fabric(host, "validate", file)
    assert (shown.code, shown.out) == (0, f"{file} is valid: 2 partitions.\n")
    document = fabric(host, "render", "--policy", policy, "-o", "json").document
    assert document["text"] == TEXT
    assert [one["name"] for one in document["partitions"]] == ["Default", "storage"]


def test_a_policy_without_partitions_is_not_rendered(host, files):
    policy = files("p.yaml", "version: 1\n")
    fabric(host, "render", "--policy", policy).refused(1, "no partitions", "fix: ")


def test_all_mistakes_are_shown(host, files):
    file = files("p.conf", "Default=0x7fff,mtu=9 : ALL=full;\na=0 : A;")
    result = fabric(host, "validate", file)
    result.refused(3, f"{file}:1: ", f"{file}:2: ", "fix: correct the file")
    assert result.err.count(f"{file}:2: ") == 2


def test_a_default_partition_that_keeps_ports_apart_is_a_warning(host, files):
    file = files("p.conf", TEXT.replace("ALL=full", "ALL=limited"))
    result = fabric(host, "validate", file)
    assert result.code == 0
    assert result.out.startswith(f"{file}: the default partition has no full member")
    assert " (warning)\n" in result.out


def test_files_that_cannot_be_read(host):
    fabric(host, "validate").refused(1, "partitions.conf cannot be read", "fix: ")
