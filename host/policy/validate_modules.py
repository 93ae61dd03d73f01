# SPDX-License-Identifier: GPL-2.0-or-later
"""What a schema cannot say about modules and their options. Pure, over the data as the
file has it; a value of the wrong type is passed over, the schema has refused it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Optional

from ovirt_rdma.host.policy.diagnostics import KeyPath

_MODULE = re.compile(r"[A-Za-z0-9_-]+")
_OPTION = re.compile(r"[A-Za-z0-9_-]+")
# modprobe joins lines at a backslash, and the kernel takes quotes off and ends a
# value at a blank (lib/cmdline.c, next_arg).
_VALUE = re.compile(r"[!-~]+")
_MEANT_OTHERWISE = re.compile(r"[\"'\\]")
# A longer text is refused by the kernel (kernel/params.c, param_set_charp).
_MAX_VALUE = 1024

# Aliases (net/sunrpc/xprtrdma/module.c): never seen as loaded, only the module is.
_MODULE_OF = {"xprtrdma": "rpcrdma", "svcrdma": "rpcrdma", "rpcrdma6": "rpcrdma"}


def kernel_name(text: str) -> str:
    """Return a module's or an option's name as the kernel has it: with ``_`` for -."""
    return text.replace("-", "_")


def module_mistakes(modules: object) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the sentence of every mistake in ``host.modules``."""
    numbers: dict[str, int] = {}
    for position, text in enumerate(modules if isinstance(modules, list) else []):
        if not isinstance(text, str) or not text:
            continue
        path: KeyPath = ("host", "modules", position)
        mistake = _module_mistake(text)
        if mistake:
            yield path, mistake
            continue
        name = kernel_name(text)
        first = numbers.setdefault(name, position + 1)
        if first != position + 1:
            yield path, f"{name} is modules[{first}] already"


def module_option_mistakes(options: object) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the sentence of every mistake in ``host.module_options``."""
    written: dict[str, str] = {}
    for module, values in _items(options):
        path: KeyPath = ("host", "module_options", module)
        mistake = _module_mistake(module) or _twice(module, written)
        if mistake:
            yield path, mistake
        names: dict[str, str] = {}
        for name, value in _items(values):
            if not _OPTION.fullmatch(name):
                yield (
                    (*path, name),
                    f"{name!r} is not an option's name; "
                    "allowed: letters, digits, '_', '-'",
                )
            else:
                twice = _twice(name, names)
                if twice:
                    yield (*path, name), twice
            mistake = _value_mistake(value) if isinstance(value, str) else None
            if mistake:
                yield (*path, name), mistake


def _module_mistake(text: str) -> Optional[str]:
    file = re.fullmatch(r"(.+?)\.ko(\.\w+)?", text)
    if file:
        return f"{text!r} is a file; write the module's name: {file[1]}"
    if not _MODULE.fullmatch(text):
        return f"{text!r} is not a module's name; allowed: letters, digits, '_', '-'"
    module = _MODULE_OF.get(text)
    if module:
        return f"{text} is another name of the module {module}; write {module}"
    return None


def _twice(text: str, written: dict[str, str]) -> Optional[str]:
    first = written.setdefault(kernel_name(text), text)
    return None if first == text else f"is the same as {first}, which is given already"


def _value_mistake(value: str) -> Optional[str]:
    if not value:
        return None
    if not _VALUE.fullmatch(value) or _MEANT_OTHERWISE.search(value):
        return (
            f"{value!r} cannot be a module option here; allowed: one line of ASCII "
            "without blanks, quotes and backslashes"
        )
    if len(value) > _MAX_VALUE:
        return f"is too long; allowed: {_MAX_VALUE} characters"
    return None


def _items(value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
