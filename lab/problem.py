# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the errors of the lab; their texts are for the person who runs it."""

from __future__ import annotations


class LabProblem(Exception):
    """The lab cannot do something; the text says what, where and what to do."""


class NotProvisioned(LabProblem):
    """The lab's downloads are not on this machine yet (python3 -m lab.provision)."""


class GuestDied(LabProblem):
    """The guest did not come up, or has ended; the text ends with its console."""


class CommandFailed(LabProblem):
    """A command in a guest failed; the text has the command and its output."""


class CommandTimeout(CommandFailed):
    """A command in a guest exceeded its timeout, and was killed."""
