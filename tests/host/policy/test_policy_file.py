# SPDX-License-Identifier: GPL-2.0-or-later
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host.policy_mistakes import expect_mistake, mistakes, place, rows

from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import load_policy_file, parse_policy
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy

RULE_KEYS = (
    "name, server, path, transport, port, options, readiness_timeout, "
    "settle_timeout, failure_cache"
)
TRANSPORTS = "require-rdma, prefer-rdma, tcp"
LINES = {"server": 4, "transport": 5}  # of the keys of a rule; others are in 6


def rule(**keys):
    """A policy with one good rule, changed by ``keys``; each key a line from 4."""
    keys = {"server": "nas1", "transport": "tcp", **keys}
    lines = [f"      {key}: {value}" for key, value in keys.items()]
    lines[0] = "    - " + lines[0].lstrip()
    return "version: 1\nnfs:\n  rules:\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "# nothing but a comment\n",
        "---\n",
        "version: 1\n",
        "version: 1\nnfs:\n",
        "version: 1\nnfs:\n  defaults:\n  rules:\n",
        "version: 1\nnfs: {rules: []}\n",
    ],
)
def test_a_policy_without_rules_touches_nothing(text):
    assert parse_policy(text, "p.yaml").policy == Policy()


def test_a_rule_has_the_documented_values_where_the_file_says_nothing():
    policy = parse_policy(rule(transport="prefer-rdma"), "p.yaml").policy
    assert policy.nfs.rules == (
        NfsRule(
            number=1,
            name="rule 1",
            server="nas1",
            path="*",
            transport="prefer-rdma",
            port=20049,
            options="",
            readiness_timeout=2.0,
            settle_timeout=30.0,
            failure_cache=60.0,
        ),
    )


