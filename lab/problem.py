# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong in the lab, as sentences for the person who runs it."""

from __future__ import annotations


class LabProblem(Exception):
    """The lab cannot do what it was asked; the text says what, where and what to do."""


class NotProvisioned(LabProblem):
    """What guests are made of is not on this machine yet (python3 -m lab.provision)."""


class GuestDied(LabProblem):
    """The guest never came up, or is gone; the text ends with the console's tail."""


class CommandFailed(LabProblem):
    """A command in a guest failed; the text has the command and its output."""


class CommandTimeout(CommandFailed):
    """A command in a guest took longer than it was given, and was killed."""
