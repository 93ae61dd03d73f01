#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Report wording that docs/glossary.md replaces: ``plain_english.py [--count] FILE...``

It reads prose only: Markdown without code blocks and inline code, manual pages, and in
Python docstrings, comments and strings that contain a blank. Each finding is one line,
``file:line: 'the words': write ...``. The exit code is 1 if there is one.

``--count`` prints the number of findings per folder instead, and always exits with 0.
"""

from __future__ import annotations

import ast
import collections
import io
import re
import sys
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

# These files quote the words, so they are not read.
QUOTE_THEM = ("tools/plain_english.py", "tests/selftest/test_plain_english.py")


class Habit(NamedTuple):
    """Words to avoid, and what to write instead.

    ``words`` is a regular expression, matched at the start of a word and without regard
    to case. A blank in it matches any gap, a line break included.
    """

    words: str
    better: str


HABITS = (
    Habit(r"(?:be|is|are|was|were|been) had\b", "is possible, is available"),
    Habit(r"so many \w+ at", "the number of ... to process in parallel"),
    Habit(r"(?:anew|afresh)\b", "again; for a mount: remount; for a file: regenerate"),
    Habit(r"of no use\b", "invalid, and ignored"),
    # ovirt-rdma-told is a word of the protocol with the hosts.
    Habit(
        r"(?<!-)(?:un)?told\b",
        "reported, shown, known; 'cannot be told': is unknown",
    ),
    Habit(r"(?:stick|sticks|stuck)\b", "the value is accepted, or is not accepted"),
    Habit(r"held against\b", "compared with"),
    Habit(r"(?<!lock\s)(?<!lock\sis\s)held\b(?! by)", "applied, can be reverted, kept"),
    Habit(r"do(?:es)? not run\b", "is not running"),
    Habit(r"whose doing\b", "who changed it"),
    Habit(r"there are users\b", "it is in use"),
    Habit(r"(?:stand|stands|stood) still\b", "is paused, is unchanged"),
    Habit(r"(?:go|goes|gone|went|going) on\b(?! the| port)", "continue, resume"),
    Habit(r"(?:be|is|are|asked|shown|kept) apart\b", "differ; separately"),
    Habit(r"called for\b", "match, require"),
    Habit(r"(?:take|takes|took|taken|taking) (?:\w+ )?back\b", "roll back, revert"),
    Habit(r"(?:give|gives|gave) way\b", "stop; exit with code 75"),
    Habit(r"nobody (?:notices|tells|can tell|has told)\b", "is live; is unknown"),
    Habit(r"(?:into|out of) force\b", "load, take effect, unload"),
    Habit(r"what(?:ever)? (?:becomes|became|comes|came) of\b", "what happens to"),
    Habit(r"for want of\b", "because ... is missing"),
    Habit(r"(?:is|are|not|found) in order\b(?! to)", "is valid, is correct"),
    Habit(r"(?:, and|that is) said\b", "and reports it"),
    Habit(r"a (?:line|bar|record|step|row|test) an? \w+", "one ... per ..."),
    Habit(r"mend(?:s|ed|ing)?\b", "fix"),
    Habit(r"wrong words\b", "usage error"),
    Habit(r"(?:is|are|not) at work\b", "is running, is available"),
    Habit(r"time is over\b", "the deadline has passed"),
    Habit(r"will do\b(?= too|[.;,:])", "is accepted"),
    Habit(r"(?:is|are) to be\b", "must be, can be, will be"),
    Habit(r"for the sake of\b", "because of, limited by"),
    Habit(r"of (?:its|their) own accord\b", "by itself"),
    Habit(r"who would rather\b", "if you prefer"),
    Habit(r"(?:made|make|makes) known\b", "declare, register"),
)
_GAP = "(?: *\n *| +)"
_PATTERNS = [re.compile(r"\b" + h.words.replace(" ", _GAP), re.I) for h in HABITS]
_NOUN_CLAUSE = re.compile(r"\s*(?:what|whether|how|whose|where|who)\b", re.I)
# Replaces everything that is not prose, so that no phrase reaches across it.
_GONE = "\0"


def findings(path: PurePath, text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, the words to avoid, and better ones; pure.

    A file of another kind, and those of QUOTE_THEM, yield nothing.
    """
    if str(path) in QUOTE_THEM:
        return
    if path.suffix == ".md":
        prose = _markdown(text)
    elif path.suffix in (".5", ".7", ".8"):
        prose = re.sub(r"^\.(?:\\\"|\w+)", _gone, text, flags=re.M).replace("\\-", "--")
    elif path.suffix == ".py" or text.startswith("#!/usr/bin/python"):
        prose = _python(text)
        yield from _noun_clause(text)
    else:
        return
    for habit, pattern in zip(HABITS, _PATTERNS):
        for match in pattern.finditer(prose):
            line = prose.count("\n", 0, match.start()) + 1
            yield line, " ".join(match.group().split()), habit.better


def _gone(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", _GONE, match.group())


def _markdown(text: str) -> str:
    """Blank out comments, code blocks, inline code and the targets of links."""
    for pattern in (
        r"<!--.*?-->",
        r"^ *```.*?^ *```",
        r"(?<=\n\n)(?: {4,}[^\n]*\n+)+",
        r"`[^`\n]*`",
        r"(?<=\])\([^)\s]*\)",
    ):
        text = re.sub(pattern, _gone, text, flags=re.M | re.S)
    return text


def _python(text: str) -> str:
    """Return ``text`` with everything blanked out except comments and sentences."""
    prose = list(re.sub(r"[^\n]", _GONE, text))
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    strings = {token.STRING, getattr(token, "FSTRING_MIDDLE", token.STRING)}
    earlier = 0
    for item in tokenize.generate_tokens(io.StringIO(text).readline):
        first = starts[item.start[0] - 1] + item.start[1]
        last = starts[item.end[0] - 1] + item.end[1]
        part = text[first:last]
        if item.type == token.COMMENT:
            prose[first:last] = part.replace("#", " ")
        elif item.type in strings and " " in part:
            part = re.sub(r"\{[^{}\n]*\}", _gone, part)
            part = re.sub(r"^\w*[\"']+|[\"']+$|\\n", _blank, part)
            prose[first:last] = part
        if item.type in strings | {token.COMMENT} and not text[earlier:first].strip():
            # Only a gap since the last token: a phrase may reach across it.
            prose[earlier:first] = text[earlier:first]
        if item.type not in (token.NL, token.NEWLINE, token.INDENT, token.DEDENT):
            earlier = last
    return "".join(prose)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())


def _noun_clause(text: str) -> Iterator[tuple[int, str, str]]:
    """Find a module docstring that names a thing and does not say what it does."""
    docstring = ast.get_docstring(ast.parse(text), clean=False)
    if docstring and _NOUN_CLAUSE.match(docstring):
        line = text[: text.index(docstring)].count("\n") + 1
        first_word = docstring.split()[0]
        yield line, first_word, "a sentence with a verb: what the module does"


def main(arguments: list[str]) -> int:
    """Print the findings in the files of ``arguments``; see the module."""
    count = "--count" in arguments
    names = [name for name in arguments if name != "--count"]
    folders: collections.Counter[str] = collections.Counter()
    for path in map(PurePath, names):
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        for line, words, better in findings(path, text):
            folders[path.parts[0] if len(path.parts) > 1 else "."] += 1
            if not count:
                print(f"{path}:{line}: {words!r}: write: {better}")
    if count:
        for folder, number in sorted(folders.items()):
            print(f"{number:6} {folder}")
        return 0
    return 1 if folders else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
