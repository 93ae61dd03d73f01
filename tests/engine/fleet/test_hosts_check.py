# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.told_hosts import (
    FACTS,
    SERVER,
    connection,
    domain,
    engine,
    facts,
    host,
    mount,
    report,
    rules,
    status,
)

from ovirt_rdma.engine_sdk_tools.fleet import check
from ovirt_rdma.engine_sdk_tools.fleet.check import (
    COLUMNS,
    connections_of,
    row_of,
    servers_cell,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    NAME,
    POINTS,
    hooks_cell,
)
from ovirt_rdma.engine_sdk_tools.model import FAIL, NONE, OK, UNKNOWN, WARN, Hook
from ovirt_rdma.host import __version__
from ovirt_rdma.host.facts import model as facts_file
from ovirt_rdma.host.policy.load import parse_policy

pytestmark = pytest.mark.engine

EXPORT = f"{SERVER}:/exports/data1"


def policy(text):
    return parse_policy(text, "p").policy


def matrix(told, wanted=None, hosts=None):
    hosts = hosts or [host(one.host) for one in told]
    rows = [row_of(one, its, wanted) for one, its in zip(hosts, told)]
    return check.check(engine(*hosts), rows, wanted)


def cell(column, told, there=None, wanted=None):
    there = there or host(told.host)
    return matrix([told], wanted, [there]).cells[0][COLUMNS.index(column)]


@pytest.mark.parametrize(
    ("its", "verdict"),
    [
        ("up", OK),
        ("maintenance", WARN),
        ("preparing_for_maintenance", WARN),
        ("non_operational", FAIL),
        ("install_failed", FAIL),
        (None, UNKNOWN),
    ],
)
def test_engines_status(its, verdict):
    found = cell("status", report(), host(status=its))
    assert (found.verdict, found.source) == (verdict, "engine")


def test_host_without_data_is_unknown_everywhere_but_for_the_engine():
    told = report(problem="no answer from hv1", fix="look")
    cells = matrix([told]).cells[0]
    assert [c.verdict for c in cells[:1]] == [OK]
    for found, name in zip(cells[2:], COLUMNS[2:]):
        assert found.verdict == UNKNOWN, name
        assert (found.sentence, found.fix) == ("no answer from hv1", "look")


@pytest.mark.parametrize(
    ("column", "its", "verdict", "text"),
    [
        ("package", {}, OK, __version__),
        ("package", {"version": "0.0.9"}, FAIL, "0.0.9"),
        ("package", {"version": None}, UNKNOWN, "unknown"),
        ("package", {"package": {"launcher": True, "dropin": False}}, FAIL, None),
        ("package", {"package": {"launcher": False, "dropin": False}}, FAIL, "missing"),
        ("package", {"package": None}, UNKNOWN, "unknown"),
        ("enabled", {}, OK, "vdsmd"),
        ("enabled", {"enabled": {"mode": "host"}}, OK, "host"),
        ("enabled", {"enabled": {"mode": None}}, FAIL, "no"),
        ("running", {}, OK, "launcher"),
        ("running", {"running": {"program": "stock"}}, FAIL, "stock"),
        ("running", {"running": None}, FAIL, "no"),
        (
            "running",
            {"running": {"program": "stock"}, "enabled": {"mode": "host"}},
            OK,
            "stock",
        ),
        ("running", {"enabled": {"mode": None}}, WARN, "launcher"),
    ],
)
def test_what_the_host_says_of_the_add_on(column, its, verdict, text):
    found = cell(column, report(status={**status(), **its}))
    assert found.verdict == verdict
    assert text in (None, found.text)
    assert found.source == "host"


def test_a_newer_add_on_may_report_more():
    told = status()
    for part in (told["versions"], told["versions"]["vdsmd"]):
        part["in a later version"] = 1
    assert cell("running", report(status=told)).verdict == OK


@pytest.mark.parametrize("version", ["0.0.9", "10.0", "0.2.0~rc1"])
def test_an_add_on_of_another_version_is_shown_with_ours(version):
    found = cell("package", report(status={**status(), "version": version}))
    assert (found.verdict, found.text) == (FAIL, version)
    assert found.fix == "install the same version on both"
    assert found.sentence == (
        f"its version is {version}, not that of this machine, {__version__}"
    )


def test_a_host_without_any_file_of_the_add_on_has_it_not_installed():
    package = dict.fromkeys(status()["package"], False)
    found = cell("package", report(status={**status(), "package": package}))
    assert (found.verdict, found.text) == (FAIL, "missing")
    assert found.sentence == "the add-on is not installed"


