# SPDX-License-Identifier: GPL-2.0-or-later
"""Use the answers of one odd host in decisions: limits, work that is linear in the size
of its answers, and conversions.
"""

from __future__ import annotations

import itertools
import pickle
import pkgutil
import tracemalloc
from dataclasses import replace
from unittest import mock

import pytest
from support.engine.conversion_runs import (
    ROLLING,
    after,
    convert,
    planned,
    revert,
    run,
    site_of,
    transports,
)
from support.engine.hostile_answers import line, many_mounts, told
from support.engine.told_hosts import (
    connection,
    domain,
    engine,
    facts,
    host,
    mount,
    report,
    rules,
)
from support.engine.told_hosts import status as status_of

from ovirt_rdma.engine_sdk_tools.conversion.fleet import (
    domain_record,
    observe,
    of_each,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import ConversionRequest, Stage
from ovirt_rdma.engine_sdk_tools.domains.transport import row_of
from ovirt_rdma.engine_sdk_tools.fleet.check import row_of as hosts_row
from ovirt_rdma.engine_sdk_tools.fleet.policy_push import plan_policy_push
from ovirt_rdma.engine_sdk_tools.hosts.ansible import pushed_of, read_answers
from ovirt_rdma.engine_sdk_tools.hosts.ansible import report_of as read_report
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import FAILED, OK, HostOutcome
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    MOST_POLICY_BYTES,
    HostReport,
    bug_report,
    with_own_bugs_caught,
)
from ovirt_rdma.engine_sdk_tools.model import ChecksFailed, merged
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import load_policy_file, parse_policy

pytestmark = pytest.mark.engine

EMPTY = "version: 1\n"
LONG = EMPTY + "#" * MOST_POLICY_BYTES


# -- what is read


