"""Regular expressions of settings, on texts that records bring.

RE2 runs them, in time linear in the text. Java and Python backtrack: a record could keep them busy for hours. RE2 has
no look-around and no possessive quantifiers; such a pattern runs in Python, if it cannot backtrack much.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_FEW = 16
"""A repetition of at most this many times counts as a constant."""
_REPEATS = {code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT}
_INSIDE_SET = re.compile(r"\{,|\\[xuU0N]|\[\^?\]")

_SETS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\\\]\[])*(\[?)", re.DOTALL)
"""Escapes and sets. The group of a set is the [ within it, if there is one."""

_REMEDIES = {
    "nothing to repeat": ": write .* for any text",
    "multiple repeat": ": write \\ before a * or + that is a character",
    "min repeat": ": write the smaller number first",
    "bad escape": ": write the characters themselves, as in [A-Za-z], or leave the backslash out",
    "bad character range": ": write the smaller character first, or - at the end of the set",
    "unterminated subpattern": ": close the bracket, or write \\( for the character",
    "unbalanced parenthesis": ": open the bracket, or write \\) for the character",
    "unterminated character set": ": close the set, or write \\[ for the character",
}

Template = Sequence[str | int]
"""Texts, and numbers of groups; 0 is the whole match."""


class Regex:
    """A regular expression of Java that matches texts in full. As in Java, ``\\d``, ``\\w`` and ``\\s`` are ASCII."""

    def __init__(self, pattern: str) -> None:
        """:raises ValueError: the pattern is not valid, means something else in Java, or could keep a task busy for
        very long.
        """
        # Java and RE2 write (?<name>...), Python (?P<name>...).
        pattern = re.sub(r"\(\?<([A-Za-z]\w*)>", r"(?P<\1>", pattern)
        if any(found[1] for found in _SETS.finditer(pattern)):
            raise ValueError(
                f"'{pattern}' is not a regular expression that is supported: within a set, [ means one thing in Java"
                " and another one elsewhere: write \\[ for the character, and ranges such as A-Za-z for [:alpha:]"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)  # Java has sets within sets, Python has not
                warnings.simplefilter("ignore", DeprecationWarning)
                self._python = re.compile(pattern, re.ASCII)
        except (re.error, FutureWarning, OverflowError, RecursionError) as error:
            raise ValueError(
                f"'{pattern}' is not a regular expression that is supported{_remedy(str(error))} ({error})"
            ) from error
        self._pattern, self._whole = pattern, rf"\A(?:{pattern})\z"
        self._is_linear = _is_known_to_re2(self._whole) and _is_known_to_re2(pattern)
        if not self._is_linear:
            _check(pattern)

    @property
    def groups(self) -> dict[str, int]:
        """The numbers of all groups, by their number and by their name."""
        return {**{str(n): n for n in range(1, self._python.groups + 1)}, **self._python.groupindex}

    def matching(self, texts: Iterable[str]) -> list[str]:
        """The texts that the pattern matches in full."""
        texts = list(texts)
        if not self._is_linear:
            return [text for text in texts if self._python.fullmatch(text)]
        column = pa.array(texts, pa.string())
        return column.filter(pc.match_substring_regex(column, self._whole)).to_pylist()

    def written(self, text: str, template: Template, *, first: bool = False) -> str | None:
        """The template with the groups of a text that the pattern matches in full; None if it does not match.
        ``first``: the template replaces the first match inside the text, as Java's ``replaceFirst``.
        """
        if not self.matching([text]):
            return None
        if self._is_linear and all(isinstance(part, str) or part < 10 for part in template):
            pattern = self._pattern if first else self._whole
            column = pa.array([text], pa.string())
            written = pc.replace_substring_regex(column, pattern, _of_re2(template), max_replacements=1)
            return str(written[0])
        match = self._python.search(text) if first else self._python.fullmatch(text)
        if match is None:
            return text
        middle = "".join(part if isinstance(part, str) else match[part] or "" for part in template)
        return text[: match.start()] + middle + text[match.end() :]


def _remedy(why: str) -> str:
    return next((remedy for words, remedy in _REMEDIES.items() if words in why), "")


def template(pattern: str, regex: Regex) -> Template:
    """A pattern such as ``lake.{topic}`` as a template. ``{topic}`` is the whole match; ``{1}`` and ``{name}`` are
    groups of the regex.

    :raises ValueError: the pattern names a group that the regex does not have, or has other braces.
    """
    groups = {"topic": 0, **regex.groups}
    parts: list[str | int] = []
    for text, name in re.findall(r"([^{}]*)(\{[^{}]*\}|[{}]|$)", pattern):
        parts.append(text)
        if name and name[1:-1] not in groups:
            there = ", ".join(f"{{{each}}}" for each in groups)
            raise ValueError(f"'{pattern}' has '{name}', which stands for nothing; there are: {there}")
        if name:
            parts.append(groups[name[1:-1]])
    return parts


def _of_re2(template: Template) -> str:
    return "".join(part.replace("\\", r"\\") if isinstance(part, str) else rf"\{part}" for part in template)


def _is_known_to_re2(pattern: str) -> bool:
    """Whether RE2 takes the pattern, and reads it as Python does."""
    if _INSIDE_SET.search(pattern):
        return False
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid:
        return False
    return True


def _check(pattern: str) -> None:
    """:raises ValueError: the work of Python on some text may be more than proportional to its length."""
    parts = parser.parse(pattern, re.ASCII)
    reason = "a repetition or a choice is repeated" if _repeats_choices(parts) else None
    if reason is None and _power(parts) > 1:
        reason = "several repetitions follow each other"
    if reason is None and _power(parts) and _has(parts, {code.GROUPREF, code.GROUPREF_EXISTS}):
        reason = "a group is referred to beside a repetition"
    if reason is not None:
        raise ValueError(
            f"'{pattern}' could keep a task busy for very long: {reason} in a pattern that RE2 does not know"
            " (github.com/google/re2/wiki/Syntax). Write it without look-around, references and possessive quantifiers"
        )


def _inner(argument: Any) -> list[Any]:
    """The patterns inside the argument of an operation."""
    if isinstance(argument, parser.SubPattern):
        return [argument]
    if isinstance(argument, tuple | list):
        return [node for each in argument for node in _inner(each)]
    return []


def _has(parts: Any, wanted: set[Any]) -> bool:
    return any(op in wanted or any(_has(inner, wanted) for inner in _inner(argument)) for op, argument in parts)


def _repeats_choices(parts: Any) -> bool:
    for op, argument in parts:
        inside = _inner(argument)
        if op in _REPEATS and argument[1] > 1 and any(_has(each, {*_REPEATS, code.BRANCH}) for each in inside):
            return True
        if any(map(_repeats_choices, inside)):
            return True
    return False


def _power(parts: Any) -> int:
    """The power of a text's length to which the work may grow: how many repetitions share the text between them."""
    power = most = 0
    for op, argument in parts:
        inside = max((_power(each) for each in _inner(argument)), default=0)
        if op in (code.ASSERT, code.ASSERT_NOT):  # it does not move on in the text
            most = max(most, power + inside)
        else:
            power += max(inside, int(op in _REPEATS and argument[1] > _FEW and argument[0] < argument[1]))
        most = max(most, power)
    return most
