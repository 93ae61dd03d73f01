# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.fake_hosts import soft_roce, without_rdma
from support.storage.fake_network import FakeNetwork

from ovirt_rdma.cli.host import nfs
from ovirt_rdma.cli.host.main import main
from ovirt_rdma.host.export import ENGINE_REFUSES, VERSIONS
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.policy.model import TRANSPORTS
from ovirt_rdma.storage.readiness import READY, UNKNOWN, ProbeContext
from ovirt_rdma.storage.vdsm.connection import load
from ovirt_rdma.storage.vdsm.export import Shared
from ovirt_rdma.storage.vdsm.launch import install


def policy_file(folder, transport, **more):
    rule = {"server": "10.0.0.0/8", "transport": transport, **more}
    path = Path(folder) / "p.yaml"
    path.write_text(json.dumps({"version": 1, "nfs": {"rules": [rule]}}))
    return str(path)


def test_no_rule(host):
    result = host("nfs", "mount-options", "10.0.0.1:/e", "--nfs-version", "4.2")
    assert (result.code, result.err) == (0, "")
    assert (
        result.out
        == """\
options    soft,nosharecache,timeo=100,retrans=3,nfsvers=4,minorversion=2
transport  stock
why        no rule names this export: stock
policy     no policy is loaded
"""
    )


def test_rule_that_prefers_rdma(host, network):
    network.rdma["10.0.0.1", 20049] = READY
    path = policy_file(host.root, "prefer-rdma", options="nconnect=4")
    words = ["nfs", "mount-options", "10.0.0.1:/e", "--policy", path]
    result = host(*words, "--nfs-version", "4.2", "--engine-options", "tcp,rsize=65536")
    assert result.code == 0
    lines = [line.split(None, 1) for line in result.out.splitlines()]
    start = "soft,nosharecache,timeo=100,retrans=3,nfsvers=4,minorversion=2,"
    assert lines[0][1] == (
        f"{start}rsize=65536,nconnect=4,proto=rdma,port=20049,retry=0"
    )
    assert ["fallback", f"{start}rsize=65536,nconnect=4,proto=tcp,retry=0"] in lines
    assert [
        "note",
        "the engine's tcp is ignored: the rule says prefer-rdma",
    ] in lines


@pytest.mark.parametrize(
    ("version", "added"),
    [("4.2", "max_connect=2,"), ("3", "nconnect=2,"), ("4.0", "nconnect=2,")],
)
def test_rule_with_paths(host, network, version, added):
    network.rdma["10.0.0.1", 20049] = READY
    path = policy_file(host.root, "prefer-rdma", paths=["10.0.0.1", "10.1.0.1"])
    words = ["nfs", "mount-options", "10.0.0.1:/e", "--policy", path]
    words += ["--nfs-version", version]
    result = host(*words)
    assert result.code == 0
    lines = dict(line.split(None, 1) for line in result.out.splitlines())
    assert f",{added}proto=rdma,port=20049,retry=0" in lines["options"]
    assert "timeo=100,retrans=3," in lines["options"]
    assert "connect" not in lines["fallback"]
    assert lines["note"] == (
        "timeo is at least 100 and retrans 3, because the rule has paths: I/O then "
        "fails after 40 s or later, and not while a connection is moved"
    )
    notes = host(*words, "-o", "json").document["notes"]
    assert notes == [lines["note"]]


def test_refused(host, network):
    path = policy_file(host.root, "require-rdma")
    network.site = without_rdma(host.root / "other")
    words = ["nfs", "mount-options", "10.0.0.1:/e", "--policy", path]
    result = host(*words)
    assert result.code == 3
    assert (
        result.out
        == f"""\
options    none: the mount is refused
transport  none
why        rule 1 says require-rdma (server 10.0.0.1 is in 10.0.0.0/8, any path), but \
this host has no RDMA device
fix        ovirt-rdma-host check says what its adapters lack
policy     {path}
"""
    )
    refused = host(*words, "-o", "json")
    assert refused.code == 3
    document = refused.document
    assert (document["kind"], document["options"]) == ("nfs-mount-options", None)


def test_degraded(host, network):
    network.site = without_rdma(host.root / "other")
    network.tcp.add(("10.0.0.1", 2049))
    path = policy_file(host.root, "prefer-rdma")
    words = ["nfs", "mount-options", "10.0.0.1:/e", "--policy", path, "-o", "json"]
    result = host(*words)
    assert result.code == 0
    assert result.document["degraded"] is True
    assert "proto=tcp" in result.document["options"]
    assert result.document["fix"] == (
        "ovirt-rdma-host check says what its adapters lack"
    )


@pytest.mark.parametrize(
    ("server", "export", "proto"),
    [("10.0.0.0/8", "10.0.0.1:/e", "rdma"), ("fd00::/64", "[fd00::1]:/e", "rdma6")],
)
def test_a_server_that_is_ready(host, network, server, export, proto):
    network.site.route("fd00::1", "eth0", "fd00::2")
    network.rdma[export[:-3].strip("[]"), 20049] = READY
    path = policy_file(host.root, "require-rdma", server=server)
    result = host("nfs", "mount-options", export, "--policy", path)
    assert f"proto={proto},port=20049,retry=0" in result.out
    assert "unknown" not in result.out


def test_a_tcp_rule_asks_for_no_rdma(host, network):
    path = policy_file(host.root, "tcp")
    assert host("nfs", "mount-options", "10.0.0.1:/e", "--policy", path).code == 0
    assert network.asked == [("resolve", "10.0.0.1")]


