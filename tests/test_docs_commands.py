# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that what documents name exists: commands, targets, rules, files, units.

A command line in a document is parsed as the command itself parses it. Links and
anchors are checked by ``make docs``.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.guide import TOP, pages
from support.man_page import verbs

from ovirt_rdma.cli.engine import main as engine
from ovirt_rdma.cli.host import main as host
from ovirt_rdma.cli.parser import parse
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.rules.registry import RULES, SERVER_RULES

pytestmark = pytest.mark.hypervisor

ROOMS = ("host", "storage", "cli", "engine_sdk_tools", "vdsm_hooks", "lab", "bench")
FOLDERS = (*ROOMS, "docs", "tests", "tools", "examples", "rpm", "host_deploy")
PROGRAMS = {main.PROGRAM: main.parser for main in (engine, host)}
# Headings of tables that look like a verb.
COLUMNS = {"nfs servers"}
# Stands for a number where the document has a letter.
LETTERS = {"N": "1", "S": "120", "RUN": "7"}
# Options of others, in inline code of their own.
FOREIGN = re.compile(
    r"--(?:discover|check|exclude-weakdeps|count|cver|timer-property|show|type=he_\w+|set-\w+|mode=global|root|file|trust-file|update"
    r"|(?:no-)?collector\.[a-z.]+|runxfail|build|target|jobs|dump)\b"
)


class Span(NamedTuple):
    """A line of a code block, or inline code."""

    place: str
    text: str
    inline: bool


@functools.cache
def spans() -> list[Span]:
    return [
        span
        for page in pages()
        for span in code_of(str(page.relative_to(TOP)), page.read_text())
    ]


def code_of(name: str, text: str) -> Iterator[Span]:
    """Yield the code of a page: lines of fenced and indented blocks, inline code."""
    fence = ""
    blank = True
    block = False
    joined = ""
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{name}:{number}"
        mark = re.match(r" *(```+)(.*)", line)
        if mark and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
            continue
        block = line.startswith("    ") and (blank or block) if line else block
        blank = not line
        if fence or block:
            joined += line.strip()
            if joined.endswith("\\"):
                joined = joined[:-1]
                continue
            yield Span(place, joined, inline=False)
            joined = ""
        else:
            for code in re.findall(r"`([^`]+)`", line):
                yield Span(place, code, inline=True)


def command_lines() -> list[Span]:
    """Return the spans that are command lines of ours, without prompt and comment."""
    found = []
    for span in spans():
        text = re.sub(r"^(?:\$|#|fix:) ", "", span.text)
        text = re.sub(r"^\S*/(?=ovirt-rdma(?:-host)? )", "", text)
        if re.match(r"ovirt-rdma(?:-host)? +[\w-]", text) and ": " not in text[:20]:
            found.append(Span(span.place, text, span.inline))
    return found


