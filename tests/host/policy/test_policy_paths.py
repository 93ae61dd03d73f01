# SPDX-License-Identifier: GPL-2.0-or-later
"""The keys paths and paths_return: what they may be, and between several rules."""

from __future__ import annotations

import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host.policy_mistakes import expect_mistake, mistakes, place

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import PolicyFiles, parse_policy, with_rule
from ovirt_rdma.host.policy.model import (
    PREFER_RDMA,
    REQUIRE_RDMA,
    TCP,
    differing_lines,
    rule_changes,
    rule_for,
    said_by,
)

A1, A2, A3 = "10.20.1.5", "10.20.2.5", "10.20.3.5"
VM = Export("nas1", "/vm")


def policy(*rules, defaults="transport: prefer-rdma"):
    """A policy whose rules are in lines from 5."""
    lines = [f"    - {{{rule}}}\n" for rule in rules]
    head = f"version: 1\nnfs:\n  defaults: {{{defaults}}}\n  rules:\n"
    return head + "".join(lines)


def rules(text, **drop_ins):
    return parse_policy(text, "p.yaml", drop_ins or None).policy.nfs.rules


def test_what_a_rule_says():
    first, second = rules(
        policy(
            f"server: nas1, paths: [{A1}, {A2}], paths_return: 60",
            "server: nas2",
            defaults="transport: prefer-rdma, paths_return: 30",
        )
    )
    assert (first.paths, first.paths_return) == ((A1, A2), 60)
    assert (second.paths, second.paths_return) == ((), 30)
    assert rules(policy("server: nas2"))[0].paths_return == 10


@pytest.mark.parametrize("server", ["nas1", "'nas*'", A1, A2, "10.20.0.0/16", "'*'"])
@pytest.mark.parametrize("paths", [[A1, A2], [A2, A1, A3], [A1, A2, A3, "169.254.1.1"]])
def test_what_is_accepted(server, paths):
    shown = json.dumps(paths)
    (rule,) = rules(policy(f"server: {server}, paths: {shown}"))
    assert rule.paths == tuple(paths)


IPV4 = "an IPv4 address of the server"


@pytest.mark.parametrize(
    ("paths", "where", "id", "words"),
    [
        ("[]", "", "list-length-wrong", ["has 0", "2 to 4"]),
        (f"[{A1}]", "", "list-length-wrong", ["has 1", "2 to 4"]),
        (f"[{A1}, {A2}, {A3}, 10.20.4.5, 10.20.5.5]", "", "list-length-wrong", ["5"]),
        ("", "", "value-type-wrong", ["a list", "2 to 4 entries"]),
        (A1, "", "value-type-wrong", ["a list", A1]),
        (f"[{A1}, nas1]", "[2]", "value-invalid", ["'nas1'", IPV4]),
        (f"['fd00::1', {A1}]", "[1]", "value-invalid", [IPV4, "10.20.1.5"]),
        (f"['::ffff:{A2}', {A1}]", "[1]", "value-invalid", [IPV4]),
        (f"[{A1}, 10.20.2.0/24]", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, {A2}/32]", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, '10.20.2.*']", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, '10.20.2.[5]']", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, '{A2}:20049']", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, 010.20.2.5]", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, ' {A2}']", "[2]", "value-invalid", [IPV4]),
        (
            f"[{A1}, '\N{ARABIC-INDIC DIGIT ONE}0.1.1.1']",
            "[2]",
            "value-invalid",
            [IPV4],
        ),
        (f"[{A1}, 10.20]", "[2]", "value-type-wrong", ["quotes", "10.20.1.5"]),
        (f"[{A1}, 0x0a140205]", "[2]", "value-invalid", ["0x0a140205"]),
        (f"[{A1}, 0.0.0.0]", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, 0.1.2.3]", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, 127.0.0.2]", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, 224.0.0.1]", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, 240.0.0.1]", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, 255.255.255.255]", "[2]", "value-invalid", [IPV4]),
        (f"[{A1}, {A2}, {A1}]", "[3]", "path-repeated", [A1, "paths[1]"]),
    ],
)
def test_what_is_refused(paths, where, id, words):
    text = policy(f"server: nas1, paths: {paths}")
    expect_mistake(text, f"5: nfs.rules[1].paths{where}", id, *words)


@pytest.mark.parametrize("seconds", ["0", "3601", "1.5", "1h", "-1"])
def test_paths_return_is_a_number_of_seconds(seconds):
    text = policy(f"server: nas1, paths: [{A1}, {A2}], paths_return: {seconds}")
    (mistake,) = mistakes(text)
    assert place(mistake) == "5: nfs.rules[1].paths_return"
    assert "1 to 3600" in mistake.sentence


def test_paths_are_of_a_rule():
    text = policy("server: nas1", defaults=f"transport: prefer-rdma, paths: [{A1}]")
    expect_mistake(text, "3: nfs.defaults.paths", "paths-not-for-defaults", "a rule")


@pytest.mark.parametrize("server", [A3, "10.30.0.0/16", "'fd00::5'", f"{A3}/32"])
def test_the_mount_would_use_an_address_that_is_no_path(server):
    text = policy(f"server: {server}, paths: [{A1}, {A2}]")
    named = server.strip("'")
    where = "5: nfs.rules[1].server"
    expect_mistake(text, where, "server-not-a-path", named, "server's name")


