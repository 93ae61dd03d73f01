# SPDX-License-Identifier: GPL-2.0-or-later
"""Read YAML text as plain data, with the line and the original text of every value.

YAML 1.1 reads ``tso: on`` as true, so the forms of some values take the text from the
file. What it reads as another number (``pci: 04:00.0`` is 240, ``mtu: 02044`` is 1060)
or as a date is text here. Aliases, tags and repeated keys are mistakes: with them a
policy does not mean what it shows.
"""

from __future__ import annotations

import re
from typing import Any, Optional

import yaml

from ovirt_rdma.host.policy.forms import KeyPath, Source

# Not octal, hexadecimal, base 60, 2_044, or thousands of digits.
_DECIMAL = re.compile(
    r"[-+]?(?:0|[1-9][0-9]{0,20})?(?:\.[0-9]{0,20})?(?:[eE][-+]?[0-9]{1,3})?"
)


_QUOTES = "a value that starts with *, & or ! needs quotes"


def read_yaml(text: str, source: Optional[Source] = None) -> Source:
    """Read one YAML document into ``source``, and return it. Never raises.

    After a syntax error there is no data. After other mistakes the data lacks the keys
    concerned, so that the rest can be validated.
    """
    source = source or Source()
    try:
        node = _composed(text)
        if node is not None:
            source.data = _value(node, (), source)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        sentence = f"the character U+{error.character:04X} is not allowed in YAML"
        source.refuse((), "yaml-character-invalid", sentence, line)
    except yaml.MarkedYAMLError as error:
        source.refuse((), *_syntax_mistake(error))
    except RecursionError:
        source.mistakes.clear()
        source.refuse((), "yaml-too-deep", "it is nested too deeply")
    return source


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


def _syntax_mistake(error: yaml.MarkedYAMLError) -> tuple[str, str, Optional[int]]:
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
    return id, sentence, line


def _value(node: yaml.Node, path: KeyPath, source: Source) -> Any:
    source.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, source)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(item, (*path, position), source)
            for position, item in enumerate(node.value)
        ]
    source.texts[path] = text = node.value
    kind = node.tag.rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "bool":
        return yaml.constructor.SafeConstructor.bool_values[text.lower()]
    if kind in ("int", "float") and _DECIMAL.fullmatch(text):
        return int(text) if kind == "int" else float(text)
    return text


def _mapping(node: yaml.MappingNode, path: KeyPath, source: Source) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line, key = key_node.start_mark.line + 1, key_node.value
        place = (*path, key)
        if key_node.tag != "tag:yaml.org,2002:str":
            shown = f"the key {key}" if isinstance(key, str) else "a key"
            sentence = f"{shown} is not text; write it in quotes"
            source.refuse(path, "key-not-text", sentence, line)
        elif key in data:
            sentence = f"is given twice, first in line {source.lines[place]}"
            source.refuse(place, "key-repeated", sentence, line)
        else:
            source.lines[place] = line
            data[key] = _value(value_node, place, source)
    return data
