# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
import subprocess
import time

import pytest
from support.fakes.fake_hosts import soft_roce

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts.model import CmId, Route
from ovirt_rdma.host.system.commands import CommandFailed, CommandTimeout, run_command

pytestmark = pytest.mark.hypervisor


def test_a_mount_with_its_real_transport(host):
    host.nfs_mount("[fd00::1]://data/", "/rhev/m", "rdma6", "fd00::1", connections=4)
    (mount,) = host.reader().nfs_mounts()
    assert mount.source == "[fd00::1]:/data"
    assert mount.mountpoint == "/rhev/m"
    assert mount.version == "4.2"
    assert (mount.protocol, mount.port, mount.address) == ("rdma6", 20049, "fd00::1")
    assert mount.protocols == ("rdma",) * 4


def test_all_nfs_mounts_and_only_those(host):
    host.nfs_mount("a:/x", "/mnt/a b", "tcp", version="3")
    host.mount("tmpfs", "/mnt/t", "tmpfs")
    host.nfs_mount("b:/x", "/mnt/\udcff", "rdma", version="4.1")
    found = host.reader().nfs_mounts()
    assert [(m.source, m.mountpoint, m.version) for m in found] == [
        ("a:/x", "/mnt/a b", "3"),
        ("b:/x", "/mnt/\udcff", "4.1"),
    ]
    assert [m.protocols for m in found] == [("tcp",), ("rdma",)]
    assert found[0].port is None


def test_of_stacked_mounts_the_one_that_is_seen(host):
    host.nfs_mount("s:/x", "/mnt", "tcp")
    host.nfs_mount("s:/x", "/mnt", "rdma")
    (mount,) = host.reader().nfs_mounts()
    assert (mount.protocol, mount.protocols) == ("rdma", ("rdma",))
    host.mount("tmpfs", "/mnt", "tmpfs")
    assert host.reader().nfs_mounts() == ()


def test_without_mountstats_the_mount_is_still_seen(host, problems):
    host.nfs_mount("s:/x", "/mnt")
    host.unreadable("/proc/self/mountstats")
    (mount,) = host.reader().nfs_mounts(problems)
    assert (mount.protocol, mount.protocols) == ("rdma", ())
    assert problems == ["/proc/self/mountstats cannot be read: Is a directory"]


@pytest.mark.parametrize("port", ["", "x", "-1"])
def test_an_odd_port_is_none(host, port):
    host.mount("s:/x", "/mnt", "nfs", f"rw,proto=rdma,port={port},vers=3")
    (mount,) = host.reader().nfs_mounts()
    assert (mount.port, mount.protocol, mount.version) == (None, "rdma", "3")


def test_cm_ids_of_the_kernel_and_of_programs(tmp_path):
    host = soft_roce(tmp_path)
    host.cm_id("rxe0", "10.0.0.2:40001", "10.0.0.1:20049")
    host.cm_id("rxe0", "fd00::2:40002", "fd00::1:20049")
    host.cm_id("rxe0", "0.0.0.0:7174", state="LISTEN", owner="rping", pid=7)
    assert host.reader().cm_ids() == (
        CmId("rxe0", "CONNECT", "[rpcrdma]", "10.0.0.2:40001", "10.0.0.1:20049"),
        CmId("rxe0", "CONNECT", "[rpcrdma]", "[fd00::2]:40002", "[fd00::1]:20049"),
        CmId("rxe0", "LISTEN", "rping", "0.0.0.0:7174", None),
    )


def test_cm_ids_of_other_versions_of_the_tool(tmp_path):
    host = soft_roce(tmp_path)
    rows = [{"comm": "[rpcrdma]", "state": 5, "dst-addr": "[fd00::1]:1"}, {"pid": 3}]
    host.runner.answer("rdma -j resource show cm_id", json.dumps([*rows, [], "x"]))
    assert host.reader().cm_ids() == (
        CmId(None, "unknown", "[rpcrdma]", None, "[fd00::1]:1"),
        CmId(None, "unknown", "unknown", None, None),
    )


def test_cm_ids_that_cannot_be_told(tmp_path, problems):
    host = soft_roce(tmp_path)
    host.runner.answer("rdma -j resource show cm_id", CommandFailed("no such tool"))
    assert host.reader().cm_ids(problems) is None
    assert problems == ["rdma -j resource show cm_id failed: no such tool"]


