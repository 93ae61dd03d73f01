# SPDX-License-Identifier: GPL-2.0-or-later
"""Give Sphinx the verbs and options of our commands, from their argparse parsers.

Three directives, for pages in Markdown:

``{options} PROGRAM VERB``
    How a verb is called, its arguments and options with the text of ``--help``, and
    its exit codes. The content of the directive is a definition list: it adds
    sentences to the options that it names.

``{shared-options} PROGRAM [OPTION...]``
    The verbs that have all of these options, and the options. Without any, the
    options that every verb has. ``{options}`` then leaves them out.

``{other-verbs} PROGRAM``
    At the end of the last verb's section: a section for each verb that no
    ``{options}`` of the page names, from its help.

``{exit-codes} PROGRAM``
    The exit codes of a command. The content adds sentences, as for ``{options}``.

``{unit-verbs} PROGRAM``
    The verbs that units run, as a list. The content adds sentences, as for
    ``{options}``.

``{facts-verbs}``
    Which verbs of ovirt-rdma-host take a facts file.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from ovirt_rdma.cli.engine import main as engine
from ovirt_rdma.cli.host import main as host
from ovirt_rdma.cli.parser import Parser
from tools.verbs import PARSERS, shown, verbs

_LOGGER = logging.getLogger(__name__)
_EXIT_CODES = {main.PROGRAM: main.EXIT_CODES for main in (engine, host)}


def sentence_of(action: argparse.Action) -> str:
    """Return the help of an option as a sentence."""
    text = (action.help or "") % vars(action)
    first = re.match(r"[a-z]+\b(?![-.:_/])", text)
    if first:
        text = text[0].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


def _metavar(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices:
        return "|".join(map(str, action.choices))
    return action.dest.upper()


def _term(action: argparse.Action) -> nodes.term:
    """Return ``-o, --output FORM`` with the marks of a manual page."""
    term = nodes.term()
    for number, option in enumerate(action.option_strings):
        if number:
            term += nodes.Text(", ")
        term += nodes.strong(option, option)
    word = _metavar(action)
    if word:
        if action.option_strings:
            term += nodes.Text(" ")
        else:
            # Without any strong text the writer would make all of the term bold.
            term += nodes.strong("", "")
        term += nodes.emphasis(word, word)
    return term


class _Directive(SphinxDirective):
    """What the directives share: the page's record of what it has shown."""

    @property
    def _of_page(self) -> set[str]:
        """Return the verbs that the page has named so far."""
        data: Any = self.env.temp_data
        found: set[str] = data.setdefault("ovirt-rdma verbs", set())
        return found

    def _parser(self, words: list[str]) -> Parser:
        program, *verb = words
        name = " ".join(verb)
        if program not in PARSERS:
            raise self.error(f"{program} is no program of ours")
        known = {**verbs(program), **verbs(program, hidden=True)}
        if name not in known:
            raise self.error(f"{program} has no verb {name!r}")
        self._of_page.add(name)
        return known[name]

    def _more(self) -> dict[str, list[nodes.Node]]:
        """Return the paragraphs of the directive's content by option."""
        made = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, made)
        found: dict[str, list[nodes.Node]] = {}
        for item in made.findall(nodes.definition_list_item):
            term, *rest = item.children
            found[term.astext()] = [one for part in rest for one in part.children]
        return found

    def _list(
        self,
        parser: Parser,
        actions: list[argparse.Action],
        more: dict[str, list[nodes.Node]],
    ) -> list[nodes.Node]:
        if not actions:
            return []
        listing = nodes.definition_list()
        for action in actions:
            first = nodes.paragraph("", sentence_of(action))
            body = nodes.definition("", first)
            for name in (*action.option_strings, _metavar(action)):
                for node in more.pop(name, []):
                    if isinstance(node, nodes.paragraph):
                        first += [nodes.Text(" "), *node.children]
                    else:
                        body += node
            listing += nodes.definition_list_item("", _term(action), body)
        return [listing]


