# SPDX-License-Identifier: GPL-2.0-or-later
"""Drop-ins: what they may say, which rule wins, what the engine's tools write."""

from __future__ import annotations

import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problems import problem

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import (
    MOST_BYTES,
    NO_FILES,
    PolicyFiles,
    load_policy_file,
    parse_policy,
    with_rule,
)
from ovirt_rdma.host.policy.model import (
    PREFER_RDMA,
    REQUIRE_RDMA,
    TCP,
    digest,
    rule_for,
)

pytestmark = pytest.mark.hypervisor

VM1 = Export("nas1", "/vm1")
# The admin's file, with everything that an editor of YAML text could lose.
MAIN = """\
# our hosts
version: 1
nfs:
  defaults: {transport: tcp, port: 20050}   # unless said
  rules:
    - name: old   # the old filer
      server: nas0
      path: /old
    - {server: nas1, options: nconnect=4, transport: prefer-rdma}
# the end"""


def drop_in(server="nas1", path="/vm1", transport=REQUIRE_RDMA, **more):
    rule = {"server": server, "path": path, "transport": transport, **more}
    return json.dumps({"version": 1, "nfs": {"rules": [rule]}})


def rule_of(text, export=VM1):
    match = rule_for(text.parsed("p.yaml").policy, export)
    assert match is not None
    return match.rule


def loaded(folder, main=MAIN, own=True, **drop_ins):
    """Load a policy with drop-ins, whose names have ``_`` for ``-`` and no ending."""
    if main is not None:
        (folder / "policy.yaml").write_text(main)
    (folder / "policy.d").mkdir(exist_ok=True)
    for name, text in drop_ins.items():
        path = folder / "policy.d" / f"{name[1:].replace('_', '-')}.yaml"
        path.write_text(text)
    return load_policy_file(folder / "policy.yaml", own=own)


def refused(folder, id, *words, **drop_ins):
    with pytest.raises(PolicyProblem) as caught:
        loaded(folder, **drop_ins)
    (reason,) = caught.value.reasons
    assert reason.id == id, reason
    for word in words:
        assert word in reason
    return caught.value


# -- on the host


def test_drop_ins_come_first_in_the_order_of_their_names(tmp_path):
    found = loaded(
        tmp_path,
        _50_b=drop_in(transport=TCP),
        _10_a=drop_in(transport=REQUIRE_RDMA),
        _90_c=drop_in("nas9", "/x", PREFER_RDMA),
    )
    assert found.drop_ins == ("10-a.yaml", "50-b.yaml", "90-c.yaml")
    rules = found.policy.nfs.rules
    assert [(r.number, r.server, r.transport) for r in rules] == [
        (1, "nas1", REQUIRE_RDMA),
        (2, "nas1", TCP),
        (3, "nas9", PREFER_RDMA),
        (4, "nas0", TCP),
        (5, "nas1", PREFER_RDMA),
    ]
    # The defaults of policy.yaml are for them too.
    assert {rule.port for rule in rules} == {20050}


def test_a_policy_without_drop_ins_is_as_ever(tmp_path):
    alone = digest(parse_policy(MAIN, "p.yaml").policy)
    assert digest(loaded(tmp_path).policy) == alone
    loaded(tmp_path, _50_a=drop_in())
    beside = load_policy_file(tmp_path / "policy.yaml", alone=True)
    assert digest(beside.policy) == alone


def test_drop_ins_without_a_policy_file(tmp_path):
    assert loaded(tmp_path, None, _50_a=drop_in()).policy.nfs.rules[0].port == 20049
    (tmp_path / "policy.d/50-a.yaml").unlink()
    with problem("policy-invalid", "there is no such policy file"):
        load_policy_file(tmp_path / "policy.yaml")


def test_a_rule_twice_is_a_warning_that_names_both_files(tmp_path):
    found = loaded(
        tmp_path, _50_a=drop_in("nas0", "/old"), _60_b=drop_in("nas0", "/old")
    )
    folder = f"{tmp_path}/policy.d"
    # In the order in which the rules come.
    second, main = found.warnings
    assert second.at("p").startswith(f"{folder}/60-b.yaml:1: nfs.rules[1]: 'rule 2'")
    assert main.at("p").startswith("p:6: nfs.rules[1]: 'old' never wins: 'rule 1' in ")
    for warning in (second, main):
        assert f"{folder}/50-a.yaml" in warning.sentence
        assert warning.sentence.id == "rule-never-wins"


