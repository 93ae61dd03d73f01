# SPDX-License-Identifier: GPL-2.0-or-later
"""Provoke rare answers with our own objects: refusals, jobs and events.

Their recordings are compared with the engine's double.
"""

from __future__ import annotations

from xml.etree import ElementTree

from engine_smoke.acts import act
from engine_smoke.notes import PREFIX
from engine_smoke.site import Reply, Site, Skipped
from ovirt_rdma.engine_sdk_tools.model import Engine

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
    site.raw("GET", "clusterlevels/9.9/clusterfeatures")
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


@act("answers: changes that belong to a job")
def changes_of_a_job(site: Site) -> None:
    network = _network(site)
    engine = site.now()
    center = next(c.id for c in engine.data_centers if c.name == site.center)
    cluster = next(c.id for c in engine.clusters if c.data_center == center)
    second = f"{site.name}-2"
    site.notes.will_make("network", second)
    for method, path, body in (
        ("POST", "networks", _network_body(second, center)),
        (
            "PUT",
            f"networks/{network}",
            "<network><comment>of a job</comment></network>",
        ),
        *_row_change(site, engine),
    ):
        job = _id(site.raw("POST", "jobs", _job(site, f"of {method}")))
        step = _id(site.raw("POST", f"jobs/{job}/steps", _STEP))
        site.raw(method, f"{path}{'&' if '?' in path else '?'}JobId={job}", body)
        for _ in range(_CALLBACK_S):
            # A change with a callback ends the job when the callback has finished.
            if "<status>started" not in site.raw("GET", f"jobs/{job}").text:
                break
            site.session.sleep(1.0)
        site.raw("GET", f"jobs/{job}/steps")
        site.raw("POST", f"jobs/{job}/steps", _STEP)
        site.raw("POST", f"jobs/{job}/steps/{step}/end", _END_STEP)
        site.raw("POST", f"jobs/{job}/end", _END)
    own = f"clusters/{cluster}/networks/{network}"
    site.raw("DELETE", f"{own}?JobId={NOBODY}")
    if site.raw("GET", own).status == 404:
        # Not refused: restore it.
        back = f'<network id="{network}"/>'
        reply = site.raw("POST", f"clusters/{cluster}/networks", back)
        assert reply.status == 201, reply


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
_CALLBACK_S = 15
_RATE = "<flood_rate>%d</flood_rate>"
_END_STEP = "<action><succeeded>true</succeeded></action>"
_END = "<action><succeeded>true</succeeded><force>true</force></action>"


def _row_change(site: Site, engine: Engine) -> list[tuple[str, str, str]]:
    """Return a change of our connection that changes nothing."""
    for domain in engine.domains:
        row = domain.connection
        if domain.name == site.name and row is not None:
            options = f"<mount_options>{row.mount_options}</mount_options>"
            body = f"<storage_connection>{options}</storage_connection>"
            return [("PUT", f"storageconnections/{row.id}?force=true", body)]
    return []


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
