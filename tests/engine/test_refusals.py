# SPDX-License-Identifier: GPL-2.0-or-later
"""Test that all objections to a plan are one readable error."""

from __future__ import annotations

import pytest

from ovirt_rdma.engine_sdk_tools.model import ChecksFailed, check

pytestmark = pytest.mark.engine

FEW = ["host01: no", "host02: no"]
MANY = [f"host{number:02}: no" for number in range(1, 6)]


@pytest.mark.parametrize(
    ("sentences", "lines"),
    [
        (["a domain: is there"], ["a domain: is there"]),
        (FEW, ["host01, host02: no"]),
        (["no", "no"], ["no"]),
        (
            ["first", *MANY, "host01: yes"],
            [
                "first",
                "host01, host02, host03, host04, host05: no",
                "host01: yes",
            ],
        ),
    ],
)
def test_what_is_said_of_many_hosts_is_one_line_with_all_names(sentences, lines):
    with pytest.raises(ChecksFailed) as error:
        check(sentences)
    assert str(error.value).splitlines() == lines
    assert error.value.sentences == tuple(dict.fromkeys(sentences))