@pytest.mark.parametrize(
    ("text", "id", "words"),
    [
        ("nfs: [\n", "yaml-invalid", ["50-a.yaml:2:"]),
        ("color: 1\nversion: 1\n", "key-unknown", ["50-a.yaml:1: color", "nfs"]),
        ("version: 1\nhost: {}\n", "not-for-drop-in", ["50-a.yaml:2: host"]),
        (
            "version: 1\nnfs: {defaults: {port: 1}}\n",
            "not-for-drop-in",
            ["50-a.yaml:2: nfs.defaults", "policy.yaml"],
        ),
        (drop_in(transport="rdma"), "value-unknown", ["50-a.yaml:1: nfs.rules[1]"]),
        (drop_in(name="old"), None, []),
    ],
)
def test_a_broken_drop_in_is_named_with_its_line(tmp_path, text, id, words):
    if id is None:
        # The drop-in comes first, so the name is repeated in policy.yaml.
        mistake = refused(tmp_path, "name-repeated", "policy.yaml:6:", _50_a=text)
        assert f"rule 1 in {tmp_path}/policy.d/50-a.yaml" in str(mistake)
    else:
        refused(tmp_path, id, *words, _50_a=text)


def test_mistakes_of_all_files_are_shown_at_once(tmp_path):
    with pytest.raises(PolicyProblem) as caught:
        loaded(tmp_path, f"{MAIN}\nhost: 1", _50_a="x: 1", _60_b="nfs: 2")
    assert [mistake.key for mistake in caught.value.errors] == [
        "host", "version", "x", "nfs", "version"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["data1.yaml", "5-a.yaml", "50-a.yml", "50-a b.yaml"])
def test_a_file_that_looks_like_a_drop_in_is_not_left_out_silently(tmp_path, name):
    loaded(tmp_path)
    (tmp_path / "policy.d" / name).write_text(drop_in())
    refused(tmp_path, "drop-in-name", name)


@pytest.mark.parametrize(
    "name", ["README", "50-a.yaml.rpmsave", ".50-a.yaml.swp", "x~"]
)
def test_what_editors_and_packages_leave_is_ignored(tmp_path, name):
    loaded(tmp_path)
    (tmp_path / "policy.d" / name).write_text("no policy")
    assert loaded(tmp_path).drop_ins == ()


def test_a_pipe_a_folder_and_a_long_file_are_refused(tmp_path):
    loaded(tmp_path)
    odd = tmp_path / "policy.d" / "50-a.yaml"
    os.mkfifo(odd)
    refused(tmp_path, "policy-file-unreadable", "50-a.yaml", "a named pipe")
    odd.unlink()
    odd.mkdir()
    refused(tmp_path, "policy-file-unreadable", "50-a.yaml", "directory")
    odd.rmdir()
    odd.write_bytes(b"#" * 1_000_001)
    refused(tmp_path, "policy-file-unreadable", "50-a.yaml", "1000000 bytes")
    # Together they are too long.
    odd.write_bytes(b"#" * 999_999)
    refused(tmp_path, "policy-file-too-long", "policy.yaml", "with its drop-ins")
    odd.write_bytes(b"\xff")
    refused(tmp_path, "policy-file-not-utf8", "50-a.yaml:1", "0xff")


def test_a_folder_that_is_none(tmp_path):
    (tmp_path / "policy.yaml").write_text(MAIN)
    (tmp_path / "policy.d").write_text("")
    with problem("policy-invalid", "policy.d: cannot be read"):
        load_policy_file(tmp_path / "policy.yaml")


