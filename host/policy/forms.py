# SPDX-License-Identifier: GPL-2.0-or-later
"""Define what the table of the policy is made of: a row for each key, and the forms
that values have.

A form reads a value of policy.yaml, notes each mistake with its place, makes the value
of the model, and checks it in the stored policy. Needs only the standard library:
vdsmd loads it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, NamedTuple, NoReturn, Optional, Union

from ovirt_rdma.host.errors import Problem, Sentence, did_you_mean

# Where a value is: keys and, for lists, positions from 0.
KeyPath = tuple[Union[str, int], ...]
# A sentence about the value at a path.
Mistake = tuple[KeyPath, Sentence]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Diagnostic(NamedTuple):
    """One sentence about the value ``key`` in line ``line`` (from 1).

    A sentence about the whole file has None as ``line`` and an empty ``key``. ``file``
    is its path; "" stands for the policy file.
    """

    line: Optional[int]
    key: str
    sentence: Sentence
    file: str = ""

    def at(self, where: str) -> Sentence:
        """Return ``FILE:LINE: KEY: sentence``; ``where`` is the policy file."""
        line = f":{self.line}" if self.line is not None else ""
        key = f" {self.key}:" if self.key else ""
        return Sentence(
            self.sentence.id, f"{self.file or where}{line}:{key} {self.sentence}"
        )


class PolicyProblem(Problem):
    """A policy file is invalid; ``errors`` has a Diagnostic for each mistake."""

    def __init__(
        self, where: str, errors: tuple[Diagnostic, ...], fix: str = ""
    ) -> None:
        self._reasons = tuple(error.at(where) for error in errors)
        super().__init__("policy-invalid", "\n".join(self._reasons), fix)
        self.errors = errors

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """That of failed checks, or of a failure if a file cannot be read."""
        return 1 if isinstance(self.__cause__, OSError) else 3

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """Each mistake with file, line and key."""
        return self._reasons


def key_text(path: KeyPath) -> str:
    """Return ``path`` for people: ``nfs.rules[2].port``. Positions count from 1."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            shown = part if _PLAIN_KEY.fullmatch(part) else repr(part)
            text += f".{shown}" if text else shown
    return text


class Refused(ValueError):
    """A value is not of its form; ``sentences`` say why."""

    def __init__(self, id: str, text: str, *more: Sentence) -> None:
        super().__init__(text)
        self.sentences = (Sentence(id, text), *more)


class Reading:
    """One walk over the data of a file; its mistakes are in ``mistakes``.

    ``texts`` has the text of each scalar as it is written in the file, ``misread`` the
    numbers that YAML reads as others. ``file`` is the path of a drop-in. Names of
    entries are different from those in the files read before, ``after``, too.
    """

    def __init__(
        self,
        texts: Mapping[KeyPath, str],
        misread: Iterable[KeyPath],
        file: str = "",
        after: Optional[Reading] = None,
    ) -> None:
        self.texts, self.misread, self.file = texts, misread, file
        # Of each kind of entry: their number, and where the first with a name is.
        self.counts: Counter[str] = Counter()
        self.named: dict[tuple[str, str], tuple[str, int]] = {}
        if after:
            self.counts, self.named = after.counts, after.named
        self.mistakes: list[Mistake] = []
        # Only of values that have no other mistake.
        self.misread_mistakes: list[Mistake] = []

    def refuse(self, path: KeyPath, id: str, text: str) -> None:
        """Note a mistake in the value at ``path``."""
        self.mistakes.append((path, Sentence(id, text)))

    def text(self, path: KeyPath) -> str:
        """Return a value as it is written; an empty text for a list or mapping."""
        return self.texts.get(path, "")


