# SPDX-License-Identifier: GPL-2.0-or-later
"""virtual_functions and port_type in the policy, and how they are stored."""

from __future__ import annotations

import pytest
from support.host.policy_mistakes import expect_mistake, rows

from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import (
    Policy,
    VfRule,
    from_json_dict,
    guest_numbers,
    to_json_dict,
)

HEAD = "version: 1\nhost:\n  virtual_functions:\n"


def vfs(text: str) -> Policy:
    return parse_policy(f"{HEAD}    - {{{text}}}\n", "policy.yaml").policy


def test_everything_that_a_rule_can_say():
    policy = vfs(
        "name: guests, match: {device: mlx5_*, pci: 5e:00.0, guid: 0x2c90300fb1231}, "
        "count: 16, guids: keep, guests: '0-11, 14', link_state: disable, "
        "pkeys: [0x8001, 0xFFFF]"
    )
    (rule,) = policy.host.virtual_functions
    assert rule == VfRule(
        1,
        "guests",
        16,
        device="mlx5_*",
        pci="0000:5e:00.0",
        guid="0002:c903:00fb:1231",
        guids="keep",
        guests="0-11, 14",
        link_state="disable",
        pkeys=("0x8001", "0xffff"),
    )
    assert [n for n in range(20) if rule.is_for_guest(n)] == [*range(12), 14]
    assert from_json_dict(to_json_dict(policy)) == policy


def test_what_is_left_out():
    policy = vfs("match: {pci: 5e:00.0}, count: 2")
    (rule,) = policy.host.virtual_functions
    assert (rule.name, rule.guids, rule.guests) == (
        "virtual functions 1",
        "derived",
        "all",
    )
    assert (rule.link_state, rule.pkeys) == (None, ())
    assert from_json_dict(to_json_dict(policy)) == policy


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("all", {0, 1, 2}),
        ("none", set()),
        ("1", {1}),
        ("0-1,2-9", {0, 1, 2}),
        ("2-1", None),
        ("", None),
        ("some", None),
        ("-1", None),
        ("0x1", None),
    ],
)
def test_which_are_for_guests(text, numbers):
    assert guest_numbers(text, 3) == numbers


PLACE = "4: host.virtual_functions[1]"


@pytest.mark.parametrize(
    ("text", "expected"),
    rows(r"""\
count: 2 | match | key-missing
match: {}, count: 2 | match | match-empty
match: {device: mlx5_0} | count | key-missing
match: {device: mlx5_0}, count: 0 | count | value-out-of-range
match: {link_layer: infiniband}, count: 2 | match.link_layer | key-unknown
match: {netdev: ib0}, count: 2 | match.netdev | match-by-name
match: {device: mlx5_0}, count: 2, guests: 1-0 | guests | value-invalid | '1-0'
match: {device: mlx5_0}, count: 2, pkeys: [0x8000] | pkeys[1] | value-invalid
match: {device: mlx5_0}, count: 2, guids: random | guids | value-unknown | derived, keep
"""),
)
def test_a_rule_that_is_none(text, expected):
    key, *rest = expected
    expect_mistake(f"{HEAD}    - {{{text}}}\n", f"{PLACE}.{key}", *rest)


def test_two_rules_with_one_name():
    rule = "    - {name: a, match: {device: mlx5_0}, count: 1}\n"
    place = "5: host.virtual_functions[2].name"
    expect_mistake(f"{HEAD}{rule}{rule}", place, "name-repeated")


@pytest.mark.parametrize(
    ("match", "key"),
    [
        ("link_layer: infiniband", "link_layer"),
        ("guid: 0x1", "guid"),
        ("pkey: 0x8001", "pkey"),
    ],
)
def test_a_port_type_and_a_match_that_it_changes(match, key):
    text = f"version: 1\nhost: {{interfaces: [{{match: {{{match}}}, port_type: eth}}]}}"
    expect_mistake(text, f"2: host.interfaces[1].match.{key}", "match-by-type")
