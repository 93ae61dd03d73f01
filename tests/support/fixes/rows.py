# SPDX-License-Identifier: GPL-2.0-or-later
"""A table of fixes, the command that shows each, and the run that tries it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple, Union

from ovirt_rdma.host.paths import (
    POLICY_YAML,
    under,
)
from support.fixes.texts import COMMAND, Sentence, sentences

# The verbs that change something, and plan, which leads to apply.
MENDING = re.compile(
    r"(apply|revert|confirm|enable|disable|plan|policy load|fabric partitions apply"
    r"|fabric sm (enable|disable)|block log(in|out)|block rescan"
    r"|domain (create|convert|heal|revert)|network (create|attach)|hosts prepare"
    r"|deploy-hook (install|remove)|policy push|login)\b"
)
# The first word after a command that is no more of it.
PROSE = re.compile(
    r" (adds|afterwards?|again|and|are|as|as well|at|disables|does|enables|gives|if|"
    r"is|lists|makes|on|or|printed|removes|sets|shows|then|there|to|was|writes)\b"
)


class Fix(NamedTuple):
    """A command in a sentence: its ``place``, and the words as the source has them."""

    place: str
    command: str


def trimmed(program: str, words: str) -> str:
    return f"{program} {PROSE.split(words.strip(), maxsplit=1)[0].strip(' .')}"


def commands_in(text: str) -> list[str]:
    return [trimmed(*found) for found in COMMAND.findall(text)]


def mending() -> list[tuple[Fix, Sentence]]:
    return [
        (Fix(sentence.place, command), sentence)
        for sentence in sentences()
        for command in commands_in(sentence.example)
        if MENDING.match(command.partition(" ")[2])
    ]


class Row(NamedTuple):
    """``plant`` makes the state, ``check`` shows it with a fix; ``fixes`` are the
    commands in that fix that are run, in order. ``first`` does what the fix says to do
    before, ``options`` are added to the commands. ``then``: what a command shows as the
    next one is run too. ``finding`` is in the same output, where the fix alone is that
    of others too.
    """

    fixes: tuple[Fix, ...]
    check: Union[str, Callable[[Any], str]]
    plant: Callable[[Any], object] = lambda host: None
    finding: str = ""
    first: Callable[[Any], object] = lambda host: None
    options: str = ""
    then: bool = False


def fixed(place: str, *commands: str) -> tuple[Fix, ...]:
    return tuple(Fix(place, command) for command in commands)


def found_in(text: str, fix: Fix) -> tuple[str, str]:
    """Return the sentence of ``fix`` as ``text`` has it, and its command; two times ""
    if it has none. What begins with ``fix:`` or ``next:`` comes first.
    """
    lines = text.splitlines()
    lines.sort(key=lambda line: not line.startswith(("fix: ", "next: ")))
    for known, sentence in mending():
        for line in lines if known == fix else ():
            match = re.search(sentence.pattern, line)
            if match:
                number = commands_in(sentence.example).index(fix.command)
                return line, commands_in(line[match.start() :])[number]
    return "", ""


def mend(site: Any, row: Row) -> None:
    """Run the row on ``site``, which takes the words of either command."""
    row.plant(site)
    before = look(site, row)
    found = [found_in(before, fix) for fix in row.fixes]
    assert all(command for _, command in found), f"{row.fixes} is not in: {before}"
    assert row.finding in before
    row.first(site)
    for _, command in found:
        words = [*shlex.split(command), *shlex.split(row.options)]
        while words and MENDING.match(shlex.join(words[1:])):
            done = programs(site)[words[0]](*words[1:])
            assert done.code == 0, (words, done)
            line = done.out.partition("next: ")[2].partition("\n")[0]
            words = shlex.split(line) if row.then else []
    after = look(site, row)
    if row.finding:
        assert row.finding not in after
    else:
        assert [found_in(after, fix) for fix in row.fixes] == [("", "")] * len(found)


def programs(site: Any) -> dict[str, Any]:
    """Return what runs each command on ``site``."""
    host = getattr(site, "host", site)
    return {"ovirt-rdma": site, "ovirt-rdma-host": host}


def look(site: Any, row: Row) -> str:
    """Return what the check of ``row`` shows."""
    if not isinstance(row.check, str):
        return row.check(site)
    result = site(*shlex.split(row.check.format(root=site.root)))
    assert "Traceback" not in result.err
    assert "this is a bug" not in result.err
    return f"{result.err}{result.out}"


def run(*commands: str) -> Callable[[Any], None]:
    def do(host: Any) -> None:
        for command in commands:
            result = host(*shlex.split(command.format(root=host.root)))
            assert result.code == 0, (command, result)

    return do


def remove(path: str) -> Callable[[Any], None]:
    return lambda host: under(host.root, path).unlink()


def write(path: str, text: str) -> Callable[[Any], None]:
    def do(host: Any) -> None:
        file = under(host.root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return do


def follow(policy: str) -> Callable[[Any], None]:
    """Make it the host's policy.yaml, and load it."""
    return all_of(write(POLICY_YAML, policy), run("policy load"))


def all_of(*steps: Callable[[Any], object]) -> Callable[[Any], None]:
    def do(host: Any) -> None:
        for step in steps:
            step(host)

    return do


def mounted(host: Any) -> None:
    host.fake.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="rdma")


def unmounted(host: Any) -> None:
    host.fake.unmount_all()
