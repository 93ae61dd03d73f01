# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the connection class in VDSM: the strict double, or VDSM_SOURCE."""

from __future__ import annotations

import re
import shlex
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import pytest
from support.storage.fake_kernel import ACCESS_DENIED, NO_SUCH_PATH, WRONG_OPTION
from support.storage.vdsm_site import ACCESS, GENERAL, MOUNT_FAILED, NAS, NAS6, Site

from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import VDSM_MOUNTS
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.storage.mounts import DEGRADED, NOT_COVERED, MountReview, review_all
from ovirt_rdma.storage.readiness import READY, UNKNOWN
from ovirt_rdma.storage.vdsm import connection

pytestmark = pytest.mark.hypervisor

TIMED_OUT = b"mount.nfs: Connection timed out\n"
STATE = "/sys/class/infiniband/rxe0/ports/1/state"
BASE = "soft,nosharecache,timeo=100,retrans=3,nfsvers=4,minorversion=2"
RDMA_STRING = f"{BASE},proto=rdma,port=20049,retry=0"
TCP_STRING = f"{BASE},proto=tcp,retry=0"

DEFINITION = {"id": "0", "connection": f"{NAS}:/e", "protocol_version": "4.2"}


@pytest.fixture
def busy(site, monkeypatch) -> None:
    """Nothing can be unmounted."""
    error = site.vdsm.mount.MountError(["umount"], 32, b"", b"target is busy")
    monkeypatch.setattr(site.vdsm.mount, "_umount", Mock(side_effect=error))


class TestExportWithoutRule:
    @pytest.mark.parametrize(
        "keys",
        [
            {},
            {"protocol_version": "3"},
            {"protocol_version": "auto"},
            {"protocol_version": "4.1", "timeout": 30, "retrans": 2},
            {"mnt_options": "rdma,port=20049"},
            {"mnt_options": "proto=rdma,,rdma,proto=rdma"},
            {"protocol_version": "3", "mnt_options": "lock,hard"},
        ],
    )
    @pytest.mark.parametrize("other", [None, "10.99.0.77"])
    def test_is_stock_byte_for_byte(self, site, keys, other):
        if other:
            site.rule("require-rdma", server=other)
        definition = {"id": "1", "connection": f"{NAS}:/e", **keys}
        assert site.vdsm.connect(definition)[0][1] == 0
        site.vdsm.disconnect(definition)
        registry = site.vdsm.storage_server.ConnectionFactory.registeredConnectionTypes
        registry["nfs"] = site.stock
        site.vdsm.connect(definition)
        ours, stock = site.kernel.mounts
        assert ours == stock
        assert site.network.asked == []

    def test_fails_with_the_stock_code(self, site):
        site.rule("require-rdma", server="10.99.0.77")
        site.kernel.fail(NAS)
        assert site.connect(f"{NAS}:/e") == [GENERAL]

    def test_keeps_stock_errors_of_the_constructor(self, site):
        with pytest.raises(ValueError, match="Invalid NFS version"):
            site.connect(f"{NAS}:/e", protocol_version="4.2.1")

    @pytest.mark.parametrize(
        "export", ["no-colon", "nas:data", "nas:2049:/srv", "fd00:99::1:/e"]
    )
    def test_an_export_that_is_none_stays_stock_and_is_told(self, site, caplog, export):
        stock = site.stock(id="1", export=export)
        registry = site.vdsm.storage_server.ConnectionFactory.registeredConnectionTypes
        ours = registry["nfs"](id="1", export=export)
        assert caplog.text == ""
        site.rule("require-rdma", server="*")
        ours = registry["nfs"](id="1", export=export)
        assert ours._mountCon.options == stock._mountCon.options
        assert f"export {export!r}" in caplog.text
        assert "no rule can name it, so it is mounted as stock VDSM does" in caplog.text

    def test_posixfs_is_never_touched(self, site):
        site.rule("require-rdma")
        definition = {
            "id": "1",
            "connection": f"{NAS}:/e",
            "vfs_type": "nfs",
            "mnt_options": "tcp",
        }
        assert site.vdsm.connect(definition, dom_type=6)[0][1] == 0
        assert site.options == ["tcp"]
        assert _reviewed(site).verdict == NOT_COVERED

    def test_an_nfs_domain_of_before_the_rule_is_covered(self, site):
        assert site.connect(f"{NAS}:/e") == [0]
        site.rule("require-rdma")
        assert _reviewed(site).verdict == DEGRADED

    def test_a_policy_that_cannot_be_had_leaves_stock(self, site, caplog):
        site.policy = None  # current() returns what rule_for() does not accept
        assert site.connect(f"{NAS}:/e") == [0]
        assert site.options == [BASE]
        assert "mounted as stock VDSM does" in caplog.text


