"""The HTML report in a real browser, light and dark, wide and narrow."""

import os
import shutil

import pytest

from metalwright.report import to_html

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def _installed():
    return next(filter(None, map(shutil.which, _NAMES)), _MAC if os.path.exists(_MAC) else None)


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = _installed()
    if path is None:
        pytest.skip(
            f"no browser is installed: none of {', '.join(_NAMES)} is on PATH (Debian: apt install chromium)"
        )
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture(scope="module")
def file(reports, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(to_html(reports), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, file):
    """Open the report; at the end, fail if it asked for anything or complained."""
    contexts, asked, said = [], [], []

    def open_page(scheme="light", width=1240):
        contexts.append(browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}))
        page = contexts[-1].new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert set(asked) == {file.as_uri()} and said == []


def test_the_verdict_is_what_is_seen_first(opened):
    page = opened()
    heading = page.get_by_role("heading", level=1)
    assert heading.inner_text() == "Wrong: 3 of 4 kernels"
    assert heading.bounding_box()["y"] < 100
    assert page.title() == "wrong: outside, column, nans, right"


def test_scripts_in_kernels_are_text(opened):
    page = opened()
    assert page.locator("script").count() == 0
    assert page.locator("pre", has_text="<script>document.title").first.is_visible()


def test_light_and_dark_are_the_readers(opened):
    def colours(page):
        return page.evaluate(
            "[document.body, document.querySelector('path.right')].map(e => getComputedStyle(e)).map("
            "(s, i) => i ? s.fill : s.backgroundColor)"
        )

    light, dark = (colours(opened(scheme)) for scheme in ("light", "dark"))
    brightness = [[sum(map(int, colour[4:-1].split(","))) for colour in pair] for pair in (light, dark)]
    assert all(b > 600 for b in brightness[0]) and all(b < 250 for b in brightness[1])


@pytest.mark.parametrize("width", [360, 1240])
def test_nothing_sticks_out_of_the_page(opened, width):
    page = opened(width=width)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_case_opens_from_the_table_and_shows_its_map(opened):
    page = opened()
    second = page.locator("#kernel-2 details").nth(1)
    assert not second.locator(".map").is_visible()
    second.locator("summary").click()
    assert second.locator(".map svg").first.is_visible()
    page.locator("#kernel-2 .cases a").first.click()
    assert page.url.endswith("#case-2-1")


def test_the_map_has_its_colours_where_the_errors_are(opened):
    from io import BytesIO

    image = pytest.importorskip("PIL.Image")
    page = opened()
    map = page.locator("#kernel-2 .map > svg").first
    picture = image.open(BytesIO(map.screenshot())).convert("RGB")
    cell = map.locator("g").evaluate("g => g.getCTM().a")

    def colour(row, column):
        return picture.getpixel((int(56 + (column + 0.5) * cell), int(20 + (row + 0.5) * cell)))

    assert colour(3, 7) == (0x96, 0x10, 0x1A)  # column 7 is wrong
    assert colour(3, 6) == (0xE4, 0xE9, 0xEE)  # its neighbour is right
    assert max(colour(31, 5)) < 150  # the last elements were never written


def test_the_program_can_be_read_and_copied(opened):
    page = opened()
    program = page.locator("#kernel-2 .program").first.inner_text()
    compile(program, "program", "exec")
    assert "random((1000,), torch.float32)" in program
