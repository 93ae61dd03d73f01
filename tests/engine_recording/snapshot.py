# SPDX-License-Identifier: GPL-2.0-or-later
"""Read, at the beginning of a recording, the lists from which a world is made.

They are read as any client does, and so recorded like any exchange.
"""

from __future__ import annotations

import datetime
from typing import Any
from xml.etree import ElementTree

import requests

from engine_recording.exchanges import RUN, SNAPSHOT
from engine_recording.proxy import RecordingProxy
from ovirt_rdma.engine_sdk_tools.api.auth import log_in, log_out
from ovirt_rdma.engine_sdk_tools.api.settings import Settings

HOSTS = "hosts?all_content=true&follow=nics,network_attachments,hooks"
CLUSTERS = "clusters?follow=networks"
OPTION = "options/UserDefinedNetworkCustomProperties"
# Engine-wide lists, in this order; a world of the double is made from their answers.
LISTS = ("", "datacenters", CLUSTERS, HOSTS, "networks", "storagedomains")
LISTS += ("storageconnections", "vms", "jobs", "events?max=1", OPTION)


def take(proxy: RecordingProxy, settings: Settings) -> dict[str, Any]:
    """Record the snapshot; ``settings`` have the address of the proxy. Return the
    manifest's part about it.
    """
    proxy.part = SNAPSHOT
    token = log_in(settings)
    http = requests.Session()
    http.trust_env = False
    http.headers.update(
        {"Authorization": f"Bearer {token}", "Accept": "application/xml"}
    )

    def get(path: str) -> ElementTree.Element:
        reply = http.get(f"{settings.url}/{path}".rstrip("/"), timeout=120)
        text = reply.text if reply.ok and reply.text else "<nothing/>"
        return ElementTree.fromstring(text.encode())

    found = {path: get(path) for path in LISTS}
    for center in found["datacenters"]:
        get(f"datacenters/{center.get('id')}/storagedomains")
    for cluster in found[CLUSTERS]:
        get(f"clusters/{cluster.get('id')}/enabledfeatures")
    for level in sorted(_levels(found[CLUSTERS])):
        get(f"clusterlevels/{level}/clusterfeatures")
    log_out(settings, token)
    proxy.part = RUN
    return {
        "engine_version": found[""].findtext("product_info/version/full_version")
        or _version(found[""]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "began_with": {
            path.partition("?")[0]: {
                str(one.get("id")): one.findtext("name") for one in found[path]
            }
            for path in LISTS[1:7]
        },
    }


def _version(api: ElementTree.Element) -> str:
    where = "product_info/version/"
    numbers = (api.findtext(where + word) for word in ("major", "minor", "build"))
    return ".".join(number for number in numbers if number)


def _levels(clusters: ElementTree.Element) -> set[str]:
    return {
        f"{one.findtext('version/major')}.{one.findtext('version/minor')}"
        for one in clusters
    }
