"""A check result as JUnit XML, which Jenkins, GitLab, Azure and others show as test results."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from perdure.base.errors import escape_control_characters
from perdure.policies import CheckResult, RuleResult

SUITE = "perdure check"


def junit_xml(result: CheckResult) -> bytes:
    """Return JUnit XML: one test case per decision; an undecided one is skipped, a failed warning is not a failure.

    JUnit has no third outcome: "skipped" carries the reason why a rule is undecided.
    """
    failed = [decision for decision in result.rules if _fails(decision)]
    skipped = [decision for decision in result.rules if decision.verdict == "undecided"]
    counts = {
        "tests": str(len(result.rules)),
        "failures": str(len(failed)),
        "skipped": str(len(skipped)),
        "errors": "0",
    }
    suites = Element("testsuites", {"name": SUITE, **counts})
    suite = SubElement(suites, "testsuite", {"name": _text(f"{SUITE} {result.target}"), **counts})
    for decision in result.rules:
        _add_case(suite, decision)
    output = SubElement(suite, "system-out")
    output.text = _text(str(result))
    indent(suites)
    text: str = tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _add_case(suite: Element, decision: RuleResult) -> None:
    name = decision.rule.metric if not decision.group else f"{decision.rule.metric}.{decision.group}"
    case = SubElement(suite, "testcase", {"classname": _text(name), "name": _text(decision.title), "time": "0"})
    if _fails(decision):
        failure = SubElement(case, "failure", {"message": _text(decision.evidence), "type": decision.rule.severity})
        failure.text = _text(str(decision))
    elif decision.verdict == "undecided":
        SubElement(case, "skipped", {"message": _text(f"undecided: {decision.reason}")})
    else:
        SubElement(case, "system-out").text = _text(str(decision))


def _fails(decision: RuleResult) -> bool:
    return decision.verdict == "fail" and decision.rule.severity == "error"


def _text(text: str) -> str:
    """Return text that XML can hold: most control characters are not allowed, not even escaped."""
    shown = "\n".join(escape_control_characters(line) for line in text.split("\n"))
    return shown.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
