# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide the context in which verbs run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from ovirt_rdma.cli.output import Output

if TYPE_CHECKING:  # of the engine's side; a hypervisor's command has none
    from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess


@dataclass(frozen=True)
class Context:
    """What a verb works with.

    ``output`` gets the result and the messages. ``at_end`` is closed when the verb is
    done. ``root`` is the host's root directory, another one than / in tests.
    ``access`` is the host access to use in place of the one that the arguments name.
    """

    output: Output
    at_end: ExitStack
    root: str = "/"
    access: Optional[HostAccess] = None