def test_vdsmd_with_the_version_before_an_update():
    found = cell("running", report(status=status(loaded="0.1.9")))
    assert (found.verdict, found.text) == (WARN, "launcher 0.1.9")
    assert (
        "vdsmd.service still runs version 0.1.9 of the add-on, and "
        f"{__version__} is installed"
    ) in found.sentence
    assert found.fix == (
        "on the host: systemctl restart vdsmd (running VMs and mounts stay); "
        "systemctl restart ovirt-rdmad"
    )


def test_a_daemon_with_the_version_before_an_update():
    told = status(mode="host", program="stock", loaded="0.1.9")
    found = cell("running", report(status=told))
    assert (found.verdict, found.text) == (WARN, "stock")
    assert found.fix == "on the host: systemctl restart ovirt-rdmad"


@pytest.mark.parametrize(
    "odd",
    [
        {"versions": None},
        {"versions": {}},
        {"versions": {**status()["versions"], "vdsmd": None}},
        {"versions": {**status()["versions"], "kernel": "x" * 10_000}},
        {"versions": {**status()["versions"], "kernel": 5}},
        {"versions": status(loaded=None)["versions"]},
    ],
)
def test_vdsmd_of_an_unknown_version_is_not_good(odd):
    found = cell("running", report(status={**status(), **odd}))
    assert (found.verdict, found.text) == (UNKNOWN, "launcher")
    assert found.sentence.startswith("Whether vdsmd.service has loaded the installed")
    assert found.fix.startswith("on the host: systemctl restart vdsmd")
    stock = {**status(mode="host", program="stock"), "versions": None}
    assert cell("running", report(status=stock)).verdict == OK


def test_why_the_launcher_started_stock_vdsmd():
    because = "ovirt-rdma does not support this VDSM: NFSConnection has no connect()"
    running = {"pid": 7, "program": "stock", "because": because}
    found = cell("running", report(status={**status(), "running": running}))
    assert (found.verdict, found.text) == (FAIL, "stock")
    assert found.sentence == f"the launcher started stock vdsmd: {because}"
    assert found.fix == "on the host: solve that, then systemctl restart vdsmd"


def test_vdsmd_may_be_down_in_maintenance():
    told = report(status={**status(), "running": None})
    assert cell("running", told, host(status="maintenance")).verdict == WARN


def test_policy_is_held_against_that_of_this_machine():
    mine, theirs = rules("require-rdma"), rules("tcp")
    told = [report("hv1", status=status(mine)), report("hv2", status=status(theirs))]
    told.append(report("hv3", status=status()))
    found = matrix(told, policy(mine))
    cells = [row[COLUMNS.index("policy")] for row in found.cells]
    assert [c.verdict for c in cells] == [OK, FAIL, FAIL]
    assert cells[0].text == status(mine)["policy"]["digest"][7:15]
    assert "not this machine's" in cells[1].sentence
    assert "no policy is loaded" in cells[2].sentence


@pytest.mark.parametrize(
    ("texts", "verdicts"),
    [
        (("tcp", "tcp"), [OK, OK]),
        (("tcp", "tcp", "require-rdma"), [OK, OK, FAIL]),
        (("tcp", "require-rdma"), [FAIL, FAIL]),
        (("tcp", "tcp", None), [OK, OK, FAIL]),
        ((None, None), [WARN, WARN]),
        (("tcp", "silent"), [OK, UNKNOWN]),
        (("silent",), [UNKNOWN]),
    ],
)
def test_without_a_policy_here_hosts_are_held_against_each_other(texts, verdicts):
    told = [
        report(f"hv{number}")
        if text == "silent"
        else report(f"hv{number}", status=status(rules(text) if text else None))
        for number, text in enumerate(texts)
    ]
    cells = [row[COLUMNS.index("policy")] for row in matrix(told).cells]
    assert [c.verdict for c in cells] == verdicts


def test_broken_policy_on_a_host():
    told = report(status=status(rules("tcp"), problem="policy.json is broken"))
    found = cell("policy", told)
    assert (found.verdict, found.text) == (FAIL, "broken")
    assert found.sentence == "policy.json is broken"


def test_rules_are_held_against_the_policy_of_this_machine():
    bare = facts_file.load(FACTS / "no-rdma-tcp-mount.json")
    told = report(facts=bare, status=status())
    wants = "version: 1\nnfs:\n  rules:\n  - server: '*'\n    transport: require-rdma\n"
    found = cell("rules", told, wanted=policy(wants))
    assert found.verdict == FAIL
    assert "NFSRDMA" in found.sentence
    assert cell("rules", report(facts=facts())).verdict == OK


