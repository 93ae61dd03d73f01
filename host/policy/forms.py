# SPDX-License-Identifier: GPL-2.0-or-later
"""Define what the table of the policy is made of: a row for each key, and the forms
that values have.

A form reads a value of policy.yaml, notes each mistake with its place, and makes the
value of the model. Needs only the standard library: vdsmd loads it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, NoReturn, Optional, Union

from ovirt_rdma.host.errors import Problem, Sentence, did_you_mean

# Where a value is: keys and, for lists, positions from 0.
KeyPath = tuple[Union[str, int], ...]

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

    kind = "policy-invalid"

    def __init__(
        self, where: str, errors: tuple[Diagnostic, ...], fix: str = ""
    ) -> None:
        reasons = [error.at(where) for error in errors]
        super().__init__(self.kind, "\n".join(reasons), fix, reasons)
        self.errors = errors

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """That of failed checks, or of a failure if a file cannot be read."""
        return 1 if isinstance(self.__cause__, OSError) else 3


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


class Source:
    """A file: its plain ``data`` (None if it is empty), and the ``mistakes`` in it.

    ``lines`` has the line where the key or list item of each value starts, ``texts``
    the text of each scalar as it is written. ``file`` is the path of a drop-in, "" of
    the policy file. Names of entries are different from those in the files read before,
    ``after``, too. ``given`` are the valid values.
    """

    def __init__(self, file: str = "", after: Optional[Source] = None) -> None:
        self.file = file
        self.data: Any = None
        self.lines: dict[KeyPath, int] = {}
        self.texts: dict[KeyPath, str] = {}
        self.mistakes: list[Diagnostic] = []
        self.given: Mapping[str, Any] = {}
        # Of each kind of entry: their number, and where the first with a name is.
        self.counts: Counter[str] = after.counts if after else Counter()
        self.named: dict[tuple[str, str], tuple[str, int]] = (
            after.named if after else {}
        )

    def remark(
        self, path: KeyPath, sentence: Sentence, line: Optional[int] = None
    ) -> Diagnostic:
        """Return the sentence about the value at ``path``, with its line: that of the
        nearest value around it, if it is absent.
        """
        around = path
        while around and around not in self.lines:
            around = around[:-1]
        line = line or self.lines.get(around, 1)
        return Diagnostic(line, key_text(path), sentence, self.file)

    def refuse(
        self, path: KeyPath, id: str, text: str, line: Optional[int] = None
    ) -> None:
        """Note a mistake in the value at ``path``."""
        self.mistakes.append(self.remark(path, Sentence(id, text), line))

    @property
    def nfs(self) -> Mapping[str, Any]:
        """The valid values of the ``nfs:`` part."""
        nfs: Mapping[str, Any] = self.given.get("nfs", {})
        return nfs

    @property
    def rules(self) -> Sequence[Optional[Given]]:
        """The rules for exports; None for one that is no mapping."""
        rules: Sequence[Optional[Given]] = self.nfs.get("rules", ())
        return rules


class Given(dict[str, Any]):
    """The valid values of a mapping in their normal form; ``written`` are all keys.

    Lists have None in place of an entry with a mistake.
    """

    def __init__(
        self, path: KeyPath, source: Source, written: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self.path, self.written, self._source = path, written, source

    def refuse(self, key: Union[str, KeyPath], id: str, text: str) -> None:
        """Note a mistake in the value of ``key``, or at a path below this mapping."""
        below = (key,) if isinstance(key, str) else key
        self._source.refuse((*self.path, *below), id, text)

    def text(self, *path: Union[str, int]) -> str:
        """Return a value below this mapping as it is written."""
        return self._source.texts.get((*self.path, *path), "")


class Form:
    """The form of a value.

    ``noun`` is its type in sentences, ``allowed`` the values ("" for any). If it is
    ``nullable``, a key without a value stands for ``empty``.
    """

    noun = ""
    allowed = ""
    nullable = False
    empty: Any = None

    def read(self, value: Any, path: KeyPath, source: Source) -> Any:
        """Return a value of the file in its normal form; None if it has a mistake,
        which is noted.
        """
        try:
            if value is None and self.nullable:
                value = self.empty
            return self._read(value, path, source)
        except Refused as refused:
            source.mistakes += [source.remark(path, s) for s in refused.sentences]
            return None

    def build(self, value: Any) -> Any:
        """Return the value of the model for one that was read without a mistake."""
        return value

    @property
    def allowed_clause(self) -> str:
        """The end of a sentence: ``; allowed: 1 to 5``."""
        return f"; allowed: {self.allowed}" if self.allowed else ""

    def _read(self, value: Any, path: KeyPath, source: Source) -> Any:
        raise NotImplementedError

    def _refuse_type(self, value: object, written: str, advice: str = "") -> NoReturn:
        texts = (text for kind, text in _TYPES if isinstance(value, kind))
        shown = next(texts, "{text}").format(text=written, value=value)
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


_TYPES: tuple[tuple[type, str], ...] = (
    (type(None), "nothing"),
    (bool, "the truth value {text}"),
    (int, "the number {text}"),
    (float, "the number {text}"),
    (str, "the text {value!r}"),
    (list, "a list"),
    (dict, "a mapping of keys"),
)


def _nearest(word: str, known: Iterable[object]) -> str:
    near = did_you_mean(word, known)
    return near and f"; {near}"


class Text(Form):
    """A text: one of ``choices``, or what ``normal`` returns in the form of the model;
    it returns None for another text, or raises Refused.

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

    def _read(self, value: Any, path: KeyPath, source: Source) -> Any:
        text = source.texts.get(path, "")
        if self.written and value is not None:
            value = text or value
        if not isinstance(value, str):
            advice = "; write it in quotes" if text and not self.written else ""
            self._refuse_type(value, text, advice)
        if self.choices and value not in self.choices:
            self._refuse_unknown(value, text, self.choices)
        if not value and not self.may_be_empty:
            raise Refused("value-empty", f"is empty{self.allowed_clause}")
        normal = self.normal(value)
        if normal is None:
            sentence = f"{value!r} is not valid{self.allowed_clause}"
            raise Refused("value-invalid", sentence)
        return normal


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

    def _read(self, value: Any, path: KeyPath, source: Source) -> Any:
        text = source.texts.get(path, "")
        if self.word and text == self.word:
            return self.word  # YAML 1.1 reads off as a truth value
        like_number = isinstance(value, str) and value[:1].isdecimal()
        if self.word and isinstance(value, str) and not like_number:
            self._refuse_unknown(value, text)
        # YAML has .nan and .inf
        fraction = self.fraction and isinstance(value, float) and math.isfinite(value)
        if type(value) is not int and not fraction:
            advice = "; write the number in plain decimal" if like_number else ""
            self._refuse_type(value, text, advice)
        if self.choices and value not in self.choices:
            self._refuse_unknown(value, text, self.choices)
        if not self.choices and not self.low <= value <= self.high:
            sentence = f"{text} is out of range{self.allowed_clause}"
            raise Refused("value-out-of-range", sentence)
        return float(value) if self.fraction else value


