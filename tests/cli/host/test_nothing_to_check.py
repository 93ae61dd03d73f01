# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs that check say of a host that has nothing to check just that."""

from __future__ import annotations

import json
import re

import pytest

GOOD = re.compile(
    r"as it should be|as the (policy|rule) says|passed|\bok\b", re.IGNORECASE
)


@pytest.mark.parametrize(
    ("verb", "sentence"),
    [
        ("check", " has no RDMA device to check; none of "),
        ("fabric check", " was not checked (no policy is loaded).\n"),
        ("block check", "no target (no policy is loaded): nothing was checked.\n"),
        ("nfs health", "This host has no NFS mount.\n"),
        ("nfs paths", "No rule of the policy has paths.\n"),
        ("nfs list --exit-code", "This host has no NFS mount.\n"),
    ],
)
def test_nothing_to_check_is_not_good(host, verb, sentence):
    result = host(*verb.split())
    assert result.code == 3
    assert sentence in result.out
    assert not GOOD.search(result.out)
    assert host(*verb.split(), "--allow-none").code == 0
    document = host(*verb.split(), "-o", "json")
    assert document.code == 3
    assert json.loads(document.out)