@pytest.mark.parametrize("last", ["_60_b", "main"])
def test_all_files_together_have_a_largest_size(tmp_path, last):
    half = f"version: 1\n#{'x' * (MOST_BYTES // 2)}\n"
    assert loaded(tmp_path, main=None, _50_a=half).drop_ins == ("50-a.yaml",)
    with pytest.raises(PolicyProblem) as caught:
        loaded(tmp_path, **{"main": None, "_50_a": half, last: half})
    assert re.search(r"has more than \d+ bytes|longer than 1000000", str(caught.value))


@pytest.mark.parametrize("place", ["policy.d", "policy.d/50-a.yaml"])
def test_what_others_can_write_is_not_loaded(tmp_path, place):
    loaded(tmp_path, _50_a=drop_in())
    (tmp_path / place).chmod(0o777)
    refused(tmp_path, "policy-file-mode", place)
    # It is only not loaded: a check reads it.
    assert loaded(tmp_path, own=False).drop_ins == ("50-a.yaml",)


# -- what the engine's tools write


MAINS = (None, "", "# nothing\n", "version: 1", MAIN)
OURS = PolicyFiles(MAIN)
_NAMES = st.sampled_from(["policy.yaml", "10-a.yaml", "50-b.yaml"])
_CONTENTS = st.dictionaries(_NAMES, st.text(max_size=5))


@given(_CONTENTS, st.dictionaries(_NAMES, st.none() | st.text(max_size=5)))
def test_files_with_other_contents(contents, changes):
    files = NO_FILES.having(contents)
    assert files.contents == contents
    assert hash(files) == hash(NO_FILES.having(dict([*contents.items()][::-1])))
    new = files.having(changes)
    assert new.contents == {
        name: text for name, text in {**contents, **changes}.items() if text is not None
    }
    back = {name: contents.get(name) for name in changes}
    assert new.having(back) == files


@pytest.mark.parametrize("main", [*map(PolicyFiles, MAINS)])
def test_a_rule_wins_and_the_admins_file_stays_as_it_is(main):
    text = with_rule(main, VM1, REQUIRE_RDMA, "domain data1")
    file, drop_ins = text
    assert file == main.file
    assert list(drop_ins) == ["50-domain-data1.yaml"]
    rule = rule_of(text)
    assert (rule.name, rule.transport) == ("domain data1", REQUIRE_RDMA)
    assert with_rule(text, VM1, REQUIRE_RDMA, "domain data1") == text
    # A second time it is the same file.
    back = with_rule(text, VM1, TCP, "domain data1")
    assert list(back.drop_ins) == ["50-domain-data1.yaml"]
    assert rule_of(back).transport == TCP
    others = [Export("nas0", "/old"), Export("nas1", "/vm2"), Export("nas9", "/x")]
    for export in others:
        was = rule_for(main.parsed("p").policy, export)
        now = rule_for(text.parsed("p").policy, export)
        assert (was and was.rule.transport) == (now and now.rule.transport)


def test_what_says_so_already_stays_as_it_is():
    assert with_rule(OURS, VM1, PREFER_RDMA) == OURS


def test_the_other_keys_of_the_rule_before_are_kept():
    rule = rule_of(with_rule(OURS, VM1, REQUIRE_RDMA, "domain data1"))
    assert (rule.port, rule.options) == (20050, "nconnect=4")
    # Only its own: a default of policy.yaml is not copied, so it may change later.
    text = with_rule(OURS, VM1, REQUIRE_RDMA).drop_ins
    assert "20050" not in str(text)


def test_a_rule_in_an_admins_drop_in_is_overtaken_and_kept():
    admins = {"20-ours.yaml": drop_in("nas1", "*", TCP)}
    text = with_rule(PolicyFiles(MAIN, admins), VM1, REQUIRE_RDMA, "domain data1")
    names = list(text.drop_ins)
    assert names == ["19-domain-data1.yaml", "20-ours.yaml"]
    assert text.drop_ins["20-ours.yaml"] == admins["20-ours.yaml"]
    assert rule_of(text).transport == REQUIRE_RDMA


