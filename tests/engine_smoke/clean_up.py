# SPDX-License-Identifier: GPL-2.0-or-later
"""Remove what a smoke run made: by its notes, and by the prefix of names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ovirtsdk4 import types

from engine_smoke.site import PREFIX, Site
from ovirt_rdma.engine_sdk_tools.api.request import MISSING, Call, EngineProblem, Read
from ovirt_rdma.engine_sdk_tools.model import Domain, Engine, Network

_HOST_S, _DOMAIN_S = 1200.0, 600.0


class Left(Exception):
    """Something could not be removed; the text has each with its reason."""


def clean_up(site: Site) -> None:
    """Remove all; raises Left with what could not be removed. May be repeated."""
    left: list[str] = []

    def attempt(what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - the next thing is removed anyway
            left.append(f"{what}: {error}")

    attempt("conversions", lambda: _revert(site))
    attempt("hosts", lambda: _hosts(site))
    engine = site.now()
    for domain in engine.domains:
        if domain.name.startswith(PREFIX):
            attempt(domain.name, lambda one=domain: _domain(site, engine, one))
    attempt("storage connections", lambda: _connections(site))
    for network in engine.networks or ():
        if network.name.startswith(PREFIX):
            attempt(network.name, lambda one=network: _network(site, engine, one))
    attempt("jobs", lambda: _jobs(site))
    if left:
        raise Left("; ".join(left))
    site.notes.clear()


def _revert(site: Site) -> None:
    """Revert a conversion that was killed half way."""
    if not any(one.is_file() for one in site.notes.states.rglob("*.json")):
        return
    there = {domain.name for domain in site.now().domains}
    for name in dict.fromkeys(site.notes.names("conversion")):
        if name in there:
            words = ("domain", "revert", name, "--assume-yes", "--take-over")
            result = site.run(*words)
            if result.code not in (0, 3, 4):
                raise AssertionError(f"{' '.join(words)}: {result.err.strip()}")


def _hosts(site: Site) -> None:
    """Activate the hosts that were up before."""
    were_up = {name for one in site.notes.all() for name in one.get("up", ())}
    for host in site.now().hosts:
        if host.name not in were_up or host.status == "up":
            continue
        path = f"hosts/{host.id}"
        if host.status in ("maintenance", "non_operational", "down"):
            _act(site, path, "activate", {})
        _wait(site, path, f"{host.name} comes up", _HOST_S, "up")


def _domain(site: Site, engine: Engine, domain: Domain) -> None:
    if domain.data_center:
        path = f"datacenters/{domain.data_center}/storagedomains/{domain.id}"
        if domain.status in ("unknown", "inactive"):
            # All are unknown while the SPM moves; the engine activates them by itself.
            _wait(site, path, f"{domain.name} is active", _DOMAIN_S, "active")
        if domain.status not in ("maintenance", "preparing_for_maintenance"):
            _act(site, path, "deactivate", {})
        _wait(site, path, f"maintenance of {domain.name}", _DOMAIN_S, "maintenance")
        _act(site, path, "remove", {})
    up = [host for host in engine.hosts if host.status == "up"]
    if not up:
        raise AssertionError("no host is up to remove it with")
    words = {"host": up[0].name, "format": True}
    _act(site, f"storagedomains/{domain.id}", "remove", words)


def _connections(site: Site) -> None:
    """Remove connections that we made and no domain uses."""
    noted = [one for one in site.notes.all() if one["kind"] == "domain"]
    for row in site.now().connections:
        for one in noted:
            if row.export == one["export"] and row.id not in one["rows"]:
                _act(site, f"storageconnections/{row.id}", "remove", {})
                break


def _network(site: Site, engine: Engine, network: Network) -> None:
    for host in engine.hosts:
        for found in host.attachments or ():
            if found.network != network.id:
                continue
            gone = [types.NetworkAttachment(id=found.id)]
            words = {
                "removed_network_attachments": gone,
                "commit_on_success": True,
                "check_connectivity": True,
                "connectivity_timeout": 60,
            }
            _act(site, f"hosts/{host.id}", "setup_networks", words)
    _act(site, f"networks/{network.id}", "remove", {})


def _jobs(site: Site) -> None:
    """End the jobs that a killed run left open: they name what it made."""
    read = Read("jobs", "reading the engine's tasks")
    for job in site.session.read(read):
        open_still = job.status in (None, types.JobStatus.STARTED)
        if job.external and open_still and PREFIX in (job.description or ""):
            _act(site, f"jobs/{job.id}", "end", {"succeeded": False, "force": True})


def _act(site: Site, path: str, method: str, words: dict[str, Any]) -> None:
    call = Call(path, method, f"cleaning up {path}", words, PREFIX)
    try:
        site.session.perform(call)
    except EngineProblem as problem:
        if problem.kind != MISSING:
            raise


def _wait(site: Site, path: str, doing: str, limit_s: float, status: str) -> None:
    def test(found: Any) -> Any:
        return True if str(getattr(found.status, "value", "")) == status else None

    read = Read(path, f"reading {path}", "get")
    site.session.wait_until(read, test, doing, limit_s)
