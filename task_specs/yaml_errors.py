"""What a YAML syntax error means, in words for the person who wrote the file.

No text of the file is repeated: a line that does not parse may hold a secret.
"""

from __future__ import annotations

import yaml

STAR = "YAML reads an unquoted * as an alias; put the value in quotes"
TAB = "a tab; YAML indents with spaces only"

# (part of PyYAML's context, part of its problem, whether the context's line is meant, our words)
_REASONS = (
    ("scanning an alias", "", False, STAR),
    ("scanning an anchor", "", False, "YAML reads & as an anchor; put the value in quotes"),
    ("scanning a simple key", "", True, "this line is no `key: value`; is a colon missing?"),
    ("", "mapping values are not allowed", False,
     "a second `: ` on this line, or an indent too deep; put a value that holds `: ` in quotes"),
    ("double-quoted", "escape", False,
     "an unknown backslash escape; use single quotes to keep backslashes"),
    ("quoted scalar", "", True, "the quote opened on this line is never closed"),
    ("flow mapping", "", True, "the { on this line is not closed, or a comma is missing in it"),
    ("flow sequence", "", True, "the [ on this line is not closed, or a comma is missing in it"),
    ("block mapping", "", False, "the indent of this line does not match the lines above"),
    ("block collection", "", False, "the indent of this line does not match the list above"),
    ("block scalar", "", False, "the `|` or `>` here is followed by something odd"),
    ("scanning a tag", "", False, "YAML reads ! as a tag; put the value in quotes"),
    ("parsing a node", "tag", False, "YAML reads ! as a tag; put the value in quotes"),
    ("", "cannot start any token", False,
     "a value cannot begin with this character; put the value in quotes"),
    ("", "<document start>", False, "this does not belong to what is above; check its indent"),
    ("scanning a directive", "", False, "a line that begins with %; put the value in quotes"),
)  # fmt: skip
_ELSE = "not valid YAML; look at quotes, brackets and the indent of this line and the one above"
_ODD_SPACES = ("\u00a0", "\u2003", "\u3000", "\u200b")


def line_and_reason(error: Exception, text: str) -> tuple[int | None, str]:
    """Return the line of a syntax error, counted from 1, and what to do about it."""
    if isinstance(error, yaml.reader.ReaderError):
        position = error.position if isinstance(error.position, int) else 0
        line = text.count("\n", 0, position) + 1
        return line, "a control character that YAML does not allow; write it as an escape"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return None, "not valid YAML: an escape or a directive holds a number out of range"
    stopped = error.problem_mark.line
    began = error.context_mark.line if error.context_mark is not None else stopped
    lines = text.splitlines()
    for number in {stopped, began}:
        seen = lines[number] if number < len(lines) else ""
        if "\t" in seen[: len(seen) - len(seen.lstrip())] or "'\\t'" in str(error.problem):
            return number + 1, TAB
        if any(space in seen for space in _ODD_SPACES):
            return number + 1, "an odd space (not the space bar's); retype the spaces of this line"
    for context, problem, at_start, words in _REASONS:
        if context in str(error.context or "") and problem in str(error.problem or ""):
            return (began if at_start else stopped) + 1, words
    return stopped + 1, _ELSE
