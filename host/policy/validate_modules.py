# SPDX-License-Identifier: GPL-2.0-or-later
"""Validate kernel modules, their options, and folders beyond their form. Pure.

The functions that get the data of the file skip values of the wrong type, which their
form refuses.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any, Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.diagnostics import KeyPath, Mistake

_MODULE = re.compile(r"[A-Za-z0-9_-]+")
_OPTION = re.compile(r"[A-Za-z0-9_-]+")
# modprobe joins lines at a backslash. The kernel removes quotes and ends a value at a
# blank (lib/cmdline.c, next_arg).
_VALUE = re.compile(r"[!-~]+")
_MEANT_OTHERWISE = re.compile(r"[\"'\\]")
# The kernel refuses a longer text (kernel/params.c, param_set_charp).
_MAX_VALUE = 1024

# Aliases (net/sunrpc/xprtrdma/module.c): only the module itself is seen as loaded.
_MODULE_OF = {"xprtrdma": "rpcrdma", "svcrdma": "rpcrdma", "rpcrdma6": "rpcrdma"}


def kernel_name(text: str) -> str:
    """Return the name of a module or option as in the kernel: with ``_`` for ``-``."""
    return text.replace("-", "_")


def modules_repeated(modules: object) -> Iterator[Mistake]:
    """Yield the modules that are twice in ``host.modules``."""
    numbers: dict[str, int] = {}
    for position, text in enumerate(modules if isinstance(modules, list) else []):
        if not isinstance(text, str) or not text or module_mistake(text):
            continue
        path: KeyPath = ("host", "modules", position)
        name = kernel_name(text)
        first = numbers.setdefault(name, position + 1)
        if first != position + 1:
            sentence = f"{name} is already in the list, as modules[{first}]"
            yield path, Sentence("module-repeated", sentence)


def module_option_mistakes(options: object) -> Iterator[Mistake]:
    """Yield every mistake in the names of ``host.module_options``."""
    written: dict[str, str] = {}
    for module, values in _items(options):
        path: KeyPath = ("host", "module_options", module)
        mistake = module_mistake(module) or _twice(module, written)
        if mistake:
            yield path, mistake
        names: dict[str, str] = {}
        for name, _ in _items(values):
            if not _OPTION.fullmatch(name):
                yield (
                    (*path, name),
                    Sentence(
                        "option-name-invalid",
                        f"{name!r} is not an option's name; "
                        "allowed: letters, digits, '_', '-'",
                    ),
                )
            else:
                twice = _twice(name, names)
                if twice:
                    yield (*path, name), twice


def module_mistake(text: str) -> Optional[Sentence]:
    """Return a sentence if ``text`` is not the name of a module."""
    file = re.fullmatch(r"(.+?)\.ko(\.\w+)?", text)
    if file:
        sentence = f"{text!r} is a file; write the module's name: {file[1]}"
        return Sentence("module-name-is-file", sentence)
    if not _MODULE.fullmatch(text):
        return Sentence(
            "module-name-invalid",
            f"{text!r} is not a module's name; allowed: letters, digits, '_', '-'",
        )
    module = _MODULE_OF.get(text)
    if module:
        sentence = f"{text} is an alias of the module {module}; write {module}"
        return Sentence("module-name-is-alias", sentence)
    return None


def folder_mistake(text: str) -> Optional[Sentence]:
    """Return a sentence if ``text`` is not the absolute path of a folder."""
    normal = posixpath.normpath(text)
    if text.isprintable() and re.match("/[^/]", normal) and text.rstrip("/") == normal:
        return None
    sentence = f"{text!r} is no absolute path without '.', '..' and doubled slashes"
    return Sentence("folder-invalid", sentence)


def _twice(text: str, written: dict[str, str]) -> Optional[Sentence]:
    first = written.setdefault(kernel_name(text), text)
    if first == text:
        return None
    return Sentence("key-repeated", f"is the same as {first}, which is already given")


def option_mistake(value: str) -> Optional[Sentence]:
    """Return a sentence if ``value`` cannot be the value of a module's option."""
    if not _VALUE.fullmatch(value) or _MEANT_OTHERWISE.search(value):
        return Sentence(
            "option-value-invalid",
            f"{value!r} is not allowed as the value of a module option; allowed: one "
            "line of ASCII without blanks, quotes and backslashes",
        )
    if len(value) > _MAX_VALUE:
        sentence = f"is too long; allowed: {_MAX_VALUE} characters"
        return Sentence("option-value-too-long", sentence)
    return None


def _items(value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
