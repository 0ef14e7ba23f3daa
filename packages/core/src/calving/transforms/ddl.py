"""The renamed columns in a statement that changes a table, as MySQL, MariaDB and Oracle write it."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKENS = re.compile(
    r"""(?P<blank>\s+|/\*.*?\*/|--[ \t][^\n]*|\#[^\n]*)
    |(?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*")
    |(?P<text>'(?:[^'\\]|\\.|'')*')
    |(?P<word>[\w$@]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
Tokens = list[str]


def renamed_columns(statement: str) -> list[tuple[str, str]]:
    """The former and the new name of each column that one ``ALTER TABLE`` renames, in order: ``RENAME COLUMN a TO b``
    and ``CHANGE a b type``. Names without quotes are as the statement has them, in whatever case. Of any other
    statement, there are none.
    """
    tokens = [*_tokens(statement)]
    start = _keywords(tokens[:4])
    if start[:1] != ["ALTER"] or "TABLE" not in start or ";" in tokens[:-1]:
        return []
    return [pair for clause in _clauses(tokens) if (pair := _renamed(clause)) is not None and pair[0] != pair[1]]


def _tokens(statement: str) -> Iterator[str]:
    for match in _TOKENS.finditer(statement):
        if match.lastgroup != "blank":
            yield match[0]


def _keywords(tokens: Tokens) -> Tokens:
    return [token.upper() for token in tokens]


def _clauses(tokens: Tokens) -> Iterator[Tokens]:
    """What stands between the commas outside of brackets. The first one begins with ``ALTER TABLE`` and the name."""
    clause: Tokens = []
    depth = 0
    for part in tokens:
        if part == "," and not depth:
            yield clause
            clause = []
        else:
            depth += (part == "(") - (part == ")")
            clause.append(part)
    yield clause


def _renamed(clause: Tokens) -> tuple[str, str] | None:
    """The column that a clause renames; None if it renames none."""
    words = _keywords(clause)
    if words[:1] == ["ALTER"]:
        clause = clause[_end_of_name(words) :]
        words = _keywords(clause)
    match words:
        case ["RENAME", "COLUMN", "IF", "EXISTS", _, "TO", _, *_]:
            return _name(clause[4]), _name(clause[6])
        case ["RENAME", "COLUMN", _, "TO", _, *_]:
            return _name(clause[2]), _name(clause[4])
        case ["CHANGE", "COLUMN", "IF", "EXISTS", _, _, _, *_]:
            return _name(clause[4]), _name(clause[5])
        case ["CHANGE", "COLUMN", _, _, _, *_]:
            return _name(clause[2]), _name(clause[3])
        case ["CHANGE", _, _, _, *_]:
            return _name(clause[1]), _name(clause[2])
    return None


def _end_of_name(words: Tokens) -> int:
    """Where the first clause begins, behind ``ALTER TABLE`` and the table's name with its database."""
    end = words.index("TABLE") + 1
    end += 2 if words[end : end + 2] == ["IF", "EXISTS"] else 0
    while words[end + 1 : end + 2] == ["."]:
        end += 2
    return end + 1


def _name(token: str) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote) if quote in '`"' else token