def test_a_rules_own_value_takes_the_place_of_the_default():
    text = """\
version: 1
nfs:
  defaults:
    transport: prefer-rdma
    port: 20050
    options: "rsize=1048576"
    readiness_timeout: 1
    settle_timeout: 0
    failure_cache: 10
  rules:
    - name: plain
      server: nas1.example.org
    - name: own
      server: 10.20.0.0/24
      path: /export/vm*
      transport: require-rdma
      port: 20049
      options: wsize=65536,nconnect=4
      readiness_timeout: 0.5
      settle_timeout: 5
      failure_cache: 0
    - server: nas3
      options: ""
"""
    assert parse_policy(text, "p.yaml").policy.nfs == NfsPolicy(
        (
            NfsRule(
                1,
                "plain",
                "nas1.example.org",
                "*",
                "prefer-rdma",
                20050,
                "rsize=1048576",
                1.0,
                0.0,
                10.0,
            ),
            NfsRule(
                2,
                "own",
                "10.20.0.0/24",
                "/export/vm*",
                "require-rdma",
                20049,
                "wsize=65536,nconnect=4",
                0.5,
                5.0,
                0.0,
            ),
            NfsRule(3, "rule 3", "nas3", "*", "prefer-rdma", 20050, "", 1.0, 0.0, 10.0),
        )
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "version: 1\nnfs:\n  rules:\n    - nas1\n",
            ("4: nfs.rules[1]", "value-type-wrong", "'nas1'", RULE_KEYS),
        ),
        (
            rule(transports="tcp"),
            (
                "6: nfs.rules[1].transports",
                "key-unknown",
                RULE_KEYS,
                "did you mean transport?",
            ),
        ),
        (rule(name='"\\UFFFFFFFF"'), ("6:", "yaml-invalid")),
        *rows(r"""\
nfs: | 1: version | key-missing | 1
version: 2 | 1: version | value-unknown | 1 | 2
version: true | 1: version | value-type-wrong | 1 | the truth value true
version: 1.0 | 1: version | value-type-wrong | the number 1.0
version: '1' | 1: version | value-type-wrong | '1' | 1
version: 1\nblocks: | 2: blocks | key-unknown | version, nfs, host, fabric, block
just words | 1: | value-type-wrong | 'just words' | version, nfs, host
- 1 | 1: | value-type-wrong | version, nfs, host | a list
version: 1\nnfs:\n  rule: [] | 3: nfs.rule | key-unknown | defaults, rules \
    | did you mean rules?
version: 1\nnfs: [1] | 2: nfs | value-type-wrong | defaults, rules | a list
version: 1\nnfs:\n  defaults: {path: /x} | 3: nfs.defaults.path | key-unknown \
    | transport, port, options, readiness_timeout, settle_timeout, failure_cache
version: 1\nnfs:\n  rules: {server: nas} | 3: nfs.rules | value-type-wrong \
    | a mapping of keys
version: 1\nnfs:\n  rules:\n    - path: /x\n      transport: tcp \
    | 4: nfs.rules[1].server | key-missing
version: 1\nnfs:\n  rules:\n    - server: nas | 4: nfs.rules[1].transport \
    | key-missing | require-rdma, prefer-rdma, tcp
"""),
    ],
)
def test_a_mistake_is_one_line_with_line_number_key_and_what_is_allowed(text, expected):
    expect_mistake(text, *expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    rows(r"""\
transport: rdma | value-unknown | 'rdma' | require-rdma, prefer-rdma, tcp
transport: required-rdma | value-unknown | 'required-rdma' \
    | require-rdma, prefer-rdma, tcp | did you mean require-rdma?
port: 0 | value-out-of-range | 1 to 65535 | 0
port: 65536 | value-out-of-range | 1 to 65535 | 65536
port: '20049' | value-type-wrong | '20049' | 1 to 65535
port: 20049.0 | value-type-wrong | 1 to 65535 | the number 20049.0
port: yes | value-type-wrong | 1 to 65535 | the truth value yes
port: | value-type-wrong | 1 to 65535 | nothing
readiness_timeout: 0 | value-out-of-range | 0.1 to 30
settle_timeout: 121 | value-out-of-range | 0 to 120 | 121
failure_cache: -1 | value-out-of-range | 0 to 3600 | -1
failure_cache: .nan | value-type-wrong | 0 to 3600 | .nan
readiness_timeout: 2s | value-type-wrong | '2s' | 0.1 to 30
name: 2024 | value-type-wrong | the number 2024 | in quotes
path: '' | value-empty | /export/vm*
path: export | path-not-absolute | 'export'
path: /export/ | path-not-normalised | '/export/' | write /export
server: '' | value-empty
server: 10.2 | value-type-wrong | the number 10.2
server: 10.20.0.5/24 | server-address-in-network | '10.20.0.5/24' \
    | write 10.20.0.0/24 | 10.20.0.5
server: fd00::5/64 | server-address-in-network | 'fd00::5/64' | write fd00::/64 \
    | fd00::5
server: 10.20.0.0/33 | value-invalid | '10.20.0.0/33' | 10.20.0.0/24 | fd00::/64
server: 10.20.0.300 | value-invalid | '10.20.0.300' | 10.20.0.0/24 | 10.20.*
server: fd00::* | value-invalid | 'fd00::*' | not for IPv6 | fd00::/64
server: '[fd00::1]' | server-in-brackets | '[fd00::1]' | fd00::1
server: fe80::1%eth0 | server-has-zone | 'fe80::1%eth0' | write fe80::1
server: nas1:/export | server-is-export | 'nas1:/export' \
    | write server: nas1 and path: /export
server: nas 1 | value-invalid | 'nas 1'
server: nas[12 | bracket-unmatched | 'nas[12'
server: nas[9-1] | glob-range-invalid | 'nas[9-1]' | 9-1
path: /vm[!z-a] | glob-range-invalid | '/vm[!z-a]' | z-a
"""),
)
def test_a_mistake_in_a_rule_has_its_line_its_key_and_what_is_allowed(given, expected):
    key, _, value = given.partition(":")
    where = f"{LINES.get(key, 6)}: nfs.rules[1].{key}"
    expect_mistake(rule(**{key: value.strip()}), where, *expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            f"nconnect={'9' * 5000}",
            ("value-out-of-range", "nconnect=1 to 16", f"nconnect={'9' * 5000}"),
        ),
        *rows(r"""\
rdma | option-not-for-policy | rdma | transport
proto=rdma6 | option-not-for-policy | proto | transport
tcp | option-not-for-policy | tcp | transport
udp6 | option-not-for-policy | udp6 | transport
port=20049 | option-not-for-policy | port | key port
retry=0 | option-not-for-policy | retry | ovirt-rdma
mountproto=tcp | option-not-for-policy | mountproto | mount.nfs
timeo=600 | option-not-for-policy | timeo | storage domain
retrans=2 | option-not-for-policy | retrans | storage domain
vers=4.2 | option-not-for-policy | vers | storage domain
nfsvers=3 | option-not-for-policy | nfsvers | storage domain
minorversion=1 | option-not-for-policy | minorversion | storage domain
v3 | option-not-for-policy | v3 | storage domain
v4.2 | option-not-for-policy | v4.2 | storage domain
addr=10.0.0.1 | option-not-for-policy | addr | mount.nfs
clientaddr=::1 | option-not-for-policy | clientaddr | mount.nfs
vfs_type=nfs | option-not-for-policy | vfs_type | storage connection
bg | option-not-for-policy | bg | vdsmd
nconnect=0 | value-out-of-range | nconnect=1 to 16 | nconnect=0
nconnect=17 | value-out-of-range | nconnect=1 to 16 | nconnect=17
nconnect | value-out-of-range | nconnect=1 to 16
context="a:b | quote-unmatched
ro, rsize=8 | option-has-blank | ' rsize=8'
ro,,rsize=8 | option-empty
ro, | option-empty
rsize=8,rsize=9 | option-repeated | rsize
"""),
    ],
)
@pytest.mark.parametrize("part", ["nfs.rules[1]", "nfs.defaults"])
def test_options_that_belong_to_someone_else_are_refused(options, expected, part):
    if part == "nfs.defaults":
        text = f"version: 1\nnfs:\n  defaults:\n    options: '{options}'\n"
        line = 4
    else:
        text, line = rule(options=f"'{options}'"), 6
    expect_mistake(text, f"{line}: {part}.options", *expected)


