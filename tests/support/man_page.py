# SPDX-License-Identifier: GPL-2.0-or-later
"""Read verbs and options from a man page and a parser, in a form to compare."""

from __future__ import annotations

import argparse
import re


def verbs(made: argparse.ArgumentParser, words: str = "") -> dict[str, set[str]]:
    """Return every verb with its visible options."""
    found: dict[str, set[str]] = {}
    shown = set()
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                found.update(verbs(child, f"{words} {name}".strip()))
        elif action.help != argparse.SUPPRESS:
            shown.update(action.option_strings)
    return found or {words: shown}


def plain(text: str) -> str:
    return text.replace("\\-", "-")


def sections(kind: str, text: str) -> dict[str, str]:
    parts = re.split(rf"^\.{kind} (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def tags(text: str) -> list[str]:
    """Return the lines after .TP."""
    return re.findall(r"^\.TP\n(.*)$", text, flags=re.MULTILINE)


def options(text: str) -> set[str]:
    found: set[str] = set()
    for tag in tags(text):
        found.update(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", tag))
    return found
