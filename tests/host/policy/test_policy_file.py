# SPDX-License-Identifier: GPL-2.0-or-later
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.policy.diagnostics import PolicyProblem
from ovirt_rdma.host.policy.load import load_policy_file, parse_policy
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy

RULE_KEYS = (
    "name, server, path, transport, port, options, readiness_timeout, "
    "settle_timeout, failure_cache"
)
TRANSPORTS = "require-rdma, prefer-rdma, tcp"
DOMAIN = (
    "set it in the storage domain (NFS version, retransmissions, timeout), "
    "the engine sends it"
)
BY_US = "ovirt-rdma sets it for every export that a rule names"


def mistakes(text):
    """The message about a policy that must be refused, without the file's name."""
    with pytest.raises(PolicyProblem) as caught:
        parse_policy(text, "p.yaml")
    lines = str(caught.value).split("\n")
    assert len(lines) == len(caught.value.errors)
    return [line.removeprefix("p.yaml:") for line in lines]


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
    ("text", "sentence"),
    [
        ("nfs:\n", "1: version: is missing; allowed: 1"),
        ("version: 2\n", "1: version: 2 is not known; allowed: 1"),
        (
            "version: true\n",
            "1: version: must be a whole number, not the truth value true; allowed: 1",
        ),
        (
            "version: 1.0\n",
            "1: version: must be a whole number, not the number 1.0; allowed: 1",
        ),
        (
            "version: '1'\n",
            "1: version: must be a whole number, not the text '1'; allowed: 1",
        ),
        (
            "version: 1\nfabric:\n",
            "2: fabric: unknown key; allowed: version, nfs, host",
        ),
        (
            "just words\n",
            "1: must be a mapping of keys, not the text 'just words'; "
            "allowed: version, nfs, host",
        ),
        (
            "- 1\n",
            "1: must be a mapping of keys, not a list; allowed: version, nfs, host",
        ),
        (
            "version: 1\nnfs:\n  rule: []\n",
            "3: nfs.rule: unknown key; allowed: defaults, rules; did you mean rules?",
        ),
        (
            "version: 1\nnfs: [1]\n",
            "2: nfs: must be a mapping of keys, not a list; allowed: defaults, rules",
        ),
        (
            "version: 1\nnfs:\n  defaults: {path: /x}\n",
            "3: nfs.defaults.path: unknown key; allowed: transport, port, options, "
            "readiness_timeout, settle_timeout, failure_cache",
        ),
        (
            "version: 1\nnfs:\n  rules: {server: nas}\n",
            "3: nfs.rules: must be a list, not a mapping of keys",
        ),
        (
            "version: 1\nnfs:\n  rules:\n    - nas1\n",
            "4: nfs.rules[1]: must be a mapping of keys, not the text 'nas1'; "
            f"allowed: {RULE_KEYS}",
        ),
        (
            "version: 1\nnfs:\n  rules:\n    - path: /x\n      transport: tcp\n",
            "4: nfs.rules[1].server: is missing; "
            "allowed: a name, an address, a network or a glob",
        ),
        (
            "version: 1\nnfs:\n  rules:\n    - server: nas\n",
            "4: nfs.rules[1].transport: is missing here and in nfs.defaults; "
            f"allowed: {TRANSPORTS}",
        ),
        (
            rule(transports="tcp"),
            f"6: nfs.rules[1].transports: unknown key; allowed: {RULE_KEYS}; "
            "did you mean transport?",
        ),
        (
            rule(transport="rdma"),
            f"5: nfs.rules[1].transport: 'rdma' is not known; allowed: {TRANSPORTS}",
        ),
        (
            rule(transport="required-rdma"),
            "5: nfs.rules[1].transport: 'required-rdma' is not known; "
            f"allowed: {TRANSPORTS}; did you mean require-rdma?",
        ),
        (
            rule(port=0),
            "6: nfs.rules[1].port: 0 is out of range; allowed: 1 to 65535",
        ),
        (
            rule(port=65536),
            "6: nfs.rules[1].port: 65536 is out of range; allowed: 1 to 65535",
        ),
        (
            rule(port="'20049'"),
            "6: nfs.rules[1].port: must be a whole number, not the text '20049'; "
            "allowed: 1 to 65535",
        ),
        (
            rule(port="20049.0"),
            "6: nfs.rules[1].port: must be a whole number, not the number 20049.0; "
            "allowed: 1 to 65535",
        ),
        (
            rule(port="yes"),
            "6: nfs.rules[1].port: must be a whole number, not the truth value yes; "
            "allowed: 1 to 65535",
        ),
        (
            rule(port=""),
            "6: nfs.rules[1].port: must be a whole number, not nothing; "
            "allowed: 1 to 65535",
        ),
        (
            rule(readiness_timeout=0),
            "6: nfs.rules[1].readiness_timeout: 0 is out of range; allowed: 0.1 to 30",
        ),
        (
            rule(settle_timeout=121),
            "6: nfs.rules[1].settle_timeout: 121 is out of range; allowed: 0 to 120",
        ),
        (
            rule(failure_cache=-1),
            "6: nfs.rules[1].failure_cache: -1 is out of range; allowed: 0 to 3600",
        ),
        (
            rule(failure_cache=".nan"),
            "6: nfs.rules[1].failure_cache: must be a number, not .nan; "
            "allowed: 0 to 3600",
        ),
        (
            rule(readiness_timeout="2s"),
            "6: nfs.rules[1].readiness_timeout: must be a number, not the text '2s'; "
            "allowed: 0.1 to 30",
        ),
        (
            rule(name=2024),
            "6: nfs.rules[1].name: must be text, not the number 2024; "
            "write it in quotes; allowed: any text",
        ),
        (
            rule(name="2024-05-01"),
            "6: nfs.rules[1].name: must be text, not the date 2024-05-01; "
            "write it in quotes; allowed: any text",
        ),
        (
            rule(name="2024-13-45"),
            "6: nfs.rules[1].name: '2024-13-45' is not plain text in YAML; "
            "write it in quotes",
        ),
        (
            rule(path="''"),
            "6: nfs.rules[1].path: is empty; "
            "allowed: a path or a glob, such as /export/vm*",
        ),
        (
            rule(path="export"),
            "6: nfs.rules[1].path: 'export' names no export: a path starts with /",
        ),
        (
            rule(path="/export/"),
            "6: nfs.rules[1].path: '/export/' names no export: "
            "exports are normalised; write /export",
        ),
        (
            rule(server="''"),
            "4: nfs.rules[1].server: is empty; "
            "allowed: a name, an address, a network or a glob",
        ),
        (
            rule(server=10.2),
            "4: nfs.rules[1].server: must be text, not the number 10.2; "
            "write it in quotes; allowed: a name, an address, a network or a glob",
        ),
        (
            rule(server="10.20.0.5/24"),
            "4: nfs.rules[1].server: '10.20.0.5/24' is an address inside a network; "
            "write 10.20.0.0/24 for the network or 10.20.0.5 for the address",
        ),
        (
            rule(server="fd00::5/64"),
            "4: nfs.rules[1].server: 'fd00::5/64' is an address inside a network; "
            "write fd00::/64 for the network or fd00::5 for the address",
        ),
        (
            rule(server="10.20.0.0/33"),
            "4: nfs.rules[1].server: '10.20.0.0/33' is not a network; "
            "allowed: 10.20.0.0/24, fd00::/64",
        ),
        (
            rule(server="10.20.0.300"),
            "4: nfs.rules[1].server: '10.20.0.300' is not an IPv4 address; allowed: an "
            "address, a network such as 10.20.0.0/24 or a glob such as 10.20.*",
        ),
        (
            rule(server="fd00::*"),
            "4: nfs.rules[1].server: 'fd00::*' is not an IPv6 address; allowed: an "
            "address such as fd00::1 or a network such as fd00::/64 "
            "(no globs in IPv6)",
        ),
        (
            rule(server="'[fd00::1]'"),
            "4: nfs.rules[1].server: '[fd00::1]' has brackets; "
            "write the address without them: fd00::1",
        ),
        (
            rule(server="fe80::1%eth0"),
            "4: nfs.rules[1].server: 'fe80::1%eth0' has a zone; "
            "write fe80::1, it names every zone's",
        ),
        (
            rule(server="nas1:/export"),
            "4: nfs.rules[1].server: 'nas1:/export' is a whole export; "
            "write server: nas1 and path: /export",
        ),
        (
            rule(server="nas 1"),
            "4: nfs.rules[1].server: 'nas 1' has a character that no host name has; "
            "allowed: letters, digits, '.', '-', '_' and the glob characters * ? [ ]",
        ),
        (
            rule(server="nas[12"),
            "4: nfs.rules[1].server: 'nas[12' has a bracket without its partner",
        ),
        (
            rule(server="nas[9-1]"),
            "4: nfs.rules[1].server: 'nas[9-1]' has a range that ends before it "
            "begins: 9-1",
        ),
        (
            rule(path="/vm[!z-a]"),
            "6: nfs.rules[1].path: '/vm[!z-a]' has a range that ends before it "
            "begins: z-a",
        ),
        # YAML 1.1 takes colons for the base 60.
        (
            rule(name="1" + ":1" * 200 + ".5"),
            f"6: nfs.rules[1].name: '1{':1' * 200}.5' is not plain text in YAML; "
            "write it in quotes",
        ),
        (
            rule(name='"\\UFFFFFFFF"'),
            "6: not valid YAML: a number is too large",
        ),
    ],
)
def test_a_mistake_is_one_line_with_line_number_key_and_what_is_allowed(text, sentence):
    assert mistakes(text) == [sentence]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("rdma", "rdma is not for a policy; say it with transport:"),
        ("proto=rdma6", "proto is not for a policy; say it with transport:"),
        ("tcp", "tcp is not for a policy; say it with transport:"),
        ("udp6", "udp6 is not for a policy; say it with transport:"),
        ("port=20049", "port is not for a policy; say it with port:"),
        ("retry=0", f"retry is not for a policy; {BY_US}"),
        ("mountproto=tcp", "mountproto is not for a policy; mount.nfs finds it out"),
        ("timeo=600", f"timeo is not for a policy; {DOMAIN}"),
        ("retrans=2", f"retrans is not for a policy; {DOMAIN}"),
        ("vers=4.2", f"vers is not for a policy; {DOMAIN}"),
        ("nfsvers=3", f"nfsvers is not for a policy; {DOMAIN}"),
        ("minorversion=1", f"minorversion is not for a policy; {DOMAIN}"),
        ("v3", f"v3 is not for a policy; {DOMAIN}"),
        ("v4.2", f"v4.2 is not for a policy; {DOMAIN}"),
        ("addr=10.0.0.1", "addr is not for a policy; mount.nfs finds it out"),
        ("clientaddr=::1", "clientaddr is not for a policy; mount.nfs finds it out"),
        (
            "vfs_type=nfs",
            "vfs_type is not for a policy; "
            "it is a field of the engine's storage connection",
        ),
        (
            "bg",
            "bg is not for a policy; vdsmd would see a mount that does not exist yet",
        ),
        ("nconnect=0", "nconnect=0 is out of range; allowed: nconnect=1 to 16"),
        ("nconnect=17", "nconnect=17 is out of range; allowed: nconnect=1 to 16"),
        ("nconnect", "nconnect is out of range; allowed: nconnect=1 to 16"),
        (
            f"nconnect={'9' * 5000}",
            f"nconnect={'9' * 5000} is out of range; allowed: nconnect=1 to 16",
        ),
        ('context="a:b', "has a quote without its partner"),
        (
            "ro, rsize=8",
            "' rsize=8' has a blank in it; write a,b without blanks",
        ),
        (
            "ro,,rsize=8",
            "has an empty item; write a,b with single commas between options",
        ),
        ("ro,", "has an empty item; write a,b with single commas between options"),
        (
            "rsize=8,rsize=9",
            "rsize is given twice, and only the last would count",
        ),
    ],
)
@pytest.mark.parametrize("place", ["nfs.rules[1]", "nfs.defaults"])
def test_options_that_belong_to_someone_else_are_refused(options, sentence, place):
    if place == "nfs.defaults":
        text = f"version: 1\nnfs:\n  defaults:\n    options: '{options}'\n"
        line = 4
    else:
        text, line = rule(options=f"'{options}'"), 6
    assert mistakes(text) == [f"{line}: {place}.options: {sentence}"]