def test_an_edited_drop_in_of_ours_may_rely_on_the_defaults():
    main = "version: 1\nnfs: {defaults: {transport: tcp}}\n"
    first, other = Export.parse("nas1:/a"), Export.parse("nas2:/b")
    made = with_rule(PolicyFiles(main), first, REQUIRE_RDMA)
    ((name, text),) = made.drop_ins.items()
    edited = text.replace("      transport: require-rdma\n", "")
    assert edited != text
    present = PolicyFiles(main, {name: edited})
    new = with_rule(present, other, REQUIRE_RDMA)
    assert new.drop_ins[name] == edited
    assert with_rule(present, first, REQUIRE_RDMA).drop_ins == {name: text}


def test_a_drop_in_of_ours_that_got_another_rule_stays():
    first = Export.parse("nas1:/a")
    (name, text), *_ = with_rule(PolicyFiles(""), first, REQUIRE_RDMA).drop_ins.items()
    head, rule = text.split("    - ")
    theirs = "    - {server: nas2, transport: tcp}\n"
    present = PolicyFiles("", {name: f"{head}{theirs}    - {rule}"})
    new = with_rule(present, first, TCP)
    assert new.drop_ins[name] == present.drop_ins[name]
    policy = new.parsed("policy.yaml").policy
    assert rule_for(policy, first).rule.transport == TCP
    assert rule_for(policy, Export.parse("nas2:/x")).rule.transport == TCP


def test_a_rule_that_cannot_win_is_shown_to_add_it_by_hand():
    first = PolicyFiles(None, {"00-a.yaml": drop_in("nas1", "*", TCP)})
    with problem("policy-rule-not-added", "nas1:/vm1") as caught:
        with_rule(first, VM1, REQUIRE_RDMA, "domain data1")
    assert "transport: require-rdma" in caught.value.fix


def test_domains_whose_files_would_have_one_name():
    text = with_rule(NO_FILES, VM1, REQUIRE_RDMA, "domain data1")
    text = with_rule(text, Export("nas1", "/vm2"), REQUIRE_RDMA, "domain data1")
    assert len(text.drop_ins) == 2
    assert rule_of(text, Export("nas1", "/vm2")).transport == REQUIRE_RDMA


@pytest.mark.parametrize(
    "export",
    [
        Export("fd00::1", "/vm"),
        Export("10.0.0.1", "/"),
        Export("nas1", "/vm [1]*?"),
        Export("nas1", "/a: b #c, 'd' \"e\" \\f é"),
        Export("nas1", "/\U0001f4be"),
        Export("no", "/yes"),
        Export("nas1.", "/x}"),
    ],
)
@pytest.mark.parametrize("main", [NO_FILES, OURS])
def test_odd_exports(export, main):
    text = with_rule(main, export, REQUIRE_RDMA, 'the "name": # 1/../é')
    assert rule_of(text, export).transport == REQUIRE_RDMA
    (name,) = text.drop_ins
    assert "/" not in name


def test_a_server_that_no_policy_takes():
    with problem("policy-rule-not-added", "1:/vm"):
        with_rule(OURS, Export("1", "/vm"), REQUIRE_RDMA)


def test_a_path_with_brackets_names_no_other():
    text = with_rule(NO_FILES, Export("nas1", "/vm[1]"), REQUIRE_RDMA)
    assert rule_for(text.parsed("x").policy, Export("nas1", "/vm1")) is None


def test_what_is_no_policy_is_refused_with_its_mistakes():
    with problem("policy-invalid", "policy.yaml:1: color"):
        with_rule(PolicyFiles("color: red\n"), VM1, TCP)


def test_an_admins_drop_in_for_the_same_export_stays():
    """It has one rule, for this export only, as ours have, but not our first line."""
    theirs = drop_in(transport=TCP)
    text = with_rule(
        PolicyFiles(None, {"40-vm1.yaml": theirs}), VM1, PREFER_RDMA, "vm1"
    )
    assert rule_of(text).transport == PREFER_RDMA
    assert text.drop_ins["40-vm1.yaml"] == theirs
    # Ours is replaced.
    again = with_rule(text, VM1, REQUIRE_RDMA, "vm1")
    assert again.drop_ins.keys() == text.drop_ins.keys()
    assert again.drop_ins["40-vm1.yaml"] == theirs
