# SPDX-License-Identifier: GPL-2.0-or-later
"""``block list``, ``check``, ``login``, ``logout`` and ``rescan``."""

from __future__ import annotations

import errno

import pytest
from support.command_line import run
from support.fakes.fake_block import GUID, FakeBlock
from support.fakes.fake_hosts import connectx3_ib, soft_roce
from support.fakes.fake_iscsiadm import FakeIscsiadm

from ovirt_rdma.host.block import sessions as sessions_module
from ovirt_rdma.host.block.sessions import Iser, Srp
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.system.commands import CommandTimeout
from ovirt_rdma.host.system.lock import one_run

OTHER = "0002c90300fb1299"
POLICY = f"""\
version: 1
block:
  srp:
    - {{name: array, id_ext: {GUID}, ioc_guid: {GUID}, dest: 10.0.0.1:5555}}
"""
BY_IB_CM = POLICY.replace(
    "dest: 10.0.0.1:5555", f"dgid: fe80::2:c903:ab:1, pkey: 0x7fff, service_id: {GUID}"
)
SECOND = f"""\
    - {{name: other, id_ext: {GUID}, ioc_guid: {OTHER}, dest: 10.0.0.1:5556}}
"""
ELSEWHERE = f"""\
    - {{name: far, id_ext: {GUID}, ioc_guid: {OTHER}, dest: 10.7.7.7:5556}}
"""


@pytest.fixture
def host(tmp_path, capsys, monkeypatch):
    """A host with Soft-RoCE; the target ``array`` has two LUNs."""
    root = soft_roce(tmp_path)
    root.no_route("10.7.7.7")
    return of_root(root, "srp-rxe0-1", capsys, monkeypatch)


@pytest.fixture
def infiniband(tmp_path, capsys, monkeypatch):
    """A host with a ConnectX-3, whose first port is ACTIVE."""
    root = connectx3_ib(tmp_path)
    root.fabric_port("mlx4_0", 1, lid=5, sm_lid=1, pkeys=("0xffff", "0x8001"))
    return of_root(root, "srp-mlx4_0-1", capsys, monkeypatch)


def of_root(root, local, capsys, monkeypatch):
    fake = FakeBlock(root)
    fake.local_port(local)
    fake.targets = {GUID: [2048, 4 << 21]}
    fake.install(monkeypatch)

    def on_host(*words):
        return run(capsys, *words, "--root", str(root.path))

    def follow(text):
        file = root.path / "p.yaml"
        file.write_text(text)
        assert on_host("policy", "load", str(file)).code == 0

    on_host.fake, on_host.root, on_host.follow = fake, root, follow
    follow(POLICY)
    return on_host


def test_a_host_without_sessions(host):
    result = host("block", "list")
    assert (result.code, result.err) == (0, "")
    assert result.out == "This host has no session of block storage over RDMA.\n"


def test_policy_show_has_the_targets(host):
    shown = host("policy", "show").out
    line = f"name array, id_ext {GUID}, ioc_guid {GUID}, dest 10.0.0.1:5555"
    assert shown.splitlines()[1:] == [f"block.srp: {line}"]
    (target,) = host("policy", "show", "-o", "json").document["block"]["srp"]
    assert (target["name"], target["dest"]) == ("array", "10.0.0.1:5555")


def test_login_and_what_list_shows_then(host):
    result = host("block", "login")
    assert (result.code, result.err) == (0, "")
    assert result.out == "srp 'array' by rxe0/1: logged in.\n"
    host.fake.mapped(0, "lun0", "mpath-36001405aaaaaaaaaaaaaaaaaaaaaaa00", "sda")
    assert (
        host("block", "list").out
        == """\
TARGET            PROTOCOL  BY      STATE    LUNS
0002c90300fb1230  SRP       rxe0/1  running  2

WWID                               SIZE   PATHS  STATE    MAP   VDSM OFFERS IT
36001405aaaaaaaaaaaaaaaaaaaaaaa00  1 MiB  sda    running  lun0  yes
36001405aaaaaaaaaaaaaaaaaaaaaaa01  4 GiB  sda1   running  -     no
"""
    )
    (session,) = host("block", "list", "-o", "json").document["sessions"]
    assert session["timeouts"]["dev_loss_tmo"] == 600
    assert [lun["offered"] for lun in session["luns"]] == [True, False]


