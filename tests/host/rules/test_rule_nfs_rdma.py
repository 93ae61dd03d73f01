# SPDX-License-Identifier: GPL-2.0-or-later
"""NFSRDMA-01 to -03: module, registration of memory, port; NFS-SERVER-01."""

from __future__ import annotations

import pytest
from support.host.rule_cases import (
    REQUIRE_RDMA,
    facts,
    files,
    findings,
    ib_device,
    modprobe,
    roce_device,
)

from ovirt_rdma.host.collect.storage import nfs_mounts
from ovirt_rdma.host.facts.model import ModuleFile, NfsMount, NfsServer, Route
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN, View
from ovirt_rdma.host.rules.nfs import MODULE, PORT, REGISTRATION, SERVER

PREFER = Policy(nfs=NfsPolicy((NfsRule(1, "rule 1", "*", "*", "prefer-rdma"),)))


@pytest.mark.parametrize(
    ("policy", "mounts", "expected"),
    [
        (Policy(), (), False),
        (Policy(nfs=NfsPolicy((NfsRule(1, "rule 1", "*", "*", "tcp"),))), (), False),
        (PREFER, (), True),
        (REQUIRE_RDMA, (), True),
        (Policy(), ("tcp",), False),
        (Policy(), (None,), False),
        (Policy(), ("tcp", "rdma"), True),
        (Policy(), ("rdma6",), True),
    ],
)
def test_whether_rdma_is_wanted(policy, mounts, expected):
    found = tuple(NfsMount("s:/d", "/mnt", "", protocol=p) for p in mounts)
    view = View(facts(nfs_mounts=found), policy)
    assert view.wants_nfs_over_rdma is expected


AVAILABLE = {"available": ("rpcrdma",)}
TRUE, BLACKLIST = "install rpcrdma /usr/bin/true", "blacklist rpcrdma"
MODPROBE = "install rpcrdma /sbin/modprobe --ignore-install rpcrdma"
NO_RPCRDMA = "NFS cannot be mounted over RDMA: this kernel has no rpcrdma"
OTHER_TREE = (
    "rpcrdma cannot be loaded: it does not match the other RDMA modules | see STACK-01"
)
OF_OFED = files(
    ib_core="extra/mlnx-ofa_kernel/ib_core.ko",
    rpcrdma="kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz",
)


def without(line):
    return {**AVAILABLE, "modprobe_lines": (modprobe(line),)}


@pytest.mark.parametrize(
    ("modules", "verdict", "wanted", "words"),
    [
        ({"loaded": ("rpcrdma",)}, PASS, PASS, "is loaded"),
        (AVAILABLE, PASS, PASS, "at the first mount"),
        ({"available": ()}, WARN, FAIL, NO_RPCRDMA),
        ({}, SKIP, SKIP, "it is unknown if this kernel has rpcrdma"),
        (without(TRUE), WARN, FAIL, "site.conf:3 prevents loading rpcrdma (install)"),
        # MLNX_OFED's ib_core without its rpcrdma.
        (
            {"available": ("ib_core",), "files": OF_OFED[:1]},
            WARN,
            FAIL,
            f"{NO_RPCRDMA} | install the stack's own NFS over RDMA modules (MLNX_OFED: "
            "mlnxofedinstall --with-nfsrdma",
        ),
        # MLNX_OFED's ib_core, and the kernel's own rpcrdma.
        (
            {"available": ("ib_core", "rpcrdma"), "files": OF_OFED},
            WARN,
            FAIL,
            OTHER_TREE,
        ),
        # A blacklist does not stop the kernel from loading the module by name.
        (without(BLACKLIST), PASS, PASS, "at the first mount"),
        (without(MODPROBE), PASS, PASS, "at the first mount"),
    ],
)
def test_module(judged, modules, verdict, wanted, words):
    host = facts(rdma_devices=(ib_device(),), modules=modules)
    assert findings(MODULE, host)["rpcrdma"][0] == verdict
    judged(MODULE, host, REQUIRE_RDMA, "rpcrdma", wanted, words)