def test_without_an_rdma_device_there_are_no_cm_ids_to_ask_for(host):
    assert host.reader().cm_ids() == ()
    assert not host.runner.ran


def test_routes_to_what_is_asked_for_and_to_mounted_servers(tmp_path):
    host = soft_roce(tmp_path)
    host.nfs_mount("nas:/x", "/mnt/a", address="10.0.0.1")
    host.nfs_mount("nas:/y", "/mnt/b", address="10.0.0.1")
    host.no_route("192.0.2.9")
    facts = host.reader().facts(["192.0.2.9", "10.0.0.1", "nas"])
    assert facts.routes == (
        Route("192.0.2.9", problem="Network is unreachable"),
        Route("10.0.0.1", "eth0", "10.0.0.2"),
    )
    assert facts.problems == ("the route to 'nas' is unknown: not an IP address",)


def test_uptime_is_of_the_moment_when_mounts_were_read(tmp_path):
    # With the ages of mounts it gives their start times; the routes take time.
    host = soft_roce(tmp_path)
    host.nfs_mount("10.0.0.1:/a", "/mnt/a", protocol="tcp")
    before = host.reader().uptime()

    def slow(command):
        host.uptime(before + 60)
        return host.runner(command)

    assert HostReader(tmp_path, slow).facts().uptime_s == before


def test_the_whole_host(tmp_path):
    host = soft_roce(tmp_path)
    facts = host.reader().facts()
    assert (facts.hostname, facts.kernel_release) == ("hv1", host.kernel)
    assert facts.uptime_s == 3600.0
    assert facts.rdma_devices == host.reader().rdma_devices()
    names = [netdev.name for netdev in host.reader().netdevs()]
    assert [netdev.name for netdev in facts.netdevs] == names
    assert facts.modules.loaded == host.reader().modules().loaded
    assert facts.cm_ids == ()
    assert facts.problems == ()


@pytest.mark.parametrize("text", ["", "soon", "-1 2", "1e9 1", b"\xff", "nan nan"])
def test_an_odd_uptime(host, text, problems):
    host.write("/proc/uptime", text)
    assert host.reader().uptime(problems) == 0.0
    assert problems[0].startswith("/proc/uptime ")


def test_an_empty_folder_is_a_host_of_which_nothing_is_known(tmp_path):
    facts = HostReader(tmp_path).facts()
    assert (facts.hostname, facts.kernel_release) == ("unknown", "unknown")
    assert facts.netdevs == ()
    assert len(facts.problems) == len(set(facts.problems)) >= 6


def test_this_machine_can_be_read():
    facts = HostReader().facts(["127.0.0.1"])
    assert "lo" in {netdev.name for netdev in facts.netdevs}
    assert facts.uptime_s > 0


def test_a_command_gets_no_environment_but_ours(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "evil.so")
    out = run_command(["sh", "-c", "echo $LC_ALL $PATH $LD_PRELOAD"])
    assert out == "C /usr/sbin:/usr/bin:/sbin:/bin\n"


def test_a_command_that_is_not_there():
    with pytest.raises(CommandFailed, match="No such file") as caught:
        run_command(["no-such-tool-here"])
    assert caught.value.returncode is None


def test_a_command_that_cannot_be_killed_is_not_waited_for(monkeypatch):
    killed = []

    def go_on(process):
        killed.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", go_on)
    begun = time.monotonic()
    with pytest.raises(CommandTimeout, match=r"no answer within 0\.1 s"):
        run_command(["sleep", "600"], timeout_s=0.1)
    assert time.monotonic() - begun < 300
    (process,) = killed
    process.terminate()
    process.wait()


def test_a_tool_that_gives_no_answer_is_not_asked_for_ever(host):
    host.runner.program("ip", hang)
    facts = host.reader().facts(["10.0.0.8", "10.0.0.9"])
    asked = [" ".join(argv) for argv in host.runner.ran if argv[0] == "ip"]
    assert asked == ["ip -j -d addr show", "ip -j route get 10.0.0.8"]
    for sentence in (
        "ip -j -d addr show failed: no answer within 5 s",
        "ip -j route get 10.0.0.9 failed: not run, because ip has timed out before",
    ):
        assert sentence in facts.problems
    # This applies to one snapshot; the next one runs the tool again.
    host.reader().facts()
    assert len([argv for argv in host.runner.ran if argv[0] == "ip"]) > 2


def hang(_argv):
    raise CommandTimeout("no answer within 5 s")
