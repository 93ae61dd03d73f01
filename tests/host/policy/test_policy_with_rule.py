# SPDX-License-Identifier: GPL-2.0-or-later
"""Adding a rule to policy.yaml keeps the other text and its meaning."""

from __future__ import annotations

import pytest
from support.problems import problem

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.edit import with_rule
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import PREFER_RDMA, REQUIRE_RDMA, TCP, rule_for

pytestmark = pytest.mark.hypervisor

VM1 = Export("nas1", "/vm1")

NAMED = """\
# our hosts
version: 1
nfs:
  defaults: {transport: tcp}   # unless said
  rules:
    # the old filer
    - name: old
      server: nas0
      path: /old
    # everything of nas1
    - server: nas1
      port: 20050      # theirs
      options: nconnect=4
      transport: prefer-rdma
# the end
"""


def rule_of(text: str, export: Export = VM1):
    match = rule_for(parse_policy(text, "x").policy, export)
    assert match is not None
    return match.rule


@pytest.mark.parametrize("nothing", [None, "", "# nothing here\n", "# no newline"])
def test_a_new_file(nothing):
    text = with_rule(nothing, VM1, REQUIRE_RDMA, "domain data1")
    assert text.startswith(nothing or "")
    rule = rule_of(text)
    assert (rule.name, rule.transport) == ("domain data1", REQUIRE_RDMA)


def test_what_says_so_already_stays_as_it_is():
    assert with_rule(NAMED, VM1, PREFER_RDMA) == NAMED
    odd = "version: 1\nnfs: {rules: [{server: nas1, transport: tcp}]}"
    assert with_rule(odd, VM1, TCP) == odd


def test_a_wider_rule_stays_and_gives_its_other_keys():
    text = with_rule(NAMED, VM1, REQUIRE_RDMA, "domain data1")
    assert text == NAMED.replace(
        "    # everything of nas1\n",
        "    - name: domain data1\n"
        "      server: nas1\n"
        "      path: /vm1\n"
        "      transport: require-rdma\n"
        "      port: 20050\n"
        "      options: nconnect=4\n"
        "    # everything of nas1\n",
    )
    assert rule_of(text, Export("nas1", "/vm2")).transport == PREFER_RDMA


def test_a_rule_of_this_export_alone_only_gets_the_transport():
    text = with_rule(NAMED, Export("NAS0", "/old"), REQUIRE_RDMA)
    assert text == NAMED.replace(
        "      path: /old\n", "      path: /old\n      transport: require-rdma\n"
    )
    again = with_rule(text, Export("nas0", "/old"), TCP)
    assert again == text.replace("transport: require-rdma", "transport: tcp")


def test_a_new_rule_goes_to_the_end_where_none_names_the_export():
    text = with_rule(NAMED, Export("nas9", "/x"), REQUIRE_RDMA, "old")
    added = "    - server: nas9\n      path: /x\n      transport: require-rdma\n"
    assert text == NAMED.replace("# the end\n", f"{added}# the end\n")


