# SPDX-License-Identifier: GPL-2.0-or-later
"""Test statuses in sentences and in tables."""

from __future__ import annotations

import pytest
from ovirtsdk4 import types

from ovirt_rdma.engine_sdk_tools.fleet.check import status_cell
from ovirt_rdma.engine_sdk_tools.model import (
    HOST_STATUSES,
    Cluster,
    DataCenter,
    Domain,
    Engine,
    Host,
    domain_status,
    status_label,
    status_words,
)

pytestmark = pytest.mark.engine

# Words that are not adjectives: "the host is maintenance".
_NOUNS = ("maintenance", "error", "reboot", "install_failed", "contend", "mixed")


@pytest.mark.parametrize(
    ("status", "words", "label"),
    [
        ("up", "up", "up"),
        ("maintenance", "in maintenance", "maintenance"),
        (
            "preparing_for_maintenance",
            "preparing for maintenance",
            "preparing for maintenance",
        ),
        ("non_operational", "non-operational", "non operational"),
        (None, "in an unknown status", "unknown"),
        ("unknown", "in an unknown status", "unknown"),
    ],
)
def test_a_status_reads_as_a_sentence_and_as_a_cell(status, words, label):
    assert (status_words(status), status_label(status)) == (words, label)


@pytest.mark.parametrize(
    "status",
    [
        one.value
        for every in (
            types.HostStatus,
            types.StorageDomainStatus,
            types.DataCenterStatus,
        )
        for one in every
    ],
)
def test_no_status_of_the_api_stands_as_a_noun(status):
    words = status_words(status)

    assert words not in _NOUNS
    assert "_" not in words + status_label(status)


def test_hosts_check_says_in_maintenance():
    host = Host("1", "bodh1", "192.0.2.1", "c", status="maintenance")

    cell = status_cell(host)

    assert cell.sentence == "the host is in maintenance"
    assert cell.text == "maintenance"


def test_each_status_of_a_host_has_a_meaning():
    assert set(HOST_STATUSES) == {status.value for status in types.HostStatus}


# The data center's status, and the status and SPM role of its two hosts.
CAUSES = {
    "no SPM": (
        ("problematic", "non_responsive none", "up none"),
        "data center dc is problematic, and a is non-responsive",
    ),
    "before the engine has noticed": (
        ("up", "non_responsive spm", "up none"),
        "a is non-responsive",
    ),
    "no host is up": (
        ("up", "maintenance none", "down none"),
        "no host is up, and b is down",
    ),
    "no host is SPM": (("up", "up none", "up none"), "no host is SPM"),
    "the SPM is new": (
        ("up", "up spm", "down none"),
        "a, the SPM, has not reported it yet",
    ),
}


@pytest.mark.parametrize(("site", "cause"), CAUSES.values(), ids=CAUSES)
def test_why_the_status_of_a_domain_is_unknown(site, cause):
    center, *hosts = site
    engine = Engine(
        url="",
        data_centers=(DataCenter("c", "dc", center),),
        clusters=(Cluster("l", "cl", "c"),),
        hosts=tuple(
            Host(name, name, name, "l", status=words.split()[0], spm=words.split()[1])
            for name, words in zip("ab", hosts)
        ),
    )
    iso = Domain("i", "iso", "iso", "nfs", "c", "unknown")

    assert domain_status(engine, iso) == f"in an unknown status because {cause}"
