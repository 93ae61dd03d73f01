# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy, rule_for


def policy(*patterns):
    """A policy of rules for (server, path), named a, b, c, ..."""
    rules = (
        NfsRule(number, chr(96 + number), server, path, "require-rdma")
        for number, (server, path) in enumerate(patterns, 1)
    )
    return Policy(nfs=NfsPolicy(tuple(rules)))


@pytest.mark.parametrize(
    ("server", "path", "export", "reason"),
    [
        ("nas1", "*", "nas1:/x", "server is nas1, any path"),
        ("NAS1.example.ORG", "*", "nas1.Example.org:/x", None),
        ("nas1.example.org", "*", "nas1.example.org.:/x", None),
        ("nas?", "*", "nas7:/x", "server matches nas?, any path"),
        ("*", "*", "[fd00::1]:/x", "server matches *, any path"),
        ("*.example.org", "/e/vm*", "a.example.org:/e/vm1", None),
        ("10.20.0.5", "*", "10.20.0.5:/x", "server is 10.20.0.5, any path"),
        ("10.20.*", "*", "10.20.3.4:/x", "server matches 10.20.*, any path"),
        ("10.20.0.0/24", "*", "10.20.0.9:/x", "server 10.20.0.9 is in 10.20.0.0/24"),
        ("fd00::1", "*", "[fd00:0:0::1]:/x", "server is fd00::1, any path"),
        ("fd00::/64", "*", "[fd00::7]:/x", "server fd00::7 is in fd00::/64"),
        ("fe80::1", "*", "[fe80::1%eth0]:/x", "server is fe80::1, any path"),
        ("nas", "/e", "nas:/e/", "path matches /e"),
        ("nas", "/e/*", "nas:/e/a/b", "path matches /e/*"),
        ("nas", "/e[12]", "nas://e2", "path matches /e[12]"),
        # Compared literally, although the glob would not match it.
        ("nas", "/vm[1]", "nas:/vm[1]", "path matches /vm[1]"),
        ("nas", "/vm[1]", "nas:/vm1", None),
        ("nas", "/vm[[]1]", "nas:/vm[1]", None),
    ],
)
def test_a_rule_names_an_export_and_says_why(server, path, export, reason):
    match = rule_for(policy((server, path)), Export.parse(export))
    assert match is not None
    assert (reason or "") in match.reason


@pytest.mark.parametrize(
    ("server", "path", "export"),
    [
        ("nas1", "*", "nas10:/x"),
        ("nas1", "*", "nas1.example.org:/x"),
        ("*.example.org", "*", "example.org:/x"),
        # A name is not resolved, so an address never names it.
        ("127.0.0.1", "*", "localhost:/x"),
        ("10.20.0.0/24", "*", "10.20.1.1:/x"),
        ("10.20.0.0/24", "*", "[fd00::1]:/x"),
        ("0.0.0.0/0", "*", "nas:/x"),
        ("nas", "/e", "nas:/e/a"),
        ("nas", "/E", "nas:/e"),
        ("nas", "/e/*", "nas:/e"),
        ("nas", "/vm[1]", "nas:/vm[2]"),
        ("nas", "/vm[[]1]", "nas:/vm1"),
    ],
)
def test_other_exports_stay_stock(server, path, export):
    assert rule_for(policy((server, path)), Export.parse(export)) is None


def test_the_first_rule_that_names_the_export_wins():
    rules = policy(("nas1", "/iso"), ("nas*", "/export/*"), ("*", "*"))

    def winner(export):
        return rule_for(rules, Export.parse(export)).rule.name

    assert winner("nas1:/iso") == "a"
    assert winner("nas1:/export/vm") == "b"
    assert winner("nas1:/home") == "c"


def test_an_empty_policy_names_nothing():
    assert rule_for(Policy(), Export.parse("nas:/x")) is None


def test_more_globs_than_fnmatch_keeps_each_name_their_own():
    globs = [(f"rack{n}-*.example.org", f"/e{n}/*") for n in range(600)]
    large = policy(*globs)
    for _ in range(2):
        for number in (1, 300, 600):
            export = Export.parse(f"rack{number - 1}-a.example.org:/e{number - 1}/vm")
            assert rule_for(large, export).rule.number == number
