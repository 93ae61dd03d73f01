# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve the engine's version, and outside its API the certificate of its CA."""

from __future__ import annotations

from collections.abc import Mapping

from ovirtsdk4 import types

from engine_double.answers import Answer, Mistake
from engine_double.auth import user_view
from engine_double.behaviours import behaviour
from engine_double.routing import Call, route
from engine_double.world import World


@route("GET", "/")
def api(call: Call) -> types.Api:
    major, minor, build = map(int, call.world.version.split("."))
    version = types.Version(
        full_version=f"{call.world.version}-1.el9",
        major=major,
        minor=minor,
        build=build,
        revision=0,
    )
    return types.Api(
        authenticated_user=user_view(call),
        product_info=types.ProductInfo(
            name=call.world.product, vendor="ovirt.org", version=version
        ),
    )


# -- outside the API

CERTIFICATE = behaviour(
    "REST-23",
    "The certificate of the engine's CA is given to everybody, in PEM.",
    "services/PKIResourceServlet.java:26-101",
)
PKI = "/ovirt-engine/services/pki-resource"
_CA = {"resource": "ca-certificate", "format": "X509-PEM-CA"}


def service(
    world: World, method: str, address: str, query: Mapping[str, str]
) -> Answer:
    """Serve an address outside the API; raises Mistake for an unknown one."""
    if method == "GET" and address == PKI and query == _CA:
        text = world.ca_pem if world.does(CERTIFICATE) else world.ca_pem.strip()
        return Answer(200, text.encode(), "application/x-x509-ca-cert")
    raise Mistake(f"there is no {method} {address} with {dict(query)}")