_order = itertools.count()


class Key:
    """The row of a key. ``within`` names the mapping that has it in the file.

    Its meaning, and the effect of leaving it out, are in docs/policy.md.
    """

    # No dataclass: making one takes as long as the rest of this module.
    def __init__(
        self,
        form: Form,
        *,
        default: Any = dataclasses.MISSING,
        required: bool = False,
        within: str = "",
    ) -> None:
        self.form, self.default = form, default
        self.required, self.within = required, within
        self.order = next(_order)


def key(
    form: Form,
    default: Any = dataclasses.MISSING,
    *,
    required: Optional[bool] = None,
    within: str = "",
) -> Any:
    """Return a field of a record's dataclass that is a key of the policy; one without a
    ``default`` is required unless ``required`` is False.
    """
    needed = default is dataclasses.MISSING if required is None else required
    row = Key(form, default=default, required=needed, within=within)
    return dataclasses.field(default=default, metadata={"key": row})


def rows_of(record: type) -> dict[str, Key]:
    """Return the rows of a record's dataclass: its fields, and class attributes that
    are keys of the file only.
    """
    rows = {one: row for one, row in vars(record).items() if isinstance(row, Key)}
    for one in dataclasses.fields(record):
        if "key" in one.metadata:
            rows[one.name] = one.metadata["key"]
    return dict(sorted(rows.items(), key=lambda item: item[1].order))