@pytest.mark.parametrize(
    "options",
    ["", "rsize=1048576,wsize=1048576,nconnect=16", "hard", "sec=krb5p", "nolock"],
)
def test_other_options_are_taken_as_they_are(options):
    policy = parse_policy(rule(options=f"'{options}'"), "p.yaml").policy
    assert policy.nfs.rules[0].options == options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rule(name="!!binary aGk="), ("6:", "yaml-alias-or-tag", "quotes")),
        ("version: 1\n# \x07\n", ("2:", "yaml-character-invalid", "U+0007")),
        (
            rule() + "      server: nas2\n",
            ("6: nfs.rules[1].server", "key-repeated", "4"),
        ),
        *rows(r"""\
version: 1\nnfs: {rules: [\n | 3: | yaml-invalid | '<stream end>'
version: 1\nnfs:\n	rules: [] | 3: | yaml-invalid | '\t'
version: 1\nnfs: x: y | 2: | yaml-invalid
version: 1\nnfs:\n  rules:\n    - server: *.example.org\n      transport: tcp | 4: \
    | yaml-invalid
version: 1\nnfs:\n  rules:\n    - server: nas1\n      transport: tcp\n      path: *vm \
    | 6: | yaml-alias-or-tag | quotes
version: 1\n---\nversion: 1 | 2: | yaml-second-document | one
version: 1\nversion: 1 | 2: version | key-repeated | 1
version: 1\n7: x | 2: | key-not-text | 7
version: 1\n<<: {nfs: } | 2: | key-not-text | <<
version: 1\n? [a]\n: x | 2: | key-not-text
"""),
    ],
)
def test_yaml_that_misleads_is_refused_with_its_line(text, expected):
    expect_mistake(text, *expected)


# Dates, and colons to the base 60, in YAML 1.1.
@pytest.mark.parametrize("name", ["2024-05-01", "2024-13-45", f"1{':1' * 200}.5", "="])
def test_what_yaml_reads_as_something_else_is_text(name):
    policy = parse_policy(rule(name=name), "p.yaml").policy
    assert policy.nfs.rules[0].name == name


def test_endless_nesting_is_a_sentence_too():
    (mistake,) = mistakes("[" * 5000)
    assert (mistake.line, mistake.sentence.id) == (1, "yaml-too-deep")


def test_all_mistakes_are_shown_at_once_in_the_order_of_their_lines():
    text = """\
version: 1
nfs:
  defaults: {prot: tcp, options: "rdma"}
  rules:
    - server: 10.20.0.5/24
      transport: rdma
      port: 70000
    - transport: tcp
      path: export
      port: 1
      port: 2
"""
    assert [place(mistake) for mistake in mistakes(text)] == [
        "3: nfs.defaults.options",
        "3: nfs.defaults.prot",
        "5: nfs.rules[1].server",
        "6: nfs.rules[1].transport",
        "7: nfs.rules[1].port",
        "8: nfs.rules[2].server",
        "9: nfs.rules[2].path",
        "11: nfs.rules[2].port",
    ]


@pytest.mark.parametrize(
    ("first", "second", "line"), [("vm", "vm", 7), ("rule 2", None, 6)]
)
def test_two_rules_may_not_have_one_name(first, second, line):
    text = (
        "version: 1\nnfs:\n  defaults: {transport: tcp}\n  rules:\n"
        f"    - {{server: a, name: {first}}}\n    - server: b\n"
    )
    text += f"      name: {second}\n" if second else ""
    where = f"{line}: nfs.rules[2].name"
    expect_mistake(text, where, "name-repeated", repr(first), "rule 1")


