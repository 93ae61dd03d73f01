# SPDX-License-Identifier: GPL-2.0-or-later
"""The sentences of the product, as its source has them, and the commands of ours that
they name.

A value in an f-string is its text if it is a constant of the module, as in
``f"{PROGRAM} apply"``.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Optional

ROOT = Path(__file__).parents[3]
PRODUCT = ("cli", "engine_sdk_tools", "host", "storage", "vdsm_hooks")
# Up to the next command, or to the punctuation after it.
COMMAND = re.compile(
    r"(?<![\w/.-])(ovirt-rdma(?:-host)?) "
    r"([a-z](?:(?!ovirt-rdma)(?![;:,.](?:\s|$))[^()'`\n])*)"
)


class Sentence(NamedTuple):
    """A string of the source. ``place`` is ``file:function``, or ``file:NAME`` of a
    constant; ``parts`` are its texts, None in place of a value that only a run has.
    ``is_help``: it is the help of an option.
    """

    place: str
    line: int
    parts: tuple[Optional[str], ...]
    is_help: bool = False

    @property
    def example(self) -> str:
        """The text with ``1`` in place of each value."""
        return "".join("1" if part is None else part for part in self.parts)

    @property
    def pattern(self) -> str:
        """What matches the text with any values."""
        return "".join(".*?" if p is None else re.escape(p) for p in self.parts)


@lru_cache(None)
def sentences() -> tuple[Sentence, ...]:
    """Return all strings of the product but docstrings."""
    return tuple(
        found
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        for found in _File(path.relative_to(ROOT)).sentences()
    )


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        module = ".".join(("ovirt_rdma", *path.with_suffix("").parts))
        try:
            self._constants = vars(importlib.import_module(module))
        except ImportError:  # a module that needs VDSM
            self._constants = {}

    def sentences(self) -> Iterator[Sentence]:
        yield from self._below(ast.parse((ROOT / self._path).read_text()), "")

    def _below(self, node: ast.AST, where: str) -> Iterator[Sentence]:
        for child in ast.iter_child_nodes(node):
            inside = where
            if isinstance(child, ast.keyword) and child.arg in ("help", "metavar"):
                for one in self._below(child, where):
                    yield one._replace(is_help=True)
                continue
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inside = f"{where}.{child.name}" if where else child.name
            elif isinstance(child, (ast.Assign, ast.AnnAssign)) and not where:
                target = getattr(child, "target", None) or child.targets[0]
                inside = ast.unparse(target)
                if isinstance(child.value, (ast.Constant, ast.JoinedStr)):
                    continue  # a constant: it counts where it is used
            if isinstance(child, ast.Name):
                known = self._constants.get(child.id)
                if isinstance(known, str) and isinstance(child.ctx, ast.Load):
                    yield self._sentence(child, inside, known)
            elif isinstance(child, ast.JoinedStr):
                yield self._sentence(child, inside, *map(self._part, child.values))
                for value in child.values:
                    if isinstance(value, ast.FormattedValue):
                        yield from self._below_value(value, inside)
            elif not isinstance(child, ast.Constant):
                yield from self._below(child, inside)
            elif isinstance(child.value, str) and not isinstance(node, ast.Expr):
                yield self._sentence(child, inside, child.value)

    def _below_value(self, value: ast.FormattedValue, where: str) -> Iterator[Sentence]:
        if not isinstance(value.value, ast.Name):
            yield from self._below(value, where)

    def _sentence(self, node: ast.expr, where: str, *parts: Optional[str]) -> Sentence:
        return Sentence(f"{self._path}:{where}", node.lineno, parts)

    def _part(self, value: ast.expr) -> Optional[str]:
        if isinstance(value, ast.Constant):
            return str(value.value)
        name = getattr(value, "value", None)
        known = self._constants.get(name.id) if isinstance(name, ast.Name) else None
        return known if isinstance(known, str) else None
