# SPDX-License-Identifier: GPL-2.0-or-later
"""Any JSON at any place of what a host prints: the parts of the fleet's verbs that look
at one host never fail, and never by what stands in for a bug of ours.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.hostile_answers import told
from support.engine.told_hosts import (
    connection,
    domain,
    engine,
    facts,
    host,
    mount,
    rules,
)
from support.engine.told_hosts import status as status_of
from support.host.facts_of_everything import EVERYTHING

from ovirt_rdma.engine_sdk_tools.conversion.fleet import (
    ReportedHost,
    domain_record,
    of_each,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import ConversionRequest
from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_heal
from ovirt_rdma.engine_sdk_tools.domains.create import (
    DomainRequest,
    plan_domain_create,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import row_of
from ovirt_rdma.engine_sdk_tools.fleet import check
from ovirt_rdma.engine_sdk_tools.fleet.policy_push import compare, plan_policy_push
from ovirt_rdma.engine_sdk_tools.hosts.ansible import pushed_of, read_answers, report_of
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import FAILED, OK, HostOutcome
from ovirt_rdma.engine_sdk_tools.hosts.report import DumpFolder, digest_of, policy_of
from ovirt_rdma.engine_sdk_tools.model import Nic
from ovirt_rdma.engine_sdk_tools.networks.create import NetworkRequest, netdevs_of
from ovirt_rdma.engine_sdk_tools.networks.nics import ipoib_mtus
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.uses import interfaces_of
from ovirt_rdma.host.policy.load import PolicyFiles, parse_policy

pytestmark = pytest.mark.engine

Place = tuple[Any, ...]
NFS1 = "nfs1.example.com"
POLICY = rules("require-rdma")
STATUS = status_of(POLICY)
FACTS = model.to_json_dict(
    replace(
        EVERYTHING,
        nfs_mounts=(*EVERYTHING.nfs_mounts, mount(f"{NFS1}:/exports/data1", "tcp")),
        rdma_devices=(*EVERYTHING.rdma_devices, *facts().rdma_devices),
        cm_ids=facts().cm_ids,
        degraded_marks=facts().degraded_marks,
    )
)
HOST = host(nics=(Nic("n", "ib0", "00:11:22:33:44:55"),))
SITE = engine(HOST, host("hv2"), domains=(domain(), domain("data2")))


def places(document: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the place of each value, the whole first."""
    yield path
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, value in items:
        yield from places(value, (*path, key))


def changed(document: Any, path: Place, value: Any) -> Any:
    if not path:
        return value
    made = copy.deepcopy(document)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 2**63, 2**64, -(2**64), 10**19, 10**400, 1e308, -1e308]),
    st.sampled_from([5e-324, float("nan"), float("inf"), "", "\0", "\ud800", "%s{}"]),
    st.sampled_from(
        ["[fd00::1", "nas:/x", "[::1]:/x", "0x", "0xffff", "inf", "9" * 99]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.recursive(
        st.none() | st.text(max_size=3) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    ),
)


def no_bug(*texts: Any) -> None:
    for text in texts:
        assert "a bug of" not in str(text), text


def look_at(its: Any) -> None:
    """All that the verbs do with one host's report."""
    no_bug(its)
    row = check.row_of(HOST, its, None, [connection()])
    no_bug(check.check(SITE, [row, row], None))
    no_bug(row_of(SITE, HOST, its, SITE.domains))
    policy = parse_policy(POLICY, "p").policy
    no_bug(compare(HOST, its, POLICY, policy, "p"))
    no_bug(plan_policy_push([HOST], POLICY, "p", [its]).change(HOST))
    for request in (
        ConversionRequest("rdma", rolling=True),
        ConversionRequest("tcp"),
        ConversionRequest("rdma", by_row=True),
    ):
        records = [domain_record(one, request.to) for one in SITE.domains]
        judge = functools.partial(
            ReportedHost.started, domains=records, request=request
        )
        no_bug(*of_each([HOST], [its], judge).values())
    for plan in (
        lambda: plan_heal(SITE, "d1", SITE.domains, [its]),
        lambda: plan_domain_create(
            SITE, {"hv1": its}, DomainRequest("new", f"{NFS1}:/exports/new", "dc1")
        ),
    ):
        try:
            no_bug(plan())
        except Problem as problem:
            no_bug(problem)
    no_bug(netdevs_of(HOST, its, NetworkRequest("n", "dc1", nic_match="ib*")))
    if its.facts is not None:
        no_bug(ipoib_mtus(its.facts), interfaces_of(its.facts))


