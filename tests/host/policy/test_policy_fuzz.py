# SPDX-License-Identifier: GPL-2.0-or-later
"""Valid and broken policies and facts files: a result or sentences, never a traceback.

``make fuzz`` runs many more examples.
"""

from __future__ import annotations

import copy
import ipaddress
import json
import re
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.mutation import mutated

from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.facts import model as facts_file
from ovirt_rdma.host.facts.devices import (
    Ipoib,
    Netdev,
    PciIdentity,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import FactsProblem
from ovirt_rdma.host.policy import store
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import (
    TRANSPORTS,
    digest,
    from_json_dict,
    interface_rule_for,
    path_match,
    rule_for,
    server_match,
    to_json_dict,
)
from ovirt_rdma.host.policy.store import PolicySource, StoredPolicyProblem
from ovirt_rdma.host.policy.texts import options

DATA = Path(__file__).parents[2] / "data" / "facts"

POLICIES = [
    """\
version: 1
nfs:
  defaults: {transport: prefer-rdma, failure_cache: 5, readiness_timeout: 20}
  rules:
    - {name: absent, server: 10.99.0.77, transport: require-rdma}
    - {name: "a: b", server: "fd00:99::/64", path: /srv/vm*, options: "nconnect=4"}
""",
    """\
# A site's own
version: 1
nfs:
  rules:
    - server: nas1.example.com
      path: /export/[a-f]?
      transport: tcp
      port: 20050
      options: rsize=1048576,nconnect=4,sec=krb5p
      settle_timeout: 0.5
    - name: 'the rest'
      server: "*.example.com"
      transport: require-rdma
""",
    """\
version: 1
host:
  interfaces:
    - name: storage
      match: {link_layer: infiniband, device: "mlx4_[01]", pci: 04:00.0, port: 1}
      transport_mode: auto
      tso: off
      port_mtu: 2048
      pkey_children: [0x8001, "0x0002"]
    - {match: {guid: 0002:c903:00fb:1231, pkey: 0x8001}, mtu: 2044}
    - {match: {port: 2}, partitions: follow}
  partitions_interval: 60
  modules: [nvme-rdma]
  module_options:
    mlx4_core: {port_type_array: "1,1", num_vfs: 8}
nfs: {rules: [{server: nas, transport: tcp}]}
""",
]
WITH_ALL = """\
version: 1
nfs:
  health_interval: 15
  rules:
    - {server: nas, transport: require-rdma, server_kind: solaris, paths_return: 60,
       paths: [10.20.1.5, 10.20.2.5]}
host:
  interfaces:
    - {match: {port: 2}, port_type: eth, roce: {priority: 3, ecn: off, buffer: 131072}}
  virtual_functions:
    - {match: {pci: 5e:00.0}, count: 16, guids: keep, guests: "0-11", pkeys: [0x8001]}
  metrics_folder: /var/lib/metrics
fabric:
  hosts: {hv1: [0x2c90300fb1231]}
  partitions:
    a: {vlan: 5, members: [hv1=both], ipoib: off}
  subnet_managers: {hv1: {priority: 3, standby: on}}
block:
  srp:
    - {id_ext: 0x1, ioc_guid: 0x2c90300fb1230, dest: "10.0.0.1:5555", dev_loss_tmo: off,
       options: {queue_size: 128}}
  iser:
    - {portal: 10.0.0.1, iqn: "iqn.2003-01.org.example:a"}
  rescan_interval: 300
"""


@pytest.mark.parametrize("text", [*POLICIES, WITH_ALL])
def test_a_policy_is_stored_with_all_that_it_says(text):
    policy = parse_policy(text, "p.yaml").policy
    stored = from_json_dict(json.loads(json.dumps(to_json_dict(policy))))
    assert stored == policy
    assert digest(stored) == digest(policy)


YAML = st.sampled_from(
    ["\n", "  ", "\t", "- ", ": ", "&a ", "*a", "!x ", "!!int ", "<<: ", "? ", "|\n",
     ">-\n", "---\n", "...\n", "%YAML 1.1\n", '"', "'", "\\", "\\x", "\\u12", "\\U",
     '"\\UFFFFFFFF"', '"\\ud800"', "{", "}", "[", "]", "#", "\x00", "\x85", "\u2028",
     "\udcff", "~", "yes", "1:30", "1:1.5", ":1" * 300, "2001-01-01", "0x1F", "0b_",
     "=", ".inf", ".nan", "1e400", "1_000", "9" * 5000, "[" * 800, "version", "nfs",
     "server: 10.0.0.1/24\n", "path: '[z-a]'\n", "options: a,,b\n", "host",
     "match: {}\n", "04:00.0", "0x8001", "0x", "mlx4_[9-0]", "connected", "65520"]
) | st.text(max_size=3)  # fmt: skip


LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # YAML 1.1


HCA = RdmaDevice(
    "mlx4_0", "CA", "", pci=PciIdentity("0000:04:00.0", "0x15b3", "0x1003", "0x00")
)
PORT = RdmaPort(1, "ACTIVE", "LinkUp", "InfiniBand", guid="0002:c903:00fb:1231")
CHILD = Netdev("ib0.8001", 32, 2044, "", "up", ipoib=Ipoib(pkey="0x8001"))
LINES = [line for policy in POLICIES[1:] for line in policy.splitlines(True)]


@given(mutated([*POLICIES, *LINES], YAML))
def test_any_text_is_a_policy_that_reads_back_equal_or_one_line_a_mistake(text):
    try:
        read = parse_policy(text, "p.yaml")
    except PolicyProblem as problem:
        assert len(str(problem).split("\n")) == len(problem.errors) > 0
        last = len(LINE_BREAK.split(text))
        assert all((error.line or 1) <= last for error in problem.errors)
        return
    stored = json.dumps(to_json_dict(read.policy))
    assert from_json_dict(json.loads(stored)) == read.policy
    for rule in read.policy.nfs.rules:
        assert rule.transport in TRANSPORTS
        assert options(rule.options) == rule.options
    for server in ("nas1.example.com", "10.99.0.77", "fd00:99::1", "z"):
        rule_for(read.policy, Export(server, "/srv/vm1"))
    interface_rule_for(read.policy.host, CHILD, HCA, PORT)
    for option in read.policy.host.module_options:
        assert len(f"{option.module} {option.name}={option.value}".split()) == 2


YAML_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=6)
    | st.lists(st.sampled_from(["10.0.0.5", "10.0.1.5", "nas"]), max_size=3)
    | st.sampled_from([1, *TRANSPORTS, "10.0.0.0/24", "nas*", "/e", "nconnect=2"])
    | st.sampled_from(["auto", "connected", "0x8001", "infiniband", "04:00.0", 2048]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
RULE_KEYS = ["name", "server", "path", "transport", "port", "options", "x"]
RULE_KEYS += ["readiness_timeout", "settle_timeout", "failure_cache"]
RULE_KEYS += ["paths", "paths_return"]
KEYS = st.dictionaries(st.sampled_from(RULE_KEYS), YAML_VALUES, max_size=4)
MATCH_KEYS = ["link_layer", "device", "pci", "port", "guid", "pkey", "name"]
PROPERTIES = ["name", "transport_mode", "mtu", "tso", "port_mtu", "pkey_children"]
PROPERTIES += ["partitions"]
INTERFACE = st.builds(
    lambda match, keys: {"match": match, **keys},
    st.dictionaries(st.sampled_from(MATCH_KEYS), YAML_VALUES, max_size=3) | YAML_VALUES,
    st.dictionaries(st.sampled_from(PROPERTIES), YAML_VALUES, max_size=4),
)


@given(
    st.fixed_dictionaries(
        {"version": st.just(1) | YAML_VALUES},
        optional={
            "nfs": YAML_VALUES
            | st.fixed_dictionaries(
                {}, optional={"defaults": KEYS, "rules": st.lists(KEYS, max_size=3)}
            ),
            "host": YAML_VALUES
            | st.fixed_dictionaries(
                {},
                optional={
                    "interfaces": st.lists(INTERFACE, max_size=3),
                    "modules": st.lists(YAML_VALUES, max_size=3),
                    "module_options": st.dictionaries(
                        st.sampled_from(["mlx4_core", "mlx4-core", "m 1"]),
                        st.dictionaries(st.text(max_size=3), YAML_VALUES, max_size=2),
                    ),
                },
            ),
        },
    )
)
def test_values_of_any_type_are_refused_in_sentences(data):
    text = yaml.safe_dump(data, allow_unicode=True)
    try:
        policy = parse_policy(text, "p.yaml").policy
    except PolicyProblem as problem:
        assert len(str(problem).split("\n")) == len(problem.errors) > 0
    else:
        assert data["version"] == 1
        assert len(policy.nfs.rules) == len((data.get("nfs") or {}).get("rules") or [])
        interfaces = (data.get("host") or {}).get("interfaces") or []
        assert len(policy.host.interfaces) == len(interfaces)


# Which rule names an export

PATTERN = st.text("[]!-^*?abz/.~&|\\1", min_size=1, max_size=10)


@given(PATTERN, PATTERN | st.just("*"), st.text("abz/-.[", max_size=5))
def test_a_pattern_that_a_policy_takes_can_be_held_against_any_export(
    server, path, name
):
    rule = {"server": server, "path": path, "transport": "tcp"}
    text = json.dumps({"version": 1, "nfs": {"rules": [rule]}})
    try:
        policy = parse_policy(text, "p.yaml").policy
    except PolicyProblem as problem:
        assert len(str(problem).split("\n")) == len(problem.errors) > 0
    else:
        for export in (Export(name or "nas", path), Export("nas", f"/{name}")):
            rule_for(policy, export)


PLAIN = st.text(string.ascii_lowercase + "/-_1", max_size=8)


@given(PLAIN, PLAIN, PLAIN)
def test_a_glob_names_what_it_was_made_from(start, middle, end):
    path = f"/{start}{middle}{end}"
    assert path_match(path, path)
    assert path_match(f"/{start}*{end}", path)
    assert path_match(f"/{start}{'?' * len(middle)}{end}", path)
    assert not path_match(f"/{start}?{middle}{end}", path)


@given(st.ip_addresses(), st.integers(0, 128), st.sampled_from([str.upper, str.lower]))
def test_a_network_names_its_addresses_however_they_are_written(address, length, case):
    length = min(length, address.max_prefixlen)
    network = ipaddress.ip_network(f"{address}/{length}", strict=False)
    for shown in (str(address), case(address.exploded)):
        assert server_match(str(network), Export(shown, "/e"))
        assert server_match(str(address), Export(shown, "/e"))
    assert not server_match(str(network), Export("nas", "/e"))


EXPORTS = ["10.0.0.1:/data", "[fd00::1]:/a b", "nas1.example.com:/srv/vm//x/", "nas:/"]
EXPORT_PIECES = st.sampled_from(
    ["[", "]", ":", "/", "//", "..", "%eth0", " ", "\n", "\x00", "\udcff", "٣", "::"]
)


@given(mutated(EXPORTS, EXPORT_PIECES))
def test_any_export_is_one_that_reads_back_or_a_sentence(text):
    try:
        export = Export.parse(text)
    except ExportProblem as problem:
        assert problem.fix
        assert len(str(problem).splitlines()) == 1
    else:
        assert Export.parse(str(export)) == export
        assert export.path.startswith("/")


# What vdsmd reads: policy.json

STORED = [json.dumps(to_json_dict(parse_policy(t, "p").policy)) for t in POLICIES]
JSON = st.sampled_from(
    ["{", "}", "[", "]", '"', ",", ":", "null", "true", "NaN", "1e999", "-1",
     "9" * 400, "9" * 5000, "[" * 3000, '"rules"', '"port": 1.5', "\\ud800"]
) | st.text(max_size=3)  # fmt: skip
VALUES = st.sampled_from(
    [None, True, 0, 1.5, 10**400, float("nan"), "", "tcp", [], {}, "\ud800"]
)


@st.composite
def stored_policies(draw):
    """A policy's JSON data with up to three values changed."""
    data = json.loads(draw(st.sampled_from(STORED)))
    parts = [data, data["nfs"], *data["nfs"]["rules"]]
    parts += [data["host"], *data["host"]["interfaces"]]
    parts += data["host"]["module_options"]
    for _ in range(draw(st.integers(0, 3))):
        part = draw(st.sampled_from(parts))
        part[draw(st.sampled_from([*sorted(part), "new"]))] = draw(VALUES)
    return data


@given(stored_policies())
def test_a_stored_policy_is_a_policy_or_a_value_error(data):
    try:
        policy = from_json_dict(data)
    except ValueError as error:
        assert re.match(r"[\w.\[\]']+ (is|must) ", str(error))
    else:
        again = json.loads(json.dumps(to_json_dict(policy)))
        assert digest(from_json_dict(again)) == digest(policy)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("policy") / "policy.json"


@pytest.fixture(scope="module")
def good(path):
    """The bytes of a valid policy.json."""
    store.store(parse_policy(POLICIES[1], "p.yaml").policy, "p.yaml", path)
    return path.read_bytes()


@given(stored_policies(), mutated(STORED, JSON))
def test_what_vdsmd_follows_never_raises_and_keeps_the_last_good_policy(
    path, good, data, text
):
    path.write_bytes(good)
    source = PolicySource(path)
    policy = source.current()
    assert policy.nfs.rules
    wrapped = {
        "schema_version": 1,
        "kind": "stored-policy",
        "digest": "",
        "source": "",
        "loaded_at": "",
    }
    for content in (json.dumps({**wrapped, "policy": data}), text):
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
        assert source.current() == policy
        with pytest.raises(StoredPolicyProblem) as caught:
            store.read(path)
        assert caught.value.fix


# Facts files

DUMPS = [json.loads(path.read_text()) for path in sorted(DATA.glob("*.json"))]


def places(data, found):
    """Every object and array in ``data``."""
    found.append(data)
    for value in data.values() if isinstance(data, dict) else data:
        if isinstance(value, (dict, list)) and value:
            places(value, found)
    return found


@given(st.data())
def test_a_facts_file_is_facts_or_one_sentence(data):
    dump = copy.deepcopy(data.draw(st.sampled_from(DUMPS)))
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from(places(dump, [])))
        if isinstance(part, dict):
            key = data.draw(st.sampled_from([*part, "new\n"]))
        else:
            key = data.draw(st.integers(0, len(part) - 1))
        part[key] = data.draw(VALUES | st.text(max_size=3))
    try:
        facts = facts_file.from_json_dict(dump, "x.json")
    except FactsProblem as problem:
        assert problem.fix
        assert len(str(problem).splitlines()) == 1
    else:
        assert facts_file.from_json_dict(facts_file.to_json_dict(facts), "y") == facts
