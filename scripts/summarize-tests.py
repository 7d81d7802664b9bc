#!/usr/bin/env python3
"""Summarizes the JUnit files that ctest writes for scripts/test, one folder for each run: the runs, the slowest tests,
and skipped and failed tests with their reasons.

Usage: summarize-tests.py FOLDER. Exit code 1 when a test failed or none ran.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

# Three lines of each failure are repeated at the end, because readers of a log often see only the end.
SHOWN_LINES = 30
SLOWEST = 10
SHOWN_COLUMNS = 300


def reason(case):
    """The text of GTEST_SKIP, which GoogleTest prints on the line after 'Skipped'."""
    output = case.findtext("system-out") or ""
    found = re.search(r": Skipped\n(.*(?:\n.+)*?)\n*(?:\n|\[)", output)
    return found.group(1).strip().splitlines()[0] if found and found.group(1).strip() else "no reason given"


def message(case):
    """The lines from the first failed expectation on; the last lines if GoogleTest reported none."""
    lines = (case.findtext("system-out") or "").splitlines()
    first = next((i for i, line in enumerate(lines) if line.endswith(": Failure")), max(0, len(lines) - SHOWN_LINES))
    shown = lines[first : first + SHOWN_LINES]
    ended = f"    after {float(case.get('time', 0)):.0f} s\n"  # ctest does not record that a test timed out
    return ended + "".join(f"    {line[:SHOWN_COLUMNS]}\n" for line in shown)


def main(folder):
    passed = failed = 0
    skipped = []
    failures = []
    times = []
    runs = []
    for report in sorted(pathlib.Path(folder).glob("**/junit.xml")):
        run = str(report.parent.relative_to(folder))
        cases = list(xml.parse(report).getroot().iter("testcase"))
        runs.append(f"{run}: {len(cases)}")
        for case in cases:
            name = f"{run}: {case.get('name').split('  #')[0]}"
            times.append((float(case.get("time") or 0), name))
            status = case.get("status")
            if status == "run":
                passed += 1
            elif status in ("notrun", "disabled"):
                skipped.append((name, reason(case)))
            else:
                failed += 1
                failures.append((name, message(case)))
    print("tests by run:", ", ".join(runs))
    print("the slowest:")
    for seconds, name in sorted(times, reverse=True)[:SLOWEST]:
        print(f"  {seconds:6.1f} s  {name}")
    for name, why in skipped:
        print(f"skipped  {name}: {why}")
    for name, why in failures:
        print(f"FAILED   {name}\n{why}", end="")
    if failures:
        print("in short:")
    for name, why in failures:
        lines = [line.strip() for line in why.splitlines()]
        first = next((i + 1 for i, line in enumerate(lines) if line.endswith(": Failure")), 1)
        print(f"{name}: {' '.join(lines[first : first + 3])[:SHOWN_COLUMNS]}")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
