# SPDX-License-Identifier: GPL-2.0-or-later
"""Values of module options: where they are set, what the running module has, and when
two texts mean one value. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts import Modules
from ovirt_rdma.host.module_names import module_name
from ovirt_rdma.host.own_files import MODPROBE
from ovirt_rdma.host.policy_host import ModuleOption
from ovirt_rdma.host.rules.modprobe import place_of

_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)", re.ASCII | re.IGNORECASE)
_TRUE, _FALSE = ("y", "1", "on", "yes"), ("n", "0", "off", "no")


@dataclass(frozen=True)
class Setting:
    """An option as another file, or the kernel command line, sets it; ``place`` as
    ``FILE:LINE``.
    """

    value: str
    place: str


def set_elsewhere(modules: Modules, option: ModuleOption) -> Optional[Setting]:
    """Return the last line that sets the option and is not in our file.

    The kernel takes the last of several values (kernel/params.c).
    """
    found = None
    for line in modules.modprobe_lines:
        if line.command != "options" or line.file == MODPROBE:
            continue
        if module_name(line.module) != module_name(option.module):
            continue
        for word in line.text.split():
            name, _, value = word.partition("=")
            if name.replace("-", "_") == option.name.replace("-", "_"):
                found = Setting(value, place_of(line))
    return found


def running_value(modules: Modules, option: ModuleOption) -> Optional[str]:
    """Return the loaded module's value of an option, or None: not shown."""
    for parameter in modules.parameters:
        if module_name(parameter.module) == module_name(
            option.module
        ) and parameter.name == option.name.replace("-", "_"):
            return parameter.value
    return None


def same_value(one: str, other: str) -> bool:
    """Whether two texts mean one value: ``0x10`` is 16, and Y is 1."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> tuple[str, ...]:
    return tuple(_plain_word(word.strip().lower()) for word in text.split(","))


def _plain_word(word: str) -> str:
    word = word.strip("\"'")
    if word in _TRUE:
        return "1"
    if word in _FALSE:
        return "0"
    if _NUMBER.fullmatch(word):
        return str(int(word, 16) if "x" in word else int(word))
    return word
