# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve what the engine says of itself: its version, its options (``world.options`` has
(name, version) -> value; version "" is ``general``), and outside its API its health and
the certificate of its CA.
"""

from __future__ import annotations

from collections.abc import Mapping

from ovirtsdk4 import types

from engine_double.answers import Answer, Missing, Mistake
from engine_double.auth import user_view
from engine_double.behaviours import behaviour
from engine_double.routing import Call, route
from engine_double.setup_checks import USER_PROPERTIES
from engine_double.views import with_href
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


# -- options

UNKNOWN = behaviour(
    "OPTION-01",
    "An option that there is not, or that has no value for the version that is asked "
    "for: 404.",
    "restapi/resource/BackendSystemOptionResource.java:28-47",
    "bll/GetSystemOptionQuery.java:27-41",
)
BY_VERSION = behaviour(
    "OPTION-02",
    "Without a version an option has a value for each; with one, that version's.",
    "bll/GetSystemOptionQuery.java:27-42",
)
EMPTY = behaviour(
    "OPTION-03",
    "The custom properties of networks are there for each cluster level, empty from "
    "the beginning.",
    "dbscripts/upgrade/pre_upgrade/0000_config.sql:761",
)


@route("GET", "/options/{option}", query=("version",))
def get_option(call: Call) -> types.SystemOption:
    world = call.world
    name, version = call.ids["option"], call.query.get("version")
    if not world.does(BY_VERSION):
        version = None
    values = {
        level or "general": value
        for (option, level), value in world.options.items()
        if option == name and version in (None, level)
    }
    if name == USER_PROPERTIES and world.does(EMPTY):
        for level in {cluster.version for cluster in world.clusters.values()}:
            if version in (None, level):
                values.setdefault(level, "")
    if not values and world.does(UNKNOWN):
        raise Missing(name)
    return with_href(
        types.SystemOption(
            id=name,
            name=name,
            values=[
                types.SystemOptionValue(value=value, version=level)
                for level, value in sorted(values.items())
            ],
        ),
        f"/options/{name}",
    )


# -- outside the API

HEALTHY = behaviour(
    "REST-22",
    "The health page says that data base and engine are up, in HTML and to everybody.",
    "services/HealthStatus.java:37-83",
)
CERTIFICATE = behaviour(
    "REST-23",
    "The certificate of the engine's CA is given to everybody, in PEM.",
    "services/PKIResourceServlet.java:26-101",
)
HEALTH = "/ovirt-engine/services/health"
PKI = "/ovirt-engine/services/pki-resource"
# The servlet names no charset: WildFly adds that of servlets.
_PLAIN = "text/html;charset=ISO-8859-1"
_CA = {"resource": "ca-certificate", "format": "X509-PEM-CA"}


def service(
    world: World, method: str, address: str, query: Mapping[str, str]
) -> Answer:
    """Serve an address outside the API; raises Mistake for an unknown one."""
    if method == "GET" and address == HEALTH:
        said = b"DB Up!" if world.does(HEALTHY) else b""
        return Answer(200, said + b"Welcome to Health Status!", _PLAIN)
    if method == "GET" and address == PKI and query == _CA:
        text = world.ca_pem if world.does(CERTIFICATE) else world.ca_pem.strip()
        return Answer(200, text.encode(), "application/x-x509-ca-cert")
    raise Mistake(f"there is no {method} {address} with {dict(query)}")