class TestRequireRdma:
    def test_mounts_over_rdma_and_proves_it(self, site, caplog):
        caplog.set_level("INFO")
        site.rule("require-rdma", options="rsize=1048576,nconnect=4")
        assert site.connect(f"{NAS}:/e") == [0]
        extra = "rsize=1048576,nconnect=4,proto=rdma,port=20049,retry=0"
        assert site.options == [f"{BASE},{extra}"]
        assert site.kernel.mounted() == [(f"{NAS}:/e", "rdma")]
        assert "mounted over rdma, proven (mountinfo: proto=rdma" in caplog.text

    @pytest.mark.parametrize(
        "version, before, after",
        [
            ("3", "nfsvers=3,", ",nolock"),
            ("4", "nfsvers=4,", ""),
            ("4.0", "nfsvers=4,minorversion=0,", ""),
            ("auto", "", ",nolock"),
        ],
    )
    def test_keeps_vdsms_own_options_around(self, site, version, before, after):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e", protocol_version=version) == [0]
        start = "soft,nosharecache,timeo=100,retrans=3,"
        rdma = "proto=rdma,port=20049,retry=0"
        assert site.options == [f"{start}{before}{rdma}{after}"]

    def test_is_refused_before_any_mount_when_nothing_listens(self, site, caplog):
        site.rule("require-rdma")
        site.network.rdma.clear()
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert site.kernel.mounts == []
        assert f"{NAS} refuses RDMA connections" in caplog.text
        assert not (Path(site.kernel.root).parent / "mnt" / f"{NAS}:_e").exists()
        assert not site.marks_file.exists()

    @pytest.mark.parametrize(
        "spoil, reason",
        [
            (lambda root: root.no_route(NAS), "Network is unreachable"),
            (lambda root: root.write(STATE, "1: DOWN"), "not ACTIVE: rxe0/1"),
            (lambda root: root.modules(), "has no rpcrdma module"),
        ],
    )
    def test_is_refused_for_what_this_host_lacks(self, site, caplog, spoil, reason):
        site.rule("require-rdma")
        spoil(site.root)
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert site.kernel.mounts == []
        assert reason in caplog.text
        assert ("rdma", NAS, "20049") not in site.network.asked

    def test_failed_mount_says_why_and_what_to_do(self, site, caplog):
        site.rule("require-rdma")
        site.kernel.fail(NAS, "rdma")
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert "nothing listens on the port" in caplog.text
        assert "rdma=y" in caplog.text
        assert len(site.kernel.mounts) == 1

    def test_port_of_the_rule(self, site):
        site.rule("require-rdma", port=20050)
        site.network.rdma = {(NAS, 20050): READY}
        site.kernel.listen(NAS, "rdma", 20050)
        assert site.connect(f"{NAS}:/e", mnt_options="rdma,port=20049") == [0]
        assert site.options == [f"{BASE},proto=rdma,port=20050,retry=0"]

    def test_ipv6_server_needs_rdma6(self, site):
        site.rule("require-rdma", server="fd00:99::/64")
        assert site.connect(f"[{NAS6}]:/e") == [0]
        assert site.options == [f"{BASE},proto=rdma6,port=20049,retry=0"]

    def test_server_by_name(self, site):
        site.rule("require-rdma", server="nas.example.org")
        site.network.names["nas.example.org"] = (NAS6,)
        site.kernel.addresses["nas.example.org"] = NAS6
        assert site.connect("nas.example.org:/e") == [0]
        assert "proto=rdma6" in site.options[0]

    def test_name_that_does_not_resolve(self, site, caplog):
        site.rule("require-rdma", server="nas.example.org")
        assert site.connect("nas.example.org:/e") == [MOUNT_FAILED]
        assert "does not resolve" in caplog.text

    def test_waits_for_a_port_that_is_coming_up(self, site, caplog):
        caplog.set_level("INFO")
        site.rule("require-rdma", settle_timeout=30)
        site.root.write(STATE, "2: INIT")

        def sleep(seconds):
            site._sleep(seconds)
            if site.now >= 5:
                site.root.write(STATE, "4: ACTIVE")

        site.shared.surroundings.sleep = sleep
        assert site.connect(f"{NAS}:/e") == [0]
        assert site.now == 5
        assert f"{NAS}:/e: waited 5.0 s for an RDMA port to come up" in caplog.text
        caplog.clear()
        assert site.connect(f"{NAS}:/e2") == [0]
        assert "waited" not in caplog.text

    def test_waits_for_a_port_once_and_no_longer_than_settle_timeout(self, site):
        site.rule("require-rdma", server="10.99.1.0/24", settle_timeout=30)
        site.root.write(STATE, "2: INIT")
        servers = [f"10.99.1.{n}" for n in range(3 * connection.SERVERS_AT_ONCE)]
        for server in servers:
            site.root.route(server, "eth0", "10.0.0.2")
        exports = [f"{server}:/e" for server in servers]
        assert site.connect(*exports) == [MOUNT_FAILED] * len(exports)
        # Each of the threads moves the clock at the end.
        assert 30 <= site.now < 45
        waited = site.now
        # The engine tries again every few minutes.
        site.now += 300
        assert site.connect(*exports) == [MOUNT_FAILED] * len(exports)
        assert site.now == waited + 300

    def test_a_port_that_was_up_since_is_waited_for_again(self, site):
        site.rule("require-rdma", settle_timeout=30)
        site.root.write(STATE, "2: INIT")
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        site.now = 1000
        site.root.write(STATE, "4: ACTIVE")
        assert site.connect(f"{NAS}:/e") == [0]
        site.root.write(STATE, "1: DOWN")
        site.now = 2000
        assert site.connect(f"{NAS}:/e2") == [MOUNT_FAILED]
        assert site.now == 2030

    def test_waits_for_the_address_of_a_port_that_has_just_come_up(self, site):
        """IPoIB has a carrier when its broadcast group is joined, and an address when
        NetworkManager has seen that: both after ACTIVE.
        """
        site.rule("require-rdma", settle_timeout=30)
        site.root.write(STATE, "2: INIT")
        site.root.no_route(NAS)

        def sleep(seconds):
            site._sleep(seconds)
            if site.now >= 5:
                site.root.write(STATE, "4: ACTIVE")
            if site.now >= 8:
                site.root.route(NAS, "eth0", "10.0.0.2")

        site.shared.surroundings.sleep = sleep
        assert site.connect(f"{NAS}:/e") == [0]
        assert site.now == 8

    def test_a_port_without_a_cable_delays_no_other(self, site):
        site.rule("require-rdma", settle_timeout=30)
        site.root.rdma_device("rxe1")
        site.root.rdma_port("rxe1", state="1: DOWN", link_layer="Ethernet")
        site.root.write(STATE, "2: INIT")
        site.connect(f"{NAS}:/e")
        waited = site.now
        site.root.write(STATE, "4: ACTIVE")
        site.now += 1000
        assert site.connect(f"{NAS}:/e") == [0]
        site.root.no_route(NAS)
        assert site.connect(f"{NAS}:/e2") == [MOUNT_FAILED]
        assert site.now == waited + 1000

    @pytest.mark.usefixtures("nfsmount_conf")
    def test_mount_that_lands_on_tcp_is_taken_back(self, site, caplog):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert site.kernel.mounted() == []
        assert "nfsmount.conf" in caplog.text

    @pytest.mark.usefixtures("nfsmount_conf", "busy")
    def test_the_command_that_unmounts_it_is_one_for_a_shell(self, site, caplog):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e f;g") == [MOUNT_FAILED]
        assert site.connect(f"{NAS}:/e f;g") == [MOUNT_FAILED]
        command, *_ = re.findall(r"fix: (umount -f -l .*f;g.*)", caplog.text)
        assert shlex.split(command)[3].endswith("_e f;g")

    @pytest.mark.usefixtures("nfsmount_conf", "busy")
    def test_mount_that_cannot_be_taken_back_stays_refused(
        self, site, caplog, monkeypatch
    ):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert "unmounting it again failed" in caplog.text
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert "and still exists; fix: umount" in caplog.text
        # A rule that says TCP now accepts it; a rule that requires RDMA again does not.
        rdma_rule = site.policy
        site.rule("tcp")
        assert site.connect(f"{NAS}:/e") == [0]
        site.policy = rdma_rule
        assert site.connect(f"{NAS}:/e") == [0]
        assert "already mounted over tcp" in caplog.text
        # After somebody has unmounted it, it can be mounted again.
        monkeypatch.setattr(site.vdsm.mount, "_mount", site.kernel.mount)
        site.kernel.umount(_mountpoint(site), force=True, lazy=True)
        assert site.connect(f"{NAS}:/e") == [0]

    @pytest.mark.usefixtures("nfsmount_conf")
    def test_a_mount_whose_access_check_fails_is_not_kept_over_tcp(self, site, caplog):
        """VDSM leaves it, and a mount that was there before is a success."""
        site.rule("require-rdma")
        site.kernel.deny_access(f"{NAS}:/e", TimeoutError("ioprocess"))
        for _ in range(2):
            assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
            assert site.kernel.mounted() == []
        assert "rdma was requested, but the kernel mounted over tcp" in caplog.text

    def test_an_access_check_that_fails_over_rdma_leaves_the_mount(self, site):
        site.rule("require-rdma")
        site.kernel.deny_access(f"{NAS}:/e", TimeoutError("ioprocess"))
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert site.connect(f"{NAS}:/e") == [0]
        assert site.kernel.mounted() == [(f"{NAS}:/e", "rdma")]

    @pytest.mark.usefixtures("nfsmount_conf", "busy")
    def test_what_vdsm_itself_could_not_take_back_stays_refused(self, site, caplog):
        site.rule("require-rdma")
        site.kernel.deny_access(f"{NAS}:/e")
        for _ in range(2):
            assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert "and still exists; fix: umount" in caplog.text

    def test_port_of_the_engine_that_is_no_number(self, site, caplog):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e", mnt_options="port=abc") == [MOUNT_FAILED]
        assert "mount option 'port=abc' has no valid port" in caplog.text
        assert "report" not in caplog.text

    def test_existing_rdma_mount_is_no_news_and_asks_nobody(self, site, caplog):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e") == [0]
        caplog.clear()
        site.network.asked.clear()
        assert site.connect(f"{NAS}:/e") == [0]
        assert len(site.kernel.mounts) == 1
        assert "WARNING" not in caplog.text
        assert site.network.asked == []

    @pytest.mark.parametrize("rule", ["require-rdma", "prefer-rdma"])
    def test_permissions_stay_469_and_the_log_says_what_to_do(self, site, caplog, rule):
        """And nothing falls back."""
        site.rule(rule)
        site.kernel.deny_access(f"{NAS}:/e")
        assert site.connect(f"{NAS}:/e") == [ACCESS]
        assert site.kernel.mounted() == []
        assert len(site.kernel.mounts) == 1
        assert f"{NAS}:/e: VDSM has no permission to access it" in caplog.text
        assert "so it was unmounted again; fix: on the server give" in caplog.text
        assert "; fix: on the server give the exported directory" in caplog.text
        assert "chown 36:36" in caplog.text

    def test_an_error_without_a_code_is_477(self, site, caplog, monkeypatch):
        site.rule("require-rdma")
        error = RuntimeError("Broken communication with supervdsm")
        monkeypatch.setattr(site.vdsm.mount, "_mount", Mock(side_effect=error))
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert "Broken communication with supervdsm" in caplog.text

    def test_disconnect(self, site):
        site.rule("require-rdma")
        site.connect(f"{NAS}:/e")
        assert site.vdsm.disconnect(DEFINITION)[0][1] == 0
        assert site.kernel.mounted() == []
        assert not Path(_mountpoint(site)).exists()


