# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fakes.fake_hosts import (
    connectx3_ib,
    connectx5_roce,
    soft_roce,
    without_rdma,
)
from support.fitted_json import fitted

from ovirt_rdma.host.collect.storage import marks_to_json
from ovirt_rdma.host.facts import model as facts_file
from ovirt_rdma.host.facts.model import DegradedMark, Facts, FactsProblem, Route

DATA = Path(__file__).parents[2] / "data" / "facts"


def one_mount(build, protocol):
    def host(path):
        made = build(path)
        made.nfs_mount(
            "10.0.0.1:/data", "/rhev/data-center/mnt/10.0.0.1:_data", protocol
        )
        if protocol == "rdma":
            device = made.reader().rdma_devices()[0].name
            made.cm_id(device, "10.0.0.2:40001", "10.0.0.1:20049")
        return made

    return host


def degraded(path):
    made = one_mount(without_rdma, "tcp")(path)
    mark = DegradedMark(
        mountpoint="/rhev/data-center/mnt/10.0.0.1:_data",
        export="10.0.0.1:/data",
        rule="vm-store",
        wanted="prefer-rdma",
        transport="tcp",
        reason="this host has no RDMA device",
        fix="ovirt-rdma-host check says what its adapters lack",
        since="2023-11-14T23:13:18Z",
        mounted_s=3598.0,
    )
    made.write("/run/ovirt-rdma/mounts/degraded.json", marks_to_json([mark]))
    return made