@pytest.mark.parametrize(
    "options",
    ["", "rsize=1048576,wsize=1048576,nconnect=16", "hard", "sec=krb5p", "nolock"],
)
def test_other_options_are_taken_as_they_are(options):
    policy = parse_policy(rule(options=f"'{options}'"), "p.yaml").policy
    assert policy.nfs.rules[0].options == options


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "version: 1\nnfs: {rules: [\n",
            "3: not valid YAML: expected the node content, but found '<stream end>'",
        ),
        (
            "version: 1\nnfs:\n\trules: []\n",
            "3: not valid YAML: found character '\\t' that cannot start any token; "
            "indent with blanks only, and quote a value that starts so",
        ),
        (
            "version: 1\nnfs: x: y\n",
            "2: not valid YAML: mapping values are not allowed here; "
            "check the indentation, and quote a value with a colon at its end",
        ),
        (
            rule(server="*.example.org"),
            "4: not valid YAML: expected alphabetic or numeric character, "
            "but found '.'; a value that starts with *, & or ! needs quotes",
        ),
        (
            rule(path="*vm"),
            "6: an alias is not allowed here; "
            "a value that starts with *, & or ! needs quotes",
        ),
        (
            rule(name="!!binary aGk="),
            "6: a tag is not allowed here; "
            "a value that starts with *, & or ! needs quotes",
        ),
        (
            "version: 1\n---\nversion: 1\n",
            "2: a second YAML document starts here; allowed: one",
        ),
        ("version: 1\n# \x07\n", "2: the character U+0007 is not allowed in YAML"),
        (
            "version: 1\nversion: 1\n",
            "2: version: is given twice, first in line 1",
        ),
        (
            rule() + "      server: nas2\n",
            "6: nfs.rules[1].server: is given twice, first in line 4",
        ),
        ("version: 1\n7: x\n", "2: the key 7 is not text; write it in quotes"),
        ("version: 1\n<<: {nfs: }\n", "2: the key << is not text; write it in quotes"),
        ("version: 1\n? [a]\n: x\n", "2: a key is not text; write it in quotes"),
    ],
)
def test_yaml_that_misleads_is_refused_with_its_line(text, sentence):
    assert mistakes(text) == [sentence]