class Options(_Directive):
    """``{options} PROGRAM VERB``; see the module."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a definition list of the options, and a paragraph of exit codes."""
        words = self.arguments[0].split()
        parser = self._parser(words)
        more = self._more()
        left_out = shared_options(words[0], " ".join(words[1:]))
        actions = [
            one
            for one in shown(parser)
            if not left_out.intersection(one.option_strings)
        ]
        found = self._list(parser, actions, more)
        if more:
            raise self.error(f"{self.arguments[0]} has no {', '.join(more)}")
        return [_usage(self.arguments[0], parser), *found, *_exit_codes(parser)]


def _usage(words: str, parser: Parser) -> nodes.paragraph:
    """Return how the verb is called; tools/man_pages.py makes a synopsis of it."""
    line = nodes.paragraph("", "", nodes.strong(words, words), nodes.Text(" ["))
    line += [nodes.emphasis("OPTION", "OPTION"), nodes.Text("...]")]
    for action in shown(parser):
        if not action.option_strings:
            before, after = "[" * (action.nargs in ("?", "*")), ""
            if action.nargs in ("*", "+"):
                after = "..."
            after += "]" * len(before)
            word = _metavar(action)
            line += [nodes.Text(f" {before}"), nodes.emphasis(word, word)]
            line += nodes.Text(after)
    return line


def _exit_codes(parser: Parser) -> list[nodes.Node]:
    codes = re.match(r"exit codes: (.*?)\n\n", parser.epilog or "", re.DOTALL)
    if codes is None:
        return []
    text = f"Exit codes: {' '.join(codes[1].split())}."
    return [nodes.paragraph(text, text)]


def shared_options(program: str, verb: str) -> set[str]:
    """Return the options of a verb that the page describes once for many verbs."""
    known = verbs(program)
    mine = _option_strings(known[verb]) if verb in known else set()
    found = set.intersection(*map(_option_strings, known.values()))
    for group in _SHARED.get(program, ()):
        if group <= mine:
            found |= _with_short_forms({verb: known[verb]}, group)
    return found if mine else {"-o", "--output", "-h", "--help"}


def _with_short_forms(known: dict[str, Parser], group: frozenset[str]) -> set[str]:
    """Return the options of ``group``, and other forms of them, as -c of --config."""
    return {
        name
        for parser in known.values()
        for action in shown(parser)
        if group.intersection(action.option_strings)
        for name in action.option_strings
    }


def _option_strings(parser: Parser) -> set[str]:
    return {name for one in shown(parser) for name in one.option_strings}


# A verb that has all options of one of these groups has them described there.
_SHARED = {
    engine.PROGRAM: (
        frozenset({"--config", "--engine-url", "--username", "--ca-file"})
        | {"--config-file", "--password-file"},
        frozenset({"--dry-run", "--assume-yes", "--no-job"}),
        frozenset({"--facts-dir", "--inventory", "--ssh-key", "--ssh-user"}),
    )
}


class SharedOptions(_Directive):
    """``{shared-options} PROGRAM [OPTION...]``; see the module."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return which verbs have the options, unless all have, and the options."""
        program, *names = self.arguments[0].split()
        group = frozenset(names)
        known = verbs(program)
        if group and group not in _SHARED.get(program, ()):
            raise self.error(f"{self.arguments[0]} is no group of options")
        if not group:
            group = frozenset(set.intersection(*map(_option_strings, known.values())))
            for others in _SHARED.get(program, ()):
                group -= _with_short_forms(known, others)
        having = [name for name in known if group <= _option_strings(known[name])]
        parser = known[having[0]]
        actions = [
            one for one in shown(parser) if group.intersection(one.option_strings)
        ]
        more = self._more()
        found = self._list(parser, actions, more)
        if more:
            raise self.error(f"no option {', '.join(more)}")
        if len(having) < len(known):
            line = nodes.paragraph("", "For ")
            for number, name in enumerate(having):
                last = number == len(having) - 1
                line += nodes.Text("" if not number else " and " if last else ", ")
                line += nodes.strong(name, name)
            line += nodes.Text(".")
            found.insert(0, line)
        return found


