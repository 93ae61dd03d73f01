# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the command of a service as systemd does, for guests without it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def exec_start(files: Sequence[str]) -> list[str]:
    """Return the argument vector of the effective ExecStart of ``files``.

    ``files`` are the texts of the unit and of its drop-ins, in systemd's order. As in
    systemd.service(5), an empty assignment resets those before it, and ``$$`` is a
    dollar sign. Raises ValueError unless exactly one is left, which systemd requires of
    a service of Type=simple.
    """
    commands: list[str] = []
    for text in files:
        for line in text.replace("\\\n", " ").splitlines():
            key, equals, value = line.strip().partition("=")
            if equals and key.rstrip() == "ExecStart":
                commands = [*commands, value.strip()] if value.strip() else []
    if len(commands) != 1:
        raise ValueError(f"the unit has {len(commands)} ExecStart, not one: {commands}")
    return [word.replace("$$", "$") for word in shlex.split(commands[0])]


def environment_file(text: str) -> dict[str, str]:
    """Return the variables of an EnvironmentFile (systemd.exec(5)) without continued
    lines.
    """
    variables = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name[0] not in "#;":
            variables[name] = " ".join(shlex.split(value))
    return variables
