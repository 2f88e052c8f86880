"""The runner's last line counts every test of both parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from mcore_compat.matrix.junit import read_report

REPORT = """<testsuites><testsuite>
<testcase classname="a" name="passes"/>
<testcase classname="a" name="fails"><failure/></testcase>
<testcase classname="a" name="fails"><error/></testcase>
<testcase classname="a" name="passes_then_breaks"/>
<testcase classname="a" name="passes_then_breaks"><error/></testcase>
<testcase classname="a" name="skips"><skipped/></testcase>
</testsuite></testsuites>"""


def test_each_test_counts_once(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert read_report(report).counts == Counter(passed=1, failed=2, skipped=1)
