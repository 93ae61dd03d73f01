# SPDX-License-Identifier: GPL-2.0-or-later
"""The SDK's types and services, imported on first use."""

from __future__ import annotations

from typing import Any

from ovirt_rdma.host.system.lazy import LazyModule

services: Any = LazyModule("ovirtsdk4.services")
types: Any = LazyModule("ovirtsdk4.types")
