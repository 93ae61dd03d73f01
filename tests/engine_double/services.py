# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve the engine's addresses outside its API: health and the CA certificate."""

from __future__ import annotations

from collections.abc import Mapping

from engine_double.answers import Answer, Mistake
from engine_double.behaviours import behaviour
from engine_double.world import World

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


def answer(world: World, method: str, address: str, query: Mapping[str, str]) -> Answer:
    """Serve one; raises Mistake for an unknown address."""
    if method == "GET" and address == HEALTH:
        said = b"DB Up!" if world.does(HEALTHY) else b""
        return Answer(200, said + b"Welcome to Health Status!", _PLAIN)
    if method == "GET" and address == PKI and query == _CA:
        text = world.ca_pem if world.does(CERTIFICATE) else world.ca_pem.strip()
        return Answer(200, text.encode(), "application/x-x509-ca-cert")
    raise Mistake(f"there is no {method} {address} with {dict(query)}")
