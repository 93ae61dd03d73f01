# SPDX-License-Identifier: GPL-2.0-or-later
"""Create a domain, convert and revert it in both modes, heal it and prove it."""

from __future__ import annotations

from engine_smoke.acts import act
from engine_smoke.site import Site, Skipped
from ovirt_rdma.engine_sdk_tools.model import Domain

# The engine gives VDSM 180 s for an answer.
_SPM_S = 400


@act("domain create")
def domain_create(site: Site) -> None:
    export = site.wishes.export
    if export is None:
        raise Skipped("no empty export is named (EXPORT)")
    words = ("domain", "create", site.name, "--export", export)
    words += ("--datacenter", site.center, "--transport", "tcp")
    site.done(*words, "--dry-run", "-o", "json")
    rows = [row.id for row in site.now().connections]
    site.notes.will_make("domain", site.name, export=export, rows=rows)
    made = site.done(*words, "--assume-yes", "-o", "json")
    domain = _ours(site)
    assert (domain.status, domain.id) == ("active", made.document["id"])
    assert domain.connection is not None and domain.connection.export == export
    verified = site.run("domain", "verify", site.name, "-o", "json")
    assert verified.code in (0, 3), verified
    assert [c["name"] for c in verified.document["columns"]] == [site.name]


@act("domain convert, offline")
def convert_offline(site: Site) -> None:
    _convert(site)


@act("domain revert, offline")
def revert_offline(site: Site) -> None:
    _revert(site)


@act("domain convert, rolling")
def convert_rolling(site: Site) -> None:
    _convert(site, "--rolling")


@act("domain heal")
def heal(site: Site) -> None:
    _ours(site)
    words = ("domain", "heal", site.name, "--assume-yes")
    if site.blind:
        assert "no access to them" in site.done(*words, code=4).err
        raise Skipped("it is refused: there is no way to hosts (HOSTS=ssh)")
    _note_hosts(site)
    healed = site.run(*words)
    assert healed.code in (0, 3), healed


@act("domain revert, rolling")
def revert_rolling(site: Site) -> None:
    _revert(site)


def _convert(site: Site, *mode: str) -> None:
    domain = _ours(site)
    words = ("domain", "convert", site.name, "--to", "rdma", *mode)
    if site.blind:
        words += ("--engine-options",)
    site.done(*words, "--dry-run", "-o", "json")
    if not site.wishes.rdma:
        raise Skipped("--dry-run only: hosts and server may not do RDMA (RDMA=1)")
    assert "proto=rdma" not in _options(domain)
    _note_hosts(site)
    site.done(*words, "--assume-yes", "-o", "json")
    domain = _active(site)
    assert "rdma" in _options(domain), _options(domain)
    _all_up(site)


def _revert(site: Site) -> None:
    domain = _ours(site)
    if "rdma" not in _options(domain):
        raise Skipped("it was not converted")
    _note_hosts(site)
    site.done("domain", "revert", site.name, "--dry-run", "-o", "json")
    site.done("domain", "revert", site.name, "--assume-yes", "-o", "json")
    domain = _active(site)
    assert "rdma" not in _options(domain), _options(domain)
    _all_up(site)


def _ours(site: Site) -> Domain:
    for domain in site.now().domains:
        if domain.name == site.name:
            return domain
    raise Skipped("there is no domain of ours")


def _active(site: Site) -> Domain:
    """Return our domain when it is active. All domains are unknown for seconds while
    the SPM moves, which can happen when the last host comes up.
    """
    for _ in range(_SPM_S):
        domain = _ours(site)
        if domain.status != "unknown":
            break
        site.session.sleep(1.0)
    assert domain.status == "active", domain.status
    return domain


def _options(domain: Domain) -> str:
    return domain.connection.mount_options if domain.connection else ""


def _note_hosts(site: Site) -> None:
    up = [host.name for host in site.hosts_up()]
    site.notes.will_make("conversion", site.name, up=up)


def _all_up(site: Site) -> None:
    up = {host.name for host in site.hosts_up()}
    were = {name for one in site.notes.all() for name in one.get("up", ())}
    assert were <= up, f"not up any more: {', '.join(sorted(were - up))}"
