"""Reports of a run of the conformance kit: text, JSON, JUnit, a badge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.testing.conformance import Result

#: Outcome -> its name in the text.
WORDS = {"passed": "passed", "failed": "FAILED", "skipped": "skipped", "expected": "expected"}


def counts(results: Sequence[Result]) -> Counter[str]:
    """Outcome -> number of checks; those that this machine lacks a tool for also count as ``unavailable``."""
    found: Counter[str] = Counter(result.outcome for result in results)
    found["unavailable"] = sum(result.unavailable for result in results)
    return found


def verdict(results: Sequence[Result]) -> str:
    """The result as a few words: never "passed" when something could not be run."""
    found = counts(results)
    if not found["failed"] and not found["skipped"] and not found["expected"]:
        return f"all {number_of(len(results), 'checks')} passed"
    words = [f"{found[outcome]} {outcome}" for outcome in ("failed", "passed", "skipped") if found[outcome]]
    if found["expected"]:
        words.append(f"{found['expected']} failed as expected")
    missing = f"; {found['unavailable']} need what this machine lacks" if found["unavailable"] else ""
    return f"{number_of(len(results), 'checks')}: {', '.join(words)}{missing}"


def line(result: Result) -> str:
    """One check on one line, with the number of its cases."""
    where = f"{result.target}: " if result.target else ""
    notes = [f"{number_of(result.cases, 'cases')}"] if result.cases else []
    notes += [f"{len(result.refused)} refused by the target"] if result.refused else []
    notes += [number_of(len(result.warnings), "warnings")] if result.warnings else []
    notes += ["ended by the budget"] if result.cut else []
    notes += [result.why] if result.why else []
    tail = f"  ({'; '.join(notes)})" if notes else ""
    return f"{WORDS[result.outcome]:8}  {where}{result.check.name}{tail}"


def text(result: Result) -> str:
    """One check with its problems and what to try."""
    lines = [line(result)]
    if result.outcome == "failed":
        lines += [f"          must hold: {result.check.doc}"]
    if result.outcome in ("failed", "expected"):
        lines += [f"          {each}" for problem in result.problems for each in problem.splitlines()]
    lines += [f"          warning: {each}" for each in result.warnings]
    if result.remedy:
        lines.append(f"          try: {result.remedy}")
    return "\n".join(lines)


def as_json(result: Result) -> dict[str, Any]:
    return {
        "name": result.check.name,
        "target": result.target,
        "doc": result.check.doc,
        "outcome": result.outcome,
        "passed": result.outcome == "passed",
        "complaints": list(result.problems),
        "why": result.why,
        "try": result.remedy,
        "cases": result.cases,
        "refused": list(result.refused),
        "warnings": list(result.warnings),
        "complete": not result.cut,
        "seconds": round(result.seconds, 3),
    }


def junit(name: str, results: Sequence[Result]) -> bytes:
    """A JUnit file: one test case for each check. An expected failure counts as skipped, as pytest's do."""
    found = counts(results)
    total = f"{sum(result.seconds for result in results):.3f}"
    suite = ElementTree.Element(
        "testsuite",
        name=f"conformance of {name}",
        tests=str(len(results)),
        failures=str(found["failed"]),
        errors="0",
        skipped=str(found["skipped"] + found["expected"]),
        time=total,
    )
    for result in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"conformance.{result.target or name}",
            name=result.check.name,
            time=f"{result.seconds:.3f}",
        )
        if result.outcome == "failed":
            first = result.problems[0].partition("\n")[0]
            failure = ElementTree.SubElement(case, "failure", message=_clean(first))
            failure.text = _clean("\n".join(result.problems))
        elif result.outcome != "passed":
            message = f"{result.why}; try: {result.remedy}" if result.remedy else result.why
            ElementTree.SubElement(case, "skipped", message=_clean(message))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    made: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _clean(words: str) -> str:
    """The text without characters that XML cannot hold, since a compiler's message may have any."""
    return "".join(c if c in "\n\t" or c.isprintable() else "?" for c in words)


def badge(results: Sequence[Result]) -> str:
    """A badge in the endpoint format of shields.io."""
    found = counts(results)
    if found["failed"]:
        message, color = f"{found['failed']} of {len(results)} failed", "red"
    elif found["unavailable"]:
        message, color = f"{found['passed']} passed, {found['unavailable']} not run", "lightgrey"
    else:
        message = f"{found['passed']} passed"
        message += f", {found['expected']} expected failures" if found["expected"] else ""
        color = "yellow" if found["expected"] else "brightgreen"
    data = {"schemaVersion": 1, "label": "PerfDojo conformance", "message": message, "color": color}
    return json.dumps(data) + "\n"