def test_a_second_login_changes_nothing(host):
    host("block", "login")
    before = list(host.fake.written)
    result = host("block", "login")
    assert (result.code, result.out) == (
        0,
        "srp 'array' by rxe0/1: was logged in before.\n",
    )
    assert host.fake.written == before


def test_the_infiniband_cm_logs_in_by_the_active_port_in_the_partition(infiniband):
    infiniband.follow(BY_IB_CM)
    result = infiniband("block", "login")
    assert result.out == "srp 'array' by mlx4_0/1: logged in.\n"
    infiniband.follow(BY_IB_CM.replace("0x7fff", "0x8005"))
    document = infiniband("block", "login", "-o", "json").document
    assert document["logins"][0]["problems"][0]["id"] == "srp-not-in-partition"


def test_the_rdma_cm_logs_in_over_ipoib(infiniband):
    assert infiniband("block", "login").out == "srp 'array' by mlx4_0/1: logged in.\n"


def test_one_failed_login_does_not_affect_the_others(host):
    host.follow(POLICY + SECOND + ELSEWHERE.replace(OTHER, OTHER[:-1] + "8"))
    host.fake.errors[OTHER] = errno.EHOSTUNREACH
    result = host("block", "login")
    assert result.code == 1
    assert result.out.splitlines() == [
        "srp 'array' by rxe0/1: logged in.",
        "srp 'other' by rxe0/1: the target does not answer.",
        "srp 'far': 10.7.7.7 is not reachable: Network is unreachable.",
    ]
    document = host("block", "login", "-o", "json").document
    assert [
        (
            one["target"],
            one["logged_in"],
            one["made"],
            [p["id"] for p in one["problems"]],
        )
        for one in document["logins"]
    ] == [
        ("array", True, False, []),
        ("other", False, False, ["srp-target-silent"]),
        ("far", False, False, ["srp-no-route"]),
    ]


def test_only_the_named_targets_are_logged_in(host):
    host.follow(POLICY + SECOND)
    host("block", "login", "other")
    assert [text.count(OTHER) for _, text in host.fake.written] == [1]
    host("block", "login", "nobody", "-o", "json").error("block-target-unknown", 2)


def test_check_compares_with_the_policy(host):
    result = host("block", "check")
    assert result.code == 3
    assert "srp 'array' by rxe0/1 is not logged in" in result.out
    host("block", "login")
    for minor, device in enumerate(("sda", "sda1")):
        host.fake.mapped(minor, f"lun{minor}", f"mpath-3600{minor}", device)
    result = host("block", "check")
    assert result.code == 0
    assert "The block storage is as the policy says" in result.out
    # VDSM leaves out what its own setting names.
    host.root.write("/etc/vdsm/vdsm.conf", "[multipath]\nblacklist = x, lun1 ,\n")
    result = host("block", "check")
    assert result.code == 3
    assert "does not offer sda1 (36000)" not in result.out
    assert "does not offer sda1 (36001), because [multipath] blacklist" in result.out
    assert host("block", "list").out.count(" yes") == 1


def ids(result):
    return [one["id"] for one in result.document["findings"]]


def test_check_finds_what_is_wrong_with_a_session(host):
    host("block", "login")
    assert ids(host("block", "check", "-o", "json")) == ["lun-not-offered"] * 2
    host.follow(POLICY.replace("5555}", "5555, fast_io_fail_tmo: 5}"))
    host.root.write("/sys/class/srp_remote_ports/port-0:1/state", "lost")
    result = host("block", "check", "-o", "json")
    assert result.code == 3
    assert ids(result) == [
        "srp-timeout-differs",
        "srp-session-not-running",
        *["lun-not-offered"] * 2,
    ]


ISER_IQN, ISER_PORTAL = "iqn.2003-01.org.a", "10.0.0.1:3260"
ISER_POLICY = f"""\
version: 1
block:
  iser:
    - {{name: far, portal: {ISER_PORTAL}, iqn: {ISER_IQN}}}
"""


@pytest.fixture
def iscsi(host, monkeypatch):
    fake = FakeIscsiadm(host.root)
    fake.portals = {ISER_PORTAL: [ISER_IQN]}
    monkeypatch.setattr(sessions_module, "Iser", lambda top, _: Iser(top, fake.run))
    host.follow(ISER_POLICY)
    return fake


