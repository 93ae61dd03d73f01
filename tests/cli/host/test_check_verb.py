# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
import re

import pytest
from support.command_line import FACTS, run, run_on_terminal, run_process
from support.host import sample_rules
from support.host.sample_rules import REFUSED, TSO, findings, rule

from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, VERDICTS, WARN

POLICY = """\
version: 1
nfs:
  rules:
    - server: 10.0.0.1
      transport: prefer-rdma
"""

ALL = """\
RESULT  RULE            SUBJECT  FOUND
FAIL    SAMPLE-MODE-01  ib0      ib0: FAIL
                                 fix: set the mode
WARN    SAMPLE-TSO-01   ib0      ib0: WARN
WARN    SAMPLE-TSO-01   ib1      ib1: WARN
                                 fix: turn it off
PASS    2 rules         host     33 checks; see --all
SKIP    1 rule          host     1 check: not for this host, or something is \
unknown; see --all

1 of 36 checks failed on hv1, 2 warnings, 1 skipped.
next: ovirt-rdma-host plan
"""


def test_table(sampled):
    result = sampled(*sample_rules.ALL)("check")
    assert (result.code, result.out, result.err) == (3, ALL, "")


def test_each_check_on_its_own_line(sampled):
    lines = sampled(*sample_rules.ALL)("check", "--all").out.splitlines()
    for port in sample_rules.PORTS:
        assert f"PASS    SAMPLE-PORT-01    {port:<9}  {port}: PASS" in lines
    results = [line[:4] for line in lines if line[:4] in VERDICTS]
    assert results == ["FAIL", *2 * ["WARN"], *33 * ["PASS"], "SKIP"]


def test_document_has_every_finding(sampled):
    result = sampled(*sample_rules.ALL)("check", "-o", "json")
    document = result.document
    assert result.code == 3
    assert (document["schema_version"], document["kind"]) == (1, "check")
    assert (document["hostname"], document["failed"]) == ("hv1", True)
    assert document["counts"] == {"FAIL": 1, "WARN": 2, "PASS": 33, "SKIP": 1}
    assert len(document["findings"]) == 37
    assert document["findings"][32] == {
        "rule": "SAMPLE-MODE-01",
        "subject": "ib0",
        "verdict": "FAIL",
        "sentence": "ib0: FAIL",
        "fix": "set the mode",
    }
    assert document["next"] == "ovirt-rdma-host plan"


def test_what_a_step_mends_points_to_the_plan(sampled):
    mended = rule(TSO.rule, [*findings(TSO.rule, FAIL, ["ib0", "ib1"]), TSO])
    on_host = sampled(mended)
    found = on_host("check", "-o", "json").document["findings"]
    assert [one["fix"] for one in found] == ["ovirt-rdma-host plan", ""]
    refused = rule(REFUSED.rule, [*findings(REFUSED.rule, FAIL, ["ib1"]), REFUSED])
    (found,) = sampled(refused)("check", "-o", "json").document["findings"]
    assert found["fix"] == "no fix by a plan: mlx5 has no connected mode"


def test_rules_that_are_left_out(sampled):
    words = ("check", "--skip", "sample-mode-01", "--skip", "SAMPLE-TSO-01")
    on_host = sampled(*sample_rules.ALL)
    result = on_host(*words)
    assert (result.code, result.err) == (0, "")
    assert "SAMPLE-MODE-01 " not in result.out.partition("\n\n")[0]
    assert (
        "\nNone of 32 checks failed on hv1, 1 skipped, left out: SAMPLE-MODE-01 "
        "SAMPLE-TSO-01.\n" in result.out
    )
    document = on_host(*words, "-o", "json").document
    assert document["skipped"] == ["SAMPLE-MODE-01", "SAMPLE-TSO-01"]
    assert {f["rule"] for f in document["findings"]} == {
        "SAMPLE-PORT-01",
        "SAMPLE-OPTION-01",
    }


def test_only_some_rules_with_all_their_findings(sampled):
    words = ("check", "--only", "sample-mode-01", "--only", "SAMPLE-OPTION-01")
    on_host = sampled(*sample_rules.ALL)
    result = on_host(*words)
    assert (result.code, result.err) == (3, "")
    assert [line.split()[:3] for line in result.out.splitlines()[1:5]] == [
        ["FAIL", "SAMPLE-MODE-01", "ib0"],
        ["fix:", "set", "the"],
        ["PASS", "SAMPLE-MODE-01", "ib2"],
        ["SKIP", "SAMPLE-OPTION-01", "host"],
    ]
    assert (
        "\n1 of 2 checks failed on hv1, 1 skipped, only SAMPLE-MODE-01 "
        "SAMPLE-OPTION-01.\n" in result.out
    )
    document = on_host(*words, "--skip", "sample-mode-01", "-o", "json").document
    assert document["only"] == ["SAMPLE-MODE-01", "SAMPLE-OPTION-01"]
    assert document["skipped"] == ["SAMPLE-MODE-01"]
    assert [found["rule"] for found in document["findings"]] == ["SAMPLE-OPTION-01"]


