# SPDX-License-Identifier: GPL-2.0-or-later
"""List the acts of a smoke run, in order. An act raises Skipped if the site cannot run
it, and any other exception if the verb did not do its work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from engine_smoke.site import PREFIX, Reply, Site, Skipped
from ovirt_rdma.engine_sdk_tools.model import Domain

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


# -- a network, attached if the operator names a NIC for it

_MTU = 1500


@act("network create")
def network_create(site: Site) -> None:
    words = ("network", "create", site.name, "--datacenter", site.center)
    words += ("--mtu", str(_MTU))
    site.done(*words, "--dry-run", "-o", "json")
    assert site.name not in {n.name for n in site.now().networks or ()}
    site.notes.will_make("network", site.name)
    site.done(*words, "--assume-yes")
    network = next(n for n in site.now().networks or () if n.name == site.name)
    assert (network.vm, network.mtu or 1500) == (False, _MTU)
    assert "nothing to do" in site.done(*words, "--assume-yes").out.lower()


@act("network attach")
def network_attach(site: Site) -> None:
    if site.name not in {n.name for n in site.now().networks or ()}:
        raise Skipped("there is no network of ours")
    if site.wishes.nic is None:
        raise Skipped("no nic is named for it (NIC)")
    up = site.hosts_up()
    words = ("network", "attach", site.name, "--datacenter", site.center)
    words += ("--hosts", ",".join(host.name for host in up))
    words += ("--nic-match", site.wishes.nic, "--addresses", site.wishes.addresses)
    site.done(*words, "--dry-run", "-o", "json")
    site.notes.will_make("attachment", site.name)
    site.done(*words, "--assume-yes", "-o", "json")
    network = next(n for n in site.now().networks or () if n.name == site.name)
    for host in site.hosts_up():
        found = [a for a in host.attachments or () if a.network == network.id]
        assert [a.in_sync for a in found] == [True], (host.name, found)
    again = site.done(*words, "--assume-yes", "-o", "json").document
    assert {row["outcome"] for row in again["hosts"]} == {"nothing to do"}, again


# -- a domain, converted and reverted in both modes, healed and proven

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
        assert "no access to them" in site.done(*words, code=4).err
        raise Skipped("it is refused: there is no way to hosts (HOSTS=ssh)")
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


# -- rare answers, provoked with our own objects: refusals, jobs and events. Their
# recordings are compared with the engine's double.

NOBODY = "00000000-0000-4000-8000-000000000000"


@act("answers: nothing there, nobody there")
def missing(site: Site) -> None:
    for path in (
        f"hosts/{NOBODY}",
        f"storagedomains/{NOBODY}",
        f"networks/{NOBODY}",
        f"jobs/{NOBODY}",
    ):
        reply = site.raw("GET", path)
        assert (reply.status, reply.text) == (404, ""), (path, reply)
    assert site.raw("GET", "hosts", token="not-a-token").status == 401


@act("answers: jobs and steps")
def jobs(site: Site) -> None:
    added = site.raw("POST", "jobs", _job(site, "one"))
    assert added.status == 201, added
    job = f"jobs/{_id(added)}"
    steps = [site.raw("POST", f"{job}/steps", _STEP) for _ in range(2)]
    assert [one.status for one in steps] == [201, 201], steps
    for step, succeeded in zip(steps, ("true", "false")):
        body = f"<action><succeeded>{succeeded}</succeeded></action>"
        assert site.raw("POST", f"{job}/steps/{_id(step)}/end", body).status == 200
        site.raw("GET", job)
        site.raw("GET", f"{job}/steps")
    site.raw("POST", f"{job}/steps", _STEP)
    site.raw("POST", f"{job}/end", _END)
    site.raw("POST", f"{job}/end", _END)
    assert "<status>started" not in site.raw("GET", job).text
    for path, body in (("steps", _STEP), ("end", _END)):
        assert site.raw("POST", f"jobs/{NOBODY}/{path}", body).status >= 400


@act("answers: events at any pace")
def events(site: Site) -> None:
    for number, rate in enumerate(("", "", *2 * (_RATE % 1,), *2 * (_RATE % 0,))):
        site.raw(
            "POST",
            "events",
            f"<event><origin>{PREFIX.strip('-')}</origin><severity>normal</severity>"
            f"<custom_id>{_number(site) + number}</custom_id>{rate}"
            f"<description>smoke run {number}</description></event>",
        )


@act("answers: networks that are refused")
def network_refusals(site: Site) -> None:
    network, up = _network(site), site.hosts_up()
    engine = site.now()
    center = next(c.id for c in engine.data_centers if c.name == site.center)
    _refused(site.raw("POST", "networks", _network_body(site.name, center)))
    setup = f"hosts/{up[0].id}/setupnetworks"
    one = f"<network_attachment id='{NOBODY}'/>"
    for word in ("removed", "modified"):
        list_of = f"{word}_network_attachments"
        _refused(
            site.raw("POST", setup, f"<action><{list_of}>{one}</{list_of}></action>")
        )
    attachment = (
        f'<network_attachment><network id="{network}"/>'
        "<host_nic><name>no-such-nic</name></host_nic></network_attachment>"
    )
    list_of = "modified_network_attachments"
    _refused(
        site.raw("POST", setup, f"<action><{list_of}>{attachment}</{list_of}></action>")
    )


@act("answers: domains and hosts that are refused")
def storage_refusals(site: Site) -> None:
    up = site.hosts_up()
    _refused(site.raw("POST", f"hosts/{up[0].id}/activate", "<action/>"))
    engine = site.now()
    domain = next((d for d in engine.domains if d.name == site.name), None)
    if domain is None or domain.connection is None:
        raise Skipped("hosts only: there is no domain of ours")
    row = domain.connection
    there = f"datacenters/{domain.data_center}/storagedomains"
    _refused(site.raw("POST", f"{there}/{domain.id}/activate", "<action/>"))
    _refused(site.raw("POST", there, f'<storage_domain id="{domain.id}"/>'))
    _refused(site.raw("DELETE", f"{there}/{domain.id}"))
    path = f"storagedomains/{domain.id}?host={up[0].name}&format=false"
    _refused(site.raw("DELETE", path))
    options = "<mount_options>soft</mount_options>"
    inside = f"<storage_connection>{options}</storage_connection>"
    _refused(site.raw("PUT", f"storageconnections/{row.id}", inside))
    _refused(site.raw("DELETE", f"storageconnections/{row.id}"))
    same = (
        f"<storage_connection><address>{row.address}</address><path>{row.path}</path>"
        "<type>nfs</type></storage_connection>"
    )
    _refused(site.raw("POST", "storageconnections", same))
    twice = (
        f"<storage_domain><name>{site.name}</name><type>data</type>"
        f'<storage id="{row.id}"/><host id="{up[0].id}"/></storage_domain>'
    )
    _refused(site.raw("POST", "storagedomains", twice))


_STEP = "<step><type>executing</type><description>a step</description></step>"
_RATE = "<flood_rate>%d</flood_rate>"
_END = "<action><succeeded>true</succeeded><force>true</force></action>"


def _job(site: Site, which: str) -> str:
    return (
        f"<job><description>{site.name}, job {which}</description>"
        "<auto_cleared>true</auto_cleared></job>"
    )


def _network(site: Site) -> str:
    for network in site.now().networks or ():
        if network.name == site.name:
            return network.id
    raise Skipped("there is no network of ours")


def _network_body(name: str, center: str) -> str:
    return f'<network><name>{name}</name><data_center id="{center}"/></network>'


def _number(site: Site) -> int:
    return int(site.name[len(PREFIX) :], 16) * 8


def _id(reply: Reply) -> str:
    return str(ElementTree.fromstring(reply.text.encode()).get("id"))


def _refused(reply: Reply) -> None:
    assert 400 <= reply.status < 500, reply
