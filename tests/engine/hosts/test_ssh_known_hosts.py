# SPDX-License-Identifier: GPL-2.0-or-later
"""Trust the host key that the engine knows, and no other."""

from __future__ import annotations

import pytest

from ovirt_rdma.engine_sdk_tools.hosts.ansible import (
    known_hosts_text,
    read_key,
    why_not_asked,
)
from ovirt_rdma.engine_sdk_tools.model import Host

pytestmark = pytest.mark.hypervisor

# Made by ssh-keygen; the fingerprint is the one that ssh-keygen -l prints.
ED25519 = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILAd54ICZdDUhfzamnOiYxH21Ageiqt5CjtETtUJJdGS"
)
ED25519_SHA256 = "SHA256:V2bPgVaqUbtsLYLnErg44ZM+J+ivCsbdXfJzBhO2Ghg"
ECDSA = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAA"
    "BBBAVqRtsSs5hE8zGY0TaRfReeuYFzU/ZjffkjxjO1cidm9hmxiOscUAXmsOfy6Id9GjzAVYzInc1ueTpxX8qbI+A="
)
RSA_BEGINNING = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7"


def host(**more: object) -> Host:
    return Host("1", "hv1", "192.0.2.1", "c", **more)


@pytest.mark.parametrize(
    "text", [ED25519, ED25519 + "\n", ED25519 + " root@hv1", ED25519 + " \n"]
)
def test_the_engines_key_is_taken_as_it_writes_it(text):
    """OpenSSHUtils.getKeyString ends it with a newline, and sometimes a blank."""
    there = host(public_key=text)
    assert why_not_asked(there) is None
    assert known_hosts_text({"host-0": there}) == f"host-0 {ED25519}\n"


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


@pytest.mark.parametrize(
    ("known", "part"),
    [
        ({"public_key": "garbage here"}, "key of hv1 is not a public key"),
        (
            {"public_key": "garbage here", "fingerprint": ED25519_SHA256},
            "key of hv1 is not a public key",
        ),
        ({"fingerprint": ED25519_SHA256}, "only a fingerprint of the key of hv1"),
    ],
)
def test_without_its_key_a_host_is_not_asked(known, part):
    """A key is never believed because the host shows it."""
    failure = why_not_asked(host(**known))
    assert part in failure.sentence
    assert failure.fix


def test_a_host_of_which_nothing_is_known_is_left_to_known_hosts():
    assert why_not_asked(host()) is None


def test_known_hosts_has_a_line_a_host():
    keys = {"host-0": host(public_key=ED25519), "host-1": host(public_key=ECDSA)}
    keys["host-2"] = host()
    assert known_hosts_text(keys) == f"host-0 {ED25519}\nhost-1 {ECDSA}\n"
