# SPDX-License-Identifier: GPL-2.0-or-later
"""Why an export that a rule names is not mounted."""

from __future__ import annotations

from ovirt_rdma.host.export import Export


class ConnectRefused(Exception):
    """The export is not mounted; the text says why, and what to do."""


def refused(export: Export, sentence: str, fix: str) -> ConnectRefused:
    """Return the refusal of ``export`` for the reason ``sentence``."""
    return ConnectRefused(f"{export}: {sentence}{hint(fix)}")


def hint(fix: str) -> str:
    """Return ``fix`` as the end of a sentence, empty where there is none."""
    return f"; fix: {fix}" if fix else ""