@pytest.mark.parametrize(
    ("own", "defaults", "refused"),
    [
        ("", TCP, True),
        (TCP, PREFER_RDMA, True),
        (REQUIRE_RDMA, TCP, False),
        ("", REQUIRE_RDMA, False),
    ],
)
def test_paths_are_for_rdma(own, defaults, refused):
    own = f", transport: {own}" if own else ""
    rule = f"server: nas1, paths: [{A1}, {A2}]{own}"
    text = policy(rule, defaults=f"transport: {defaults}")
    if refused:
        where = "5: nfs.rules[1].paths"
        expect_mistake(text, where, "paths-over-tcp", "tcp", PREFER_RDMA)
    else:
        assert rules(text)[0].paths


def test_no_sentence_about_tcp_where_the_transport_is_the_mistake():
    text = policy(f"server: nas1, paths: [{A1}, {A2}], transport: rdma")
    assert [place(one) for one in mistakes(text)] == ["5: nfs.rules[1].transport"]
    text = policy(f"server: nas1, paths: [{A1}, {A2}]", defaults="port: 20049")
    assert [place(one) for one in mistakes(text)] == ["5: nfs.rules[1].transport"]


# -- several rules


@pytest.mark.parametrize(
    ("second", "wrong"),
    [
        ([A1, A2], None),
        ([A2, A1], A2),  # The order is that of the homes of connections.
        ([A1, A2, A3], A1),
        ([A3, A2], A2),
        ([A3, "10.20.4.5"], None),
    ],
)
def test_rules_that_share_an_address_have_the_same_paths(second, wrong):
    shown = ", ".join(second)
    text = policy(
        f"name: vm, server: nas1, path: /a, paths: [{A1}, {A2}]",
        "server: nas3",
        f"server: nas1, paths: [{shown}]",
    )
    if wrong is None:
        assert rules(text)[2].paths == tuple(second)
        return
    where = f"7: nfs.rules[3].paths[{second.index(wrong) + 1}]"
    expect_mistake(text, where, "paths-differ", wrong, "'vm'", f"{A1}, {A2}")


def drop_in(*paths, server="nas1", **more):
    rule = {"server": server, "path": "/vm", "transport": REQUIRE_RDMA, **more}
    rule["paths"] = list(paths)
    return json.dumps({"version": 1, "nfs": {"rules": [rule]}})


def test_rules_of_several_files_have_the_same_paths_too():
    text = policy(f"server: nas1, paths: [{A1}, {A2}]")
    assert len(rules(text, **{"50-a.yaml": drop_in(A1, A2)})) == 2
    with pytest.raises(PolicyProblem) as caught:
        rules(text, **{"50-a.yaml": drop_in(A2, A3)})
    (mistake,) = caught.value.errors
    # The drop-ins come first.
    assert (place(mistake), mistake.file) == ("5: nfs.rules[1].paths[2]", "")
    assert "'rule 1' in policy.d/50-a.yaml" in mistake.sentence
    with pytest.raises(PolicyProblem) as caught:
        rules("", **{"50-a.yaml": drop_in(A1, A2), "60-b.yaml": drop_in(A2, A1)})
    (mistake,) = caught.value.errors
    assert mistake.file == "policy.d/60-b.yaml"


@given(st.permutations([*permutations([A1, A2, A3], 2)]), st.integers(2, 4))
def test_no_policy_has_an_address_in_two_lists(lists, count):
    text = policy(
        *(
            f"server: nas{n}, paths: [{a}, {b}]"
            for n, (a, b) in enumerate(lists[:count])
        )
    )
    # Of three addresses any two pairs share one.
    assert {one.sentence.id for one in mistakes(text)} == {"paths-differ"}
    assert len(mistakes(text)) == count - 1


# -- shown


def test_what_is_shown():
    before = parse_policy(policy("server: nas1"), "p.yaml").policy
    text = policy(f"server: nas1, paths: [{A1}, {A2}], paths_return: 20")
    after = parse_policy(text, "p.yaml").policy
    assert any(f"paths {A1} {A2}, paths_return 20" in line for line in said_by(after))
    assert f"paths {A1} {A2}" in differing_lines(before, after)[1]
    (change,) = rule_changes(before, after, {"nas1:/vm": "mounted"})
    assert str(change) == (
        "nas1:/vm (mounted): prefer-rdma by rule 1, paths none, paths_return 10 -> "
        f"prefer-rdma by rule 1, paths {A1} {A2}, paths_return 20"
    )


# -- what the engine's tools write


def won(files):
    match = rule_for(files.parsed("p.yaml").policy, VM)
    assert match is not None
    return match.rule


def test_a_drop_in_of_the_engines_tools_keeps_the_paths():
    text = policy(f"server: nas1, paths: [{A1}, {A2}], paths_return: 20")
    files = with_rule(PolicyFiles(text), VM, REQUIRE_RDMA, "domain data1")
    assert (won(files).paths, won(files).paths_return) == ((A1, A2), 20)
    tcp = with_rule(files, VM, TCP, "domain data1")
    assert (won(tcp).transport, won(tcp).paths) == (TCP, ())
    # And back: the rule below still has them.
    again = with_rule(tcp, VM, REQUIRE_RDMA, "domain data1")
    assert (won(again).paths, won(again).paths_return) == ((A1, A2), 20)
