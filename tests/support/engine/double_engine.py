# SPDX-License-Identifier: GPL-2.0-or-later
"""Start the engine's double over a world, with the SDK's services for its tests."""

from __future__ import annotations

from typing import Any

import ovirtsdk4 as sdk
import pytest
from engine_double import EngineDouble, World, sample_world
from ovirtsdk4 import types


class Engine:
    """A running double; ``close`` ends it."""

    def __init__(self, **words: Any) -> None:
        self.world: World = sample_world(**{"hosts": 3, "export": False, **words})
        self.double = EngineDouble(self.world)
        self.double.__enter__()
        self.connection = self.client()
        self.system = self.connection.system_service()
        self.domains = self.system.storage_domains_service()
        self.rows = self.system.storage_connections_service()

    def close(self) -> None:
        self.connection.close(logout=False)
        self.double.close()

    def client(self) -> Any:
        return sdk.Connection(
            url=self.double.url,
            username="admin@ovirt@internalsso",
            password="secret",
        )

    def seen_by_others(self, name: str) -> list[str]:
        """Collect a domain's status as another client sees it before an answer."""
        seen: list[str] = []
        found = self.world.domain(name).id

        def look(about: str) -> None:
            if about != found:
                return
            other = self.client()
            centres = other.system_service().data_centers_service()
            centre = centres.data_center_service(self.world.data_center("dc1").id)
            service = centre.storage_domains_service().storage_domain_service(found)
            seen.append(service.get().status.value)
            other.close(logout=False)

        self.world.meanwhile = look
        return seen

    def attached(self, name: str) -> Any:
        return self.centre().storage_domain_service(self.world.domain(name).id)

    def centre(self) -> Any:
        found = self.world.data_center("dc1").id
        service = self.system.data_centers_service().data_center_service(found)
        return service.storage_domains_service()

    def row(self, domain: str) -> Any:
        found = self.world.connection_of(domain).id
        return self.rows.storage_connection_service(found)

    def host(self, name: str) -> Any:
        found = self.world.host(name).id
        return self.system.hosts_service().host_service(found)

    def mounted(self, domain: str) -> dict[str, str]:
        export = self.world.connection_of(domain).export
        return {
            host.name: host.mounts[export]
            for host in self.world.hosts.values()
            if export in host.mounts
        }

    def by_itself(self, domain: str) -> None:
        """Make hosts mount it with a separate connection from the next mount on."""
        self.world.connection_of(domain).nfs_version = "v4_1"

    def new(self, name: str = "new", **words: Any) -> types.StorageDomain:
        """Add a row with ``words``; return a domain on it, for host01 to make."""
        made = self.rows.add(
            types.StorageConnection(
                **{
                    "type": types.StorageType.NFS,
                    "address": "nfs1.example.com",
                    "path": f"/exports/{name}",
                    "nfs_version": types.NfsVersion.V4_2,
                    **words,
                }
            )
        )
        return types.StorageDomain(
            name=name,
            type=types.StorageDomainType.DATA,
            host=types.Host(id=self.world.host("host01").id),
            storage=types.HostStorage(id=made.id),
        )


def refused(code: int, text: str = "") -> Any:
    return pytest.raises(sdk.Error, match=f"(?s){text}.*HTTP response code is {code}")


def row(**words: Any) -> types.StorageConnection:
    return types.StorageConnection(**words)