class OtherVerbs(_Directive):
    """``{other-verbs} PROGRAM``; see the module."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a place holder with a section for each verb without one."""
        program = self.arguments[0]
        found = _Beside()
        for name, parser in verbs(program).items():
            if name in self._of_page:
                continue
            section = nodes.section(ids=[nodes.make_id(name)], names=[name])
            section += nodes.title(name, name)
            text = " ".join((parser.description or "").split())
            section += nodes.paragraph(text, text)
            section += _usage(f"{program} {name}", parser)
            left_out = shared_options(program, name)
            actions = [
                one
                for one in shown(parser)
                if not left_out.intersection(one.option_strings)
            ]
            section += self._list(parser, actions, {})
            section += _exit_codes(parser)
            found += section
        return [found]


class _Beside(nodes.Element):
    """Holds sections that belong after the section in which it is."""


def _put_beside(_: Sphinx, document: nodes.document) -> None:
    for holder in list(document.findall(_Beside)):
        section = holder.parent
        outer = section.parent
        section.remove(holder)
        place = outer.index(section) + 1
        outer[place:place] = holder.children


class ExitCodes(_Directive):
    """``{exit-codes} PROGRAM``; see the module."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a definition list of the exit codes."""
        more = self._more()
        listing = nodes.definition_list()
        for code in _EXIT_CODES[self.arguments[0]]:
            number, sentence = str(int(code)), code.sentence
            text = nodes.paragraph("", f"{sentence[0].upper()}{sentence[1:]}.")
            for node in more.pop(number, []):
                text += [nodes.Text(" "), *node.children]
            term = nodes.term("", "", nodes.strong(number, number))
            body = nodes.definition("", text)
            listing += nodes.definition_list_item("", term, body)
        if more:
            raise self.error(f"{self.arguments[0]} has no {', '.join(more)}")
        return [listing]


class UnitVerbs(_Directive):
    """``{unit-verbs} PROGRAM``; see the module."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a definition list of the hidden verbs with their arguments."""
        more = self._more()
        listing = nodes.definition_list()
        for words, parser in verbs(self.arguments[0], hidden=True).items():
            name = words.partition(" ")[2]
            term = nodes.term("", "", nodes.strong(name, name))
            for action in shown(parser):
                if not action.option_strings:
                    word = _metavar(action)
                    term += [nodes.Text(" "), nodes.emphasis(word, word)]
            text = " ".join((parser.description or "").split(".")[0].split())
            first = nodes.paragraph("", f"{text}.")
            for node in more.pop(name, []):
                first += [nodes.Text(" "), *node.children]
            body = nodes.definition("", first)
            listing += nodes.definition_list_item("", term, body)
        if more:
            raise self.error(f"no verb {', '.join(more)}")
        return [listing]


class FactsVerbs(_Directive):
    """``{facts-verbs}``: which verbs of ovirt-rdma-host take a facts file.

    The content has a text for ``accepted`` and ``others``.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a definition list with the verbs of each kind."""
        texts = self._more()
        listing = nodes.definition_list()
        for kind, names in facts_verbs().items():
            term = nodes.term()
            for number, name in enumerate(names):
                term += [nodes.Text(", " if number else ""), nodes.strong(name, name)]
            body = nodes.definition("", *texts.pop(kind))
            listing += nodes.definition_list_item("", term, body)
        return [listing]


def facts_verbs() -> dict[str, list[str]]:
    """Return the verbs of ovirt-rdma-host that accept or lack ``--facts``."""
    found: dict[str, list[str]] = {"accepted": [], "others": []}
    for name, parser in verbs(host.PROGRAM).items():
        options = {text for one in parser.arguments for text in one.option_strings}
        found["accepted" if "--facts" in options else "others"].append(name)
    return found


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("options", Options)
    app.add_directive("shared-options", SharedOptions)
    app.add_directive("other-verbs", OtherVerbs)
    app.add_directive("exit-codes", ExitCodes)
    app.add_directive("unit-verbs", UnitVerbs)
    app.add_directive("facts-verbs", FactsVerbs)
    app.connect("doctree-read", _put_beside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
