# SPDX-License-Identifier: GPL-2.0-or-later
"""Describe requests to the engine as data, so that a dry run shows exactly what a run
sends. ``types`` are those of the SDK.

``--dry-run`` prints both. The SDK's own service writes the HTTP request, to a
connection that records it and sends nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

from ovirt_rdma.host.system.lazy import LazyModule

services: Any = LazyModule("ovirtsdk4.services")
types: Any = LazyModule("ovirtsdk4.types")


# Describe a request to the engine as data, and show it as HTTP without sending it.


@dataclass(frozen=True)
class Read:
    """A reading: a ``get`` or ``list`` of the SDK's service at ``path`` (hosts/ID).

    ``arguments`` are those of the method (``search``, ``max``, ``follow``). ``doing``
    begins the sentence of a failure: "reading the hosts".
    """

    path: str
    doing: str
    method: str = "list"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A change: ``method`` of the SDK's service at ``path``, with ``arguments``.

    ``doing`` is as in Read: "moving host01 to maintenance". ``subject`` is the name of
    the host, domain or network that it changes.
    """

    path: str
    method: str
    doing: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    subject: Optional[str] = None


@dataclass(frozen=True)
class WireForm:
    """An HTTP request: ``path`` below /ovirt-engine/api, ``body`` as XML, "" for none.

    The session adds the query parameter ``correlation_id`` to changes.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class _Recorded(Exception):
    """Carries the request out of the SDK."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


class _Recorder:
    """The part of a connection that the SDK's services use to send a request."""

    def send(self, request: Any) -> Any:
        raise _Recorded(request)


def wire_form(asked: Union[Call, Read]) -> WireForm:
    """Return the HTTP request of ``asked``.

    Raises TypeError for arguments that the SDK's method does not have, and the SDK's
    Error for a path without a service.
    """
    service = services.SystemService(_Recorder(), "").service(asked.path)
    try:
        sdk_method(service, asked)(**dict(asked.arguments))
    except _Recorded as recorded:
        request = recorded.request
        return WireForm(
            request.method, request.path, dict(request.query), request.body or ""
        )
    raise TypeError(f"{asked.path} {asked.method} sends nothing")


def sdk_method(service: Any, asked: Union[Call, Read]) -> Callable[..., Any]:
    """Return the method of the SDK's ``service`` that ``asked`` names.

    Raises TypeError for a method or arguments that it does not have: the SDK itself
    accepts and ignores any argument.
    """
    method = getattr(service, asked.method, None)
    if not callable(method):
        raise TypeError(f"{asked.path} has no {asked.method}")
    known = {
        name
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    unknown = sorted(set(asked.arguments) - known)
    if unknown:
        raise TypeError(
            f"{asked.path} {asked.method} has no argument {', '.join(unknown)}"
        )
    return method  # type: ignore[no-any-return]