def test_an_iser_target_from_login_to_logout(host, iscsi):
    assert ids(host("block", "check", "-o", "json")) == ["iser-not-logged-in"]
    assert host("block", "login").out == "iser 'far': logged in.\n"
    assert host("block", "login").out == "iser 'far': was logged in before.\n"
    assert ids(host("block", "check", "-o", "json")) == []
    (login,) = host("block", "login", "-o", "json").document["logins"]
    assert (login["target"], login["device"], login["made"]) == ("far", None, False)
    assert host("block", "logout", "far").out == (
        f"{ISER_IQN} at {ISER_PORTAL}: logged out.\n"
    )
    assert host("block", "list").out.startswith("This host has no session")


def test_logout_of_all_leaves_the_iser_sessions_of_vdsm(host, iscsi):
    iscsi.session(3, "iqn.2003-01.org.vdsm", ISER_PORTAL, "default")
    host("block", "login")
    host("block", "logout", "--all")
    (session,) = host("block", "list", "-o", "json").document["sessions"]
    assert session["iqn"] == "iqn.2003-01.org.vdsm"
    # Named by its IQN, it is ended.
    assert host("block", "logout", "iqn.2003-01.org.vdsm").code == 0
    assert iscsi.sessions == {}


def test_the_log_of_a_failed_logout_is_that_of_iscsid(host, iscsi, monkeypatch):
    """The kernel's log says nothing of what iscsid did not do."""
    host("block", "login")

    def silent(words, options):
        raise CommandTimeout("no answer within 30 s")

    monkeypatch.setattr(iscsi, "_session", silent)
    result = host("block", "logout", "far")
    assert result.code == 1
    assert "fix: see journalctl -b -u iscsid" in result.err


MIX = "overrides {\n a 1\n protocol {\n type x\n }\n}\n"


@pytest.mark.parametrize("policy", [POLICY, "version: 1\n"])
def test_a_drop_in_that_stops_vdsmd_is_found_on_each_host(host, policy):
    host.follow(policy)
    host.root.write("/etc/multipath/conf.d/a.conf", MIX)
    result = host("block", "check", "-o", "json")
    assert result.code == 3
    assert "multipath-stops-vdsmd" in ids(result)


@pytest.mark.parametrize("file", ["multipath.conf", "multipath/conf.d/a.conf"])
def test_what_cannot_be_read_is_not_as_the_policy_says(host, file):
    host.follow("version: 1\n")
    host.root.path.joinpath("etc", file).mkdir(parents=True)
    result = host("block", "check", "--allow-none")
    assert result.code == 3
    assert f"/etc/{file} cannot be read" in result.err
    assert "nothing was checked" not in result.out


def test_logout_in_use_is_refused_and_names_the_users(host):
    host("block", "login")
    host.fake.process(812, "qemu-kvm", "sda")
    result = host("block", "logout", "array")
    result.refused(4, "sda: process 812 (qemu-kvm)")
    assert host("block", "list").out.count("running") == 3
    host("block", "logout", "--all", "-o", "json").error("block-in-use", 4)


def test_logout_and_what_srp_daemon_may_do(host):
    host("block", "login")
    host.fake.process(90, "srp_daemon")
    result = host("block", "logout", GUID)
    assert (result.code, result.out) == (0, f"{GUID} by rxe0/1: logged out.\n")
    assert "srp_daemon" in result.err
    assert host("block", "list").out.startswith("This host has no session")
    # Nothing is left to log out from.
    assert host("block", "logout", "array").code == 0


def test_of_several_logouts_the_failed_one_is_not_called_logged_out(host, monkeypatch):
    host.follow(POLICY + SECOND)
    host.fake.targets[OTHER] = [2048]
    host("block", "login")
    log_out = Srp.log_out

    def held(srp, session):
        if session.ioc_guid == GUID:
            return Sentence("srp-logout-failed", "it is still there")
        return log_out(srp, session)

    monkeypatch.setattr(Srp, "log_out", held)
    result = host("block", "logout", "--all")
    assert (result.code, result.out) == (1, f"{OTHER} by rxe0/1: logged out.\n")
    assert "it is still there" in result.err
    result = host("block", "logout", "--all", "-o", "json")
    result.error("srp-logout-failed", 1)