FORMS = [
    "version: 1\n",
    "version: 1",
    "version: 1\nnfs:\n",
    "version: 1\nnfs:   # none yet\nhost:\n",
    "nfs:\n  rules:\nversion: 1\n",
    "nfs:\n  rules: []\nversion: 1\n",
    "nfs:\n  rules: [ ] # none\nversion: 1\n",
    "nfs: {}\nversion: 1\n",
    "nfs: {rules: []}\nversion: 1\n",
    "nfs: {defaults: {transport: tcp}}\nversion: 1\n",
    "{version: 1}\n",
    '{"version": 1, "nfs": {"rules": [{"server": "a", "transport": "tcp"}]}}\n',
    "version: 1\nnfs: {rules: [{server: a, transport: tcp}, ]}\n",
    "version: 1\nnfs:\n  defaults:\n    transport: tcp\n  # rules come here\n",
    "version: 1\nnfs:\n  defaults:\n    options: >-\n      hard\n\nhost:\n",
    "version: 1\nnfs:\n  rules:\n  - server: a\n    transport: tcp\n",
    "version: 1\nnfs:\n  rules:\n  -\n    server: a\n    transport: tcp # c\n\n\n",
    "version: 1\r\nnfs:\r\n  rules:\r\n  - server: a\r\n    transport: tcp\r\n",
    "---\nversion: 1\n",
    "version: 1\nnfs:\n  rules:\n  - {server: a, transport: tcp}\n",
    "version: 1\nnfs:\n    rules:\n       - server: nas1\n         transport: tcp\n",
    "version: 1\nnfs:\n  rules:\n  - server: nas1\n    path: /vm1\n    transport: tcp",
    "version: 1\nnfs: {rules: [{server: nas1, path: /vm1, transport: tcp}]}",
    "version: 1\nnfs:\n  rules: [{server: nas*, port: 2, transport: tcp}]\n",
    "version: 1\nnfs:\n  defaults: {transport: tcp}\n  rules:\n  - server: nas1\n"
    "    path: /vm1\n  - server: b\n",
    "version: 1\nnfs:\n  rules:\n  - server: nas1\n    options: ''\n"
    "    transport: tcp\n    settle_timeout: 0.5\n",
    "version: 1\nhost:\n  modules:\n    - mlx4_ib\n",
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_file_takes_a_rule_and_keeps_its_lines(form):
    text = with_rule(form, VM1, REQUIRE_RDMA, "domain data1")
    assert rule_of(text).transport == REQUIRE_RDMA
    before = parse_policy(form, "x").policy
    for export in (Export("a", "/x"), Export("nas1", "/vm2"), Export("b", "/")):
        old = rule_for(before, export)
        new = rule_for(parse_policy(text, "x").policy, export)
        assert (old and old.rule.transport) == (new and new.rule.transport)
    assert with_rule(text, VM1, REQUIRE_RDMA) == text
    back = with_rule(text, VM1, TCP)
    assert rule_of(back).transport == TCP
    for line in form.splitlines():
        if line.startswith("#") or "#" in line:
            assert line.partition("#")[2] in text


@pytest.mark.parametrize(
    "export",
    [
        Export("fd00::1", "/vm"),
        Export("::1", "/vm"),
        Export("10.0.0.1", "/"),
        Export("1", "/vm"),
        Export("nas1", "/vm [1]*?"),
        Export("nas1", "/a: b #c, 'd' \"e\" \\f é"),
        Export("no", "/yes"),
        Export("nas1.", "/x}"),
    ],
)
@pytest.mark.parametrize("form", [None, NAMED, "version: 1\nnfs: {rules: []}\n"])
def test_odd_exports(export, form):
    if export.server == "1":  # no host name that a policy takes
        with problem("policy-not-editable", export):
            with_rule(form, export, REQUIRE_RDMA)
        return
    text = with_rule(form, export, REQUIRE_RDMA, 'the "name": # 1')
    assert rule_of(text, export).transport == REQUIRE_RDMA


def test_a_path_with_brackets_names_no_other():
    text = with_rule(None, Export("nas1", "/vm[1]"), REQUIRE_RDMA)
    policy = parse_policy(text, "x").policy
    assert rule_for(policy, Export("nas1", "/vm1")) is None


def test_what_is_no_policy_is_refused_with_its_mistakes():
    with problem("policy-invalid", "hv1: policy.yaml:1: color"):
        with_rule("color: red\n", VM1, TCP, where="hv1: policy.yaml")


def test_what_cannot_be_edited_is_refused_with_the_rule():
    # The document ends where the part would be added.
    with problem("policy-not-editable") as caught:
        with_rule("version: 1\n...\n# over\n", Export("1.2", "/x"), TCP)
    assert "{server: " in caught.value.fix