class TestPreferRdma:
    def test_mounts_over_rdma(self, site):
        site.rule("prefer-rdma")
        assert site.connect(f"{NAS}:/e") == [0]
        assert site.options == [RDMA_STRING]

    def test_falls_back_loudly_when_nothing_listens(self, site, caplog):
        site.rule("prefer-rdma")
        site.network.rdma.clear()
        assert site.connect(f"{NAS}:/e", mnt_options="rdma,port=20049") == [0]
        assert site.options == [TCP_STRING]
        assert "FALLING BACK TO TCP" in caplog.text
        assert "refuses RDMA connections" in caplog.text

    def test_falls_back_when_the_mount_fails(self, site, caplog):
        site.rule("prefer-rdma")
        site.kernel.fail(NAS, "rdma", TIMED_OUT)
        assert site.connect(f"{NAS}:/e") == [0]
        assert site.options == [RDMA_STRING, TCP_STRING]
        assert "FALLING BACK TO TCP" in caplog.text
        assert "Connection timed out" in caplog.text

    def test_keeps_the_engines_tcp_port_for_tcp_only(self, site):
        site.rule("prefer-rdma")
        site.kernel.fail(NAS, "rdma")
        site.kernel.listen(NAS, "tcp", 2050)
        site.network.tcp.add((NAS, 2050))
        assert site.connect(f"{NAS}:/e", mnt_options="proto=tcp,port=2050") == [0]
        assert site.options == [RDMA_STRING, f"{BASE},port=2050,proto=tcp,retry=0"]

    @pytest.mark.parametrize(
        "text",
        [
            ACCESS_DENIED + b" h:/e\n",
            b"mount.nfs: mounting h:/e failed, " + NO_SUCH_PATH,
        ],
    )
    def test_does_not_fall_back_when_the_server_refuses_the_export(
        self, site, caplog, text
    ):
        site.rule("prefer-rdma")
        site.kernel.fail(NAS, "rdma", text)
        assert site.connect(f"{NAS}:/e", f"{NAS}:/f") == [MOUNT_FAILED] * 2
        assert len(site.kernel.mounts) == 2
        assert "FALLING BACK" not in caplog.text

    @pytest.mark.parametrize("version, port", [("4.2", 2049), ("3", 111)])
    def test_fails_at_once_when_tcp_is_dead_too(self, site, caplog, version, port):
        site.rule("prefer-rdma")
        site.network.rdma.clear()
        site.network.tcp.clear()
        assert site.connect(f"{NAS}:/e", protocol_version=version) == [MOUNT_FAILED]
        assert site.kernel.mounts == []
        assert f"TCP port {port} does not answer either" in caplog.text

    def test_both_reasons_are_told_when_both_fail(self, site, caplog):
        site.rule("prefer-rdma")
        site.kernel.fail(NAS, "rdma", TIMED_OUT)
        site.kernel.fail(NAS, "tcp")
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert "Connection timed out" in caplog.text
        assert "mounting over TCP failed" in caplog.text

    def test_ipv6_falls_back_to_tcp6(self, site):
        site.rule("prefer-rdma", server=NAS6)
        site.network.rdma.clear()
        assert site.connect(f"[{NAS6}]:/e") == [0]
        assert site.options == [f"{BASE},proto=tcp6,retry=0"]


