# SPDX-License-Identifier: GPL-2.0-or-later
"""Collect what the product says: errors, reasons, findings and steps, with their ids.

The source is parsed, nothing runs: a sentence is shown as it is written, with each
expression in braces. A name is replaced by what the same function or module assigns
to it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_STEP_TEXTS = ("sentence", "reason", "undo")


class Message(NamedTuple):
    """``id`` is that of the error, the reason or the rule; ``texts`` are the sentence,
    then the fix; of a step, reason and undo.
    """

    id: str
    texts: tuple[str, ...]


class _Module:
    """One module: its tree, and what its names stand for."""

    def __init__(self, path: Path, top: Path) -> None:
        self.name = ".".join(path.relative_to(top.parent).with_suffix("").parts)
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.constants = _assigned(self.tree.body)

    def resolve_imports(self, modules: dict[str, _Module]) -> None:
        """Add the constants that are imported from ``modules``."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                source = modules.get(node.module.partition(".")[2])
                constants = source.constants if source else {}
                for name in node.names:
                    if name.name in constants:
                        values = constants[name.name]
                        self.constants.setdefault(name.asname or name.name, values)

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))

    def calls(self) -> Iterator[tuple[ast.Call, dict[str, list[ast.expr]]]]:
        """Yield each call with what the names around it stand for."""
        yield from self._calls(self.tree, self.constants)

    def _calls(
        self, node: ast.AST, names: dict[str, list[ast.expr]]
    ) -> Iterator[tuple[ast.Call, dict[str, list[ast.expr]]]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                local = _assigned(ast.walk(child))
                yield from self._calls(child, {**names, **local})
                continue
            if isinstance(child, ast.Call):
                yield child, names
            yield from self._calls(child, names)


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    values = defaultdict(list)
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        else:
            pairs = [(target, node.value)]
        for name, value in pairs:
            if isinstance(name, ast.Name):
                values[name.id].append(value)
    return values


def messages(folders: Iterable[Path]) -> list[Message]:
    """Return the messages of all Python files below ``folders``, sorted, each once."""
    modules = [
        _Module(path, top) for top in folders for path in sorted(top.rglob("*.py"))
    ]
    by_name = {module.name: module for module in modules}
    for module in modules:
        module.resolve_imports(by_name)
    problems = _problem_classes(modules)
    found = {
        message
        for module in modules
        for call, names in module.calls()
        for message in _messages_of(call, names, problems)
    }
    return sorted(found)


def as_text(found: Iterable[Message]) -> str:
    """Return the golden file: each id with its sentences, then with its other texts."""
    sentences, others = defaultdict(set), defaultdict(set)
    for message in found:
        sentence, *below = message.texts
        sentences[message.id].add(sentence)
        others[message.id].update(below)
    return "\n".join(
        "\n".join(
            [
                key,
                *(f"  - {text}" for text in sorted(sentences[key])),
                *(f"      {text}" for text in sorted(others[key])),
                "",
            ]
        )
        for key in sorted(sentences)
    )


def _problem_classes(modules: list[_Module]) -> set[str]:
    bases = {
        node.name: [ast.unparse(base) for base in node.bases]
        for module in modules
        for node in module.classes()
    }
    problems = {"Problem"}
    while True:
        more = {name for name, of in bases.items() if problems.intersection(of)}
        if more <= problems:
            return problems
        problems |= more


def _messages_of(
    call: ast.Call, names: dict[str, list[ast.expr]], problems: set[str]
) -> Iterator[Message]:
    called = ast.unparse(call.func).rpartition(".")[2]
    given = {word.arg: word.value for word in call.keywords if word.arg}
    first = call.args[0] if call.args else None
    if called == "Sentence" or called in problems:
        if len(call.args) == 1:  # a class that has one id
            yield from _alternatives(f"({called})", [first], names)
        elif (
            isinstance(first, ast.Constant)
            and isinstance(first.value, str)
            and first.value
        ):
            fix = given.get("fix") or (call.args[2] if len(call.args) > 2 else None)
            yield from _alternatives(first.value, [*call.args[1:2], fix], names)
    elif called == "Finding" and len(call.args) > 3:
        rule, _, verdict, *texts = call.args
        shown = [*texts[:2], given.get("fix")]
        yield from _of_rule(ast.unparse(verdict), rule, shown, names)
    elif called == "Step" and given.keys() >= set(_STEP_TEXTS):
        shown = [given[key] for key in _STEP_TEXTS]
        yield from _of_rule("step", given.get("rule") or first, shown, names)


def _of_rule(
    kind: str,
    rule: ast.expr | None,
    nodes: list[ast.expr | None],
    names: dict[str, list[ast.expr]],
) -> Iterator[Message]:
    for message in _alternatives(_plain(rule, names), nodes, names):
        sentence, *below = message.texts
        yield Message(message.id, (f"{kind}: {sentence}", *below))


def _plain(node: ast.expr | None, names: dict[str, list[ast.expr]]) -> str:
    values = list(_texts(node, names)) if node else []
    return values[0] if values else "{}"


def _alternatives(
    key: str, nodes: list[ast.expr | None], names: dict[str, list[ast.expr]]
) -> Iterator[Message]:
    """Yield a message for each text of the first node, with the other nodes' texts."""
    sentences, *others = [list(_texts(node, names)) for node in nodes if node]
    below = tuple(text for texts in others for text in texts if text)
    yield from (Message(key, (text, *below)) for text in sentences)


def _texts(node: ast.expr, names: dict[str, list[ast.expr]]) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value.replace("\n", "\\n")
    elif isinstance(node, ast.JoinedStr):
        parts = [
            str(part.value) if isinstance(part, ast.Constant) else ast.unparse(part)
            for part in node.values
        ]
        # A part's own unparse is an f-string: {name}.
        yield "".join(_braces(part) for part in parts).replace("\n", "\\n")
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, names)
        yield from _texts(node.orelse, names)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _texts(value, names)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _texts(node.left, names), list(_texts(node.right, names))
        yield from (f"{one}{other}" for one in left for other in right)
    elif isinstance(node, ast.Name) and node.id in names:
        without = {key: values for key, values in names.items() if key != node.id}
        for value in names[node.id]:
            yield from _texts(value, without)
    else:
        yield _same_quotes(f"{{{ast.unparse(node)}}}")


def _braces(part: str) -> str:
    for quote in ("'", '"'):
        if part.startswith(f"f{quote}{{") and part.endswith(f"}}{quote}"):
            return _same_quotes(part[2:-1])
    return part


def _same_quotes(code: str) -> str:
    """Pythons differ in the quotes that ast.unparse gives to nested f-strings."""
    return code.replace('"', "'")
