# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from support.engine.refusals import reason
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.model import Host, Nic
from ovirt_rdma.engine_sdk_tools.networks.nics import (
    address_refusals,
    addresses_from_range,
    is_range,
    read_plan_file,
)
from ovirt_rdma.host.errors import UsageProblem

pytestmark = pytest.mark.engine

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
    return [*address_refusals(plan, hosts, every or hosts, "storage")]


GOOD = "host01: 10.0.0.11/24\nhost02: 10.0.0.12/24\nhost03: 10.0.0.13/24\n"


def test_a_plan_file():
    assert checked(GOOD) == []
    assert [str(a) for a in read_plan_file(GOOD, "plan.yaml").values()] == [
        "10.0.0.11/24",
        "10.0.0.12/24",
        "10.0.0.13/24",
    ]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", ["plan.yaml: ", "empty"]),
        ("- host01\n", ["plan.yaml: ", "no mapping"]),
        ("host01: 10.0.0.11\n", ["plan.yaml:1: host01: '10.0.0.11' ", "10.0.0.11/24"]),
        ("host01: 10.0.0.300/24\n", ["plan.yaml:1: host01: '10.0.0.300/24' "]),
        ("host01: [10.0.0.1/24]\n", ["plan.yaml:1: host01: ['10.0.0.1/24'] "]),
        ("host01:\n", ["plan.yaml:1: host01: None "]),
        (
            "host01: 10.0.0.11/24\nhost01: 10.0.0.12/24\n",
            ["plan.yaml:2: ", "host01", "twice"],
        ),
        ("host01: &a 10.0.0.11/24\nhost02: *a\n", ["plan.yaml:2: ", "alias"]),
        ("host01: 10.0.0.11/33\n", ["plan.yaml:1: host01: '10.0.0.11/33' "]),
        ("host01: {\n", ["plan.yaml:", "not valid YAML"]),
    ],
)
def test_a_plan_file_that_is_not_one(text, arguments):
    with problem("address-plan-invalid", *arguments) as caught:
        read_plan_file(text, "plan.yaml")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "id", "arguments"),
    [
        (GOOD + "host09: 10.0.0.19/24\n", "address-host-unknown", ["host09"]),
        (GOOD.replace("host03", "host04"), "address-missing", ["host03"]),
        (
            GOOD.replace(".13/", ".12/"),
            "address-repeated",
            ["10.0.0.12", "host02, host03"],
        ),
        (
            GOOD.replace("0.13/", "1.13/"),
            "address-outside",
            ["host03 cannot have 10.0.1.13/24", "10.0.0.0/24"],
        ),
        (
            GOOD.replace("13/24", "13/25"),
            "address-outside",
            ["host03 cannot have 10.0.0.13/25", "10.0.0.0/24"],
        ),
        (
            GOOD.replace(".13/", ".0/"),
            "address-is-network",
            ["host03", "10.0.0.0", "10.0.0.0/24"],
        ),
        (
            GOOD.replace(".13/", ".255/"),
            "address-is-broadcast",
            ["host03", "10.0.0.255", "10.0.0.0/24"],
        ),
        (GOOD.replace("10.0.0.13/24", "224.0.0.5/4"), "address-reserved", ["host03"]),
        (GOOD.replace("10.0.0.13/24", "0.0.0.5/24"), "address-reserved", ["host03"]),
        (GOOD.replace("10.0.0.13/24", "240.0.0.5/24"), "address-reserved", ["host03"]),
        (GOOD.replace("10.0.0.13/24", "::2/64"), "address-reserved", ["host03"]),
        (
            GOOD.replace("10.0.0.13/24", "fe80::2/64"),
            "address-reserved",
            ["host03", "link-local"],
        ),
    ],
)
def test_addresses_that_cannot_be(text, id, arguments):
    reason(checked(text), id, *arguments)


def test_a_host_that_is_not_selected():
    hosts = [host("host01"), host("host02")]
    (refusal,) = checked(GOOD, hosts, [*hosts, host("host03")])
    reason([refusal], "address-host-not-selected", "host03", "--hosts")


def test_an_address_that_another_nic_has():
    taken = host("host09", "10.0.0.12")
    hosts = [host(name) for name in NAMES]
    (refusal,) = checked(GOOD, hosts, [*hosts, taken])
    reason([refusal], "address-in-use", "host02", "10.0.0.12", "eth0 of host09")


def test_a_host_keeps_what_it_has_by_the_network():
    mine = host("host02", "10.0.0.12", network="storage")
    assert checked(GOOD, [host("host01"), mine, host("host03")]) == []
    other = host("host02", "10.0.0.12", network="other")
    assert checked(GOOD, [host("host01"), other, host("host03")])


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
    found = [str(address) for address in addresses_from_range(text, NAMES).values()]
    assert (found[0], found[-1], len(found)) == (first, last, 3)
    assert is_range(text)


def test_a_range_that_is_too_short():
    assert len(addresses_from_range("10.0.0.11-10.0.0.12/24", NAMES)) == 2
    assert len(addresses_from_range("10.0.0.253/24", NAMES)) == 2
    assert len(addresses_from_range("10.0.0.0/31", NAMES)) == 2


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("10.0.0.11", "prefix"),
        ("10.0.0.11-10.0.1.60/24", "outside 10.0.0.0/24"),
        ("10.0.0.60-10.0.0.11/24", "before"),
        ("10.0.0.11-fd00::1/24", "outside"),
        ("10.0.0.11/99", "not a range"),
        ("", "prefix"),
    ],
)
def test_texts_that_are_no_range(text, word):
    with pytest.raises(UsageProblem, match=word) as caught:
        addresses_from_range(text, NAMES)
    assert caught.value.id == "address-range-invalid"
    assert repr(text) in str(caught.value)


def test_a_file_is_no_range():
    assert not is_range("plan.yaml")
    assert not is_range("./10.0.0.1/24.yaml")


def test_the_example_of_the_docs():
    text = (DOCS / "ipoib-networks.md").read_text(encoding="utf-8")
    example = text.partition("```yaml\n")[2].partition("```")[0]

    assert list(read_plan_file(example, "plan.yaml")) == ["hv01", "hv02", "hv03"]
