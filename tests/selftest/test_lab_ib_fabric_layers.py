# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the layers of the InfiniBand fabric's C files: each uses only those below."""

from __future__ import annotations

import re

import pytest

from lab.ib_fabric_build import SOURCES

# A function or variable that other files see; structs and prototypes end differently.
DEFINED = re.compile(
    r"^(?!static|extern|struct \w+ \{)[A-Za-z][^;{}=()]*?"
    r"(?:\(\*(?P<pointer>fab_\w+)\)\([^;{]*\);|\b(?P<function>fab_\w+)\([^;{]*\)\n\{"
    r"|\b(?P<variable>fab_\w+)(?:\[\])?(?: =|;))"
    r"|^(?:DEFINE_\w+|LIST_HEAD)\((?P<macro>fab_\w+)\);",
    re.MULTILINE,
)


def code(name: str) -> str:
    """Return a file without its comments."""
    return re.sub(r"/\*.*?\*/", "", (SOURCES / name).read_text(), flags=re.DOTALL)


HEADER = (SOURCES / "ib_fabric.h").read_text()
# From the top to the bottom.
LAYERS = re.findall(r"^ \*\t(\w+\.c)\t", HEADER, re.MULTILINE)
WHERE = {
    next(filter(None, found.groups())): name
    for name in LAYERS
    for found in DEFINED.finditer(code(name))
}


def test_the_header_names_every_file() -> None:
    assert sorted(LAYERS) == sorted(path.name for path in SOURCES.glob("*.c"))


def test_every_name_of_the_header_is_found() -> None:
    declarations = code("ib_fabric.h").rpartition("static inline")[2]
    declared = re.findall(r"\b(fab_\w+)\)?(?:\(|;|\[\];)", declarations)
    assert len(declared) > 50
    assert set(WHERE) == set(declared) - {"fab_port_of"}


@pytest.mark.parametrize("name", LAYERS)
def test_a_file_uses_only_files_below_it(name: str) -> None:
    used = {
        WHERE[word] for word in re.findall(r"\bfab_\w+", code(name)) if word in WHERE
    }
    allowed = LAYERS[LAYERS.index(name) :]
    assert used - set(allowed) == set()