def test_a_name_means_one_of_two_targets_with_one_ioc_guid(host):
    """LIO has one for all its ports (srpt_service_guid)."""
    two = POLICY + SECOND.replace(OTHER, GUID).replace(
        "}", f", initiator_ext: {OTHER}}}"
    )
    host.follow(two)
    host("block", "login")
    assert host("block", "logout", "other").out == f"{GUID} by rxe0/1: logged out.\n"
    (session,) = host("block", "list", "-o", "json").document["sessions"]
    assert session["host"] == 0
    host("block", "login")
    # The ioc_guid itself means both.
    assert host("block", "logout", GUID).out.count("logged out") == 2


def test_a_session_that_may_be_another_targets_is_not_logged_out_by_name(host):
    """As srp_daemon makes it: nobody knows its initiator_ext."""
    second = SECOND.replace(OTHER, GUID)
    host.follow(POLICY + second.replace("}", f", initiator_ext: {OTHER}}}"))
    host.fake.session("srp-rxe0-1", {"id_ext": GUID, "ioc_guid": GUID})
    result = host("block", "logout", "other")
    text = f"{GUID} by rxe0/1 may be array's session too: the kernel does not show its"
    result.refused(4, text, "block login")
    host("block", "logout", "other", "-o", "json").error("block-session-unclear", 4)
    # The kernel decides whose it is, and nobody has logged out.
    assert host("block", "login").code == 0
    assert len(host.fake.written) == 2
    assert host("block", "logout", "other").out == f"{GUID} by rxe0/1: logged out.\n"
    (session,) = host("block", "list", "-o", "json").document["sessions"]
    assert session["host"] == 0


@pytest.mark.parametrize("names", [("array", "other"), (GUID,), ("--all",)])
def test_a_session_that_may_be_another_targets_is_logged_out_with_both(host, names):
    second = SECOND.replace(OTHER, GUID)
    host.follow(POLICY + second.replace("}", f", initiator_ext: {OTHER}}}"))
    host.fake.session("srp-rxe0-1", {"id_ext": GUID, "ioc_guid": GUID})
    assert host("block", "logout", *names).out == f"{GUID} by rxe0/1: logged out.\n"


def test_a_name_of_two_kinds_of_targets_means_both(host):
    """LIO's of SRP, and its own of iSER without a session."""
    iser = (
        "  iser:\n    - {name: array, iqn: iqn.2003-01.org:a, portal: 10.0.0.1:3260}\n"
    )
    host.follow(POLICY + iser)
    host("block", "login", "array")
    assert "logged out" in host("block", "logout", "array").out
    assert host("block", "list").out.startswith("This host has no session")


def test_a_target_whose_port_is_down_can_be_logged_out(infiniband):
    infiniband.follow(BY_IB_CM)
    infiniband("block", "login")
    infiniband.root.write("/sys/class/infiniband/mlx4_0/ports/1/state", "1: DOWN")
    assert "logged out" in infiniband("block", "logout", "array").out
    assert infiniband("block", "list").out.startswith("This host has no session")


def test_logout_needs_a_name(host):
    for words in ((), ("array", "--all")):
        host("block", "logout", *words, "-o", "json").error("block-logout-names", 2)
    host("block", "logout", "nobody", "-o", "json").error("block-session-unknown", 2)


def test_rescan_reports_what_changed(host):
    host("block", "login")
    assert host("block", "rescan").out == "Nothing new in 1 session.\n"
    write = host.fake.write

    def scan(path, text, timeout_s):
        if path.name == "scan":
            host.fake.lun(0, 2, "sdx", 2048)
            host.root.write("/sys/class/block/sda/size", "4096")
        return write(path, text, timeout_s)

    host.fake.write = scan
    assert host("block", "rescan").out == (
        "sda had 1 MiB, and has 2 MiB.\nsdx is new: 1 MiB.\n"
    )


def test_rescan_says_which_sessions_it_did_not_scan(host):
    host("block", "login")
    host.root.write("/sys/class/srp_remote_ports/port-0:1/state", "fail-fast")
    result = host("block", "rescan")
    assert (result.code, result.out) == (1, "Nothing new in 0 sessions.\n")
    assert f"{GUID} by rxe0/1 is fail-fast, and not rescanned" in result.err
    host("block", "rescan", "-o", "json").error("rescan-failed", 1)


@pytest.mark.parametrize("verb", [("login",), ("logout", "--all"), ("rescan",)])
def test_another_run_is_waited_for_by_the_user(host, verb):
    with one_run(host.root.path):
        host("block", *verb, "-o", "json").error("host-lock-held", 75)