@pytest.mark.parametrize(
    ("driver", "verdict", "wanted"),
    [
        ("mlx4_core", "PASS", "PASS"),
        ("mlx5_core", "PASS", "PASS"),
        ("hfi1", "PASS", "PASS"),
        ("rdma_rxe", "PASS", "PASS"),
        ("bnxt_en", "PASS", "PASS"),
        ("ib_qib", "WARN", "FAIL"),
        ("ib_mthca", "WARN", "FAIL"),
        (None, "SKIP", "SKIP"),
        ("new_hca", "SKIP", "SKIP"),
    ],
)
def test_registration(driver, verdict, wanted):
    host = facts(rdma_devices=(ib_device("ib_dev", driver),))
    assert findings(REGISTRATION, host)["ib_dev"][0] == verdict
    found = findings(REGISTRATION, host, REQUIRE_RDMA)["ib_dev"]
    assert found[0] == wanted
    if wanted == "FAIL":
        assert "frwr mode is not supported" in found[1]


def test_old_card_beside_a_good_one_is_a_warning():
    host = facts(rdma_devices=(ib_device("qib0", "ib_qib"), roce_device()))
    found = findings(REGISTRATION, host, REQUIRE_RDMA)
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "qib0": "WARN",
        "mlx5_0": "PASS",
    }


@pytest.mark.parametrize(
    ("states", "verdict", "wanted", "words"),
    [
        (("ACTIVE", "DOWN"), "PASS", "PASS", "mlx4_0/1 is ACTIVE"),
        (("ACTIVE", "ACTIVE"), "PASS", "PASS", "mlx4_0/1, mlx4_1/1 are ACTIVE"),
        (("INIT",), "WARN", "FAIL", "mlx4_0/1 is INIT (LinkUp)"),
        (("unknown",), "WARN", "FAIL", "mlx4_0/1 is unknown"),
    ],
)
def test_port(judged, states, verdict, wanted, words):
    devices = tuple(ib_device(f"mlx4_{n}", state=s) for n, s in enumerate(states))
    host = facts(rdma_devices=devices)
    assert findings(PORT, host)["host"][0] == verdict
    judged(PORT, host, REQUIRE_RDMA, "host", wanted, words)


def test_no_device():
    for rule in (REGISTRATION, PORT):
        assert findings(rule, facts())["host"][0] == "SKIP"
    # Only one of them fails.
    assert findings(REGISTRATION, facts(), REQUIRE_RDMA)["host"][0] == "SKIP"
    wanted = "NFS over RDMA is wanted here, but this host has no RDMA device"
    verdict, text = findings(PORT, facts(), REQUIRE_RDMA)["host"]
    assert (verdict, text.startswith(wanted)) == ("FAIL", True)
    # server check needs no policy.
    server = facts(nfs_server=NfsServer(listeners=("rdma 20049",)))
    assert findings(PORT, server)["host"][1].startswith(wanted)


NAS, ISO = "10.0.0.5", "10.0.0.6"


@pytest.mark.parametrize(
    ("rules", "mounts", "failed"),
    [
        # The first rule wins: TCP.
        ([(NAS, "*", "tcp"), ("10.0.0.0/16", "*", "require-rdma")], [NAS], []),
        # The other mount has no rule, and a target of iSCSI is no server of NFS.
        ([("*", "/vm/*", "require-rdma")], [ISO], []),
        ([("*", "/vm/*", "require-rdma")], [], []),
        ([("*", "*", "require-rdma")], [NAS], [NAS]),
        ([(NAS, "/vm/*", "require-rdma")], [], [NAS]),
    ],
)
def test_a_route_counts_for_the_rule_of_its_mounts(rules, mounts, failed):
    policy = Policy(
        nfs=NfsPolicy(
            tuple(NfsRule(n, f"rule {n}", *rule) for n, rule in enumerate(rules, 1))
        )
    )
    host = facts(
        rdma_devices=(ib_device(),),
        routes=(Route(NAS, "ovirtmgmt"), Route(ISO, "ovirtmgmt")),
        nfs_mounts=tuple(
            NfsMount(f"{one}:/data", "/mnt", "", address=one) for one in mounts
        ),
    )
    found = findings(PORT, host, policy)
    assert [name for name in found if found[name][0] == "FAIL"] == failed


