# SPDX-License-Identifier: GPL-2.0-or-later
"""Find drop-ins of multipath.conf that keep vdsmd from starting.

From VDSM 4.50.2.2 on, ``vdsm-tool is-configured``, which runs before vdsmd, reads all
that multipathd uses, its defaults too (``show config local``). It raises ValueError for
a section that has both keys and subsections, but for blacklists (_check_conf in
lib/vdsm/storage/mpathconf.py). VDSM's own ``overrides`` has a key, so a
``protocol { }`` in the overrides of a drop-in, as multipath.conf(5) recommends for SRP,
is such a mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.system.tree import FileTree

MAIN = "/etc/multipath.conf"
FOLDER = "/etc/multipath/conf.d"
_SKIPPED = ("blacklist", "blacklist_exceptions")


def multipath_findings(tree: FileTree, problems: list[str]) -> list[Sentence]:
    """Return a sentence for each file that makes a section a mix. What cannot be read
    is a sentence in ``problems``.
    """
    folder, _, main = MAIN.rpartition("/")
    names = [n for n in tree.names(FOLDER) if n.endswith(".conf") and n[0] != "."]
    files = [MAIN] if main in tree.names(folder) else []
    files += (f"{FOLDER}/{name}" for name in names)
    data = [(file, tree.data(file, problems) or b"") for file in files]
    return mixed_sections((file, text.decode(errors="replace")) for file, text in data)


def mixed_sections(texts: Iterable[tuple[str, str]]) -> list[Sentence]:
    """Return a sentence for each subsection in a section that also has keys, of the
    files and texts that multipathd merges. Pure.
    """
    keys: set[str] = set()
    inner: dict[tuple[str, str, str], None] = {}
    for file, text in texts:
        for section, entry, is_section in _entries(text):
            if section in _SKIPPED:
                continue
            if is_section:
                inner[file, section, entry] = None
            else:
                keys.add(section)
    return [
        Sentence(
            "multipath-stops-vdsmd",
            f"{file} has {entry} {{ }} in its section {section}, which also has keys: "
            "vdsm-tool of VDSM 4.50.2.2 and later fails on that, and vdsmd does not "
            "start; use devices { device { } } in its place",
        )
        for file, section, entry in inner
        if section in keys
    ]


def _entries(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the entries of each section: its name, the entry's, and whether that is a
    section itself.
    """
    path: list[str] = []
    for line in text.splitlines():
        # A brace within quotes is no brace; the lexer of multipath knows both marks.
        words = line.split('"')[0].split("#")[0].split("!")[0]
        words = words.replace("{", " { ").replace("}", " } ")
        name = ""
        for word in words.split():
            if word == "{":
                if len(path) == 1:
                    yield path[0], name, True
                path.append(name)
                name = ""
            elif word == "}":
                if len(path) == 1 and name:
                    yield path[0], name, False
                name = ""
                if path:
                    path.pop()
            elif not name:
                name = word
        if len(path) == 1 and name:
            yield path[0], name, False