class TestTcpRule:
    def test_sets_an_engine_rdma_aside(self, site, caplog):
        caplog.set_level("INFO")
        site.rule("tcp", options="nconnect=4")
        options = "rdma,port=20049,rsize=65536"
        assert site.connect(f"{NAS}:/e", mnt_options=options) == [0]
        assert site.options == [f"{BASE},rsize=65536,nconnect=4,proto=tcp"]
        assert "the engine's rdma is ignored" in caplog.text
        assert not any(question[0] == "rdma" for question in site.network.asked)

    def test_is_stock_but_for_the_protocol(self, site):
        # As patient as stock: a server that was just started is tried for two minutes.
        site.rule("tcp")
        for options in ("", "retry=5", "hard,noac"):
            assert site.connect(f"{NAS}:/e", mnt_options=options) == [0]
            site.kernel.umount(_mountpoint(site))
        words = [BASE, f"{BASE},retry=5", f"{BASE},hard,noac"]
        assert site.options == [f"{word},proto=tcp" for word in words]

    def test_a_silent_server_is_tried_when_nobody_waits_any_more(self, site):
        # Such a mount may take two minutes, as with stock VDSM.
        silent, rdma = "10.99.1.1", "10.99.2.1"
        rules = (
            NfsRule(1, "tcp", "10.99.1.0/24", "*", "tcp"),
            NfsRule(2, "rdma", "10.99.2.0/24", "*", "require-rdma"),
        )
        site.policy = Policy(nfs=NfsPolicy(rules))
        site.root.route(rdma, "eth0", "10.0.0.2")
        site.network.rdma[rdma, 20049] = READY
        answer, tcp_asked = site.network.rdma_listener, Event()
        tcp_answers = site.network.tcp_answers

        def after_the_other(address, port, timeout_s):
            assert tcp_asked.wait(60)
            return answer(address, port, timeout_s)

        def note(address, port, timeout_s):
            tcp_asked.set()
            return tcp_answers(address, port, timeout_s)

        site.network.rdma_listener, site.network.tcp_answers = after_the_other, note
        site.network.tcp.add(("10.99.1.2", 2049))
        exports = [f"{silent}:/e", "10.99.1.2:/e", f"{rdma}:/e"]
        assert site.connect(*exports) == [0, 0, 0]
        assert site.kernel.mounts[-1].server == silent

    def test_failure_is_477(self, site):
        site.rule("tcp")
        site.kernel.fail(NAS)
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]


class TestUnknownReadiness:
    def test_one_failure_decides_for_the_servers_other_exports(self, site, caplog):
        site.rule("require-rdma")
        site.network.rdma = {(NAS, 20049): UNKNOWN}
        site.kernel.fail(NAS, "rdma")
        exports = [f"{NAS}:/e{n}" for n in range(5)]
        assert site.connect(*exports) == [MOUNT_FAILED] * 5
        assert len(site.kernel.mounts) == 1
        told = [line for line in caplog.text.splitlines() if "failed 0 s ago" in line]
        assert told
        # The fix of the failed mount.
        assert all("; fix: on a Linux server set rdma=y" in line for line in told)

    def test_is_forgotten_after_a_minute(self, site):
        site.rule("require-rdma")
        site.network.rdma = {(NAS, 20049): UNKNOWN}
        site.kernel.fail(NAS, "rdma", times=1)
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        site.now = 59
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        site.now = 60
        assert site.connect(f"{NAS}:/e") == [0]

    def test_an_option_the_kernel_refuses_is_no_fault_of_the_server(self, site):
        site.rule("require-rdma")
        text = b"mount.nfs: an incorrect mount option was specified\n"
        site.kernel.fail(NAS, "rdma", text, times=1)
        assert site.connect(f"{NAS}:/e", f"{NAS}:/f") == [MOUNT_FAILED, 0]


