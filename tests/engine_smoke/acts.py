# SPDX-License-Identifier: GPL-2.0-or-later
"""List the acts of a smoke run, in order. An act raises Skipped if the site cannot run
it, and any other exception if the verb did not do its work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from engine_smoke.site import Site, Skipped

Act = Callable[[Site], None]
ACTS: dict[str, Act] = {}
_POLICY = (
    "version: 1\nnfs:\n  rules:\n    - name: smoke\n"
    "      server: nfs.ovirt-rdma-smoke.example.com\n      transport: prefer-rdma\n"
)


def act(name: str) -> Callable[[Act], Act]:
    """Register an act; acts run in the order of registration."""

    def enter(function: Act) -> Act:
        ACTS[name] = function
        return function

    return enter


@act("login")
def login(site: Site) -> None:
    with tempfile.TemporaryDirectory() as folder:
        password, settings = Path(folder, "password"), Path(folder, "settings")
        words = ("login", "--config-file", str(settings))
        words += ("--password-file", str(password), "-o", "json")
        password.write_text(f"not-{site.wishes.password}\n", encoding="utf-8")
        refused = site.done(*words, code=1)
        assert "logging in" in refused.err, refused.err
        assert not settings.exists()
        password.write_text(f"{site.wishes.password}\n", encoding="utf-8")
        shown = site.done(*words).document
        assert shown["engine_version"], shown
        assert site.url in settings.read_text(encoding="utf-8")


@act("hosts list")
def hosts_list(site: Site) -> None:
    shown = site.done("hosts", "list", "-o", "json").document
    assert {h["name"] for h in shown["hosts"]} == {h.name for h in site.now().hosts}


@act("hosts check")
def hosts_check(site: Site) -> None:
    _matrix(site, "hosts", "check")


@act("domain list")
def domain_list(site: Site) -> None:
    shown = site.done("domain", "list", "-o", "json").document
    on_files = {d.name for d in site.now().domains if d.storage_type == "nfs"}
    assert on_files <= {d["name"] for d in shown["domains"]}


@act("domain verify")
def domain_verify(site: Site) -> None:
    _matrix(site, "domain", "verify")


@act("gate status")
def gate_status(site: Site) -> None:
    shown = site.done("gate", "status", "-o", "json").document
    names = {cluster.name for cluster in site.now().clusters}
    assert {one["cluster"] for one in shown["clusters"]} == names


@act("policy diff")
def policy_diff(site: Site) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "policy.yaml")
        file.write_text(_POLICY, encoding="utf-8")
        shown = site.run("policy", "diff", str(file), "-o", "json")
    # No host has this policy in force; if no host is asked, all are unknown.
    assert shown.code == 3, shown
    assert len(shown.document["hosts"]) == len(site.now().hosts)


@act("policy push")
def policy_push(site: Site) -> None:
    names = ",".join(host.name for host in site.hosts_up())
    words = ("--hosts", names, "--datacenter", site.center)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "policy.yaml")
        file.write_text(_POLICY, encoding="utf-8")
        site.done("policy", "push", str(file), *words, "--dry-run", "-o", "json")
    if site.blind:
        raise Skipped("--dry-run only: there is no way to hosts (HOSTS=ssh)")
    if site.wishes.policy is None:
        raise Skipped("--dry-run only: no policy for the hosts is named (POLICY)")
    site.done("policy", "push", site.wishes.policy, *words, "--assume-yes")


def _matrix(site: Site, *words: str) -> None:
    shown = site.run(*words, "-o", "json")
    assert shown.code in (0, 3), shown
    rows, columns = shown.document["rows"], shown.document["columns"]
    assert len(shown.document["cells"]) == len(rows)
    assert {len(line) for line in shown.document["cells"]} <= {len(columns)}
