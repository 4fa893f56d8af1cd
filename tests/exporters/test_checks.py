"""Check results in the formats of CI systems, with names that try to break out of them."""

import math
from xml.etree import ElementTree as ET

import pytest

from perdure.exporters.checks import append_step_summary, github_annotations, junit_xml, step_summary
from perdure.metrics import Interval
from perdure.policies import CheckResult, Rule, RuleResult

HOSTILE = '</testcase>\x00\x1b[31m]]>::error::owned\n"&<b>|`%0A'


def decision(verdict, severity="error", group="", reason=None, **numbers):
    rule = Rule("average_accuracy", threshold=0.9, severity=severity)
    missing = verdict == "undecided" and not numbers
    nothing = Interval(math.nan, math.nan, math.nan, 0, "none", reason)
    interval = nothing if missing else Interval(0.85, 0.8, 0.95, 100, "exact")
    return RuleResult(rule, "threshold", group, interval, 0.9, True, verdict, reason, **numbers)


@pytest.fixture
def result():
    decisions = (
        decision("pass"),
        decision("fail", group=HOSTILE),
        decision("fail", severity="warning", group="task 2"),
        decision("undecided", reason="no baseline was given"),
        decision("undecided", group="class 3", reason="the interval contains the bound", additional_examples=1200),
    )
    return CheckResult(f"runs/{HOSTILE}", "policy.toml", decisions, 0.05, 0.99)


def test_junit_has_one_case_per_decision_and_parses_with_hostile_names(result):
    suites = ET.fromstring(junit_xml(result))
    (suite,) = suites
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "1", "2")
    cases = suite.findall("testcase")
    assert len(cases) == 5
    assert [len(case.findall("failure")) for case in cases] == [0, 1, 0, 0, 0]  # a warning is not a failure
    assert [len(case.findall("skipped")) for case in cases] == [0, 0, 0, 1, 1]
    assert "no baseline was given" in str(cases[3].findall("skipped")[0].get("message"))
    assert "</testcase>" in str(cases[1].get("name"))  # as text
    assert "\\x1b" in str(cases[1].get("name"))
    assert "0.8500 [0.8000, 0.9500]" in str(cases[1].findall("failure")[0].get("message"))


def test_annotations_are_single_commands(result):
    lines = github_annotations(result)
    assert [line.split(" ", 1)[0] for line in lines] == ["::error", "::warning", "::warning", "::warning"]
    for line in lines:
        assert "\n" not in line
        assert "\x1b" not in line
        command = line[2:].split("::", 1)[0]
        assert "title=perdure check%3A " in command
    assert "%250A" in lines[0]  # the name's own escape is data
    assert "about 1,200 more examples would decide it" in lines[3]


def test_annotations_name_the_line_of_the_rule():
    rule = Rule("average_accuracy", threshold=0.9, line=7)
    failed = RuleResult(rule, "threshold", "", Interval(0.8, 0.7, 0.85, 100, "exact"), 0.9, True, "fail")
    result = CheckResult("a", "ci/policy, new.toml", (failed,), 0.05, 0.95)
    assert github_annotations(result)[0].startswith("::error file=ci/policy%2C new.toml,line=7,title=")


def test_an_undecided_warning_is_a_notice():
    result = CheckResult("a", "p", (decision("undecided", severity="warning", reason="x"),), 0.05, 0.95)
    assert github_annotations(result)[0].startswith("::notice ")


def test_the_summary_is_a_table_with_failures_first(result):
    lines = step_summary(result).splitlines()
    assert lines[0].startswith("### FAIL: ")
    rows = [line for line in lines if line.startswith("| ") and "verdict" not in line]
    assert [row.split(" | ")[0][2:] for row in rows] == [
        "❌ fail",
        "❌ fail (warning)",
        "❔ undecided",
        "❔ undecided",
        "✅ pass",
    ]
    for row in rows:
        assert row.replace("\\|", "").count("|") == 5  # the hostile name adds no cell
    assert "<b>" not in "\n".join(lines)


def test_the_summary_is_appended_only_in_github_actions(result, tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert append_step_summary(result) is None
    file = tmp_path / "summary.md"
    file.write_text("earlier\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    assert append_step_summary(result) == file
    assert file.read_text() == "earlier\n" + step_summary(result)