def two_rules(first, second):
    return parse_policy(
        "version: 1\nnfs:\n  defaults: {transport: tcp}\n  rules:\n"
        f"    - {{name: a, {first}}}\n    - {{name: b, {second}}}\n",
        "p.yaml",
    ).warnings


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("server: nas", "server: nas"),
        ("server: nas", "server: NAS., path: /x"),
        ("server: '*'", "server: 10.0.0.1"),
        ("server: '*'", "server: 'nas*', path: '/x*'"),
        ("server: 'nas*'", "server: nas1"),
        ("server: 'nas*', path: /x", "server: 'nas*', path: /x"),
        ("server: nas, path: '/x*'", "server: nas, path: /x/y"),
        ("server: nas, path: '/x[1]'", "server: nas, path: '/x[1]'"),
        ("server: nas, path: '/x[1]'", "server: nas, path: /x1"),
        ("server: 10.0.0.0/8", "server: 10.20.0.0/24"),
        ("server: 10.0.0.0/8", "server: 10.20.0.5"),
        ("server: 'fd00::1'", "server: 'fd00:0::1'"),
    ],
)
def test_a_rule_that_can_never_win_is_a_warning(first, second):
    (warning,) = two_rules(first, second)
    assert (place(warning), warning.sentence.id) == (
        "6: nfs.rules[2]",
        "rule-never-wins",
    )
    assert warning.sentence.startswith("'b'")
    assert "'a'" in warning.sentence


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("server: nas, path: /x", "server: nas"),
        ("server: nas1", "server: 'nas*'"),
        ("server: 'nas*'", "server: 'nas1*'"),
        ("server: 10.20.0.0/24", "server: 10.0.0.0/8"),
        ("server: 10.20.0.0/24", "server: nas"),
        ("server: 0.0.0.0/0", "server: 'fd00::/8'"),
        ("server: '*', path: '/x*'", "server: nas, path: '/x/*'"),
        ("server: nas, path: /x1", "server: nas, path: '/x[1]'"),
        ("server: nas, path: '/x[[]1]'", "server: nas, path: '/x[1]'"),
    ],
)
def test_a_rule_that_may_win_is_none(first, second):
    assert two_rules(first, second) == ()


class TestFiles:
    def problem(self, path, id, where=""):
        """Expect one mistake about the file; return its sentence and the fix."""
        with pytest.raises(PolicyProblem) as caught:
            load_policy_file(path)
        (reason,) = caught.value.reasons
        assert reason.id == id
        assert reason.startswith(f"{path}{where}: ")
        return reason, caught.value.fix

    def test_a_file_is_read_as_utf8_with_or_without_a_byte_order_mark(self, tmp_path):
        path = tmp_path / "policy.yaml"
        path.write_bytes("\ufeffversion: 1\n# caf\u00e9\n".encode())
        assert load_policy_file(path).policy == Policy()

    def test_a_file_that_is_not_there(self, tmp_path):
        path = tmp_path / "policy.yaml"
        assert self.problem(path, "policy-file-missing")[1]

    def test_a_directory(self, tmp_path):
        sentence, _ = self.problem(tmp_path, "policy-file-unreadable")
        assert sentence.endswith("Is a directory")

    def test_a_file_that_may_not_be_read(self, tmp_path, monkeypatch):
        def refuse(*_):
            raise PermissionError(13, "Permission denied")

        path = tmp_path / "policy.yaml"
        path.touch()
        monkeypatch.setattr(type(path), "open", refuse)
        sentence, fix = self.problem(path, "policy-file-unreadable")
        assert "Permission denied" in sentence
        assert not fix

    def test_another_encoding(self, tmp_path):
        path = tmp_path / "policy.yaml"
        path.write_bytes("version: 1\n# caf\u00e9\n".encode("latin-1"))
        sentence, fix = self.problem(path, "policy-file-not-utf8", where=":2")
        assert "0xe9" in sentence
        assert "UTF-8" in fix

    def test_what_is_wrong_names_the_file_as_it_was_given(self, tmp_path, monkeypatch):
        (tmp_path / "policy.yaml").write_text("version: 2\n")
        monkeypatch.chdir(tmp_path)
        self.problem("policy.yaml", "value-unknown", where=":1: version")


@given(st.binary(max_size=60))
def test_any_file_is_a_policy_or_a_problem(data):
    read_end, write_end = os.pipe()
    with os.fdopen(read_end), os.fdopen(write_end, "wb") as stream:
        stream.write(data)
        stream.close()
        try:
            load_policy_file(f"/proc/self/fd/{read_end}")
        except PolicyProblem as problem:
            assert problem.errors
