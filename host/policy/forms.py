# SPDX-License-Identifier: GPL-2.0-or-later
"""Walk parsed data along the forms that its values may have, and collect mistakes.

Pure; needs only the standard library. :mod:`ovirt_rdma.host.policy.fields` has the
forms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import copy as duplicate
from typing import Any, Callable, Optional, TypeVar

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.diagnostics import KeyPath, Mistake

# vdsmd loads this module, and not that one.

# Yields the mistakes of a text beyond its form.
Check = Callable[[str], Iterator[Sentence]]
_Form = TypeVar("_Form", bound="Form")


class Reading:
    """One walk over parsed data; its mistakes are in ``mistakes``.

    ``texts`` has the text of each scalar as it is written in the file, ``misread`` the
    numbers that YAML reads as others. ``checks`` are for the forms that name one.
    """

    def __init__(
        self,
        texts: Mapping[KeyPath, str],
        misread: Iterable[KeyPath],
        checks: Mapping[str, Check],
    ) -> None:
        self.texts, self.misread, self.checks = texts, misread, checks
        self.mistakes: list[Mistake] = []
        # Only of values that have no other mistake.
        self.misread_mistakes: list[Mistake] = []

    def refuse(self, path: KeyPath, sentence: Sentence) -> None:
        """Note a mistake in the value at ``path``."""
        self.mistakes.append((path, sentence))

    def text(self, path: KeyPath) -> str:
        """Return a value as it is written; an empty text for a list or mapping."""
        return self.texts.get(path, "")


class Form:
    """The form of a value.

    ``noun`` is its type in sentences, ``allowed`` the values ("" for any), ``nullable``
    whether a key without a value counts as left out.
    """

    noun = ""
    allowed = ""
    nullable = False

    def read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        """Return the value in the form of the model; note the mistakes in it."""
        if value is None and self.nullable:
            return None
        return self._read(value, path, reading)

    def or_null(self: _Form, nullable: bool = True) -> _Form:
        """Return this form for a key that may be without a value, or not."""
        form = duplicate(self)
        form.nullable = nullable
        return form

    @property
    def _allowed(self) -> str:
        return f"; allowed: {self.allowed}" if self.allowed else ""

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        raise NotImplementedError

    def _wrong_type(
        self, value: object, path: KeyPath, reading: Reading, advice: str = ""
    ) -> None:
        shown = _described(value, reading.text(path))
        sentence = f"must be {self.noun}, not {shown}{advice}{self._allowed}"
        reading.refuse(path, Sentence("value-type-wrong", sentence))

    def _unknown(
        self, value: object, path: KeyPath, reading: Reading, known: Iterable[object]
    ) -> None:
        near = _nearest(reading.text(path), known)
        sentence = f"{value!r} is unknown{self._allowed}{near}"
        reading.refuse(path, Sentence("value-unknown", sentence))


class Text(Form):
    """A text. With ``written`` it is what the file has, also where YAML 1.1 reads a
    number or a truth value: 04:00.0 as 240 (base 60), on as true.

    ``check`` names the check of a text that is not empty, or may be.
    """

    noun = "text"

    def __init__(
        self,
        allowed: str = "",
        choices: tuple[str, ...] = (),
        *,
        written: bool = False,
        may_be_empty: bool = False,
        check: str = "",
    ) -> None:
        self.allowed = allowed or ", ".join(choices)
        self.choices = choices
        self.written = written
        self.may_be_empty = may_be_empty or bool(choices)
        self.check = check

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        if self.written and value is not None:
            value = reading.texts.get(path, value)
        if not isinstance(value, str):
            quoted = reading.texts.get(path) and not self.written
            advice = "; write it in quotes" if quoted else ""
            self._wrong_type(value, path, reading, advice)
        elif self.choices:
            if value not in self.choices:
                self._unknown(value, path, reading, self.choices)
        elif not value and not self.may_be_empty:
            empty = Sentence("value-empty", f"is empty{self._allowed}")
            reading.refuse(path, empty)
        elif self.check in reading.checks:
            found = reading.checks[self.check](value)
            reading.mistakes += [(path, sentence) for sentence in found]
        return value


class Number(Form):
    """A number: one of ``choices``, or ``low`` to ``high``; or the text ``word``. With
    ``fraction`` it is a float.
    """

    def __init__(
        self,
        low: float = 0,
        high: float = 0,
        *,
        choices: tuple[int, ...] = (),
        word: str = "",
        fraction: bool = False,
    ) -> None:
        self.noun = "a number" if fraction else "a whole number"
        self.low, self.high = low, high
        self.fraction = fraction
        self.choices = choices
        self.word = word
        shown = ", ".join(map(str, choices)) if choices else f"{low} to {high}"
        self.allowed = f"{word}, {shown}" if word else shown

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        if self.word and reading.texts.get(path) == self.word:
            return self.word  # YAML 1.1 reads off as a truth value
        if self.word and isinstance(value, str):
            if value.isdecimal():
                self._wrong_type(value, path, reading)
            elif value != self.word:
                self._unknown(value, path, reading, ())
        elif not self._is_number(value):
            self._wrong_type(value, path, reading)
        elif self.choices and value not in self.choices:
            self._unknown(value, path, reading, self.choices)
        elif not self.choices and not self.low <= value <= self.high:
            text = reading.text(path)
            sentence = f"{text} is out of range{self._allowed}"
            reading.refuse(path, Sentence("value-out-of-range", sentence))
        else:
            if path in reading.misread:
                text = reading.texts[path]
                misread = (
                    f"YAML reads {text} as {value}; write the number in plain decimal"
                )
                mistake = path, Sentence("number-misread", misread)
                reading.misread_mistakes.append(mistake)
            return float(value) if self.fraction else value
        return value

    def _is_number(self, value: object) -> bool:
        if isinstance(value, float):  # YAML has .nan and .inf
            return self.fraction and math.isfinite(value)
        return isinstance(value, int) and not isinstance(value, bool)


class Field:
    """A key: its name and form, its meaning and, for the documentation, the effect of
    leaving it out. ``default`` is that of a number.
    """

    # No NamedTuple or dataclass: making one takes as long as the rest of this module.
    def __init__(
        self,
        name: str,
        form: Form,
        meaning: str = "",
        if_left_out: str = "",
        *,
        required: bool = False,
        default: Optional[float] = None,
    ) -> None:
        self.name, self.form = name, form
        self.meaning, self.if_left_out = meaning, if_left_out
        self.required, self.default = required, default


class Keys(Form):
    """A mapping with these ``fields``. ``not_offered`` has a sentence for keys that one
    could expect.
    """

    noun = "a mapping of keys"

    def __init__(
        self, *fields: Field, not_offered: Optional[Mapping[str, Sentence]] = None
    ) -> None:
        self.fields = {field.name: field for field in fields}
        self.not_offered = not_offered or {}
        self.allowed = ", ".join(self.fields)

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        if not isinstance(value, dict):
            self._wrong_type(value, path, reading)
            return value
        data = dict(value)
        for key, item in value.items():
            field = self.fields.get(key)
            if field is not None:
                data[key] = field.form.read(item, (*path, key), reading)
            elif key in self.not_offered:
                reading.refuse((*path, key), self.not_offered[key])
            else:
                near = _nearest(str(key), self.fields)
                unknown = Sentence("key-unknown", f"unknown key{self._allowed}{near}")
                reading.refuse((*path, key), unknown)
        for name, field in self.fields.items():
            if field.required and name not in value:
                allowed = field.form._allowed
                missing = Sentence("key-missing", f"is missing{allowed}")
                reading.refuse((*path, name), missing)
        return data


class ListOf(Form):
    """A list of values of one form."""

    noun = "a list"
    nullable = True

    def __init__(self, item: Form) -> None:
        self.item = item

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        if not isinstance(value, list):
            self._wrong_type(value, path, reading)
            return value
        return [
            self.item.read(item, (*path, position), reading)
            for position, item in enumerate(value)
        ]


class MapOf(Form):
    """A mapping of any keys to values of one form. ``shown`` is for documents."""

    noun = "a mapping of keys"
    nullable = True

    def __init__(self, item: Form, shown: str = "") -> None:
        self.item = item
        self.shown = shown

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        if not isinstance(value, dict):
            self._wrong_type(value, path, reading)
            return value
        return {
            key: self.item.read(item, (*path, key), reading)
            for key, item in value.items()
        }


def _described(value: object, text: str) -> str:
    kinds: tuple[tuple[type, str], ...] = (
        (type(None), "nothing"),
        (bool, f"the truth value {text}"),
        (int, f"the number {text}"),
        (str, f"the text {value!r}"),
        (list, ListOf.noun),
        (dict, Keys.noun),
    )
    for kind, shown in kinds:
        if isinstance(value, kind):
            return shown
    if isinstance(value, float):
        return f"the number {text}" if math.isfinite(value) else text
    return f"the date {text}"


def _nearest(word: str, known: Iterable[object]) -> str:
    import difflib  # noqa: PLC0415 - vdsmd never needs it

    near = difflib.get_close_matches(word, [str(value) for value in known], n=1)
    return f"; did you mean {near[0]}?" if near else ""