class TestNewerEvidenceWins:
    def test_a_probe_that_says_ready_overrules_an_older_failure(self, site):
        site.rule("prefer-rdma")
        site.kernel.fail(NAS, "rdma", TIMED_OUT, times=1)
        # With NFS 4 the second mount would share the connection of the first.
        assert site.connect(f"{NAS}:/e", protocol_version="3") == [0]
        site.now = 5
        assert site.connect(f"{NAS}:/f", protocol_version="3") == [0]
        assert site.kernel.mounted() == [(f"{NAS}:/e", "tcp"), (f"{NAS}:/f", "rdma")]

    def test_a_failure_newer_than_the_probe_decides_for_the_others(self, site):
        # For example a server whose RDMA CM answers while nfsd hangs: 40 s per mount.
        site.rule("require-rdma")
        site.kernel.fail(NAS, "rdma", TIMED_OUT)
        exports = [f"{NAS}:/e{n}" for n in range(5)]
        assert site.connect(*exports) == [MOUNT_FAILED] * 5
        assert len(site.kernel.mounts) == 1

    def test_a_failure_of_nfs_3_says_nothing_about_4(self, site):
        # The MOUNT protocol of NFS 3 uses TCP.
        site.rule("require-rdma")
        site.kernel.fail(NAS, "rdma", b"mount.nfs: No route to host\n", times=1)
        definitions = [
            {"id": version, "connection": f"{NAS}:/e{version}",
             "protocol_version": version}
            for version in ("3", "4.2")
        ]  # fmt: skip
        statuses = [status for _, status in site.vdsm.connect(*definitions)]
        assert statuses == [MOUNT_FAILED, 0]


class TestNameOfBothFamilies:
    """Stock mount.nfs tries all addresses; ``proto=`` limits it to one family."""

    @pytest.fixture
    def nas(self, site):
        site.network.names["nas"] = (NAS6, NAS)
        return site

    @pytest.mark.parametrize(
        ("rule", "silent", "options"),
        [
            ("require-rdma", [(NAS6, 20049)], RDMA_STRING),
            (
                "prefer-rdma",
                [(NAS, 20049), (NAS6, 20049), (NAS6, 2049), (NAS, 111)],
                TCP_STRING,
            ),
            ("tcp", [(NAS6, 2049), (NAS, 111)], f"{BASE},proto=tcp"),
        ],
        ids=["require-rdma", "fallback", "tcp"],
    )
    def test_by_the_family_that_answers(self, nas, rule, silent, options):
        nas.rule(rule, server="nas")
        for place in silent:
            nas.network.rdma.pop(place, None)
            nas.network.tcp.discard(place)
        nas.kernel.addresses["nas"] = NAS
        assert nas.connect("nas:/e") == [0]
        assert nas.options == [options]

    def test_tcp_rules_ask_their_server_once_and_nobody_waits(self, nas):
        nas.rule("tcp", server="nas")
        mounted = []
        answer = nas.network.tcp_answers

        def slow(address, port, timeout_s):
            mounted.extend(call.spec for call in nas.kernel.mounts)
            return answer(address, port, timeout_s)

        nas.network.tcp_answers = slow
        nas.kernel.addresses["nas"] = NAS6
        exports = ["nas:/1", "nas:/2", "10.99.0.8:/unnamed"]
        assert nas.connect(*exports) == [0, 0, 0]
        assert set(mounted) == {"10.99.0.8:/unnamed"}
        assert len([q for q in nas.network.asked if q[0] == "tcp"]) == 2
        assert [q for q in nas.network.asked if q[0] == "resolve"] == [
            ("resolve", "nas")
        ]

    def test_tcp_is_not_asked_while_rdma_is_ready(self, nas):
        nas.rule("prefer-rdma", server="nas")
        nas.kernel.addresses["nas"] = NAS6
        assert nas.connect("nas:/e") == [0]
        assert not any(q[0] == "tcp" for q in nas.network.asked)

    def test_settling_does_not_hold_up_the_family_that_is_ready(self, nas):
        nas.rule("require-rdma", server="nas", settle_timeout=30)
        nas.kernel.addresses["nas"] = NAS
        nas.root.no_route(NAS6)
        # A second port without a cable.
        nas.root.rdma_device("rxe1")
        nas.root.rdma_port("rxe1", state="1: DOWN", link_layer="Ethernet")
        assert nas.connect("nas:/e") == [0]
        assert nas.now == 0

    def test_tcp_rule_for_a_name_that_mount_may_yet_resolve(self, site):
        site.rule("tcp", server="slow")
        assert site.connect("slow:/e") == [0]
        assert site.options == [BASE]

    def test_tcp_rule_for_a_name_of_which_no_family_answers(self, nas):
        # mount.nfs may use either, as with stock VDSM.
        nas.rule("tcp", server="nas")
        nas.network.tcp.clear()
        assert nas.connect("nas:/e") == [0]
        assert nas.options == [BASE]


@contextmanager
def _hanging(site: Site, **keys):
    """Connect an export, and hang in mount(8) until the block ends; yield threads for
    other calls, and this call.
    """
    with ThreadPoolExecutor(3) as pool, site.kernel.hold(NAS) as hanging:
        first = pool.submit(site.connect, f"{NAS}:/e", **keys)
        assert hanging.wait(60)
        yield pool, first


