# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's addresses that are no part of its API: health and the CA certificate."""

from __future__ import annotations

from collections.abc import Mapping

from engine_double.answers import Answer, Mistake
from engine_double.faults import HTML
from engine_double.world import World

HEALTH = "/ovirt-engine/services/health"
PKI = "/ovirt-engine/services/pki-resource"
_CA = {"resource": "ca-certificate", "format": "X509-PEM-CA"}


def answer(world: World, method: str, address: str, query: Mapping[str, str]) -> Answer:
    """Serve one; raises Mistake for what there is not."""
    if method == "GET" and address == HEALTH:
        return Answer(200, b"DB Up!Welcome to Health Status!", HTML)
    if method == "GET" and address == PKI and query == _CA:
        return Answer(200, world.ca_pem.encode(), "application/x-x509-ca-cert")
    raise Mistake(f"there is no {method} {address} with {dict(query)}")
