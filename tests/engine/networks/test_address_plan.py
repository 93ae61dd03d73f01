# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ovirt_rdma.engine_sdk_tools.model import Host, Nic
from ovirt_rdma.engine_sdk_tools.networks.addresses import (
    AddressProblem,
    check_addresses,
    counted,
    is_range,
    read_plan_file,
)

pytestmark = pytest.mark.hypervisor

DOCS = Path(__file__).resolve().parents[3] / "docs"
NAMES = ("host01", "host02", "host03")


def host(name, *addresses, network="other"):
    nics = tuple(
        Nic(f"{name}-{n}", f"eth{n}", address=address, network=network)
        for n, address in enumerate(addresses)
    )
    return Host(name, name, name, "cl1", "up", nics=nics, attachments=())


def checked(text, hosts=None, every=None):
    hosts = hosts or [host(name) for name in NAMES]
    plan = read_plan_file(text, "plan.yaml")
    return check_addresses(plan, hosts, every or hosts, "storage")


GOOD = "host01: 10.0.0.11/24\nhost02: 10.0.0.12/24\nhost03: 10.0.0.13/24\n"


def test_a_plan_file():
    plan = checked(GOOD)

    assert plan.problems == ()
    assert [str(a) for a in plan.addresses.values()] == [
        "10.0.0.11/24",
        "10.0.0.12/24",
        "10.0.0.13/24",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "plan.yaml: the plan is empty"),
        ("- host01\n", "is no mapping"),
        ("host01: 10.0.0.11\n", "plan.yaml:1: host01: '10.0.0.11' has no prefix"),
        ("host01: 10.0.0.300/24\n", "is no IP address"),
        ("host01: [10.0.0.1/24]\n", "is no address"),
        ("host01:\n", "None is no address"),
        ("host01: 10.0.0.11/24\nhost01: 10.0.0.12/24\n", "is given twice"),
        ("host01: &a 10.0.0.11/24\nhost02: *a\n", "an alias"),
        ("host01: 10.0.0.11/33\n", "is no IP address"),
        ("host01: {\n", "not valid YAML"),
    ],
)
def test_a_plan_file_that_is_not_one(text, sentence):
    with pytest.raises(AddressProblem) as caught:
        read_plan_file(text, "plan.yaml")
    assert sentence in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GOOD + "host09: 10.0.0.19/24\n", "host09, which the engine does not know"),
        (GOOD.replace("host03", "host04"), "host03 gets no address"),
        (GOOD.replace(".13/", ".12/"), "host02 and host03 would both have 10.0.0.12"),
        (GOOD.replace("0.13/", "1.13/"), "host03: 10.0.1.13/24 is outside of"),
        (GOOD.replace("13/24", "13/25"), "host03: 10.0.0.13/25 is outside of"),
        (GOOD.replace(".13/", ".0/"), "it is the network address of 10.0.0.0/24"),
        (GOOD.replace(".13/", ".255/"), "it is the broadcast address of 10.0.0.0/24"),
        (GOOD.replace("10.0.0.13/24", "224.0.0.5/4"), "no netdev can have such"),
        (GOOD.replace("10.0.0.13/24", "0.0.0.5/24"), "no netdev can have such"),
        (GOOD.replace("10.0.0.13/24", "240.0.0.5/24"), "no netdev can have such"),
        (GOOD.replace("10.0.0.13/24", "::2/64"), "no netdev can have such"),
        (GOOD.replace("10.0.0.13/24", "fe80::2/64"), "link-local"),
    ],
)
def test_addresses_that_cannot_be(text, sentence):
    assert any(sentence in problem for problem in checked(text).problems)


def test_a_host_that_is_not_selected():
    hosts = [host("host01"), host("host02")]
    problems = checked(GOOD, hosts, [*hosts, host("host03")]).problems
    assert problems == ("the plan names host03, which --hosts does not select",)


def test_an_address_that_another_nic_has():
    taken = host("host09", "10.0.0.12")
    hosts = [host(name) for name in NAMES]
    (problem,) = checked(GOOD, hosts, [*hosts, taken]).problems
    assert problem == "host02 cannot have 10.0.0.12: eth0 of host09 has it"


def test_a_host_keeps_what_it_has_by_the_network():
    mine = host("host02", "10.0.0.12", network="storage")
    assert checked(GOOD, [host("host01"), mine, host("host03")]).problems == ()
    other = host("host02", "10.0.0.12", network="other")
    assert checked(GOOD, [host("host01"), other, host("host03")]).problems


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("10.0.0.11-10.0.0.60/24", "10.0.0.11/24", "10.0.0.13/24"),
        ("10.0.0.11/24", "10.0.0.11/24", "10.0.0.13/24"),
        ("10.0.0.0/24", "10.0.0.1/24", "10.0.0.3/24"),
        ("10.0.0.254/16", "10.0.0.254/16", "10.0.1.0/16"),
        ("fd00::11/64", "fd00::11/64", "fd00::13/64"),
        ("fd00::/64", "fd00::1/64", "fd00::3/64"),
        ("10.0.0.8-10.0.0.10/24", "10.0.0.8/24", "10.0.0.10/24"),
    ],
)
def test_ranges(text, first, last):
    found = [str(address) for address in counted(text, NAMES).values()]
    assert (found[0], found[-1], len(found)) == (first, last, 3)
    assert is_range(text)


def test_a_range_that_is_too_short():
    assert len(counted("10.0.0.11-10.0.0.12/24", NAMES)) == 2
    assert len(counted("10.0.0.253/24", NAMES)) == 2
    assert len(counted("10.0.0.0/31", NAMES)) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("10.0.0.11", "has no prefix"),
        ("10.0.0.11-10.0.1.60/24", "ends outside of 10.0.0.0/24"),
        ("10.0.0.60-10.0.0.11/24", "ends before it begins"),
        ("10.0.0.11-fd00::1/24", "ends outside"),
        ("10.0.0.11/99", "is no range"),
        ("", "has no prefix"),
    ],
)
def test_texts_that_are_no_range(text, sentence):
    with pytest.raises(AddressProblem, match=sentence):
        counted(text, NAMES)


def test_a_file_is_no_range():
    assert not is_range("plan.yaml")
    assert not is_range("./10.0.0.1/24.yaml")


def test_the_example_of_the_docs():
    text = (DOCS / "ipoib-networks.md").read_text(encoding="utf-8")
    example = text.partition("```yaml\n")[2].partition("```")[0]

    assert list(read_plan_file(example, "plan.yaml")) == ["hv01", "hv02", "hv03"]
