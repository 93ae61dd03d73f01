# SPDX-License-Identifier: GPL-2.0-or-later
"""Why an export that a rule names is not mounted."""


class ConnectRefused(Exception):
    """The export is not mounted; the text says why, and what to do."""