class TestManyAtOnce:
    def test_named_and_unnamed_in_one_call(self, site):
        site.rule("require-rdma")
        site.network.rdma.clear()
        site.kernel.fail("10.99.0.9")
        statuses = site.connect(f"{NAS}:/e", "10.99.0.8:/e", "10.99.0.9:/e")
        assert statuses == [MOUNT_FAILED, 0, GENERAL]

    def test_servers_are_asked_in_parallel_and_once(self, site):
        servers = [f"10.99.1.{n}" for n in range(8)]
        site.rule("require-rdma", server="10.99.1.0/24")
        meeting = threading.Barrier(len(servers), timeout=60)
        answer = site.network.rdma_listener

        def all_at_once(address, port, timeout_s):
            meeting.wait()
            return answer(address, port, timeout_s)

        site.network.rdma_listener = all_at_once
        for server in servers:
            site.root.route(server, "eth0", "10.0.0.2")
            site.network.rdma[server, 20049] = READY
        exports = [f"{s}:/{p}" for s in servers for p in "ab"]
        assert site.connect(*exports) == [0] * 16
        assert sum(q[0] == "rdma" for q in site.network.asked) == len(servers)

    def test_who_needs_no_answer_does_not_wait_for_one(self, site):
        site.policy = Policy(
            nfs=NfsPolicy(
                (
                    NfsRule(1, "r", NAS, "/rdma", "require-rdma", settle_timeout=30),
                    NfsRule(2, "t", NAS, "/tcp", "tcp"),
                )
            )
        )
        site.root.write(STATE, "2: INIT")

        def sleep(seconds):
            site.kernel.wait_for_mounts(2)
            site._sleep(seconds)

        site.shared.surroundings.sleep = sleep
        exports = [f"{NAS}:/rdma", "10.99.0.8:/unnamed", f"{NAS}:/tcp"]
        assert site.connect(*exports) == [MOUNT_FAILED, 0, 0]
        mounted = [call.spec for call in site.kernel.mounts]
        assert mounted == ["10.99.0.8:/unnamed", f"{NAS}:/tcp"]
        assert site.now == 30

    def test_tcp_is_asked_first_where_there_are_more_servers_than_threads(
        self, site, monkeypatch
    ):
        """After a boot each of the others may wait for its port until the timeout."""
        monkeypatch.setattr(connection, "SERVERS_AT_ONCE", 1)
        rules = (
            NfsRule(1, "rdma", NAS, "*", "require-rdma"),
            NfsRule(2, "tcp", "10.99.3.1", "*", "tcp"),
        )
        site.policy = Policy(nfs=NfsPolicy(rules))
        site.network.tcp.add(("10.99.3.1", 2049))
        assert site.connect(f"{NAS}:/e", "10.99.3.1:/e") == [0, 0]
        tcp, rdma = ("tcp", "10.99.3.1", "2049"), ("rdma", NAS, "20049")
        asked = [question for question in site.network.asked if question in (tcp, rdma)]
        assert asked == [tcp, rdma]

    def test_of_those_that_have_answered_tcp_comes_first(self, site, monkeypatch):
        monkeypatch.setattr(connection, "wait", lambda asked, **_: wait(asked))
        rdma = [f"10.99.1.{number}" for number in range(8)]
        rules = (
            NfsRule(1, "rdma", "10.99.1.0/24", "*", "require-rdma"),
            NfsRule(2, "tcp", "10.99.3.1", "*", "tcp"),
        )
        site.policy = Policy(nfs=NfsPolicy(rules))
        for server in rdma:
            site.root.route(server, "eth0", "10.0.0.2")
            site.network.rdma[server, 20049] = READY
        site.network.tcp.add(("10.99.3.1", 2049))
        servers = [*rdma, "10.99.3.1"]
        assert site.connect(*(f"{server}:/e" for server in servers)) == [0] * 9
        assert [call.server for call in site.kernel.mounts] == ["10.99.3.1", *rdma]

    @pytest.mark.parametrize("dead_rule", ["require-rdma", "prefer-rdma"])
    def test_a_ready_server_does_not_wait_for_a_dead_one(self, site, dead_rule):
        dead, good = ["10.99.1.1", "10.99.1.2"], ["10.99.2.1", "10.99.2.2"]
        rules = (
            NfsRule(1, "dead", "10.99.1.0/24", "*", dead_rule),
            NfsRule(2, "good", "10.99.2.0/24", "*", "require-rdma"),
            NfsRule(3, "tcp", "10.99.3.0/24", "*", "tcp"),
        )
        site.policy = Policy(nfs=NfsPolicy(rules))
        for server in dead + good:
            site.root.route(server, "eth0", "10.0.0.2")
        site.network.rdma.update({(server, 20049): READY for server in good})
        answer, seen = site.network.rdma_listener, []

        def silent_until_the_others_are_mounted(address, port, timeout_s):
            if address in dead:
                site.kernel.wait_for_mounts(5)
                seen.append(address)
            return answer(address, port, timeout_s)

        site.network.rdma_listener = silent_until_the_others_are_mounted
        site.network.tcp.add(("10.99.3.1", 2049))
        exports = [f"{server}:/e" for pair in zip(dead, good) for server in pair]
        exports += [f"{good[0]}:/f", "10.99.3.1:/e", "10.99.0.8:/unnamed"]
        good_and_dead = [MOUNT_FAILED, 0, MOUNT_FAILED, 0]
        assert site.connect(*exports) == [*good_and_dead, 0, 0, 0]
        assert sorted(seen) == dead
        # Exports that need no answer come first.
        assert site.kernel.mounts[0].server == "10.99.0.8"

    def test_mounts_are_made_one_after_the_other(self, site):
        servers = [f"10.99.1.{n}" for n in range(4)]
        site.rule("require-rdma", server="10.99.1.0/24")
        for server in servers:
            site.root.route(server, "eth0", "10.0.0.2")
            site.network.rdma[server, 20049] = READY
        mount, alone = site.kernel.mount, threading.Lock()

        def at_most_one(*arguments, **keys):
            assert alone.acquire(blocking=False)
            mount(*arguments, **keys)
            alone.release()

        site.vdsm.mount._mount = at_most_one
        assert site.connect(*(f"{server}:/e" for server in servers)) == [0] * 4

    def test_asking_that_fails_as_a_whole_costs_no_mount(
        self, site, caplog, monkeypatch
    ):
        site.rule("require-rdma")
        no_thread = Mock(side_effect=RuntimeError("can't start new thread"))
        monkeypatch.setattr(connection.ThreadPoolExecutor, "submit", no_thread)
        assert site.connect(f"{NAS}:/e", f"{NAS}:/f") == [0, 0]
        assert "can't start new thread" in caplog.text

    def test_an_error_of_one_export_is_its_own(self, site, monkeypatch):
        site.rule("require-rdma")
        good = site.vdsm.mount.Mount.isMounted

        def odd(mount):
            if mount.fs_spec == f"{NAS}:/odd":
                raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd /proc/mounts")
            return good(mount)

        monkeypatch.setattr(site.vdsm.mount.Mount, "isMounted", odd)
        exports = ["10.99.0.8:/unnamed", f"{NAS}:/odd", f"{NAS}:/e"]
        assert site.connect(*exports) == [0, MOUNT_FAILED, 0]

    def test_one_bad_engine_option_does_not_spoil_the_common_answer(self, site):
        site.rule("require-rdma")
        definitions = [
            {"id": str(n), "connection": f"{NAS}:/e{n}", "mnt_options": options}
            for n, options in enumerate(["port=abc", "hard", "hard"])
        ]
        statuses = [status for _, status in site.vdsm.connect(*definitions)]
        assert statuses == [MOUNT_FAILED, 0, 0]
        assert sum(question[0] == "rdma" for question in site.network.asked) == 1

    def test_tcp_is_asked_ahead_for_those_that_will_fall_back(self, site):
        servers = [f"10.99.1.{n}" for n in range(4)]
        site.rule("prefer-rdma", server="10.99.1.0/24")
        meeting = threading.Barrier(len(servers), timeout=60)
        answer = site.network.tcp_answers

        def all_at_once(address, port, timeout_s):
            meeting.wait()
            return answer(address, port, timeout_s)

        site.network.tcp_answers = all_at_once
        for server in servers:
            site.root.route(server, "eth0", "10.0.0.2")
            site.network.tcp.add((server, 2049))
        assert site.connect(*(f"{server}:/e" for server in servers)) == [0] * 4

    def test_two_exports_do_not_wait_for_each_other(self, site):
        site.rule("require-rdma", server="10.99.0.0/24")
        site.root.route("10.99.0.3", "eth0", "10.0.0.2")
        site.network.rdma["10.99.0.3", 20049] = READY
        with _hanging(site) as (_, first):
            assert site.connect("10.99.0.3:/e") == [0]
        assert first.result(60) == [0]

    def test_two_connects_of_one_export_mount_once(self, site):
        site.rule("require-rdma")
        with _hanging(site) as (pool, first):
            second = pool.submit(site.connect, f"{NAS}:/e")
            site.wait_for_callers(2)
        assert first.result(60) == second.result(60) == [0]
        assert len(site.kernel.mounts) == 1

    def test_a_second_caller_gets_the_error_of_the_first(self, site, caplog):
        site.rule("require-rdma")
        site.kernel.fail(NAS, err=TIMED_OUT)
        with _hanging(site) as (pool, first):
            others = [pool.submit(site.connect, f"{NAS}:/e") for _ in range(2)]
            site.wait_for_callers(3)
        assert [call.result(60) for call in (first, *others)] == [[MOUNT_FAILED]] * 3
        # Each has its reason, and mount was not run again for the others.
        failed = [
            r for r in caplog.records if "Connection timed out" in str(r.exc_info)
        ]
        assert len(failed) == 3
        assert len(site.kernel.mounts) == 1
        # A later caller tries by itself.
        site.now = 60
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert len(site.kernel.mounts) == 2

    def test_a_second_caller_who_asks_for_something_else_tries_it(self, site):
        site.rule("require-rdma")
        site.kernel.fail(NAS, err=WRONG_OPTION, times=1)
        with _hanging(site, mnt_options="odd") as (pool, first):
            second = pool.submit(site.connect, f"{NAS}:/e")
            site.wait_for_callers(2)
        assert (first.result(60), second.result(60)) == ([MOUNT_FAILED], [0])

    def test_the_permissions_that_the_first_met_are_469_to_all(self, site):
        site.rule("require-rdma")
        site.kernel.deny_access(f"{NAS}:/e")
        with _hanging(site) as (pool, first):
            second = pool.submit(site.connect, f"{NAS}:/e")
            site.wait_for_callers(2)
        assert first.result(60) == second.result(60) == [ACCESS]
        assert len(site.kernel.mounts) == 1

    def test_a_second_caller_does_not_wait_for_ever(self, site, caplog):
        site.rule("require-rdma")
        with _hanging(site) as (_, first):
            object.__setattr__(site.shared, "wait_for_other_s", 0.0)
            assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
            assert "another call for this export is still running" in caplog.text
        assert first.result(60) == [0]

    def test_it_waits_as_long_as_a_mount_may_take(self, site):
        # nfs(5): two minutes of retry=, then one last try. A call to a server that
        # hangs is 40 s with VDSM's timeo=100,retrans=3, and a try is two of them; the
        # access check of VDSM takes 60 s at most (irs/process_pool_timeout).
        assert site.shared.wait_for_other_s >= 120 + 2 * 40 + 60

    def test_a_disconnect_waits_for_the_mount_under_way(self, site):
        site.rule("require-rdma")
        with _hanging(site) as (pool, first):
            second = pool.submit(site.vdsm.disconnect, DEFINITION)
            site.wait_for_callers(2)
        assert first.result(60) == [0]
        assert second.result(60)[0][1] == 0
        assert site.kernel.mounted() == []

    def test_a_mount_waits_for_the_disconnect_under_way(self, site, monkeypatch):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e") == [0]
        umount, reached, gate = site.vdsm.mount._umount, Event(), Event()

        def hanging(*arguments, **keys):
            reached.set()
            assert gate.wait(60)
            umount(*arguments, **keys)

        monkeypatch.setattr(site.vdsm.mount, "_umount", hanging)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(site.vdsm.disconnect, DEFINITION)
            assert reached.wait(60)
            second = pool.submit(site.connect, f"{NAS}:/e")
            site.wait_for_callers(2)
            gate.set()
            assert first.result(60)[0][1] == 0
            assert second.result(60) == [0]
        assert site.kernel.mounted() == [(f"{NAS}:/e", "rdma")]

    def test_a_disconnect_does_not_wait_for_ever(self, site, caplog):
        site.rule("require-rdma")
        with _hanging(site) as (_, first):
            object.__setattr__(site.shared, "wait_for_other_s", 0.0)
            # As in stock VDSM: nothing can be unmounted yet.
            assert site.vdsm.disconnect(DEFINITION)[0][1] == GENERAL
            assert len(site.kernel.umounts) == 1
        assert first.result(60) == [0]