@pytest.mark.parametrize(
    ("dump", "verdict", "text"),
    [
        ("rxe-one-mount", OK, "1 of 1"),
        ("no-rdma-tcp-mount", FAIL, "none"),
    ],
)
def test_rdma_ports(dump, verdict, text):
    found = cell("rdma ports", report(facts=facts_file.load(FACTS / f"{dump}.json")))
    assert (found.verdict, found.text) == (verdict, text)


def test_port_that_is_down_is_named():
    up = facts()
    port = replace(up.rdma_devices[0].ports[0], state="DOWN")
    down = replace(up, rdma_devices=(replace(up.rdma_devices[0], ports=(port,)),))
    found = cell("rdma ports", report(facts=down))
    assert found.verdict == FAIL
    assert "/1 is DOWN" in found.sentence


@pytest.mark.parametrize(
    ("dump", "address", "options", "verdict", "text"),
    [
        ("rxe-one-mount", "10.0.0.1", "rdma", OK, "1 of 1"),
        ("no-rdma-tcp-mount", "10.0.0.1", "rdma", FAIL, "0 of 1"),
        ("no-rdma-tcp-mount", "10.0.0.1", "", WARN, "0 of 1"),
        # Facts have no route to a server without a mount.
        ("rxe-one-mount", "10.9.9.9", "rdma", UNKNOWN, "0 of 1"),
        ("rxe-one-mount", "10.9.9.9", "", NONE, "0 of 1"),
    ],
)
def test_readiness_for_the_servers(dump, address, options, verdict, text):
    told = report(facts=facts_file.load(FACTS / f"{dump}.json"), status=status())
    found = servers_cell(told, [connection(options=options, address=address)])
    assert (found.verdict, found.text) == (verdict, text)


@pytest.mark.parametrize(
    ("options", "wish", "told"),
    [
        ("", "require-rdma", True),
        ("", "prefer-rdma", True),
        ("proto=rdma", "tcp", True),
        # No warning if the connection requests what the rule requests.
        ("proto=rdma", "require-rdma", False),
        ("", "tcp", False),
    ],
)
def test_a_rule_that_does_not_cover_a_posixfs_domain(options, wish, told):
    text = rules(wish)
    site = report(facts=facts(mount(EXPORT, "tcp")), policy_text=text)
    site = replace(site, status=status(text))
    row = connection(options=options, type="posixfs", vfs_type="nfs")
    found = servers_cell(site, [row])
    assert (f"requests {wish} for {EXPORT}" in found.sentence) is told
    assert ("PosixFS" in found.sentence) is told
    assert not told or found.verdict == WARN
    assert not told or "mount options" in found.fix
    # The rule covers the same connection of an NFS domain.
    covered = servers_cell(site, [replace(row, type="nfs", vfs_type=None)])
    assert "PosixFS" not in covered.sentence


def test_server_with_a_name_is_found_by_its_mount():
    there = facts(mount(EXPORT, "rdma", address="10.0.0.1"))
    found = servers_cell(report(facts=there, status=status()), [connection()])
    assert found.verdict == OK


def test_servers_are_those_of_the_hosts_data_center():
    elsewhere = domain("data9", data_center="d2")
    site = engine(host(), domains=(domain(), elsewhere))
    assert connections_of(site, host()) == (domain().connection,)
    assert connections_of(site, host(cluster="gone")) == ()
    assert servers_cell(report(facts=facts()), []).verdict == NONE


def hooked(*points):
    return host(hooks=tuple(Hook(NAME, p) for p in points))


@pytest.mark.parametrize(
    ("there", "verdict", "text"),
    [
        (hooked(*POINTS), OK, "ok"),
        (hooked(*POINTS[1:]), FAIL, "incomplete"),
        (hooked(), FAIL, "missing"),
        (host(hooks=(Hook("50_theirs", POINTS[0]),)), FAIL, "missing"),
        (host(hooks=None), UNKNOWN, "unknown"),
    ],
)
def test_hooks_by_the_engines_list(there, verdict, text):
    found = hooks_cell(there)
    assert (found.verdict, found.text, found.source) == (verdict, text, "engine")
    doing = {"missing": "install ", "incomplete": "reinstall "}.get(text, "")
    assert found.fix.startswith(doing)


def test_points_are_those_of_the_hooks_in_the_tree():
    tree = FACTS.parents[2] / "vdsm_hooks"
    assert {path.parent.name for path in tree.glob(f"*/{NAME}")} == set(POINTS)
