#!/usr/bin/env python3
"""Checks reports in headless Chromium.

  page_test.py PLUGFEST      the program

Exit code: 0 passed, 1 failed, 77 skipped, because Chromium is not installed.
"""
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import browser  # noqa: E402

HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(2)</script>\u2028\u202e\"'`${alert(3)}&lt;b&gt; <!--"
ENDS = [f"{host}.eth0" for host in "abcdefghijklmnopqrstuvwx"]
HOSTILE_NAME = "<b>javascript:alert(1)</b>\"'"


def rule(number, verdict="pass", **more):
    return {"id": f"CN-{number:02}", "title": f"title {number}", "text": "A text.", "source": "net.cc", "level": "M", "verdict": verdict,
            "seconds": 0.5, "start": number * 0.5, "message": "", "rerun": "plugfest run", "path": "a.eth0 b.eth0", "group": "connect", **more}


def call(number, result="Success"):
    return {"thread": "prog", "call": f"isend({number})", "result": result, "start": number * 1e-4, "end": number * 1e-4 + 5e-5, "count": 1}


def broken(number, calls):
    packets = [{"time": i * 1e-5, "from": "a.eth0", "to": "b.eth0", "what": "WRITE only", "queue_pair": 5, "psn": i, "bytes": 4096,
                "mark": "retransmission" if i == 2 else ""} for i in range(4)]
    ranks = [{"name": name, "last_calls": ["isend"], "log": ["WARN boo"], "output": "bye", "calls": calls} for name in ("a.eth0", "b.eth0")]
    return rule(number, "fail", message="expected 1\nfound 2", ranks=ranks, capture={"file": "f.pcapng", "left_out": 3, "packets": packets})


def results(rules, **more):
    run = {"plugin": {"path": "/p.so", "name": "foo", "versions": [12, 8]}, "interface": "net", "api": 8, "seed": 7, "seconds": 9.5,
           "idle_cpu_share": 0, "devices": [], "environment": [], "rules": rules,
           "faults": [{"fault": "link a-b down", "source": "f.yaml:2", "start": 0.6, "end": 1.2}]}
    return {"schema": 2, "tool": {"version": "1", "commit": ""}, "interrupted": False, "runs": [run],
            "environment": dict(kernel="k", cpu="c", nic="roce", layout="", topology="pair", privileges="root"),
            "fabric": {"nodes": [{"name": name, "tier": tier} for name, tier in (("a", 0), ("b", 0), ("s1", 1))],
                       "links": [{"from": f"{host}.eth0", "to": f"s1.eth{i}", "subnet": "10.0.0.0/24", "rate": 10**10, "delay": 5e-6}
                                 for i, host in enumerate("ab")]},
            "pairs": [{"subject": "foo v8", "from": a, "to": b, "verdict": "warn" if a == "c.eth0" else "pass", "message": "slow",
                       "bits_per_second": 1e9 * (i + 1), "latency_p50": 4e-6} for i, a in enumerate(ENDS) for b in ENDS if a != b],
            "curves": [{"measure": "bandwidth, one comm", "unit": "Gbit/s", "subject": name, "kind": which, "points": [[4096, 1], [65536, top]]}
                       for name, which, top in (("foo", "subject", 6), ("perftest", "reference", 8), ("line rate", "limit", 10))] +
                      [{"measure": "descriptors", "unit": "descriptors", "subject": "a", "kind": "subject", "axis": "messages", "points": [[4096, 20], [8192, 20]]}], **more}


