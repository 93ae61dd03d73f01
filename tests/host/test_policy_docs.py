# SPDX-License-Identifier: GPL-2.0-or-later
"""The example and the reference of the policy file say what the program does."""

import re
from pathlib import Path

import pytest

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy import rule_for
from ovirt_rdma.host.policy_file import load_policy_file, parse_policy
from ovirt_rdma.host.policy_remark import PolicyProblem
from ovirt_rdma.host.policy_schema import NFS_SCHEMA

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "policy.md").read_text()
RULE = NFS_SCHEMA["properties"]["rules"]["items"]["properties"]


@pytest.mark.parametrize(
    ("export", "rule", "transport"),
    [
        ("nas1.example.org:/export/iso", "iso", "tcp"),
        ("nas1.example.org:/export/vm7", "vm-store", "require-rdma"),
        ("10.20.0.5:/x", "storage-network", "prefer-rdma"),
        ("[fd00:20::5]:/x", "storage-network-v6", "prefer-rdma"),
        ("a.lab.example.org:/x", "lab", "prefer-rdma"),
    ],
)
def test_the_example_is_in_order_and_each_of_its_rules_wins(export, rule, transport):
    found = load_policy_file(DOCS / "policy.yaml")
    match = rule_for(found.policy, Export.parse(export))
    assert (match.rule.name, match.rule.transport) == (rule, transport)
    assert found.warnings == ()


def rows():
    """The reference's table of a rule: key to value and default."""
    section = REFERENCE.partition("## A rule\n")[2]
    cells = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", section, re.MULTILINE)
    return {key: (value, default) for key, value, default in cells}


def test_the_reference_has_every_key_of_a_rule_and_no_other():
    assert list(rows()) == list(RULE)


@pytest.mark.parametrize("key", [key for key in RULE if "minimum" in RULE[key]])
def test_the_reference_has_the_range_and_the_default_of_a_number(key):
    value, default = rows()[key]
    assert value.startswith(f"{RULE[key]['minimum']} to {RULE[key]['maximum']}")
    text = "version: 1\nnfs: {rules: [{server: a, transport: tcp}]}"
    (rule,) = parse_policy(text, "p.yaml").policy.nfs.rules
    assert getattr(rule, key) == float(default)


def test_the_mistakes_shown_are_what_the_program_says():
    shown = re.findall(r"^    (policy\.yaml:.*)$", REFERENCE, re.MULTILINE)
    with pytest.raises(PolicyProblem) as caught:
        parse_policy(
            "version: 1\nnfs:\n  defaults: {prot: 5}\n  rules:\n"
            "    - server: 10.20.0.5/24\n      transport: rdma\n      port: 70000\n",
            "policy.yaml",
        )
    assert shown[:-1] == str(caught.value).split("\n")
    found = parse_policy(
        "version: 1\nnfs:\n  defaults: {transport: tcp}\n  rules:\n"
        "    - {name: a, server: nas}\n    - {name: b, server: nas, path: /x}\n",
        "policy.yaml",
    )
    assert shown[-1:] == [found.warnings[0].at("policy.yaml")]