def words_of(text: str) -> list[str]:
    """Return the words of a command line, up to a pipe or a redirection."""
    text = re.sub(r"\[([A-Z]+) ?\.\.\.\]|\[OPTION\]|\.\.\.$", "", text)
    text = re.sub(r"\[(?=-)|(?<=\w)\](?= |$)", "", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|;&<>")
    lexer.wordchars += ":,@=*[]()%!?~+"
    words = []
    for word in lexer:
        if set(word) <= set("|;&<>"):
            break
        words.append(word)
    return words


def mistake(span: Span) -> str:
    """Return what the parser of the command says against a command line, or ''."""
    program, *words = words_of(span.text)
    for guess in (words, [LETTERS.get(word, word) for word in words]):
        try:
            parse(PROGRAMS[program](guess), guess)
            return ""
        except SystemExit:
            return ""  # --help, --version
        except UsageProblem as problem:
            said = str(problem)
        # Inline code may leave out what does not matter there.
        if span.inline and ("are required" in said or "verb is missing" in said):
            return ""
    return said


def test_command_lines_are_found():
    found = command_lines()
    assert len([one for one in found if one.inline]) > 80
    assert len([one for one in found if not one.inline]) > 80


def test_every_command_line_parses():
    wrong = [
        f"{span.place}: {span.text}: {said}"
        for span in command_lines()
        for said in [mistake(span)]
        if said
    ]
    assert wrong == []


def test_every_option_is_one_of_ours():
    known: set[str] = set()
    for parser in PROGRAMS.values():
        for options in verbs(parser()).values():
            known |= options
    known |= {"--help", "--version"}
    wrong = [
        f"{span.place}: {span.text}"
        for span in spans()
        if span.inline and span.text.startswith("--") and not FOREIGN.match(span.text)
        if re.split(r"[ =]", span.text)[0] not in known
    ]
    assert wrong == []


def test_every_verb_of_a_group_is_there():
    known = {verb for parser in PROGRAMS.values() for verb in verbs(parser())}
    known |= {f"unit {name}" for name in verbs_of_units()}
    groups = {verb.split()[0] for verb in known if " " in verb}
    # A group in a group: fabric partitions.
    known |= {" ".join(verb.split()[:2]) for verb in known}
    wrong = []
    for span in spans():
        named = re.match(r"([a-z-]+) ([a-z-]+)(?: |$)", span.text)
        if not (span.inline and named and named[1] in groups):
            continue
        if named[0].strip() not in known | COLUMNS:
            wrong.append(f"{span.place}: {span.text}")
    assert wrong == []


def test_every_verb_with_options_parses():
    wrong = []
    found = 0
    for span in spans():
        if not span.inline or " --" not in span.text:
            continue
        said = [
            mistake(Span(span.place, f"{program} {span.text}", inline=True))
            for program, parser in PROGRAMS.items()
            for verb in verbs(parser())
            if f"{span.text} ".startswith(f"{verb} ")
        ]
        found += bool(said)
        if said and all(said):
            wrong.append(f"{span.place}: {span.text}: {said[0]}")
    assert found > 5
    assert wrong == []


def verbs_of_units() -> list[str]:
    return list(verbs(host.unit_parser()))


def test_every_make_target_is_there():
    text = (TOP / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    wrong = []
    for span in spans():
        if span.place.startswith("docs/glossary.md"):
            continue  # the words to avoid
        said = re.match(r"(?:.*&& |\$ |VDSM_SOURCE=\S+ )?make ([a-z-].*)", span.text)
        for word in (
            re.sub(r'[A-Z_]+=(".*"|\S+)|#.*', "", said[1]).split() if said else ()
        ):
            if word not in targets:
                wrong.append(f"{span.place}: make {word}")
    assert wrong == []


def test_every_rule_is_there():
    known = {rule.id for rule in (*RULES, *SERVER_RULES)}
    wrong = [
        f"{page.relative_to(TOP)}: {name}"
        for page in pages()
        if page.name != "engine-double.md"
        for name in re.findall(r"\b(?:[A-Z]{2,}[A-Z0-9]*-)+0\d\b", page.read_text())
        if name not in known
    ]
    assert wrong == []


def test_every_file_of_the_repository_is_there():
    wrong = []
    for span in spans():
        for name in re.findall(
            rf"(?<![\w/.~-])(?:{'|'.join(FOLDERS)})/[\w./*-]+", span.text
        ):
            path = name.rstrip(".").partition("::")[0]
            there = any(TOP.glob(path)) if "*" in path else (TOP / path).exists()
            there = there or any((TOP / room / path).exists() for room in ROOMS)
            # Also a module, or a function in one.
            module = TOP / re.sub(r"(\.\w+)?$", ".py", path, count=1)
            if span.inline and not there and not module.exists():
                wrong.append(f"{span.place}: {name}")
    assert wrong == []


@functools.cache
def product() -> str:
    """Return the text of everything that packages contain."""
    kinds = {".py", ".sh", ".yml", ".service", ".timer", ".rules", ".conf", ".preset"}
    return "\n".join(
        path.read_text()
        for room in (*ROOMS[:5], "host_deploy", "portal", "rpm")
        for path in sorted((TOP / room).rglob("*"))
        if path.is_file() and (path.suffix in kinds or path.name == "vdsmd")
    )


def test_every_installed_file_is_one_of_ours():
    wrong = []
    for page in pages():
        for folder, name in re.findall(
            r"(/etc/ovirt-rdma|/var/lib/ovirt-rdma|/run/ovirt-rdma)/([\w./-]+\w)",
            page.read_text(),
        ):
            if Path(name).name.removesuffix(".last") not in product():
                wrong.append(f"{page.relative_to(TOP)}: {folder}/{name}")
    assert wrong == []


def test_every_unit_is_there():
    folders = ("host/systemd", "portal/systemd")
    there = {path.name for one in folders for path in (TOP / one).iterdir()}
    wrong = []
    for page in pages():
        for name in re.findall(
            r"\bovirt-rdma[\w@-]*\.(?:service|timer|target|path)\b", page.read_text()
        ):
            if name not in there and not name.startswith("ovirt-rdma-rollback-"):
                wrong.append(f"{page.relative_to(TOP)}: {name}")
    assert wrong == []
