#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``completion.py ovirt-rdma|ovirt-rdma-host``: print the completion of a command.

The files in completion/ are made by it from the parsers of both commands, so that no
Python is started when somebody presses Tab. shtab, which does the same, puts a bash
library of its own in each file, does not know our verbs that are built on demand, and
is not packaged for EL; argcomplete starts the command at each Tab.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.host.collect.storage import MOUNTINFO
from ovirt_rdma.host.rules.registry import RULES, SERVER_RULES
from ovirt_rdma.host.services.enablement import MODES
from tools.verbs import PARSERS, shown, walk

FOLDER = Path(__file__).resolve().parent.parent / "completion"

# What completes a value without choices. Hosts, domains and networks have none: only
# the engine knows their names, and nothing here keeps a list of them.
_BY_METAVAR = {
    "FILE": "@file",
    "PLANFILE": "@file",
    "DIR": "@folder",
    "FOLDER": "@folder",
    "SERVER:/PATH": "@export",
    "ID": " ".join(sorted({rule.id for rule in (*RULES, *SERVER_RULES)})),
    "MODE": " ".join(MODES),
}


@dataclass(frozen=True)
class Words:
    """What may follow one verb: ``options`` with what completes the value of each
    (None: the option takes no value), and what completes each argument; the last one
    of ``repeated`` arguments may be given again.
    """

    verb: str
    verbs: tuple[str, ...] = ()
    options: dict[str, Optional[str]] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    repeated: bool = False


def words_of(parser: Parser) -> Iterator[Words]:
    """Yield the words of ``parser``, and of its verbs, without hidden ones."""
    for verb, one in walk(parser):
        options: dict[str, Optional[str]] = {}
        arguments: list[str] = []
        repeated = False
        for action in shown(one):
            if action.option_strings:
                value = None if action.nargs == 0 else _completed_by(action)
                options.update(dict.fromkeys(action.option_strings, value))
            else:
                arguments.append(_completed_by(action))
                repeated = action.nargs in ("*", "+")
        yield Words(verb, tuple(one.verbs), options, tuple(arguments), repeated)


def _completed_by(action: argparse.Action) -> str:
    if action.choices is not None:
        return " ".join(map(str, action.choices))
    return _BY_METAVAR.get(str(action.metavar), "")


