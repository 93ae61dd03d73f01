# SPDX-License-Identifier: GPL-2.0-or-later
"""Kinds of servers and mount options: what is refused, warned of, and mounted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.command_line import run
from support.fakes.fake_hosts import soft_roce
from support.host import policy_mistakes
from support.storage.fake_network import FakeNetwork

from ovirt_rdma.cli.host import nfs
from ovirt_rdma.host.export import (
    CHOICES,
    KINDS,
    KNOWN,
    OF_VENDORS,
    Export,
    MountOptions,
    kind_of,
)
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import rule_for
from ovirt_rdma.storage.readiness import ProbeContext
from ovirt_rdma.storage.transport import rdma_options

TOP = Path(__file__).parents[2]


def policy(options: str, more: str = "", transport: str = "require-rdma") -> str:
    return (
        "version: 1\nnfs:\n  rules:\n"
        f"    - {{name: t, server: 10.20.0.10, path: /vm, transport: {transport}, "
        f'options: "{options}"{more}}}\n'
    )


def mistakes(text: str) -> list[str]:
    return [str(one.at("p.yaml")) for one in policy_mistakes.mistakes(text)]


def warned(text: str) -> list[tuple[str, str]]:
    found = parse_policy(text, "p.yaml").warnings
    return [(one.sentence.id, str(one.sentence)) for one in found]


# Security over RDMA: nfs(5), xprtsec; fs/nfs/fs_context.c


@pytest.mark.parametrize("value", ["tls", "mtls"])
@pytest.mark.parametrize("transport", ["require-rdma", "prefer-rdma"])
def test_tls_is_refused_over_rdma_with_the_way_that_works(value, transport):
    (found,) = mistakes(policy(f"xprtsec={value}", transport=transport))
    assert found.startswith("p.yaml:4: nfs.rules[1].options")
    assert f"xprtsec={value} is for TCP only" in found
    assert "transport: tcp" in found and "sec=krb5p" in found


def test_tls_of_the_defaults_is_refused_once_and_there():
    text = (
        'version: 1\nnfs:\n  defaults: {transport: require-rdma, options: "xprtsec=tls"'
        "}\n  rules:\n    - {server: a}\n    - {server: b}\n"
        "    - {server: c, transport: tcp}\n"
    )
    (found,) = mistakes(text)
    assert found.startswith("p.yaml:3: nfs.defaults.options")


@pytest.mark.parametrize(
    "text",
    [
        policy("xprtsec=tls", transport="tcp"),
        policy("xprtsec=none"),
        policy("sec=krb5p"),
    ],
)
def test_security_that_works_is_taken(text):
    assert warned(text) == []


# Words that neither nfs(5) nor mount(8) knows


def test_mistyped_options_are_warned_of_with_the_nearest_name():
    found = warned(policy("nconect=8,rzise=1048576"))
    assert [one for one, _ in found] == ["option-unknown"] * 2
    assert "did you mean nconnect?" in found[0][1]
    assert "did you mean rsize?" in found[1][1]


def test_options_that_are_known():
    names = (
        "noatime,nconnect=4,lookupcache=pos,nosuid,x-systemd.automount,max_connect=2"
    )
    assert warned(policy(names)) == []
    assert [one for one, _ in warned(policy("newest=1"))] == ["option-unknown"]


# Vendors' own options


MULTIPATH = "remoteports=10.20.0.10-10.20.0.13"


def test_options_of_a_vendors_client():
    text = policy(f"nconnect=18,{MULTIPATH}")
    ((found, sentence),) = warned(text)
    assert found == "option-of-vendor" and "each host needs it" in sentence
    assert "remoteports" in sentence and "nconnect=18" in sentence
    assert warned(policy("nconnect=16")) == []
    for name in sorted(OF_VENDORS):
        assert [one for one, _ in warned(policy(name))] == ["option-of-vendor"]


@pytest.mark.parametrize(
    ("options", "more", "most"),
    [
        ("nconnect=17", "", 16),
        ("nconnect=17", ", server_kind: linux", 16),
        (f"nconnect=65,{MULTIPATH}", "", 64),
        ("nconnect=0", ", server_kind: vast", 64),
    ],
)
def test_too_many_connections_for_any_client(options, more, most):
    (found,) = mistakes(policy(options, more))
    assert f"is out of range; allowed: nconnect=1 to {most}" in found


def test_a_kind_with_a_client_needs_no_warning():
    # NFS-SERVER-01 says on each host whether it has that client.
    for options in ("nconnect=32", f"nconnect=18,{MULTIPATH}"):
        assert warned(policy(options, ", server_kind: vast")) == []


def test_nfs_mount_options_warns_of_the_engines_options(tmp_path, capsys, monkeypatch):
    around = ProbeContext(soft_roce(tmp_path).reader(), FakeNetwork())
    monkeypatch.setattr(nfs, "ProbeContext", lambda *_: around)
    words = ("--root", str(tmp_path), "-o", "json")
    options = ("nfs", "mount-options", "10.0.0.1:/vm", "--engine-options")
    document = run(capsys, *options, "nconect=8,proto=rdma", *words).document
    assert any("did you mean nconnect?" in one for one in document["warnings"])
    file = tmp_path / "p.yaml"
    file.write_text(policy("").replace("10.20.0.10", "10.0.0.1"))
    words = (*words, "--policy", str(file))
    document = run(capsys, *options, "xprtsec=tls", *words).document
    assert any("for TCP only" in one for one in document["warnings"])


# The table


def test_each_kind_is_on_its_page_with_its_sources_and_values():
    assert set(CHOICES) == {"auto", *KINDS} and len(KINDS) == 7
    page = (TOP.parent / "docs/servers.md").read_text()
    for kind in KINDS.values():
        (line,) = re.findall(rf"^- `{kind.name}`, (.*)$", page, re.MULTILINE)
        assert line.startswith(f"{kind.title}: ") and "](http" in line
        by_kernel = f"NFS {', '.join(kind.versions)};" if kind.versions else ""
        by_client = (
            f"{', '.join(kind.client_versions)} with " if kind.client_versions else ""
        )
        assert by_kernel in line.replace(" (", "; (") and by_client in line
        assert (f"rsize and wsize at most {kind.largest}" in line) == bool(kind.largest)
    assert not KNOWN & OF_VENDORS


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (None, None),
        ("NetApp Release 9.9.1P3 (netapp.com)", "ontap"),
        ("Linux 6.1.0-56-amd64 #1 SMP x86_64 (kernel.org)", "linux"),
        ("Linux 6.12.15-production+truenas #1 SMP x86_64 (kernel.org)", "truenas"),
        ("Something 1 (example.org)", None),
    ],
)
def test_what_a_server_says_that_it_is(program, kind):
    found = kind_of("auto", program)
    assert (found.name if found else None) == kind
    assert kind_of("vast", program) is KINDS["vast"]


def _mounted(options: str, engine: str, more: str = "") -> str:
    match = rule_for(
        parse_policy(policy(options, more), "p").policy, Export("10.20.0.10", "/vm")
    )
    assert match is not None
    return rdma_options(match.rule, MountOptions.parse(engine), ipv6=False)


def test_a_kind_adds_what_it_requires_and_yields_to_everybody():
    ontap = ", server_kind: ontap"
    rdma = "proto=rdma,port=20049,retry=0"
    assert _mounted("", "") == rdma
    assert _mounted("", "", ", server_kind: vast") == rdma
    assert _mounted("", "", ontap) == f"rsize=65536,wsize=65536,{rdma}"
    assert _mounted("rsize=32768", "", ontap) == f"wsize=65536,rsize=32768,{rdma}"
    engine = "wsize=16384"
    assert _mounted("", engine, ontap) == f"rsize=65536,wsize=16384,{rdma}"
    ((found, sentence),) = warned(policy("rsize=1048576", ontap))
    assert found == "option-beyond-server" and "65536" in sentence


def test_a_rule_without_a_kind_is_mounted_as_before():
    """Order and repetition of the engine's options too."""
    engine = "wsize=16384,noatime,rsize=8192"
    for options in (engine, "noatime"):
        assert _mounted("", options) == f"{options},proto=rdma,port=20049,retry=0"