GOLDEN = {
    "rxe-one-mount": one_mount(soft_roce, "rdma"),
    "connectx3-ib": one_mount(connectx3_ib, "rdma"),
    "connectx5-roce-bridge": one_mount(connectx5_roce, "rdma"),
    "no-rdma-tcp-mount": degraded,
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_dump_of_each_host_stays_as_it_was(name, tmp_path):
    """WRITE_GOLDEN=1 writes them again after an intended change."""
    facts = GOLDEN[name](tmp_path).reader().facts()
    path = DATA / f"{name}.json"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(fitted(facts_file.to_json(facts)))
    assert facts.problems == ()
    assert facts_file.load(path) == facts
    text = facts_file.to_json(facts)
    assert path.read_text() == fitted(text)
    assert text == json.dumps(json.loads(text), indent=2) + "\n"


# Surrogates are what bytes that are not UTF-8 become.
SCALARS = {
    str: st.text(max_size=4) | st.just("\udcff"),
    int: st.integers(-1, 2**64),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
}


def values(hint):
    """Everything that a type allows, not only what hosts have."""
    if hint in SCALARS:
        return SCALARS[hint]
    arguments = get_args(hint)
    if get_origin(hint) is Union:
        return st.none() | values(arguments[0])
    if get_origin(hint) is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    fields = {name: values(kind) for name, kind in get_type_hints(hint).items()}
    if hint is Route:
        fields["destination"] = st.ip_addresses().map(str)
        fields["source"] = st.none() | fields["destination"]
    return st.builds(hint, **fields)


@settings(deadline=None)
@given(values(Facts))
def test_round_trip(facts):
    data = facts_file.to_json_dict(facts)
    assert facts_file.from_json_dict(data, "here") == facts
    text = facts_file.to_json(facts)
    assert text.isascii()
    assert facts_file.from_json_dict(json.loads(text), "here") == facts


@pytest.fixture
def dump():
    return json.loads((DATA / "rxe-one-mount.json").read_text())


def refused(data) -> FactsProblem:
    with pytest.raises(FactsProblem) as caught:
        facts_file.from_json_dict(data, "facts file x.json")
    assert "\n" not in str(caught.value)
    assert "ovirt-rdma-host facts -o json" in caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    "change, sentence",
    [
        (
            lambda d: d.update(schema_version=3, new=1),
            "it was written by a newer version of ovirt-rdma (schema version 3; this "
            "one reads 2)",
        ),
        (
            lambda d: d.update(schema_version="1"),
            "schema_version is '1', not a whole number",
        ),
        (
            lambda d: d.update(schema_version=True),
            "schema_version is True, not a whole number",
        ),
        (
            lambda d: d.pop("schema_version"),
            "schema_version is missing, not a whole number",
        ),
        (lambda d: d.update(kind="status"), "kind is 'status', not 'facts'"),
        (lambda d: d.pop("kind"), "kind is missing, not 'facts'"),
        (lambda d: d.pop("hostname"), "hostname is missing"),
        (lambda d: d.update(colour=1), "colour is not a key of the facts"),
        (lambda d: d.update({"a b\n": 1}), r"'a b\n' is not a key of the facts"),
        (lambda d: d.update(uptime_s="1"), "uptime_s is a string, not a number"),
        (lambda d: d.update(uptime_s=float("nan")), "uptime_s is too large"),
        (lambda d: d.update(uptime_s=10**400), "uptime_s is too large"),
        (lambda d: d.update(modules=None), "modules is null, not an object"),
        (lambda d: d.update(netdevs={}), "netdevs is an object, not an array"),
        (
            lambda d: d["netdevs"][0].update(mtu=1500.0),
            "netdevs[0].mtu is a number, not a whole number",
        ),
        (
            lambda d: d["netdevs"][1].update(mtu=True),
            "netdevs[1].mtu is true or false, not a whole number",
        ),
        (
            lambda d: d["rdma_devices"][0]["ports"][0]["gids"][1].pop("netdev"),
            "rdma_devices[0].ports[0].gids[1].netdev is missing",
        ),
        (
            lambda d: d["rdma_devices"][0]["pci"] or d["rdma_devices"][0].update(pci=1),
            "rdma_devices[0].pci is a number, not an object",
        ),
        (
            lambda d: d["nfs_mounts"][0]["protocols"].append(1),
            "nfs_mounts[0].protocols[1] is a number, not a string",
        ),
        (lambda d: d.update(cm_ids=[[]]), "cm_ids[0] is an array, not an object"),
        (
            lambda d: d["routes"][0].update(destination="nas1"),
            "routes[0].destination is 'nas1', not an IP address",
        ),
        (
            lambda d: d["routes"][0].update(source="10.0.0.2/24"),
            "routes[0].source is '10.0.0.2/24', not an IP address",
        ),
        (
            lambda d: d["routes"][0].update(source=""),
            "routes[0].source is '', not an IP address",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(dump, change, sentence):
    data = copy.deepcopy(dump)
    change(data)
    assert str(refused(data)) == f"facts file x.json: {sentence}"


def test_a_route_of_a_link_local_address_is_taken_back(dump):
    dump["routes"][0].update(destination="fe80::1%eth0", source=None)
    route = facts_file.from_json_dict(dump, "here").routes[0]
    assert (route.destination, route.source) == ("fe80::1%eth0", None)


def test_another_version_is_named_before_anything_else():
    later = {"schema_version": 7, "kind": "facts", "new": []}
    assert "schema version 7; this one reads 2" in str(refused(later))


@pytest.mark.parametrize("data", [None, [], "text", 3, True])
def test_something_else_at_the_top(data):
    assert "not an object" in str(refused(data))


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b'{\n  "a": 1\n  "b": 2}', "it is not JSON: line 3 column 3: "),
        (b"", "it is not JSON: column 1: "),
        (b'{"a": "\xff"}', "is not JSON: byte 7 is not UTF-8"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"a": 1' + b"0" * 30 + b"}", "has a number with too many digits"),
        (b'{"a": 1e999}', "has a number that is too large"),
        (b'{"a": NaN}', "is not JSON: it has NaN"),
        (b'{"a": 1, "a": 2}', "has a key twice in one object"),
        (
            b'{"kind": "facts", "schema_version": ' + b"[" * 900 + b"]" * 900 + b"}",
            "schema_version is an array, not a whole number",
        ),
        (b"[]", ": it is an array, not an object"),
    ],
)
def test_a_file_that_is_no_dump(tmp_path, content, sentence):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(FactsProblem) as caught:
        facts_file.load(path)
    assert str(caught.value).startswith(f"facts file {path}")
    assert sentence in str(caught.value)
    assert caught.value.fix


def test_a_file_that_cannot_be_read(tmp_path):
    for path, words in (
        (tmp_path / "none.json", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(FactsProblem) as caught:
            facts_file.load(path)
        assert str(caught.value) == f"facts file {path}: it cannot be read: {words}"
