# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a network, and attach it if the operator names a NIC for it."""

from __future__ import annotations

from engine_smoke.acts import act
from engine_smoke.site import Site, Skipped

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
