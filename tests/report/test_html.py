"""The HTML report: what is in it, and what cannot get into it."""

import re
from html.parser import HTMLParser

import pytest
import torch

import metalwright
from metalwright.check import Finding, Report
from metalwright.check.report import CaseReport
from metalwright.errors import Related, Site
from metalwright.report import to_html
from tests.report import kernels

_VOID = {"meta", "br", "img", "link", "input"}


class Page(HTMLParser):
    """The elements of a page and its text; fails where elements are not closed in order."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.ids, self.links, self.urls = [], [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name == "href"]
        assert not [name for name, _ in attrs if name.startswith("on") or name == "src"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def count(self, tag, **wanted):
        return sum(t == tag and wanted.items() <= attributes.items() for t, attributes in self.elements)


@pytest.fixture(scope="module")
def page(reports):
    return to_html(reports)


def test_the_page_is_well_formed_and_needs_nothing_else(page):
    parsed = Page(page)
    assert not [tag for tag, _ in parsed.elements if tag in ("script", "link", "iframe", "img")]
    assert all(link.startswith("#") and link[1:] in parsed.ids for link in parsed.links)
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert "http" not in re.sub(r"http-equiv", "", page)
    assert "default-src 'none'" in page and "prefers-color-scheme: dark" in page


def test_the_verdict_comes_first(page):
    body = page[page.index("<body>") :]
    assert body.index("Wrong: 3 of 4 kernels") < body.index("<table")
    assert "<title>wrong: outside, column, nans, right</title>" in page


def test_a_page_of_right_kernels_says_so(reports):
    page = to_html(reports[3:])
    assert "Right: 1 kernel" in page and 'class="badge wrong"' not in page
    assert not Page(page).count("details")


def test_text_of_kernels_is_escaped(page):
    assert kernels.SCRIPT not in page
    # in the excerpt, in the case's name
    assert page.count("&lt;script&gt;") > 2


@pytest.mark.parametrize("text", [kernels.SCRIPT, '"><img src=x onerror=alert(1)>', "\ud800", "{{ 7 * 7 }}"])
def test_any_text_of_a_report_is_escaped(text):
    finding = Finding(
        text,
        text,
        text,
        Site(text, 1, 1),
        text,
        (Related(text, Site(text, 2, 2), text), Related(text, Site(text, 3))),
    )
    case = CaseReport(text, text, (), (1,), (1,), ((1,),), (), (finding,), 0.0)
    page = to_html([Report(text, text, 0, (case,))], {text: text})
    Page(page)
    page.encode()
    if not text.startswith("{"):
        assert text not in page
    assert "49" not in page[page.index("<body>") :]


def test_a_finding_shows_its_line_with_a_caret(page):
    assert "outside.src:3:20" in page
    excerpt = re.search(r"<pre>(3 │.*?)</pre>", page, re.DOTALL)[1].splitlines()
    assert excerpt[1].index("^") == excerpt[0].index("x[gid + 5]")


def test_related_places_are_shown():
    other = Related("thread (1, 0, 0) writes 2.0", Site("race.src", 4, 3), "  t[1] = 2;")
    finding = Finding("race", "thread (0, 0, 0) reads", None, Site("race.src", 3, 1), "a = t[1];", (other,))
    case = CaseReport("c", "given", (), (1,), (1,), ((1,),), (), (finding,), 0.0)
    report = Report("race", "safe", 0, (case,))
    page = to_html([report])
    assert (
        page.index("3 │ a = t[1];")
        < page.index("thread (1, 0, 0) writes 2.0")
        < page.index("4 │   t[1] = 2;")
    )
    assert "race.src:4:3: thread (1, 0, 0) writes 2.0\n            t[1] = 2;\n            ^" in str(report)
    assert report.to_dict()["cases"][0]["findings"][0]["related"][0]["site"]["line"] == 4


def test_maps_histograms_and_worst_elements_of_what_is_wrong(page):
    parsed = Page(page)
    assert parsed.count("figure", **{"class": "map"}) == parsed.count("figure", **{"class": "bars"}) >= 4
    assert parsed.count("path", **{"class": "unwritten"}) and parsed.count("path", **{"class": "not-finite"})
    assert "The worst of 29 wrong elements (of 1000)" in page
    assert "<code>[3]</code>" in page and ">nan</td>" in page


def test_kernels_that_could_not_be_checked_are_named(reports):
    page = to_html(reports[3:], {"other": "kernel 'other' has no cases"})
    assert "Not all could be checked" in page and "kernel &#39;other&#39; has no cases" in page


def test_a_page_stays_small(page):
    assert len(page) < 300_000


def test_results_of_one_element_and_of_none_have_pages():
    def total(x: torch.Tensor) -> torch.Tensor:
        return x.sum().reshape(1)

    wrong = kernels.make("total", "out[0] = x[0];", total)
    report = metalwright.check(wrong, [kernels.case(torch.ones(4), 1)])
    assert "The worst of 1 wrong element (of 1)" in to_html([report])
    empty = metalwright.check(kernels.right, [kernels.case(torch.ones(0), 1, [0])])
    Page(to_html([empty]))