def poisoned(value, key=""):
    """`value` with hostile text in each field that is free text."""
    if isinstance(value, dict):
        return {name: poisoned(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [poisoned(one, key) for one in value]
    if not isinstance(value, str) or value == "" or key in ("verdict", "level", "kind", "axis"):
        return value
    return HOSTILE_NAME + value if key in ("id", "name", "from", "to") else value + HOSTILE


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.browser = browser.Browser().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.folder.cleanup()

    def setUp(self):
        self.browser.problems.clear()

    def show(self, *documents, **how):
        names = []
        for i, document in enumerate(documents):
            names.append(f"{self.folder.name}/{i}.json")
            pathlib.Path(names[-1]).write_text(json.dumps(document))
        page = f"{self.folder.name}/page.html"
        subprocess.run([PLUGFEST, "report", *names, "-o", page], check=True)
        self.browser.open(page, **how)
        self.assertEqual(self.browser.value("document.body.dataset.ready"), "yes")
        return pathlib.Path(page)

    def value(self, expression):
        return self.browser.value(expression)

    def count(self, selector):
        return self.value(f"[...document.querySelectorAll({selector!r})].filter(one => one.checkVisibility()).length")

    def assert_nothing_wrong(self):
        self.assertEqual(self.browser.problems, [])
        size = self.browser.call("Page.getLayoutMetrics")
        self.assertLessEqual(size["cssContentSize"]["width"], size["cssLayoutViewport"]["clientWidth"], "the page scrolls sideways")

    def test_shows_all_parts_without_errors_at_two_widths_in_both_schemes(self):
        document = results([rule(1), rule(2, "n/a"), broken(3, [call(i) for i in range(9)])])
        for width in (390, 1280):
            for dark in (False, True):
                self.show(document, width=width, dark=dark)
                for part in ("failures", "pairs", "measurements", "rules", "time", "overview"):
                    self.assertEqual(self.count(f"#{part}"), 1, part)
                self.assertIn("1 of 3 rules broken, start with CN-03", self.value("document.querySelector('#conclusion').innerText"))
                self.assertEqual(self.count("#failures .packet"), 4)
                self.assertEqual(self.count("#failures .packet.marked"), 1)
                self.assertEqual(self.count("#failures .call"), 18)
                self.assertEqual(self.count("#time .fault"), 1)
                self.assertEqual(self.count("#overview .host"), 2)
                self.assertEqual(self.count(".heatmap td.heat"), len(ENDS) * (len(ENDS) - 1))
                self.assertEqual(self.count(".chart canvas"), 2)
                self.assertEqual(self.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", not dark)
                self.assert_nothing_wrong()

    def test_leads_with_the_verdict_of_a_certification(self):
        certification = {"plugin": "foo", "exit_code": 1, "hosts": 3, "nics": 3, "pairs": 3, "reasons": ["1 part slow: h2.dev0"], "suspects": [], "differences": [],
                         "loads": [{"load": "incast on rail 0", "seconds": 1.25, "broken": "", "lowest_bits_per_second": 1e9}],
                         "soaks": [{"pair": "h1.dev0 h2.dev0", "seconds": 90, "rounds": 70, "broken": "", "leaks": ["12 bytes more after each message"]}]}
        suspect = {"kind": "slow", "subject": "h2.dev0", "why": "a tenth of the others"}
        end = "document.querySelector('#conclusion').innerText"
        self.show(results([rule(1)], certification={**certification, "suspects": [suspect]}))
        self.assertIn("The cluster did not pass. 1 part slow: h2.dev0.", self.value(end))
        self.assertEqual(self.count("#conclusion.bad"), 1)
        self.assertEqual(self.value("document.querySelector('main > section').id"), "certification")
        for text in ("a tenth of the others", "incast on rail 0", "1 Gbit/s"):
            self.assertIn(text, self.value("document.querySelector('#certification').innerText"))
        self.assert_nothing_wrong()
        lost = {"kind": "host", "subject": "h3", "why": "host h3 has not answered for 20 s"}
        self.show({**results([], certification={**certification, "exit_code": 2, "reasons": ["1 host lost or absent: h3"], "suspects": [lost]}), "runs": []})
        self.assertIn("The cluster did not pass. The certification is not complete; 1 host lost or absent: h3.", self.value(end))
        self.assertIn("has not answered", self.value("document.querySelector('#certification').innerText"))
        self.show(results([rule(1)], certification={**certification, "exit_code": 0, "reasons": []}))
        self.assertIn("The cluster passed. 3 hosts, 3 NICs, 3 pairs; 1 rule tested, none broken.", self.value(end))
        self.assert_nothing_wrong()

    def test_filters_by_verdict_and_words(self):
        self.show(results([rule(1), rule(2, "n/a"), broken(3, [])]))
        self.assertEqual(self.count(".rule"), 3)
        self.value("document.querySelector('.chip[data-verdict=fail]').click()")
        self.assertEqual(self.value("document.querySelector('.rule:not([hidden])').id"), "v8-CN-03")
        self.assertEqual(self.value("document.querySelector('#shown').textContent"), "1 of 3 rules")
        self.value("document.querySelector('.chip[data-verdict=fail]').click()")
        find = "(search => { search.value = %r; search.dispatchEvent(new Event('input')); })(document.querySelector('#search'))"
        self.value(find % "title 2")
        self.assertEqual(self.value("document.querySelector('.rule:not([hidden])').id"), "v8-CN-02")
        self.value(find % "no such words")
        self.assertEqual(self.count(".rule, .group"), 0)
        self.assertEqual(self.count("#rules .empty"), 1)
        self.assert_nothing_wrong()

    def test_links_open_rules_and_the_matrix_hides_what_passed_everywhere(self):
        self.show(results([rule(1), rule(2)]), results([rule(1), rule(2, "fail", message="why not")]), fragment="#2-v8-CN-02")
        self.assertIn("why not", self.value("document.getElementById('2-v8-CN-02').innerText"))
        self.assertEqual(self.count("#matrix tbody tr"), 1)
        self.value("document.querySelector('#matrix input').click()")
        self.assertEqual(self.count("#matrix tbody tr"), 2)
        self.assertEqual(self.value("document.querySelector('#matrix td:nth-child(3) a').hash"), "#2-v8-CN-01")

    def test_has_names_for_everything_that_can_be_operated(self):
        self.show(results([rule(1), broken(3, [call(1)])]))
        nameless = self.value("[...document.querySelectorAll('a, button, input, summary, [tabindex=\"0\"]')].filter(one => one.checkVisibility() &&"
                              " !one.closest('[aria-hidden=true]') && !(one.innerText || one.getAttribute('aria-label') || (one.labels && one.labels[0]) || '').toString().trim()).map(one => one.outerHTML)")
        self.assertEqual(nameless, [])
        self.assertEqual(self.value("[...document.querySelectorAll('.pill')].filter(one => !/[a-z]/.test(one.textContent)).length"), 0)

    def test_text_of_plugins_is_never_markup(self):
        plain = results([rule(1), broken(3, [call(1)])])
        hostile = poisoned(copy.deepcopy(plain))
        hostile["runs"][0]["missed_faults"] = [{"fault": HOSTILE, "source": HOSTILE, "reason": HOSTILE}]
        plain["runs"][0]["missed_faults"] = [{"fault": "f", "source": "s", "reason": "r"}]
        tags = "[...document.querySelectorAll('*')].map(one => one.tagName).join()"
        opened = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
        shapes = []
        for document in (plain, hostile):
            self.show(document)
            self.value(opened)
            self.value("new Promise(done => setTimeout(done))")
            shapes.append(self.value(tags))
            self.assert_nothing_wrong()
        self.assertEqual(*shapes)
        self.assertIn("onerror=alert(1)", self.value("document.querySelector('#failures').innerText"))

    def test_a_refused_script_would_be_noticed(self):
        page = self.show(results([rule(1)]))
        page.write_text(page.read_text().replace("</body>", "<script>document.body.dataset.evil = 1</script></body>"))
        self.browser.open(page)
        self.assertIsNone(self.value("document.body.dataset.evil || null"))
        self.assertIn("Content Security Policy", " ".join(self.browser.problems))

    @unittest.skipUnless(os.environ.get("PLUGFEST_TEST_ALL"), "only with scripts/test --all")
    def test_stays_usable_with_a_million_calls(self):
        page = self.show(results([broken(number, [call(i) for i in range(5000)]) for number in range(1, 101)]))
        self.assertLess(page.stat().st_size, 40 * 2**20)
        self.assertIn("left out", self.value("document.querySelector('.note').textContent"))
        self.value("document.querySelectorAll('.rule').forEach(one => { one.open = true; })")
        self.assertLess(self.value("document.querySelectorAll('*').length"), 200_000)
        self.assert_nothing_wrong()

    def test_shows_measurements_alone_and_results_without_anything(self):
        empty = results([])
        for name in ("fabric", "pairs", "curves"):
            del empty[name]
        self.show(empty)
        self.assert_nothing_wrong()
        self.show({**empty, "runs": [], "curves": results([])["curves"]})
        self.assertEqual(self.count(".chart canvas"), 2)
        self.assert_nothing_wrong()


if __name__ == "__main__":
    PLUGFEST = sys.argv.pop(1)
    if not browser.program():
        print("page_test.py: Skipped\nneeds Chromium: apt-get install chromium")
        sys.exit(77)
    unittest.main()