class TestOurOwnErrors:
    @pytest.fixture(autouse=True)
    def broken(self, site):
        site.network.rdma_listener = Mock(side_effect=KeyError("a bug"))

    def test_prefer_rdma_is_mounted_as_stock(self, site, caplog):
        site.rule("prefer-rdma")
        assert site.connect(f"{NAS}:/e") == [0]
        assert site.options == [BASE]
        assert "please report" in caplog.text
        problems: list[str] = []
        (mark,) = site.root.reader().degraded_marks(problems)
        assert problems == []
        assert "please report" in mark.reason

    def test_require_rdma_keeps_its_promise(self, site):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert site.kernel.mounts == []


def _unreadable(site: Site) -> None:
    broken = Mock(side_effect=OSError("a bug"))
    site.shared.surroundings.reader.nfs_mounts = broken


def _not_in_the_table(site: Site) -> None:
    site.shared.surroundings.reader.nfs_mounts = lambda *_: ()


def _disagreeing(site: Site) -> None:
    reader = site.shared.surroundings.reader
    mounts = reader.nfs_mounts
    other = {"rdma": "tcp", "tcp": "rdma"}

    def odd(*arguments):
        return tuple(
            replace(mount, protocols=tuple(other[one] for one in mount.protocols))
            for mount in mounts(*arguments)
        )

    reader.nfs_mounts = odd


