# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the settings of a smoke run from the variables OVIRT_RDMA_TEST_*.

URL, USERNAME, PASSWORD, CAFILE  the engine, as OVIRT_URL and its like
ALLOW_CHANGES=1   without it nothing is changed
DATACENTER        a data center with two hosts up; default: the first that has
EXPORT            SERVER:/PATH, empty; a domain is made there and removed with its files
RDMA=1            hosts and that server do RDMA, or the hosts are simulated ones that
                  mount everything: conversions are carried out
NIC, ADDRESSES    a nic without a network on hosts that are up, and addresses for it
                  (default: 198.51.100.11/24): a network is attached there
HOSTS=ssh         hosts are asked over SSH; SSH_KEY is the private key for it
POLICY            a file, with HOSTS=ssh: pushed to the hosts that are up
RECORD            a folder: every request and answer goes there
NOTES             a folder for the notes of what is made
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

NO_ENGINE = (
    "no real engine: set OVIRT_RDMA_TEST_URL and OVIRT_RDMA_TEST_ALLOW_CHANGES=1"
)
SSH, DOUBLE = "ssh", "double"


class NotAllowed(Exception):
    """The variables do not allow a run; the text says what is missing."""


@dataclass(frozen=True)
class Wishes:
    """``hosts`` is the host access: ``ssh``, ``double`` (in tests), or none."""

    url: str
    notes: Path
    username: Optional[str] = None
    password: Optional[str] = None
    ca_file: Optional[str] = None
    center: Optional[str] = None
    export: Optional[str] = None
    rdma: bool = False
    nic: Optional[str] = None
    addresses: str = "198.51.100.11/24"
    hosts: str = ""
    ssh_key: Optional[str] = None
    policy: Optional[str] = None
    record: Optional[Path] = None


def from_environment(environ: Mapping[str, str]) -> Wishes:
    """Raises NotAllowed."""

    def given(name: str) -> Optional[str]:
        return environ.get(f"OVIRT_RDMA_TEST_{name}") or None

    url = given("URL")
    if url is None or given("ALLOW_CHANGES") != "1":
        raise NotAllowed(NO_ENGINE)
    hosts = given("HOSTS") or ""
    if hosts not in ("", SSH, DOUBLE):
        raise NotAllowed(f"OVIRT_RDMA_TEST_HOSTS is ssh or not set, not {hosts!r}")
    record = given("RECORD")
    return Wishes(
        url,
        Path(given("NOTES") or _state_home(environ) / "ovirt-rdma-smoke"),
        given("USERNAME"),
        given("PASSWORD"),
        given("CAFILE"),
        given("DATACENTER"),
        given("EXPORT"),
        given("RDMA") == "1",
        given("NIC"),
        given("ADDRESSES") or Wishes.addresses,
        hosts,
        given("SSH_KEY"),
        given("POLICY"),
        Path(record) if record else None,
    )


def _state_home(environ: Mapping[str, str]) -> Path:
    named = environ.get("XDG_STATE_HOME", "")
    if named.startswith("/"):
        return Path(named)
    return Path(environ.get("HOME") or Path.home()) / ".local/state"
