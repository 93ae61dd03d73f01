# SPDX-License-Identifier: GPL-2.0-or-later
"""Read YAML text as plain data, with the line and the original text of every value.

YAML 1.1 reads ``pci: 04:00.0`` as the number 240 and ``tso: on`` as true, so the forms
of some values take the text from the file. Elsewhere a number that YAML reads as
another one (``mtu: 02044`` is 1060) is a mistake. Aliases, tags and repeated keys are
mistakes too: with them a policy does not mean what it shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Optional

import yaml

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.forms import Diagnostic, KeyPath, key_text

# Not octal, hexadecimal, base 60 or 2_044.
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")


_QUOTES = "a value that starts with *, & or ! needs quotes"


@dataclass
class YamlDocument:
    """A YAML document; ``data`` is None for an empty one.

    ``lines`` has the line where the key or list item of each value starts, ``texts``
    the text of each scalar. ``misread`` are the numbers not written in decimal.
    """

    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    texts: dict[KeyPath, str] = field(default_factory=dict)
    misread: set[KeyPath] = field(default_factory=set)
    mistakes: list[Diagnostic] = field(default_factory=list)

    def line(self, path: KeyPath) -> int:
        """Return the line of ``path``; if it is absent, that of its nearest parent."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str) -> YamlDocument:
    """Read one YAML document. Never raises; the errors are in ``mistakes``.

    After a syntax error there is no data. After other mistakes the data lacks the keys
    concerned, so that the rest can be validated.
    """
    document = YamlDocument()
    try:
        node = _composed(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        sentence = Sentence(
            "yaml-character-invalid",
            f"the character U+{error.character:04X} is not allowed in YAML",
        )
        document.mistakes.append(Diagnostic(line, "", sentence))
    except yaml.MarkedYAMLError as error:
        document.mistakes.append(_syntax_mistake(error))
    except RecursionError:
        sentence = Sentence("yaml-too-deep", "it is nested too deeply")
        document.mistakes.append(Diagnostic(None, "", sentence))
    else:
        if node is not None:
            document.data = _value(node, (), document)
    return document


def _composed(text: str) -> Optional[yaml.Node]:
    loader = _PlainLoader(text)
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError):
        # From int() and chr() in PyYAML: "\UFFFFFFFF", or %YAML with 5000 digits.
        raise yaml.scanner.ScannerError(
            None, None, "a number is too large", loader.get_mark()
        ) from None


class _PlainLoader(yaml.SafeLoader):
    """Compose nodes; refuse aliases and explicit tags."""

    def compose_node(
        self, parent: Optional[yaml.Node], index: Any
    ) -> Optional[yaml.Node]:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
            shown = "an alias" if isinstance(event, yaml.AliasEvent) else "a tag"
            raise yaml.composer.ComposerError(
                None, None, f"{shown} is not allowed here; {_QUOTES}", event.start_mark
            )
        return super().compose_node(parent, index)


def _syntax_mistake(error: yaml.MarkedYAMLError) -> Diagnostic:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    id, sentence = "yaml-invalid", f"not valid YAML: {error.problem or error.context}"
    if isinstance(error, yaml.composer.ComposerError):
        if error.context:
            id = "yaml-second-document"
            sentence = "a second YAML document starts here; allowed: one"
        else:
            id, sentence = "yaml-alias-or-tag", str(error.problem)
    elif error.context == "while scanning an alias":
        sentence += f"; {_QUOTES}"
    elif error.problem == "mapping values are not allowed here":
        sentence += "; check the indentation, and quote a value with a colon at its end"
    elif error.problem and "cannot start any token" in error.problem:
        sentence += "; indent with blanks only, and quote a value that starts with it"
    return Diagnostic(line, "", Sentence(id, sentence))


def _value(node: yaml.Node, path: KeyPath, document: YamlDocument) -> Any:
    document.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(item, (*path, position), document)
            for position, item in enumerate(node.value)
        ]
    document.texts[path] = node.value
    try:
        value = yaml.constructor.SafeConstructor().construct_object(node)
        if isinstance(value, (int, float)) and not _DECIMAL.fullmatch(node.value):
            document.misread.add(path)
        return value
    except (ValueError, OverflowError, yaml.constructor.ConstructorError):
        # YAML 1.1 reads 2001-13-45 as a date, 0b_ as a number, 1:1:1.5 as a number to
        # the base 60 (of any length), = as a default.
        sentence = Sentence(
            "value-not-plain",
            f"{node.value!r} is not plain text in YAML; write it in quotes",
        )
        document.mistakes.append(
            Diagnostic(document.line(path), key_text(path), sentence)
        )
        return node.value


def _mapping(
    node: yaml.MappingNode, path: KeyPath, document: YamlDocument
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag != "tag:yaml.org,2002:str":
            shown = f"the key {key_node.value}" if _is_scalar(key_node) else "a key"
            sentence = Sentence(
                "key-not-text", f"{shown} is not text; write it in quotes"
            )
            document.mistakes.append(Diagnostic(line, key_text(path), sentence))
            continue
        key_path = (*path, key_node.value)
        if key_node.value in data:
            sentence = Sentence(
                "key-repeated",
                f"is given twice, first in line {document.lines[key_path]}",
            )
            document.mistakes.append(Diagnostic(line, key_text(key_path), sentence))
            continue
        document.lines[key_path] = line
        data[key_node.value] = _value(value_node, key_path, document)
    return data


def _is_scalar(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)
