# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS-SERVER-01: what documents of the servers' vendors require."""

from __future__ import annotations

import pytest
from support.host.rule_cases import facts

from ovirt_rdma.host.collect.storage import nfs_mounts
from ovirt_rdma.host.facts.model import ModuleFile, NfsMount
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN, View
from ovirt_rdma.host.rules.nfs import SERVER

EXPORT = "10.0.0.1:/vm"
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
        EXPORT,
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