_START = """\
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Completion of {program} for bash, and zsh with bashcompinit, made from its parser by
# tools/completion.py:
# WRITE_GOLDEN=1 .venv/bin/pytest -q tests/cli/test_completion.py

# What may follow the verb $1: verbs, options, those of them that take a value, and what
# completes each argument, where "@file" is a file, and "..." repeats the last one.
{name}_words() {{
    verbs="" options="" valued="" arguments=()
    case $1 in
"""
_VALUES = """\
    esac
}}

# What completes the value of the option $2 of the verb $1.
{name}_value() {{
    case "$1:$2" in
"""
_END = """\
    esac
}}

# Offer the mounted NFS exports that begin with $1. If ":" separates words, readline
# replaces only what is behind the last one.
{name}_exports() {{
    local line source typed=${{1//\\\\/}} kept=""
    if [[ $COMP_WORDBREAKS == *:* ]]; then kept=${{typed%"${{typed##*:}}"}}; fi
    while IFS= read -r line; do
        line=${{line#* - }}
        if [[ $line == "nfs "* || $line == "nfs4 "* ]]; then
            line=${{line#* }}
            printf -v source %b "${{line%% *}}"
            if [[ $source == "$typed"* ]]; then
                printf -v source %q "${{source#"$kept"}}"
                COMPREPLY+=("$source")
            fi
        fi
    done <{mountinfo}
}}

{name}() {{
    local verbs options valued verb="" word wanted="" count=0 number
    local -a arguments words=()
    COMPREPLY=()
    # SERVER:/PATH is three words, because ":" separates words.
    for word in "${{COMP_WORDS[@]:0:$((COMP_CWORD + 1))}}"; do
        if [[ -n $word && ($word == :* || ${{words[*]: -1}} == *:) ]]; then
            words[${{#words[@]}} - 1]+=$word
        else
            words+=("$word")
        fi
    done
    {name}_words ""
    for ((number = 1; number < ${{#words[@]}} - 1; number++)); do
        word=${{words[number]}}
        if [[ $valued == *" $word "* ]]; then
            wanted=$word
            # --option=value is three words, because "=" separates words.
            if [[ ${{words[number + 1]}} == = ]]; then ((number++)); fi
            if ((number + 2 < ${{#words[@]}})); then wanted=""; fi
            ((number++))
        elif [[ " $verbs " == *" $word "* ]]; then
            verb="${{verb:+$verb }}$word"
            {name}_words "$verb"
        elif [[ $word != -* ]]; then
            ((count++))
        fi
    done
    word=${{words[*]: -1}}
    if [[ $word == = ]]; then word=""; fi
    if [[ -n $wanted ]]; then
        wanted=$({name}_value "$verb" "$wanted")
    elif [[ $word == -* ]]; then
        wanted=$options
    elif [[ -n $verbs ]]; then
        wanted=$verbs
    else
        if [[ ${{arguments[*]: -1}} == ... && $count -gt ${{#arguments[@]}}-2 ]]; then
            count=$((${{#arguments[@]}} - 2))
        fi
        wanted=${{arguments[count]}}
    fi
    case $wanted in
        # readline completes files better: it knows about quotes and "~". zsh, which
        # reads this by bashcompinit, has neither compopt nor mapfile.
        @file) compopt -o default 2>/dev/null || wanted=$(compgen -f -- "$word") ;;
        @folder) compopt -o dirnames 2>/dev/null || wanted=$(compgen -d -- "$word") ;;
        @export) {name}_exports "$word" ;;
        *) wanted=$(compgen -W "$wanted" -- "$word") ;;
    esac
    case $wanted in
        @* | "") ;;
        *) while IFS= read -r word; do COMPREPLY+=("$word"); done <<<"$wanted" ;;
    esac
}}

complete -F {name} {program}
"""


def completion(program: str) -> str:
    """Return the text of the bash completion of ``program``."""
    name = f"_{program.replace('-', '_')}"
    found = list(words_of(PARSERS[program]()))
    lines = [_START.format(program=program, name=name)]
    for words in found:
        lines.append(f'        "{words.verb}")\n')
        lines += [f"            {line}\n" for line in _assignments(words)]
        lines.append("            ;;\n")
    lines.append(_VALUES.format(name=name))
    for value, patterns in _by_value(found).items():
        lines.append(f"        {' | '.join(patterns)})\n")
        lines.append(f'            echo "{value}"\n            ;;\n')
    lines.append(_END.format(program=program, name=name, mountinfo=MOUNTINFO))
    return "".join(lines)


def _assignments(words: Words) -> Iterator[str]:
    if words.verbs:
        yield f'verbs="{" ".join(words.verbs)}"'
    yield f'options="{" ".join(words.options)}"'
    valued = [option for option, value in words.options.items() if value is not None]
    if valued:
        yield f'valued=" {" ".join(valued)} "'
    if words.arguments:
        shown = [f'"{one}"' for one in words.arguments]
        yield f"arguments=({' '.join(shown + ['...'] * words.repeated)})"


def _by_value(found: list[Words]) -> dict[str, list[str]]:
    """Return for each value the patterns of "VERB:OPTION" that it completes."""
    values: dict[str, set[Optional[str]]] = {}
    for words in found:
        for option, value in words.options.items():
            values.setdefault(option, set()).add(value)
    patterns: dict[str, dict[str, None]] = {}
    for words in found:
        for option, value in words.options.items():
            if value:
                same = len(values[option]) == 1
                pattern = f"*:{option}" if same else f'"{words.verb}:{option}"'
                patterns.setdefault(value, {})[pattern] = None
    return {value: list(found) for value, found in patterns.items()}


if __name__ == "__main__":
    sys.stdout.write(completion(sys.argv[1]))
