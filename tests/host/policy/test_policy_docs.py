# SPDX-License-Identifier: GPL-2.0-or-later
"""The example and the reference of the policy file match the program."""

import re
from pathlib import Path

import pytest

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.devices import Ipoib, Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.policy.diagnostics import PolicyProblem
from ovirt_rdma.host.policy.load import load_policy_file, parse_policy
from ovirt_rdma.host.policy.model import interface_rule_for, rule_for
from ovirt_rdma.host.policy.schema import HOST_SCHEMA, NFS_SCHEMA

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "policy.md").read_text()
RULE = NFS_SCHEMA["properties"]["rules"]["items"]["properties"]
INTERFACE = HOST_SCHEMA["properties"]["interfaces"]["items"]["properties"]
MATCH = INTERFACE["match"]["properties"]


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


@pytest.mark.parametrize(
    ("device", "layer", "port", "guid", "pkey", "name"),
    [
        ("mlx5_0", "InfiniBand", 1, "", "0x8002", "migration"),
        ("mlx4_0", "InfiniBand", 2, "0002:c903:00fb:1231", "0xffff", "small-buffers"),
        ("hfi1_0", "InfiniBand", 1, "", "0xffff", "storage"),
        ("mlx5_1", "Ethernet", 1, "", None, "roce"),
        ("mlx4_0", "InfiniBand", 2, "", "0xffff", None),
        ("bnxt_re0", "Ethernet", 1, "", None, None),
    ],
)
def test_each_of_the_examples_interfaces_wins(device, layer, port, guid, pkey, name):
    policy = load_policy_file(DOCS / "policy.yaml").policy.host
    found = interface_rule_for(
        policy,
        Netdev("x", 0, 0, "", "up", ipoib=Ipoib(pkey=pkey) if pkey else None),
        RdmaDevice(device, "CA", ""),
        RdmaPort(port, "ACTIVE", "LinkUp", layer, guid=guid),
    )
    assert (found.name if found else None) == name


def test_the_form_shown_is_in_order():
    for start in ("## Form\n", "## The host part\n"):
        section = REFERENCE.partition(start)[2].partition("\n## ")[0]
        lines = re.findall(r"^    (.*)$", section, re.MULTILINE)
        if lines[0] != "version: 1":
            lines.insert(0, "version: 1")
        found = parse_policy("\n".join(lines) + "\n", "p.yaml")
        assert found.policy.host.interfaces
        assert found.warnings == ()


def rows(start):
    """The table below ``start``: key to the other cells."""
    section = REFERENCE.partition(start)[2].partition("\n## ")[0]
    table = section.partition("|---|")[2].partition("\n\n")[0]
    lines = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", table, re.MULTILINE)
    return {key: cells.split(" | ") for key, cells in lines}


RULES = "## An NFS rule\n"
INTERFACES = "## An interface rule\n"
MATCHES = "**`match`**"


@pytest.mark.parametrize(
    ("start", "keys"),
    [
        (RULES, RULE),
        (INTERFACES, INTERFACE),
        (MATCHES, MATCH),
    ],
)
def test_the_reference_has_every_key_and_no_other(start, keys):
    assert list(rows(start)) == list(keys)


def test_the_reference_has_every_list():
    parts = [f"nfs.{key}" for key in NFS_SCHEMA["properties"]]
    parts += [f"host.{key}" for key in HOST_SCHEMA["properties"]]
    assert list(rows("## Form\n")) == ["version", *parts]


@pytest.mark.parametrize(
    ("start", "key", "schema"),
    [
        (start, key, schema)
        for start, keys in ((RULES, RULE), (INTERFACES, INTERFACE), (MATCHES, MATCH))
        for key, schema in keys.items()
        if "enum" in schema
    ],
)
def test_the_reference_has_every_choice(start, key, schema):
    words = re.findall(r"[\w-]+", rows(start)[key][0].rpartition(": ")[2])
    assert [word for word in words if word != "or"] == list(map(str, schema["enum"]))


@pytest.mark.parametrize("key", [key for key in RULE if "minimum" in RULE[key]])
def test_the_reference_has_the_range_and_the_default_of_a_number(key):
    value, default = rows(RULES)[key]
    assert value.startswith(f"{RULE[key]['minimum']} to {RULE[key]['maximum']}")
    text = "version: 1\nnfs: {rules: [{server: a, transport: tcp}]}"
    (rule,) = parse_policy(text, "p.yaml").policy.nfs.rules
    assert getattr(rule, key) == float(default)


def test_the_reference_has_the_range_of_the_mtu():
    mtu = INTERFACE["mtu"]
    assert f"{mtu['minimum']} to {mtu['maximum']} bytes" in rows(INTERFACES)["mtu"][0]


@pytest.mark.parametrize("key", ["device", "pci", "guid", "pkey"])
def test_what_the_reference_shows_for_a_match_is_taken(key):
    shown = re.findall("`([^`]+)`", rows(MATCHES)[key][0])
    for value in shown:
        text = f"version: 1\nhost: {{interfaces: [{{match: {{{key}: {value}}}}}]}}\n"
        (rule,) = parse_policy(text, "p.yaml").policy.host.interfaces
        if key != "device":
            assert getattr(rule, key) == shown[0]


def test_the_mistakes_shown_are_what_the_program_says():
    shown = re.findall(r"^    (policy\.yaml:.*)$", REFERENCE, re.MULTILINE)
    with pytest.raises(PolicyProblem) as caught:
        parse_policy(
            "version: 1\nnfs:\n  defaults: {prot: 5}\n  rules:\n"
            "    - server: 10.20.0.5/24\n      transport: rdma\n      port: 70000\n"
            "host:\n  interfaces:\n    - match: {pci: 04:00}\n"
            "      transport_mode: conected\n",
            "policy.yaml",
        )
    assert shown[:-2] == str(caught.value).split("\n")
    found = parse_policy(
        "version: 1\nnfs:\n  defaults: {transport: tcp}\n  rules:\n"
        "    - {name: a, server: nas}\n    - {name: b, server: nas, path: /x}\n"
        "host:\n  interfaces:\n"
        "    - {name: fabric, match: {link_layer: infiniband}}\n"
        "    - {name: port, match: {link_layer: infiniband, port: 1}}\n",
        "policy.yaml",
    )
    assert shown[-2:] == [warning.at("policy.yaml") for warning in found.warnings]