def test_endless_nesting_is_a_sentence_too():
    assert mistakes("[" * 5000) == [" it is nested too deeply"]


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
    assert [line.split(" ")[:2] for line in mistakes(text)] == [
        ["3:", "nfs.defaults.options:"],
        ["3:", "nfs.defaults.prot:"],
        ["5:", "nfs.rules[1].server:"],
        ["6:", "nfs.rules[1].transport:"],
        ["7:", "nfs.rules[1].port:"],
        ["8:", "nfs.rules[2].server:"],
        ["9:", "nfs.rules[2].path:"],
        ["11:", "nfs.rules[2].port:"],
    ]


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        ("vm", "vm", 7),
        ("rule 2", None, 6),
    ],
)
def test_two_rules_may_not_have_one_name(first, second, line):
    text = (
        "version: 1\nnfs:\n  defaults: {transport: tcp}\n  rules:\n"
        f"    - {{server: a, name: {first}}}\n    - server: b\n"
    )
    text += f"      name: {second}\n" if second else ""
    assert mistakes(text) == [
        f"{line}: nfs.rules[2].name: {first!r} is the name of rule 1 already"
    ]


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
    assert warning.at("p.yaml") == (
        "p.yaml:6: nfs.rules[2]: 'b' never wins: 'a' stands before it and names all "
        "its exports; move it up, or remove it"
    )


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
    def problem(self, path):
        with pytest.raises(PolicyProblem) as caught:
            load_policy_file(path)
        return str(caught.value), caught.value.fix

    def test_a_file_is_read_as_utf8_with_or_without_a_byte_order_mark(self, tmp_path):
        path = tmp_path / "policy.yaml"
        path.write_bytes("\ufeffversion: 1\n# caf\u00e9\n".encode())
        assert load_policy_file(path).policy == Policy()

    def test_a_file_that_is_not_there(self, tmp_path):
        path = tmp_path / "policy.yaml"
        assert self.problem(path) == (
            f"{path}: there is no such policy file",
            "write one; an empty file is a policy too, it touches nothing",
        )

    def test_a_directory(self, tmp_path):
        assert self.problem(tmp_path) == (
            f"{tmp_path}: is a directory, not a policy file",
            "name the file in it",
        )

    def test_a_file_that_may_not_be_read(self, tmp_path, monkeypatch):
        def refuse(*_):
            raise PermissionError(13, "Permission denied")

        path = tmp_path / "policy.yaml"
        path.touch()
        monkeypatch.setattr(type(path), "open", refuse)
        assert self.problem(path) == (f"{path}: cannot be read: Permission denied", "")

    def test_another_encoding(self, tmp_path):
        path = tmp_path / "policy.yaml"
        path.write_bytes("version: 1\n# caf\u00e9\n".encode("latin-1"))
        assert self.problem(path) == (
            f"{path}:2: the byte 0xe9 is not UTF-8",
            "save the file as UTF-8",
        )

    def test_what_is_wrong_names_the_file_as_it_was_given(self, tmp_path, monkeypatch):
        (tmp_path / "policy.yaml").write_text("version: 2\n")
        monkeypatch.chdir(tmp_path)
        message, _ = self.problem("policy.yaml")
        assert message == "policy.yaml:1: version: 2 is not known; allowed: 1"


yaml_like = st.text(
    st.sampled_from("abnfsv1 :-\n[]{}'\"#*&!|>%@`\t,?.=~\x00\ud800\u2028\u00e9"),
    max_size=60,
)


@given(st.one_of(st.text(max_size=60), yaml_like))
def test_any_text_is_a_policy_or_a_problem(text):
    try:
        parse_policy(text, "p.yaml")
    except PolicyProblem as problem:
        assert problem.errors


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
