# SPDX-License-Identifier: GPL-2.0-or-later
"""Make faulty variants of real texts, for tests that give parsers odd input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

Text = TypeVar("Text", str, bytes)


@st.composite
def mutated(
    draw: st.DrawFn, samples: Sequence[Text], pieces: st.SearchStrategy[Text]
) -> Text:
    """One of ``samples`` after up to four changes: a part is cut out, repeated, moved
    to another place, or replaced by one of ``pieces``.
    """
    text = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(0, 4))):
        ends = st.integers(0, len(text))
        start, end = sorted((draw(ends), draw(ends)))
        before, part, after = text[:start], text[start:end], text[end:]
        change = draw(st.sampled_from(["cut", "repeat", "move", "replace", "insert"]))
        if change == "cut":
            text = before + after
        elif change == "repeat":
            text = before + part + part + after
        elif change == "move":
            text = before + after + part
        elif change == "replace":
            text = before + draw(pieces) + after
        else:
            text = before + draw(pieces) + part + after
    return text
