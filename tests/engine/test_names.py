# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.model import (
    Cluster,
    DataCenter,
    Domain,
    Engine,
    Host,
    data_center_named,
    domain_named,
    hosts_named,
    listed,
)

pytestmark = pytest.mark.engine


def domain(name: str, center: str | None, at: str = "") -> Domain:
    return Domain(at or f"id-{name}-{center}", name, "data", "nfs", center)


ENGINE = Engine(
    "http://engine.example.com",
    data_centers=(DataCenter("d1", "east"), DataCenter("d2", "west")),
    clusters=(Cluster("c1", "one", "d1"), Cluster("c2", "two", "d2")),
    hosts=(
        Host("h1", "hv1", "hv1.example.com", "c1"),
        Host("h2", "hv2", "hv2.example.com", "c1"),
        Host("h3", "west-hv", "192.0.2.3", "c2"),
    ),
    domains=(
        domain("data1", "d1"),
        domain("images", "d1", "iso"),
        domain("images", "d2", "iso"),
        domain("spare", None),
    ),
)


@pytest.mark.parametrize(
    ("name", "center", "found"),
    [
        ("data1", None, "d1"),
        ("id-data1-d1", None, "d1"),
        ("images", "west", "d2"),
        ("images", "d1", "d1"),
        ("spare", None, None),
    ],
)
def test_domain_is_found_by_name_or_id(name, center, found):
    assert domain_named(ENGINE, name, center).data_center == found


@pytest.mark.parametrize(
    ("name", "center", "id", "named", "fix"),
    [
        ("dta1", None, "name-unknown", ["storage domain 'dta1'"], "mean data1?"),
        ("DATA1", None, "name-unknown", ["storage domain 'DATA1'"], "mean data1?"),
        ("images", None, "name-ambiguous", ["'images'", "'east' and 'west'"],
         "--datacenter east"),
        ("data1", "west", "name-unknown", ["'data1'", "in data center 'west'"],
         "omit --datacenter"),
        ("spare", "west", "name-unknown", ["'spare'", "in data center 'west'"],
         "omit --datacenter"),
        ("imgs", "west", "name-unknown", ["'imgs'", "in data center 'west'"],
         "mean images?"),
        ("data1", "wst", "name-unknown", ["data center 'wst'"], "mean west?"),
        ("zzz", None, "name-unknown", ["storage domain 'zzz'"],
         ": data1, images, spare"),
    ],
)  # fmt: skip
def test_wrong_name_says_what_was_meant(name, center, id, named, fix):
    with problem(id, *named) as wrong:
        domain_named(ENGINE, name, center)
    assert fix in wrong.value.fix
    assert wrong.value.exit_code == 2


def test_engine_with_nothing_in_it_says_so():
    with problem("name-unknown", "data center 'east'", "this user"):
        data_center_named(Engine("http://engine.example.com"), "east")


@pytest.mark.parametrize(
    ("words", "center", "found"),
    [
        ((), None, ["hv1", "hv2", "west-hv"]),
        ((), "east", ["hv1", "hv2"]),
        (("hv2,hv1",), None, ["hv1", "hv2"]),
        (("hv*", "hv1"), None, ["hv1", "hv2"]),
        (("192.0.2.3",), None, ["west-hv"]),
        (("h1",), None, ["hv1"]),
        (("*",), "west", ["west-hv"]),
    ],
)
def test_hosts_are_found_in_the_engines_order(words, center, found):
    assert [host.name for host in hosts_named(ENGINE, words, center)] == found


def test_all_wrong_host_names_are_told_at_once():
    with problem("host-unknown", "'hv7' or 'x*'") as wrong:
        hosts_named(ENGINE, ("hv1,hv7", "x*"))
    assert "hv1" in wrong.value.fix


@pytest.mark.parametrize("words", [("",), (",",), (" ",), ("hv1", ""), ("hv1,,hv2",)])
def test_an_empty_host_name_is_not_all_hosts(words):
    """As of a script whose variable is empty."""
    with problem("host-name-empty", "name of a host is empty"):
        hosts_named(ENGINE, words)


def test_host_of_another_data_center_is_not_found():
    with problem("host-unknown", "'hv1'", "data center 'west'"):
        hosts_named(ENGINE, ("hv1",), "west")


def test_many_names_are_a_number():
    names = [f"h{number}" for number in range(250)]
    assert listed(names, 4) == "h0, h1, h2, h3 and 246 more"
    assert listed(names[:4], 4) == "h0, h1, h2, h3"