def test_a_rule_that_is_wanted_and_left_out(sampled):
    sampled(*sample_rules.ALL)(
        *("check", "--only", "SAMPLE-MODE-01", "--skip", "sample-mode-01")
    ).refused(2, "--only and --skip both name SAMPLE-MODE-01", "omit one of them")


def test_a_rule_of_the_other_verb(capsys):
    """It would check nothing, and say that nothing is wrong."""
    run(capsys, "check", "--only", "server-owner-01").refused(
        2,
        "SERVER-OWNER-01 is no rule of ovirt-rdma-host check",
        "ovirt-rdma-host server check has it",
    )
    run(capsys, "server", "check", "--only", "VDSM-01").refused(
        2,
        "VDSM-01 is no rule of ovirt-rdma-host server check",
        "ovirt-rdma-host check has it",
    )


@pytest.mark.parametrize("option", ["--only", "--skip"])
def test_a_rule_that_is_not_there(sampled, option):
    sampled(*sample_rules.ALL)("check", option, "SAMPLE-TS0-01").refused(
        2, "there is no rule 'SAMPLE-TS0-01'", "did you mean SAMPLE-TSO-01"
    )


@pytest.mark.parametrize(
    ("outcomes", "code", "verdict"),
    [
        ([], 0, "There is nothing to check on hv1."),
        (findings("R", SKIP, ["a"]), 0, "nothing to check on hv1, 1 skipped."),
        (findings("R", PASS, ["a"]), 0, "1 check passed on hv1."),
        (findings("R", WARN, ["a"]), 0, "None of 1 check failed on hv1, 1 warning."),
        (findings("R", FAIL, ["a"]), 3, "1 of 1 check failed on hv1."),
        (
            findings("R", FAIL, ["a", "b"]) + findings("R", WARN, ["a"]),
            3,
            "2 of 3 checks failed on hv1, 1 warning.",
        ),
    ],
)
def test_verdict(sampled, outcomes, code, verdict):
    result = sampled(rule("R", outcomes))("check")
    assert (result.code, result.err) == (code, "")
    assert verdict in result.out


def test_a_failure_that_no_step_mends_is_explained_next(sampled):
    bad = rule("R", [*findings("R", WARN, ["a"]), *findings("R", FAIL, ["b"])])
    first = rule("Q", findings("Q", WARN, ["a"]))
    assert "\nnext: ovirt-rdma-host explain R\n" in sampled(first, bad)("check").out
    assert "\nnext: ovirt-rdma-host explain Q\n" in sampled(first)("check").out


def test_next_where_all_is_well(sampled):
    on_host = sampled(rule("R", findings("R", PASS, ["a"])))
    assert on_host("check").out.endswith("\nnext: ovirt-rdma-host policy load\n")
    policy = on_host.root / "new policy.yaml"
    policy.write_text(POLICY)
    tried = on_host("check", "--policy", str(policy)).out
    assert tried.endswith(f"\nnext: ovirt-rdma-host policy load '{policy}'\n")
    on_host("policy", "load", str(policy))
    assert on_host("check").out.endswith("\nnext: ovirt-rdma-host nfs list\n")


def test_next_is_about_the_same_host_and_policy(sampled, facts_file):
    on_host = sampled(*sample_rules.ALL)
    policy = on_host.root / "p.yaml"
    policy.write_text(POLICY)
    shown = on_host("check", "--facts", facts_file, "--policy", str(policy)).out
    assert shown.endswith(
        f"\nnext: ovirt-rdma-host plan --policy {policy} --facts {facts_file}\n"
    )


def test_nothing_is_to_be_loaded_for_a_facts_file(sampled, facts_file):
    on_host = sampled(rule("R", findings("R", PASS, ["a"])))
    assert "next: " not in on_host("check", "--facts", facts_file).out


def test_a_terminal(facts_file):
    words = ("check", "--facts", facts_file)
    plain = run_process(*words).out
    shown = run_on_terminal(*words)
    assert "\x1b[" in shown
    without_colour = re.sub(r"\x1b\[\d+m", "", shown)
    assert run_on_terminal(*words, NO_COLOR="1") == without_colour
    assert without_colour.split() == plain.split()
    # A command is not wrapped, so that it can be copied.
    lines = [line for line in without_colour.splitlines() if line[:5] != "next:"]
    assert max(map(len, lines)) <= 80 < max(map(len, plain.splitlines()))


@pytest.mark.parametrize("path", sorted(FACTS.glob("*.json")), ids=lambda p: p.stem)
def test_facts_of_real_hosts(call, path):
    for verb in ("check", "plan"):
        result = call(verb, "--facts", str(path))
        assert (result.code in (0, 3), result.err) == (True, ""), verb
        assert json.loads(path.read_text())["hostname"] in result.out
    document = call("check", "--facts", str(path), "-o", "json").document
    assert document["failed"] == (document["counts"]["FAIL"] > 0)


def test_a_host_without_anything(host):
    result = host("check")
    assert result.code == 3
    assert "\nunknown has no RDMA device to check; none of " in result.out
    assert result.err == ""