# NFS-SERVER-01: what documents of the servers' vendors require

OURS = tuple(ModuleFile(name, f"kernel/{name}.ko") for name in ("nfs", "sunrpc"))
VASTS = tuple(ModuleFile(name, f"extra/{name}.ko") for name in ("nfs", "sunrpc"))
MLNX = (OURS[0], OURS[1], ModuleFile("rpcrdma", "extra/rpcrdma.ko"))


def found(options="", kind="auto", mount=None, files=OURS):
    rule = NfsRule(1, "r", "10.0.0.1", "*", "require-rdma", options=options)
    rule = NfsRule(**{**vars(rule), "server_kind": kind})
    host = facts(modules={"files": files}, nfs_mounts=(mount,) if mount else ())
    return [
        (one.verdict, one.sentence, one.fix)
        for one in SERVER.decide(View(host, Policy(nfs=NfsPolicy((rule,)))))
    ]


def mounted(version="4.1", options="rsize=65536,wsize=65536", program=None):
    return NfsMount(
        "10.0.0.1:/vm",
        "/mnt",
        options,
        version=version,
        protocol="rdma",
        address="10.0.0.1",
        protocols=("rdma",),
        server_program=program,
    )


@pytest.mark.parametrize(
    ("files", "verdict"), [(OURS, FAIL), (MLNX, FAIL), (VASTS, PASS), ((), SKIP)]
)
def test_options_of_a_vendors_client(files, verdict):
    for options in ("remoteports=dns", "nconnect=18,remoteports=dns", "nconnect=32"):
        ((was, sentence, fix),) = found(options, files=files)
        assert was == verdict and options.split(",")[-1] in sentence
        assert bool(fix) == (verdict == FAIL)
    ((was, _, _),) = found("nconnect=16,noatime", files=files)
    assert was == SKIP


@pytest.mark.parametrize(
    ("kind", "mount", "verdict", "word"),
    [
        ("ontap", mounted(), PASS, "NetApp ONTAP"),
        ("ontap", mounted("4.2"), WARN, "3, 4.0, 4.1"),
        ("ontap", mounted(options="rsize=1048576,wsize=65536"), WARN, "65536"),
        ("powerscale", mounted("4.0"), WARN, "3, 4.1, 4.2"),
        ("linux", mounted("4.2", "rsize=1048576"), PASS, "Linux"),
        ("solaris", mounted(), SKIP, "no document"),
        ("auto", mounted(), SKIP, "no server's kind"),
        ("auto", mounted("4.2", program="X (netapp.com)"), WARN, "NetApp ONTAP"),
        ("linux", mounted("4.2", program="X (netapp.com)"), PASS, "Linux"),
    ],
)
def test_a_mount_and_its_server(kind, mount, verdict, word):
    ((was, sentence, fix),) = found(kind=kind, mount=mount)
    assert was == verdict and word in sentence
    assert bool(fix) == (verdict == WARN)


def test_what_mountstats_shows_of_the_server():
    """fs/nfs/super.c: show_implementation_id."""
    line = b"30 1 0:50 / /mnt rw - nfs4 10.0.0.1:/vm rw,vers=4.1,proto=rdma\n"
    head = b"device 10.0.0.1:/vm mounted on /mnt with fstype nfs4 statvers=1.1\n"
    for text, program in (
        (
            b"name='Linux 6.1 #1',domain='kernel.org',date='0,0'",
            "Linux 6.1 #1 (kernel.org)",
        ),
        (b"name='',domain='',date='0,0'", None),
        (b"garbage", None),
    ):
        (one,) = nfs_mounts(line, head + b"\timpl_id:\t" + text + b"\n", [])
        assert one.server_program == program