@pytest.mark.parametrize(
    ("options", "sentences"),
    [
        ("x" * 501, ["have 501 characters; the engine stores at most 500"]),
        ("timeo=1,vers=3", ["the engine refuses timeo, vers"]),
        ("vers=3," + "x" * 500, ["at most 500", "the engine refuses vers"]),
        ("port=rdma", ["mount option 'port=rdma' has no valid port"]),
        ("port=65536", ["no valid port"]),
    ],
)
def test_options_that_the_engine_or_mount_refuses(call, options, sentences):
    words = ["nfs", "mount-options", "nas:/e", "--engine-options", options]
    call(*words).refused(2, *sentences)


@pytest.mark.parametrize(
    ("export", "options", "words"),
    [
        ("nas:/e", "rdma,proto=tcp", "rdma and proto=tcp contradict each other"),
        ("nas:/e", "port=1,port=2", "mount would silently use port=2"),
        ("nas:/e", "rdma,port=20049", "RDMA without a rule"),
    ],
)
def test_what_stock_vdsm_passes_on_silently_is_said(host, export, options, words):
    asked = ["nfs", "mount-options", export, "--engine-options", options]
    result = host(*asked)
    assert result.code == 0
    assert f",{options},nolock\n" in result.out
    [line] = [line for line in result.out.splitlines() if words in line]
    assert line.startswith("warning ")
    document = host(*asked, "-o", "json").document
    assert any(words in warning for warning in document["warnings"])


@pytest.mark.parametrize("options", ["", "tcp,port=2049,hard", "nconnect=4"])
def test_no_warning_without_need(host, options):
    asked = ["nfs", "mount-options", "nas:/e", "--engine-options", options]
    assert "warning" not in host(*asked).out


# VDSM passes the options to mount that the command shows.

WORDS = st.sampled_from(
    [
        *("rdma", "proto=rdma", "proto=rdma6", "tcp", "proto=tcp", "proto=udp"),
        *("port=20049", "port=2049", "port=0", "retry=5", "hard", "soft", "lock"),
        *("nolock", "nconnect=4", "rsize=1024", "rsize=2048", "", "ac", "noac", "bg"),
    ]
) | st.from_regex(r"[a-z]{1,6}(=[a-z0-9]{0,4})?", fullmatch=True).filter(
    lambda word: word.partition("=")[0] not in (*ENGINE_REFUSES, "port")
)
ENGINE_OPTIONS = st.lists(WORDS, max_size=6).map(",".join)
RULE_OPTIONS = st.sampled_from(["", "nconnect=8", "rsize=4096,wsize=4096", "hard,lock"])


@given(
    engine_options=ENGINE_OPTIONS,
    version=st.sampled_from(VERSIONS),
    server=st.sampled_from(["10.0.0.1", "[fd00::1]", "nas"]),
    transport=st.sampled_from([*TRANSPORTS, "no rule"]),
    rule_options=RULE_OPTIONS,
    port=st.sampled_from([20049, 20050]),
    has_port=st.booleans(),
)
def test_vdsm_passes_exactly_that_to_mount(
    loaded_vdsm,
    engine_options,
    version,
    server,
    transport,
    rule_options,
    port,
    has_port,
):
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(loaded_vdsm.fresh(folder / "mnt"))
        kernel = stack.enter_context(loaded_vdsm.fake_mounts(folder / "root"))
        site = soft_roce(kernel.root)
        site.route("fd00::1", "eth0", "fd00::2")
        if not has_port:
            site.write("/sys/class/infiniband/rxe0/ports/1/state", "1: DOWN")
        rule = {"transport": transport, "options": rule_options, "port": port}
        named = server.strip("[]") if transport != "no rule" else "another"
        rule["transport"] = transport if transport != "no rule" else "tcp"
        path = policy_file(folder, **{**rule, "server": named})
        network = FakeNetwork()
        network.names["nas"] = ("10.0.0.1",)
        network.rdma = {
            (address, port): UNKNOWN
            for address in ("10.0.0.1", "fd00::1")
            for port in (20049, 20050)
        }
        network.tcp = {(a, p) for a in ("10.0.0.1", "fd00::1") for p in (111, 2049)}
        network.tcp |= {(a, p) for a, _ in network.tcp for p in (0, 20049, 20050)}

        words = ["nfs", "mount-options", f"{server}:/e", "--policy", path]
        words += ["--nfs-version", version, "-o", "json"]
        words.append(f"--engine-options={engine_options}")
        around = ProbeContext(site.reader(), network)
        stack.enter_context(patch.object(nfs, "ProbeContext", lambda *_: around))
        with redirect_stdout(StringIO()) as out:
            code = main(words)
        said = json.loads(out.getvalue())

        policy = load_policy_file(path).policy
        shared = Shared(around)
        install(load(), lambda: policy, shared)
        kernel.addresses["nas"] = "10.0.0.1"
        for each in ("10.0.0.1", "fd00::1", "nas"):
            kernel.fail(each)  # so that the fallback is tried too
        loaded_vdsm.connect(
            {
                "id": "1",
                "connection": f"{server}:/e",
                "protocol_version": version,
                "mnt_options": engine_options,
            }
        )
        passed = [call.options for call in kernel.mounts]
        expected = [said["options"], said["fallback"]]
        assert passed == [string for string in expected if string is not None]
        assert code == (3 if not passed else 0)