class Given(dict[str, Any]):
    """The valid values of a mapping in their normal form; ``written`` are all keys.

    Lists have None in place of an entry with a mistake.
    """

    def __init__(
        self, path: KeyPath, reading: Reading, written: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self.path, self.written, self._reading = path, written, reading

    def refuse(self, key: Union[str, KeyPath], id: str, text: str) -> None:
        """Note a mistake in the value of ``key``, or at a path below this mapping."""
        below = (key,) if isinstance(key, str) else key
        self._reading.refuse((*self.path, *below), id, text)

    def text(self, *path: Union[str, int]) -> str:
        """Return a value below this mapping as it is written."""
        return self._reading.text((*self.path, *path))


class Form:
    """The form of a value.

    ``noun`` is its type in sentences, ``allowed`` the values ("" for any). If it is
    ``nullable``, a key without a value stands for ``empty``.
    """

    noun = ""
    allowed = ""
    nullable = False
    empty: Any = None

    def read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        """Return a value of the file in its normal form; None if it has a mistake,
        which is noted.
        """
        try:
            if value is None and self.nullable:
                value = self.empty
            return self._read(value, path, reading)
        except Refused as refused:
            reading.mistakes += [(path, sentence) for sentence in refused.sentences]
            return None

    def build(self, value: Any) -> Any:
        """Return the value of the model for one that was read without a mistake."""
        return value

    def stored_mistake(self, value: Any) -> str:
        """Return, as a clause, why the stored policy cannot have ``value``; "" if it
        can.

        It was validated when it was loaded, perhaps by a version with wider ranges.
        """
        return ""

    @property
    def allowed_clause(self) -> str:
        """The end of a sentence: ``; allowed: 1 to 5``."""
        return f"; allowed: {self.allowed}" if self.allowed else ""

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        raise NotImplementedError

    def _refuse_type(self, value: object, written: str, advice: str = "") -> NoReturn:
        shown = _described(value, written)
        raise Refused(
            "value-type-wrong",
            f"must be {self.noun}, not {shown}{advice}{self.allowed_clause}",
        )

    def _refuse_unknown(
        self, value: object, written: str, known: Iterable[object] = ()
    ) -> NoReturn:
        near = _nearest(written, known)
        sentence = f"{value!r} is unknown{self.allowed_clause}{near}"
        raise Refused("value-unknown", sentence)


class Text(Form):
    """A text: one of ``choices``, or what ``normal`` accepts and returns in the form of
    the model; it raises Refused.

    With ``written`` it is what the file has, also where YAML 1.1 reads a number or a
    truth value: 04:00.0 as 240 (base 60), on as true.
    """

    noun = "text"

    def __init__(
        self,
        allowed: str = "",
        choices: tuple[str, ...] = (),
        *,
        normal: Callable[[str], Any] = str,
        written: bool = False,
        may_be_empty: bool = False,
    ) -> None:
        self.allowed = allowed or ", ".join(choices)
        self.choices, self.normal = choices, normal
        self.written, self.may_be_empty = written, may_be_empty

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        text = reading.text(path)
        if self.written and value is not None:
            value = text or value
        if not isinstance(value, str):
            advice = "; write it in quotes" if text and not self.written else ""
            self._refuse_type(value, text, advice)
        if self.choices and value not in self.choices:
            self._refuse_unknown(value, text, self.choices)
        if not value and not self.may_be_empty:
            raise Refused("value-empty", f"is empty{self.allowed_clause}")
        return self.normal(value)

    def stored_mistake(self, value: Any) -> str:
        """Return the mistake of a text that is none of the choices."""
        if self.choices and isinstance(value, str) and value not in self.choices:
            return f"is {value!a}{self.allowed_clause}"
        return ""


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
        self.low, self.high, self.choices = low, high, choices
        self.word, self.fraction = word, fraction
        shown = ", ".join(map(str, choices)) if choices else f"{low} to {high}"
        self.allowed = f"{word}, {shown}" if word else shown

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Any:
        text = reading.text(path)
        if self.word and text == self.word:
            return self.word  # YAML 1.1 reads off as a truth value
        if self.word and isinstance(value, str) and not value.isdecimal():
            self._refuse_unknown(value, text)
        if not self._is_number(value):
            self._refuse_type(value, text)
        if self.choices and value not in self.choices:
            self._refuse_unknown(value, text, self.choices)
        if not self.choices and not self.low <= value <= self.high:
            sentence = f"{text} is out of range{self.allowed_clause}"
            raise Refused("value-out-of-range", sentence)
        if path in reading.misread:
            misread = f"YAML reads {text} as {value}; write the number in plain decimal"
            mistake = path, Sentence("number-misread", misread)
            reading.misread_mistakes.append(mistake)
        return float(value) if self.fraction else value

    def _is_number(self, value: object) -> bool:
        if isinstance(value, float):  # YAML has .nan and .inf
            return self.fraction and math.isfinite(value)
        return isinstance(value, int) and not isinstance(value, bool)

    def stored_mistake(self, value: Any) -> str:
        """Return the mistake of a number or word that is none of the choices, or of a
        zero, with which a service would never sleep.
        """
        choices = (self.word,) if isinstance(value, str) else self.choices
        if choices and value not in choices:
            return f"is {value!a}{self.allowed_clause}"
        if isinstance(value, int) and value <= 0 < self.low:
            return "must be more than 0"
        return ""


_order = itertools.count()


class Key:
    """The row of a key: its form, its meaning and, for the documentation, the effect of
    leaving it out.

    ``default`` is the record's value then, ``absent`` the one of a record that has no
    default. ``within`` names the mapping that has the key in the file.
    """

    # No dataclass: making one takes as long as the rest of this module.
    def __init__(
        self,
        form: Form,
        meaning: str,
        if_left_out: str = "",
        *,
        required: bool = False,
        default: Any = None,
        absent: Any = None,
        within: str = "",
    ) -> None:
        self.form, self.meaning, self.if_left_out = form, meaning, if_left_out
        self.required, self.default = required, default
        self.absent, self.within = absent, within
        self.order = next(_order)


def key(form: Form, meaning: str, if_left_out: str = "", *, absent: Any = None) -> Any:
    """Return a field of a record's dataclass that is a key of the policy.

    The key must be there unless ``if_left_out`` says what else counts.
    """
    required = not if_left_out
    row = Key(form, meaning, if_left_out, required=required, absent=absent)
    return dataclasses.field(metadata={"key": row})


def optional(
    form: Form,
    meaning: str,
    if_left_out: str = "",
    default: Any = None,
    *,
    required: bool = False,
    within: str = "",
) -> Any:
    """Return a field as :func:`key`, with a ``default``."""
    row = Key(
        form, meaning, if_left_out, required=required, default=default, within=within
    )
    return dataclasses.field(default=default, metadata={"key": row})


def rows_of(record: type) -> dict[str, Key]:
    """Return the rows of a record's dataclass: its fields, and class attributes that
    are keys of the file only.
    """
    rows = {one: row for one, row in vars(record).items() if isinstance(row, Key)}
    rows.update(stored_rows(record))
    return dict(sorted(rows.items(), key=lambda item: item[1].order))


def stored_rows(record: type) -> dict[str, Key]:
    """Return the rows of the fields of a record's dataclass."""
    fields = dataclasses.fields(record)
    return {one.name: one.metadata["key"] for one in fields if "key" in one.metadata}


class Keys(Form):
    """A mapping with the keys of ``record``, a dataclass; or of ``rows``.

    ``make`` gets the values that the file has, and returns the value of the model.
    ``check`` notes mistakes between keys. ``not_offered`` has a sentence for keys that
    one could expect, ``if_empty`` one if a mapping without a key is a mistake.
    """

    noun = "a mapping of keys"
    empty: Mapping[str, Any] = {}

    def __init__(
        self,
        record: Any = None,
        *,
        rows: Optional[Mapping[str, Key]] = None,
        make: Optional[Callable[..., Any]] = None,
        check: Optional[Callable[[Given], None]] = None,
        not_offered: Optional[Mapping[str, Sentence]] = None,
        if_empty: Optional[Sentence] = None,
    ) -> None:
        all_rows = rows_of(record) if rows is None else rows
        self.rows = {name: row for name, row in all_rows.items() if not row.within}
        for name, row in all_rows.items():
            within = self.rows[row.within].form if row.within in self.rows else None
            if isinstance(within, Keys):
                within.add(name, row)
        self.make: Callable[..., Any] = make or record or dict
        self.check, self.if_empty = check, if_empty
        self.not_offered = not_offered or {}
        self.nullable = not any(row.required for row in self.rows.values())
        self.allowed = ", ".join(self.rows)

    def add(self, name: str, row: Key) -> None:
        """Add the row of a key."""
        self.rows[name] = row
        self.allowed = ", ".join(self.rows)

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> Given:
        if not isinstance(value, Mapping):
            self._refuse_type(value, reading.text(path))
        if not value and self.if_empty:
            raise Refused(self.if_empty.id, self.if_empty)
        given = Given(path, reading, frozenset(value))
        for key, item in value.items():
            row = self.rows.get(key)
            if row is not None:
                found = row.form.read(item, (*path, key), reading)
                if found is not None:
                    given[key] = found
            elif key in self.not_offered:
                reading.mistakes.append(((*path, key), self.not_offered[key]))
            else:
                unknown = f"unknown key{self.allowed_clause}{_nearest(key, self.rows)}"
                given.refuse(key, "key-unknown", unknown)
        for name, row in self.rows.items():
            if row.required and name not in value:
                missing = f"is missing{row.form.allowed_clause}"
                given.refuse(name, "key-missing", missing)
        if self.check:
            self.check(given)
        return given

    def build(self, value: Any, **values: Any) -> Any:
        """Return what ``make`` returns; ``values`` are of keys that the file does not
        have.
        """
        for name, row in self.rows.items():
            if name in value:
                built = row.form.build(value[name])
                inner = isinstance(row.form, Keys) and row.form.is_within
                values.update(built if inner else {name: built})
            elif row.absent is not None:
                values[name] = row.absent
        return self.make(**values)

    @property
    def is_within(self) -> bool:
        """Whether its keys are fields of the record around it."""
        return any(row.within for row in self.rows.values())


class ListOf(Form):
    """A list of values of one form.

    Entries whose record has a ``noun`` are numbered from 1, and have different names.
    """

    noun = "a list"
    nullable = True
    empty = ()

    def __init__(self, item: Form) -> None:
        self.item = item
        record = item.make if isinstance(item, Keys) else None
        self.noun_of_entries = getattr(record, "noun", "")

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            self._refuse_type(value, reading.text(path))
        found = [
            self.item.read(item, (*path, position), reading)
            for position, item in enumerate(value)
        ]
        if self.noun_of_entries:
            self._check_names(found, reading)
        return found

    def _check_names(self, items: list[Optional[Given]], reading: Reading) -> None:
        noun = self.noun_of_entries
        for number, item in enumerate(items, 1):
            reading.counts[noun] += 1
            if item is None or "name" in item.written - item.keys():
                continue
            name = item.get("name", f"{noun} {reading.counts[noun]}")
            here = reading.file, number
            file, first = reading.named.setdefault((noun, name), here)
            if (file, first) != here:
                place = f" in {file}" if file != reading.file else ""
                taken = f"{name!r} is already the name of {noun} {first}{place}"
                item.refuse("name", "name-repeated", taken)

    def build(self, value: Any) -> tuple[Any, ...]:
        """Return the values of the model."""
        noun = self.noun_of_entries
        if not isinstance(self.item, Keys) or not noun:
            return tuple(map(self.item.build, value))
        return tuple(
            self.item.build(item, number=number, name=f"{noun} {number}")
            for number, item in enumerate(value, 1)
        )


class Numbered:
    """Entries of a list, with ``number`` from 1 and ``name``: the admin's, or the noun
    and the number.
    """

    noun = ""
    number: int
    name: str

    @property
    def title(self) -> str:
        """The entry in sentences: ``rule 3`` or ``rule 'storage'``."""
        unnamed = f"{self.noun} {self.number}"
        return unnamed if self.name == unnamed else f"{self.noun} {self.name!r}"


# Of an entry in a list.
NAME = Text("any text")


class MapOf(Form):
    """A mapping of ``names`` to values of one form. ``make`` returns the entry of the
    model for both. ``shown`` is for documents.
    """

    noun = "a mapping of keys"
    nullable = True
    empty: Mapping[str, Any] = {}

    def __init__(
        self, names: Text, item: Form, make: Callable[[str, Any], Any], shown: str = ""
    ) -> None:
        self.names, self.item, self.make, self.shown = names, item, make, shown

    def _read(self, value: Any, path: KeyPath, reading: Reading) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self._refuse_type(value, reading.text(path))
        found: dict[str, Any] = {}
        written: dict[str, str] = {}
        for key, item in value.items():
            name = self.names.read(key, (*path, key), reading)
            read = self.item.read(item, (*path, key), reading)
            if name in found:
                same = f"is the same as {written[name]}, which is already given"
                reading.refuse((*path, key), "key-repeated", same)
            elif name is not None:
                found[name], written[name] = read, key
        return found

    def build(self, value: Any) -> tuple[Any, ...]:
        """Return the entries of the model."""
        made = (self.make(name, self.item.build(one)) for name, one in value.items())
        return tuple(made)


def repeated(entries: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield, of places with their values, each place whose value an earlier one has,
    with that one. None is no value.
    """
    first: dict[Any, Any] = {}
    for place, value in entries:
        if value is not None and first.setdefault(value, place) != place:
            yield place, first[value]


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
    near = did_you_mean(word, known)
    return near and f"; {near}"