def test_a_bomb_is_not_unpacked():
    bomb = line("facts", b" " * 50_000_000)
    found = read_report("hv1", read_answers(bomb), 0.0)
    assert found.facts is None
    assert found.problem == "ovirt-rdma-host facts printed more than 4 MB on hv1"
    tracemalloc.start()
    read_answers(bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20_000_000


@pytest.mark.parametrize("status", ["9" * 5000, "1000", "\u0663", "-1", "", "1e1"])
def test_an_exit_status_has_three_digits(status):
    assert read_answers(line("facts", b"{}", status)) == {}


def test_all_answers_of_a_host_together_have_the_limit():
    some = b'"' + b"x" * 2_500_000 + b'"'
    names = ("facts", "status", "policy")
    found = read_answers("".join(line(name, some) for name in names))
    assert sum(len(one.out) for one in found.values()) <= 4_000_000
    assert set(found) == set(names)


@pytest.mark.parametrize(
    ("kind", "digest", "alone", "good"),
    [
        (OK, "sha256:a", "sha256:b", True),
        (FAILED, "sha256:a", "sha256:b", False),
        *((OK, odd, "sha256:b", False) for odd in (None, 1, [1], True)),
        *((OK, "sha256:a", odd, False) for odd in (None, 1, [1], True)),
    ],
)
def test_a_push_counts_with_the_digests_of_the_host(kind, digest, alone, good):
    result = {"digest": digest, "file_digest": alone}
    pushed = pushed_of("hv1", HostOutcome("host-0", kind, "", result))
    assert ("hv1" in pushed.problem) is not good
    assert (pushed.digest, pushed.file_digest) == (
        (digest, alone) if good else (None,) * 2
    )


# -- limits are the same before and at the act


def test_a_policy_too_long_is_refused_before_anybody_is_asked():
    with pytest.raises(PolicyProblem, match=r"60011 bytes.* 60000"):
        plan_policy_push([host()], LONG, "policy.yaml")


def test_a_policy_file_too_long_is_not_read(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_bytes(b"#" * 1_000_000)
    assert load_policy_file(file)
    file.write_bytes(b"#" * 1_000_001)
    with pytest.raises(PolicyProblem, match="longer than 1000000 bytes"):
        load_policy_file(file)


@pytest.mark.parametrize("rolling", [True, False])
def test_a_policy_too_long_to_be_sent_is_against_a_conversion(rolling):
    """That includes one that only our new rule makes too long: nothing is started."""
    site = site_of(hosts=3)
    request = ConversionRequest("rdma", rolling=rolling)
    nearly = EMPTY + "#" * (MOST_POLICY_BYTES - len(EMPTY) - 10) + "\n"
    site.world.host("host03").policy_text = nearly
    with pytest.raises(ChecksFailed) as caught:
        planned(site, request)
    assert "host03: with the new rule, the policy has 60" in str(caught.value)
    assert "host02" not in str(caught.value)
    assert not site.acts


@pytest.mark.parametrize("rolling", [True, False])
def test_a_host_whose_policy_could_not_be_had_is_against_a_conversion(rolling):
    golden = facts()
    text = told(model.to_json_dict(golden), status_of(EMPTY), LONG)
    its = read_report("hv1", read_answers(text), 0.0)
    assert its.problem.startswith("hv1: ")
    assert "60011 bytes" in its.problem
    assert "60000" in its.problem
    request = ConversionRequest("rdma", rolling=rolling)
    against = objections([host()], [its], request=request)
    assert any("at most 60000" in one for one in against)


def test_a_push_that_cannot_be_is_that_hosts_failure():
    site = site_of(hosts=3)
    state = planned(site, ROLLING).state
    push = site.push_policy

    def refuses(hosts, policy, done=None):
        if hosts[0].name == "host03":
            raise Problem("some-id", "it cannot be sent", "shorten it")
        return push(hosts, policy, done)

    site.push_policy = refuses
    stopped = run(site, state)
    assert stopped.stage == Stage.STOPPED
    assert "host03: it cannot be sent" in stopped.why
    del site.push_policy
    assert set(transports(site).values()) == {"rdma", "tcp"}
    assert revert(site).stage == "reverted"
    assert set(transports(site).values()) == {"tcp"}


# -- conversions


def test_a_host_that_somebody_puts_into_maintenance_stays_there():
    """It happens before its turn, while another host is in progress."""
    site = site_of(hosts=3)
    there = site.world.host("host03")

    def by_an_admin():
        there.status = "maintenance"
        there.mounts.clear()

    state = planned(site, ROLLING).state
    order = [h.name for h in state.hosts]
    assert order.index("host02") < order.index("host03")
    site.meanwhile["perform activating host02"] = by_an_admin
    done = run(site, state)
    assert there.status == "maintenance"
    assert (done.host("host03").stage, done.host("host03").why) == (
        Stage.LEFT,
        "somebody else moved it to maintenance",
    )
    assert not any("activating host03" in act for act in site.acts)


def test_a_mount_whose_signals_disagree_is_not_proven():
    site = site_of(hosts=3)
    reports = site.reports

    def disagree(hosts, done=None):
        found = reports(hosts, done)
        its = found.get("host02")
        if its is None or its.facts is None:
            return found
        mounts = tuple(
            replace(m, protocol="rdma", protocols=_over(m, "tcp"))
            if m.protocol == "rdma"
            else m
            for m in its.facts.nfs_mounts
        )
        odd = replace(its, facts=replace(its.facts, nfs_mounts=mounts))
        return {**found, "host02": odd}

    state = planned(site, ROLLING).state
    site.reports = disagree
    ended = run(site, state)
    assert ended.stage != "converted"
    assert "its transport is unproven" in ended.why
    # The conversion was rolled back on this host, and the others were not started.
    assert site.world.connection_of("data1").mount_options in ("", None)
    assert transports(site)["host03"] == "tcp"


def _over(mount, transport):
    return (transport,) * len(mount.protocols)


def test_a_revert_goes_on_for_the_others_where_one_cannot_be_asked():
    site = site_of(hosts=4)
    convert(site)
    reports = site.reports

    def mute(hosts, done=None):
        silent = HostReport("host02", problem="it says nothing that has a sense")
        found = reports(hosts, done)
        return {n: silent if n == "host02" else r for n, r in found.items()}

    site.reports = mute
    state = revert(site)
    assert state.stage == Stage.STOPPED
    assert "host02 cannot be asked" in state.why
    others = {n: t for n, t in transports(site).items() if n != "host02"}
    assert set(others.values()) == {"tcp"}


def test_but_not_where_one_does_not_come_back_from_its_maintenance():
    site = site_of(hosts=4)
    convert(site)
    there = site.world.host("host02")
    after(
        site, "host02", "activate", lambda: setattr(there, "status", "install_failed")
    )
    state = revert(site)
    assert state.stage == Stage.STOPPED
    assert "host02 is in the status 'install failed'" in state.why
    assert "rdma" in {t for n, t in transports(site).items() if n != "host02"}


# -- work is linear in what a host sends


def calls_of(name, work):
    """Return how often ``work`` calls the function with this dotted name."""
    real, calls = pkgutil.resolve_name(name), itertools.count()

    def counting(*words, **more):
        next(calls)
        return real(*words, **more)

    with mock.patch(name, counting):
        work()
    return next(calls)


PREFER = rules("prefer-rdma")


def crowded(number):
    golden = model.to_json_dict(facts())
    golden = many_mounts(golden, number, version="4.2")
    mine = {
        **golden["nfs_mounts"][0],
        "source": "nfs1.example.com:/exports/data1",
        "mountpoint": "/rhev/data-center/mnt/nfs1.example.com:_exports_data1",
    }
    golden["nfs_mounts"].append(mine)
    its = model.from_json_dict(golden, "hv1")
    return report(facts=its, status=status_of(PREFER), policy_text=PREFER)


def verify(its):
    row_of(engine(host(), domains=(domain(),)), host(), its, [domain()])


def check_conversion(its):
    objections([host()], [its])


def check_hosts(its):
    hosts_row(host(), its, None, [connection()])


@pytest.mark.parametrize("work", [verify, check_conversion, check_hosts])
@pytest.mark.parametrize(
    "counted",
    [
        "ovirt_rdma.host.export.posixpath.normpath",
        "ovirt_rdma.storage.mounts.prove",
        "ovirt_rdma.storage.mounts._is_4",
        "ovirt_rdma.storage.mounts.rule_for",
    ],
)
def test_twice_the_mounts_are_twice_the_work(work, counted):
    # More than any of our caches keeps.
    few, many = (calls_of(counted, lambda n=n: work(crowded(n))) for n in (1500, 3000))
    assert many <= 2 * few + 50


NAMES_ALL_OF = "ovirt_rdma.host.policy.load._names_all_of"


def many_rules(number):
    listed = "".join(
        f"  - {{server: 'h{n}-*', path: /x, transport: tcp}}\n" for n in range(number)
    )
    return f"version: 1\nnfs:\n  rules:\n{listed}"


def test_a_hosts_policy_is_read_without_looking_for_rules_that_never_win():
    text = many_rules(500)
    its = report(facts=facts(), status=status_of(text), policy_text=text)

    def look():
        verify(its)
        check_hosts(its)
        check_conversion(its)

    assert calls_of(NAMES_ALL_OF, look) == 0


def test_rules_that_never_win_are_looked_for_among_the_first_thousand():
    def looked(number):
        found = parse_policy(many_rules(number), "p")
        return calls_of(NAMES_ALL_OF, lambda: found.warnings)

    # Each is compared with those before it; more rules are no more work.
    assert looked(1000) == looked(3000) == 1000 * 999 // 2
    assert not parse_policy(many_rules(1000), "p").warnings
    (warning,) = parse_policy(many_rules(1001), "p").warnings
    assert warning.line == 1004
    assert warning.sentence.id == "rules-not-compared"
    assert "1000" in warning.sentence


# -- a bug of ours


def test_a_bug_of_ours_is_one_hosts_and_is_seen():
    def fails(its):
        if its.facts is not None:
            raise LookupError("no such thing")
        return its

    found = with_own_bugs_caught(report(facts=facts()), fails)
    assert found.facts is None
    assert found.host == "hv1"
    assert found.problem.startswith(
        "the report of hv1 could not be processed, which is a bug of ovirt-rdma: "
        "LookupError: no such thing (test_one_odd_host.py:"
    )
    assert found.fix
    with pytest.raises(Problem):
        with_own_bugs_caught(
            report(), lambda _: (_ for _ in ()).throw(Problem("some-id", "a sentence"))
        )


def test_a_bug_whose_own_words_cannot_be_had():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert "KeyError" in bug_report("hv1", KeyError(deep))[0]


# -- what planning makes of all reports

EXPORT = "nfs1.example.com:/exports/data1"
TCP_RULES = rules("tcp")


def reported(name="hv1", *mounts, policy=""):
    its = facts(*(mounts or (mount(EXPORT, "tcp"),)))
    status = status_of(policy) if policy else status_of()
    return report(name, facts=its, status=status, policy_text=policy or None)


def started(hosts, reports, *names, request=ROLLING, checked=None):
    records = [domain_record(domain(name), "rdma") for name in names or ("data1",)]
    checked = [one for one in records if one.name in checked] if checked else None
    return of_each(hosts, reports, lambda h: h.started(records, request, checked))


def objections(*words, **more):
    return [why for one in started(*words, **more).values() for why in one.objections]


def test_reports_come_in_any_order_and_hosts_stay_in_theirs():
    hosts = [host("hv2"), host("hv1"), host("hv3")]
    told = [reported("hv1"), reported("strange"), reported("hv2")]
    found = of_each(hosts, iter(told), lambda seen: bool(seen.problem))
    assert list(found.items()) == [("hv2", False), ("hv1", False), ("hv3", True)]


def test_of_a_report_little_is_kept():
    """There may be hundreds of hosts, each with thousands of mounts."""
    there = {"address": "192.0.2.99"}
    many = [mount(f"nfs2.example.com:/e/{n}", "tcp", **there) for n in range(2000)]
    its = reported("hv1", mount(EXPORT, "tcp"), *many)
    kept = started([host()], [its])
    assert len(pickle.dumps(kept)) < 5_000 < len(pickle.dumps(its)) / 20
    assert kept["hv1"].observed.transports == {EXPORT: "tcp"}
    records = [domain_record(domain(), "rdma")]
    assert observe([host()], [its], records) == {"hv1": kept["hv1"].observed}


def test_equal_objections_of_hosts_are_one_sentence():
    without = replace(facts(mount(EXPORT, "tcp")), rdma_devices=())
    hosts = [host(name) for name in ("hv1", "hv2")]
    told = [
        replace(reported(one.name, policy=TCP_RULES), facts=without) for one in hosts
    ]
    (objection,) = merged(objections(hosts, told))
    assert objection.id == "host-not-ready"
    assert objection.startswith("hv1, hv2: ")
    silent = [report(one.name, problem="no route") for one in hosts]
    # The fix names the host, so these stay apart.
    found = merged(objections(hosts, silent))
    assert [one.partition(" ")[0] for one in found] == ["hv1", "hv2"]


def test_only_what_is_converted_counts_as_remounted():
    """data2 keeps its mount over TCP, and with it the connection that data1 would
    use; together they are converted.
    """
    other = EXPORT.replace("data1", "data2")
    its = reported("hv1", mount(EXPORT, "tcp"), mount(other, "tcp"), policy=TCP_RULES)
    both = objections([host()], [its], "data1", "data2")
    assert "server-connection-shared" not in {one.id for one in both}
    alone = objections([host()], [its], "data1", "data2", checked=("data1",))
    (sentence,) = (o for o in alone if o.id == "server-connection-shared")
    assert other in sentence