@pytest.mark.parametrize("blind", [_unreadable, _not_in_the_table, _disagreeing])
class TestTransportThatCannotBeTold:
    def test_breaks_the_promise_of_require_rdma(self, site, caplog, blind):
        site.rule("require-rdma")
        blind(site)
        assert site.connect(f"{NAS}:/e") == [MOUNT_FAILED]
        assert site.kernel.mounted() == []
        assert "its transport could not be determined" in caplog.text
        assert "unmounted again; fix: " in caplog.text

    @pytest.mark.parametrize("rule", ["prefer-rdma", "tcp"])
    def test_is_a_warning_for_who_may_have_either(self, site, caplog, blind, rule):
        site.rule(rule)
        blind(site)
        assert site.connect(f"{NAS}:/e") == [0]
        assert len(site.kernel.mounted()) == 1
        assert "its transport could not be determined" in caplog.text
        assert "degraded" in caplog.text

    def test_takes_down_no_mount_that_was_there(self, site, blind):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e") == [0]
        blind(site)
        assert site.connect(f"{NAS}:/e") == [0]
        assert site.kernel.mounted() == [(f"{NAS}:/e", "rdma")]

    @pytest.mark.usefixtures("busy")
    def test_keeps_one_refused_that_could_not_be_unmounted(self, site, caplog, blind):
        site.rule("require-rdma")
        blind(site)
        assert site.connect(f"{NAS}:/e", f"{NAS}:/e") == [MOUNT_FAILED] * 2
        assert "and still exists; fix: umount" in caplog.text


def _reviewed(site: Site) -> MountReview:
    """Review the mount as ``nfs list`` does, at the real path of VDSM."""
    (mount,) = site.root.reader().nfs_mounts()
    place = f"{VDSM_MOUNTS}/{Path(mount.mountpoint).name}"
    there = (replace(mount, mountpoint=place),)
    (reviewed,) = review_all(Facts("h", "k", 0.0, nfs_mounts=there), site.policy)
    return reviewed


def _mountpoint(site: Site) -> str:
    return site.local_path(f"{NAS}:/e")


class TestPaths:
    """A rule with paths: timeo and retrans last long enough to move a connection."""

    PATHS = (NAS, "10.98.0.2")
    RDMA = "max_connect=2,proto=rdma,port=20049,retry=0"

    @pytest.mark.parametrize(
        ("engine", "expected"),
        [
            ({"timeout": 30, "retrans": 2}, (100, 3)),
            ({"timeout": "30", "retrans": "2"}, (100, 3)),
            ({}, (100, 3)),
            ({"timeout": None, "retrans": None}, (100, 3)),
            ({"timeout": 600, "retrans": 2}, (600, 3)),
            ({"timeout": 50, "retrans": 6}, (100, 6)),
            ({"timeout": 0, "retrans": 0}, (100, 3)),
        ],
    )
    def test_the_engines_values_are_raised_and_never_lowered(
        self, site, engine, expected
    ):
        site.rule("require-rdma", paths=self.PATHS)
        assert site.connect(f"{NAS}:/e", **engine) == [0]
        timeo, retrans = expected
        # Each option once: nothing depends on which of two mount would take.
        assert site.options == [
            f"soft,nosharecache,timeo={timeo},retrans={retrans},nfsvers=4,"
            f"minorversion=2,{self.RDMA}"
        ]

    def test_a_rule_without_paths_leaves_them(self, site):
        site.rule("require-rdma")
        assert site.connect(f"{NAS}:/e", timeout=30, retrans=2) == [0]
        assert site.options == [
            RDMA_STRING.replace("timeo=100,retrans=3", "timeo=30,retrans=2")
        ]

    def test_tcp_is_as_ever(self, site):
        site.rule("prefer-rdma", paths=self.PATHS)
        site.kernel.fail(NAS, "rdma")
        assert site.connect(f"{NAS}:/e", timeout=30, retrans=2) == [0]
        first, fallback = site.options
        assert "timeo=100,retrans=3," in first
        assert fallback == TCP_STRING.replace(
            "timeo=100,retrans=3", "timeo=30,retrans=2"
        )

    def test_nfs_3_has_no_max_connect(self, site, caplog):
        caplog.set_level("INFO")
        site.rule("require-rdma", paths=self.PATHS)
        assert site.connect(f"{NAS}:/e", protocol_version="3") == [0]
        (options,) = site.options
        assert "nconnect=2" in options
        assert "max_connect" not in options
        assert "timeo is at least 100" in caplog.text
