"""Regular expressions and templates of settings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from calving.errors import ConfigError
from calving.model.record_path import RouteRule, Routing, TransformSpec
from calving.records.regex import Regex, template
from calving.tasks.route import Router
from calving.transforms.chain import Chain

_TEXTS = ("", "a", "ab", "ba", "internal.x", "x.internal", "x-1", "1-x", "été", "a\nb", "AB", "\\", "{1}")


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("a|ab", {"a", "ab"}),
        ("a", {"a"}),
        ("(?i)ab", {"ab", "AB"}),
        (r"\w+", {"a", "ab", "ba", "AB"}),
        (r".*", {*_TEXTS} - {"a\nb"}),
        (r"(?s).*", {*_TEXTS}),
        (r"(?!internal\.).*", {*_TEXTS} - {"a\nb", "internal.x"}),
        (r"(?!.*(internal|-)).+", {"a", "ab", "ba", "été", "AB", "\\", "{1}"}),
        ("", {""}),
    ],
)
def test_a_regular_expression_matches_whole_texts_as_in_java(pattern: str, matching: set[str]) -> None:
    assert {*Regex(pattern).matching(_TEXTS)} == matching


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|ab)*c", ".*a.*a.*a.*a.*b", "(x*)*y"])
def test_no_text_keeps_a_regular_expression_busy(pattern: str) -> None:
    started = time.process_time()
    assert Regex(pattern).matching(["a" * 1_000_000, "x" * 1_000_000]) == []
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "pattern", ["(?!x)(a+)+b", "(?=a)(a|ab)*c", ".*(?!.*x)", r"(a*)\1", "(?!x).*a.*b", "(?!x)(a|aa)+"]
)
def test_a_pattern_that_only_backtracking_can_run_is_refused_if_it_may_backtrack_much(pattern: str) -> None:
    with pytest.raises(ValueError, match="could keep a task busy"):
        Regex(pattern)


@pytest.mark.parametrize(
    "pattern", ["[[:alpha:]]+", "[a[:alpha:]]+", "[^[:digit:]]", "x[]a[b]", r"[\]a[.x.]]", r"\p{L}+", r"[\p{Alpha}]"]
)
def test_a_class_that_is_another_one_in_java_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a regular expression that is supported"):
        Regex(pattern)


@pytest.mark.parametrize(("pattern", "text"), [(r"\[[a]", "[a"), (r"[\[a]+", "a["), ("[]a]+", "a]"), ("[^]]", "a")])
def test_a_bracket_that_means_the_same_everywhere_stands_for_itself(pattern: str, text: str) -> None:
    assert Regex(pattern).matching([text, "]"]) == ([text, "]"] if pattern == "[]a]+" else [text])


@pytest.mark.parametrize("pattern", ["(", "[a&&[b]]", "a{2,1}", "(?<1>x)"])
def test_what_is_no_regular_expression_of_java_and_python_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a regular expression that is supported"):
        Regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "regex", "topic", "name"),
    [
        ("lake.{topic}", None, "orders", "lake.orders"),
        ("lake.{1}_{kind}", r"(?<a>\w+)-(?<kind>.+)", "shop-x", "lake.shop_x"),
        ("lake.{topic}\\1", None, "x", "lake.x\\1"),
        ("lake.{2}{1}", "(a)|(b)", "b", "lake.b"),
        ("lake.{10}", "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)", "abcdefghij", "lake.j"),
        ("lake.{1}", r"(?!tmp)(\w+)", "orders", "lake.orders"),
    ],
)
def test_a_topic_pattern_stands_for_the_topic_and_the_groups(
    pattern: str, regex: str | None, topic: str, name: str
) -> None:
    assert Router(Routing(topic_pattern=pattern, topic_regex=regex)).by_topic(topic) == (name,)


@pytest.mark.parametrize(
    "pattern", ["lake.{2}", "lake.{nam}", "lake.{", "lake.}", "lake.{}", "lake.{topic", "lake.{ 1 }"]
)
def test_a_topic_pattern_with_a_group_that_the_regex_lacks_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"stands for nothing; there are: \{topic\}, \{1\}, \{name\}"):
        template(pattern, Regex("cl(?<name>.*)"))


def test_each_text_of_a_route_field_goes_to_the_tables_whose_regex_matches_it() -> None:
    router = Router(Routing((RouteRule("db.a", "a.*"), RouteRule("db.b", ".*b")), "route"))
    for _ in range(2):
        found = router.by_field(["a", "ab", None, "b", "c", "a"])
        assert {tables: [*rows] for tables, rows in found.items()} == {
            ("db.a",): [0, 5],
            ("db.a", "db.b"): [1],
            (): [2, 4],
            ("db.b",): [3],
        }


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("RegexRouter", {"regex": "a(.*)", "replacement": "x${name}"}),
        ("RegexRouter", {"regex": "a", "replacement": "x$1"}),
        ("TimestampRouter", {"topic.format": "${topic}-${ts}"}),
        ("TimestampRouter", {"topic.format": "${topic"}),
        ("DebeziumTransform", {"cdc.target.pattern": "{db}.{tabel}"}),
        ("DebeziumTransform", {"cdc.target.pattern": "{db.{table}"}),
    ],
)
def test_a_template_of_a_transform_with_a_name_that_stands_for_nothing_is_refused(
    kind: str, options: Mapping[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"has no group for|stands for nothing"):
        Chain([TransformSpec("t", kind, options)])


@pytest.mark.parametrize(("case", "name"), [("lower", "lake.supplyplan"), ("as-is", "Lake.SupplyPlan")])
def test_names_of_tables_that_come_from_records_are_in_lower_case_unless_they_are_to_stay(case: Any, name: str) -> None:
    assert Router(Routing(topic_pattern="Lake.{topic}", case=case)).by_topic("SupplyPlan") == (name,)
    routed = Router(Routing(field="to", dynamic=True, case=case)).by_field(["Lake.SupplyPlan"])
    assert [*routed] == [(name,)]


def test_no_spelling_of_the_table_of_dead_letters_takes_records() -> None:
    router = Router(Routing(field="to", dynamic=True, case="as-is"), "db.Dead")
    assert [router.mistake((name,)) is None for name in ("db.Dead", "DB.dead", "db.alive")] == [False, False, True]