class Keys(Form):
    """A mapping with the keys of ``record``, a dataclass; or of ``rows``.

    ``make`` gets the values that the file has, and returns the value of the model.
    ``check`` notes mistakes between keys. ``not_offered`` has a sentence for keys that
    one could expect.
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
    ) -> None:
        self.rows: dict[str, Key] = {}
        self.make: Callable[..., Any] = make or record or dict
        self.check, self.not_offered = check, not_offered or {}
        for name, row in (rows_of(record) if rows is None else rows).items():
            within = self.rows[row.within].form if row.within in self.rows else self
            if isinstance(within, Keys):
                within.rows[name] = row
                within.allowed = ", ".join(within.rows)
        self.nullable = not any(row.required for row in self.rows.values())

    def _read(self, value: Any, path: KeyPath, source: Source) -> Given:
        if not isinstance(value, Mapping):
            self._refuse_type(value, source.texts.get(path, ""))
        given = Given(path, source, frozenset(value))
        for key, item in value.items():
            row = self.rows.get(key)
            if row is not None:
                found = row.form.read(item, (*path, key), source)
                if found is not None:
                    given[key] = found
            elif key in self.not_offered:
                sentence = self.not_offered[key]
                given.refuse(key, sentence.id, sentence)
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
                form = row.form
                built = form.build(value[name])
                # Keys within a mapping are fields of the record around it.
                inner = isinstance(form, Keys) and any(
                    one.within for one in form.rows.values()
                )
                values.update(built if inner else {name: built})
        return self.make(**values)


class ListOf(Form):
    """A list of values of one form; of ``least`` to ``most`` if these are given.

    Entries whose record has a ``noun`` are numbered from 1, and have different names.
    """

    noun = "a list"
    empty = ()

    def __init__(self, item: Form, least: int = 0, most: int = 0) -> None:
        self.item, self.least, self.most = item, least, most
        self.nullable = not least
        self.allowed = f"{least} to {most} entries" if most else ""
        record = getattr(item, "make", None)
        self.noun_of_entries: str = getattr(record, "noun", "")

    def _read(self, value: Any, path: KeyPath, source: Source) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            self._refuse_type(value, source.texts.get(path, ""))
        if self.most and not self.least <= len(value) <= self.most:
            sentence = f"has {len(value)}{self.allowed_clause}"
            source.refuse(path, "list-length-wrong", sentence)
        found = [
            self.item.read(item, (*path, position), source)
            for position, item in enumerate(value)
        ]
        if self.noun_of_entries:
            self._check_names(found, source)
        return found

    def _check_names(self, items: list[Optional[Given]], source: Source) -> None:
        noun = self.noun_of_entries
        for number, item in enumerate(items, 1):
            source.counts[noun] += 1
            if item is None or "name" in item.written - item.keys():
                continue
            name = item.get("name", f"{noun} {source.counts[noun]}")
            here = source.file, number
            file, first = source.named.setdefault((noun, name), here)
            if (file, first) != here:
                place = f" in {file}" if file != source.file else ""
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

    def _read(self, value: Any, path: KeyPath, source: Source) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self._refuse_type(value, source.texts.get(path, ""))
        found: dict[str, Any] = {}
        written: dict[str, str] = {}
        for key, item in value.items():
            name = self.names.read(key, (*path, key), source)
            read = self.item.read(item, (*path, key), source)
            if name in found:
                same = f"is the same as {written[name]}, which is already given"
                source.refuse((*path, key), "key-repeated", same)
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
