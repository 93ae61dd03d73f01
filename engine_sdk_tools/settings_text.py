# SPDX-License-Identifier: GPL-2.0-or-later
"""The text of a settings file: its sections, and one of them set with everything else
left as it is written. Pure.

configparser would drop the comments.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Optional

from ovirt_rdma.host.problem import Problem

KEYS = ("engine_url", "username", "password", "cafile", "log_file", "log_level")
# Read where no section is named and the file has several.
DEFAULT_SECTION = "default"

_HEADER = re.compile(r"\[(.+)\]")
_KEY = re.compile(r"([^\s=:#;][^=:]*?)\s*[=:]")
_FIRST_LINE = "# Settings of ovirt-rdma: the engines it knows.\n"


@dataclass(frozen=True)
class IniFile:
    """A settings file: ``open_to_others`` where not only its owner may read it,
    ``ours`` where it is not another program's, ovirt-img's.
    """

    path: str
    text: str = field(repr=False)
    open_to_others: bool = False
    ours: bool = True


def sections(ini: IniFile) -> dict[str, dict[str, str]]:
    """Return the sections of the file. Raises Problem that quotes no line of it: it may
    hold a password.
    """
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(ini.text)
    except configparser.DuplicateSectionError as error:
        raise Problem(f"{ini.path} has two sections [{error.section}]") from error
    except configparser.DuplicateOptionError as error:
        raise Problem(
            f"{ini.path}: section [{error.section}] has {error.option} twice"
        ) from error
    except configparser.MissingSectionHeaderError as error:
        raise Problem(
            f"{ini.path}:{error.lineno}: there is no section before this line",
            f"put [{DEFAULT_SECTION}] above it",
        ) from error
    except configparser.ParsingError as error:
        lines = ", ".join(str(number) for number, _ in error.errors)
        raise Problem(f"{ini.path}: line {lines} is no 'key = value'") from error
    found = {name: dict(parser[name]) for name in parser.sections()}
    if ini.ours:
        for name, values in found.items():
            for key in values:
                if key not in KEYS:
                    raise Problem(
                        f"{ini.path}: section [{name}] has an unknown key {key!r}",
                        nearest_word(key, KEYS) or f"the keys are {', '.join(KEYS)}",
                    )
    return found


def with_section(
    ini: IniFile, name: str, values: Mapping[str, Optional[str]]
) -> IniFile:
    """Return the file with ``values`` in section ``name``, made if need be; None takes
    a key away. Raises Problem for what an ini file cannot hold.
    """
    if not name.strip() or name != name.strip() or re.search(r"[\]\[\n\r]", name):
        raise Problem(f"{name!r} cannot be a section of a settings file")
    for key, value in values.items():
        if value is not None and (value != value.strip() or "\n" in value):
            raise Problem(
                f"{key} cannot be kept in a settings file: it begins or ends with a "
                "blank",
                "keep a password in a file of its own: --password-file",
            )
    before = sections(ini)
    after = replace(ini, text=_edited(ini.text, name, values))
    wanted = dict(before.get(name, {}))
    for key, value in values.items():
        wanted.pop(key, None)
        if value is not None:
            wanted[key] = value
    if sections(after) != {**before, name: wanted}:
        raise Problem(
            f"{ini.path} is written in a way that cannot be changed safely",
            "edit it by hand",
        )
    return after


def _edited(text: str, name: str, values: Mapping[str, Optional[str]]) -> str:
    lines = (text or _FIRST_LINE).splitlines()
    start = _line_of(lines, name)
    if start is None:
        if lines and lines[-1].strip():
            lines.append("")
        lines.append(f"[{name}]")
        start = len(lines) - 1
    end = next(
        (at for at in range(start + 1, len(lines)) if _HEADER.match(lines[at])),
        len(lines),
    )
    kept, dropping = [], False
    for line in lines[start + 1 : end]:
        found = _KEY.match(line)
        if found:
            dropping = found.group(1).lower() in values
        elif not line[:1].isspace():
            # What is indented goes on from the line before.
            dropping = False
        if not dropping:
            kept.append(line)
    last = max((at + 1 for at, line in enumerate(kept) if line.strip()), default=0)
    new = [f"{key} = {value}" for key, value in values.items() if value is not None]
    body = [*kept[:last], *new, *kept[last:]]
    return "\n".join([*lines[: start + 1], *body, *lines[end:]]) + "\n"


def _line_of(lines: list[str], name: str) -> Optional[int]:
    for at, line in enumerate(lines):
        found = _HEADER.match(line)
        if found and found.group(1) == name:
            return at
    return None


def nearest_word(word: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for a word of ``known`` that is like it; "" for none."""
    near = get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""
