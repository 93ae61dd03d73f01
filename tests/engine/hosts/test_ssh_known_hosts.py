# SPDX-License-Identifier: GPL-2.0-or-later
"""Trust the host key that the engine knows, and no other."""

from __future__ import annotations

import pytest

from ovirt_rdma.engine_sdk_tools.hosts.inventory import (
    HostKey,
    has_fingerprint,
    known_hosts_text,
    known_keys,
    read_key,
    scanned,
)
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled

pytestmark = pytest.mark.hypervisor

# Made by ssh-keygen; the fingerprints are those that ssh-keygen -l [-E md5] prints.
ED25519 = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILAd54ICZdDUhfzamnOiYxH21Ageiqt5CjtETtUJJdGS"
)
ED25519_SHA256 = "SHA256:V2bPgVaqUbtsLYLnErg44ZM+J+ivCsbdXfJzBhO2Ghg"
ED25519_MD5 = "MD5:b0:0e:b0:ff:c4:40:10:30:39:eb:9f:98:56:01:dd:fb"
ECDSA = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAA"
    "BBBAVqRtsSs5hE8zGY0TaRfReeuYFzU/ZjffkjxjO1cidm9hmxiOscUAXmsOfy6Id9GjzAVYzInc1ueTpxX8qbI+A="
)
RSA_BEGINNING = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7"


def host(**more: object) -> Host:
    return Host("1", "hv1", "192.0.2.1", "c", **more)


def no_scan(port, addresses):
    raise AssertionError("this must ask no host")


@pytest.mark.parametrize(
    "text", [ED25519, ED25519 + "\n", ED25519 + " root@hv1", ED25519 + " \n"]
)
def test_the_engines_key_is_taken_as_it_writes_it(text):
    """OpenSSHUtils.getKeyString ends it with a newline, and sometimes a blank."""
    known = known_keys([host(public_key=text)], no_scan)
    assert known.problems == {}
    assert known_hosts_text({"host-0": known.keys["hv1"]}) == f"host-0 {ED25519}\n"


@pytest.mark.parametrize(
    ("text", "algorithms"),
    [
        (ED25519, "ssh-ed25519"),
        (ECDSA, "ecdsa-sha2-nistp256"),
        (RSA_BEGINNING, "rsa-sha2-512,rsa-sha2-256"),
    ],
)
def test_the_host_is_asked_for_a_key_of_that_type(text, algorithms):
    key = read_key(text)
    assert key is not None
    assert key.algorithms == algorithms


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "ssh-ed25519",
        "ssh-ed25519 %%%",
        "ssh-rsa " + ED25519.split()[1],  # says it is another type than it is
        "ssh-dss AAAAB3NzaC1kc3MAAACB",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5",  # cut off after the type
        "* ssh-ed25519 AAAA",
        "@cert-authority * " + ED25519,
        "ssh-ed25519 AAAÄ",
    ],
)
def test_what_is_no_key_is_none(text):
    assert read_key(text) is None


def test_a_broken_key_without_fingerprint_is_a_problem():
    known = known_keys([host(public_key="garbage here")], no_scan)
    assert known.keys == {}
    assert "is not a public key" in known.problems["hv1"].sentence
    assert "hv1" in known.problems["hv1"].sentence


def test_a_host_of_which_nothing_is_known_is_left_to_known_hosts():
    known = known_keys([host()], no_scan)
    assert (known.keys, known.problems) == ({}, {})


@pytest.mark.parametrize(
    ("fingerprint", "verdict"),
    [
        (ED25519_SHA256, True),
        (ED25519_SHA256 + "=", True),
        (f" {ED25519_SHA256}\n", True),
        (ED25519_MD5, True),
        (ED25519_MD5.upper(), True),
        (ED25519_MD5.partition(":")[2], True),
        ("SHA256:" + "A" * 43, False),
        ("SHA256:", False),
        ("00:" * 15 + "00", False),
        ("SHA512:" + "A" * 86, None),
        ("", None),
    ],
)
def test_fingerprints(fingerprint, verdict):
    key = read_key(ED25519)
    assert key is not None
    assert has_fingerprint(key, fingerprint) is verdict


def test_of_several_keys_the_one_with_the_fingerprint_is_taken():
    def scan(port, addresses):
        assert (port, addresses) == (2222, ["192.0.2.1"])
        return f"# banner\n[192.0.2.1]:2222 {ECDSA}\n[192.0.2.1]:2222 {ED25519}\n"

    known = known_keys([host(port=2222, fingerprint=ED25519_SHA256)], scan)
    assert known.keys == {"hv1": read_key(ED25519)}


@pytest.mark.parametrize(
    ("shown", "fingerprint", "part"),
    [
        ("", ED25519_SHA256, "presented no SSH host key"),
        (f"192.0.2.1 {ECDSA}\n", ED25519_SHA256, "does not present the host key"),
        (f"192.0.2.7 {ED25519}\n", ED25519_SHA256, "presented no SSH host key"),
        (f"192.0.2.1 {ED25519}\n", "rot13:abc", "unknown form: rot13:abc"),
    ],
)
def test_a_key_is_never_believed_because_it_is_shown(shown, fingerprint, part):
    known = known_keys([host(fingerprint=fingerprint)], lambda port, asked: shown)
    assert known.keys == {}
    assert part in known.problems["hv1"].sentence
    assert known.problems["hv1"].fix


@pytest.mark.parametrize(
    ("failure", "part"),
    [
        (NotInstalled("No such file or directory"), "openssh-clients"),
        (CommandFailed("no answer within 20 s"), ""),
    ],
)
def test_a_scan_that_fails_is_said_of_each_host(failure, part):
    def scan(port, addresses):
        raise failure

    known = known_keys([host(fingerprint=ED25519_SHA256)], scan)
    assert known.keys == {}
    assert str(failure) in known.problems["hv1"].sentence
    assert part in known.problems["hv1"].fix


def test_scanned_addresses_of_both_families():
    text = f"fd00::1 {ED25519}\n[fd00::2]:2222 {ECDSA}\nhv3.example.com {ED25519}\n"
    assert {
        address: [k.type for k in keys] for address, keys in scanned(text).items()
    } == {
        "fd00::1": ["ssh-ed25519"],
        "fd00::2": ["ecdsa-sha2-nistp256"],
        "hv3.example.com": ["ssh-ed25519"],
    }


def test_known_hosts_has_a_line_a_host():
    keys = {"host-0": HostKey("a", "b"), "host-1": HostKey("c", "d")}
    assert known_hosts_text(keys) == "host-0 a b\nhost-1 c d\n"