TEXTS = st.one_of(
    VALUES.map(json.dumps),
    st.sampled_from([POLICY, "", "version: 1\n", "\ufeff", "%YAML 1." + "9" * 5000]),
    st.tuples(VALUES, VALUES).map(
        lambda two: json.dumps({"policy.yaml": two[0], "policy.d": two[1]})
    ),
    st.dictionaries(st.text(max_size=3), VALUES, max_size=2).map(
        lambda rules: json.dumps({"version": 1, "nfs": {"rules": [rules]}})
    ),
    st.text(max_size=20),
)


@given(TEXTS, st.dictionaries(st.sampled_from(["10-a.yaml", "50-b.yaml"]), TEXTS))
def test_anything_as_its_policy_files(text, drop_ins):
    its = reported(FACTS, changed(STATUS, ("policy", "drop_ins"), drop_ins), text)
    assert (its.policy_text, its.drop_ins) == (text, drop_ins)
    look_at(its)


def test_a_policy_that_our_parser_does_not_survive_is_unknown(monkeypatch):
    def broken(*_):
        raise AttributeError("'int' object has no attribute 'encode'")

    its = reported(FACTS, STATUS, "version: 1 # odd\n")
    monkeypatch.setattr(PolicyFiles, "parsed", broken)
    assert policy_of(its).policy is None
    assert "a bug of ovirt-rdma: AttributeError" in policy_of(its).reason
    assert digest_of(its.policy) == ""


def reported(facts_document: Any, status: Any, policy: str = POLICY) -> Any:
    return report_of("hv1", read_answers(told(facts_document, status, policy)), 0.0)


def test_as_it_is_all_is_told():
    its = reported(FACTS, STATUS)
    assert (its.problem, its.facts is None, its.policy_text) == ("", False, POLICY)
    look_at(its)


@pytest.mark.parametrize("place", [*places(STATUS)])
@given(value=VALUES)
def test_anything_in_a_status(place, value):
    its = reported(FACTS, changed(STATUS, place, value))
    look_at(its)


@given(st.dictionaries(st.sampled_from(["digest", "file_digest", "msg", "id"]), VALUES))
def test_anything_as_the_result_of_a_push(result):
    for kind in (OK, FAILED):
        pushed = pushed_of("hv1", HostOutcome("host-0", kind, "", result))
        digests = (result.get("digest"), result.get("file_digest"))
        good = kind == OK and all(isinstance(digest, str) for digest in digests)
        assert bool(pushed.problem) is not good
        no_bug(pushed)


@given(place=st.sampled_from([*places(FACTS)]), value=VALUES)
def test_anything_in_facts(place, value):
    look_at(reported(changed(FACTS, place, value), STATUS))


def all_like(document: Any, value: Any) -> Any:
    """Return ``document`` with ``value`` for all that has its type."""
    if type(document) is type(value):
        return value
    if isinstance(document, dict):
        return {key: all_like(inner, value) for key, inner in document.items()}
    if isinstance(document, list):
        return [all_like(inner, value) for inner in document]
    return document


@pytest.mark.parametrize(
    "value", [10**19, -(10**19), 0, 1e308, -1e308, 0.0, "", "\ud800", "[::1]:/x", []]
)
def test_the_same_value_everywhere_in_a_part_of_the_facts(value):
    taken = 0
    for part, content in FACTS.items():
        its = reported({**FACTS, part: all_like(content, value)}, STATUS)
        taken += its.facts is not None
        look_at(its)
    assert taken


@given(st.sampled_from([*places(STATUS)]), VALUES)
def test_the_same_from_a_folder(tmp_path_factory, place, value):
    folder = tmp_path_factory.mktemp("dumps")
    (folder / "hv1.facts.json").write_text(json.dumps(FACTS))
    odd = changed(STATUS, place, value)
    (folder / "hv1.status.json").write_text(json.dumps(odd))
    (folder / "hv1.policy.yaml").write_text(POLICY)
    look_at(DumpFolder(folder).reports([HOST])["hv1"])


@given(st.binary(max_size=200), st.text(max_size=200))
def test_anything_instead_of_answers(raw, text):
    look_at(reported(raw, raw, text))
    look_at(report_of("hv1", read_answers(text), 0.0))
