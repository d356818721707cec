"""The report in a real browser; `make test-browser` runs this file."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from isoproj import NearIsometricProjection, report

pytestmark = [pytest.mark.slow, pytest.mark.browser]
selenium = pytest.importorskip("selenium")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip(
        "chromium and chromium-driver are not installed", allow_module_level=True
    )

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
NASTY = "<script>alert(1)</script>"
# Runs in the page: every drawing, with how much of it can be seen.
MARKS = """
return [...document.querySelectorAll('svg.chart')]
  .filter(svg => svg.getBoundingClientRect().width > 0)
  .map(svg => [...svg.querySelectorAll('polyline, polygon, circle, rect')]
    .filter(mark => {
      const style = getComputedStyle(mark), box = mark.getBoundingClientRect();
      const painted = [style.fill, style.stroke].some(
        paint => paint !== 'none' && paint !== 'rgba(0, 0, 0, 0)');
      return painted && box.width + box.height > 3;
    }).length);
"""
COLOURS = """
const page = document.querySelector('.isoproj-report');
const seen = [];
const tags = 'p, h1, h2, h3, th, td, dd, dt, figcaption, code, span, strong';
for (const element of page.querySelectorAll(tags)) {
  if (element.innerText && element.getBoundingClientRect().width > 0)
    seen.push(getComputedStyle(element).color);
}
for (const text of page.querySelectorAll('svg text'))
  if (text.getBoundingClientRect().width > 0) seen.push(getComputedStyle(text).fill);
return [getComputedStyle(page).backgroundColor, [...new Set(seen)]];
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    digits = load_digits().data
    model = NearIsometricProjection(6, random_state=0).fit(digits[:200])
    labels = [f"{NASTY} {'long' * 30} {at}" for at in range(200)]
    path = tmp_path_factory.mktemp("report") / "report.html"
    made = report(
        model,
        digits[:200],
        heldout=digits[200:300],
        labels=labels,
        data_name=f"{NASTY}.npy",
        model_name="a/very/long/path/" * 8 + "model.isoproj",
        heldout_name="held out.npy",
    )
    made.save(path)
    return path.as_uri()


@pytest.fixture
def open_page(page, tmp_path):
    """Open the report in a browser of a certain width; quit it afterwards."""
    drivers = []

    def visit(width=1000, *, dark=False, scripts=True, url=page):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*FLAGS, f"--user-data-dir={tmp_path / str(len(drivers))}"):
            options.add_argument(flag)
        wanted = {"performance": "ALL", "browser": "ALL"}
        options.set_capability("goog:loggingPrefs", wanted)
        if not scripts:
            setting = {"profile.managed_default_content_settings.javascript": 2}
            options.add_experimental_option("prefs", setting)
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        drivers.append(driver)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1}
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {**size, "mobile": width < 500}
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get(url)
        return driver

    yield visit
    for driver in drivers:
        driver.quit()


def picture_of(driver):
    """Return the screen as an array of grey values, and keep it where asked."""
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    content = base64.b64decode(shot["data"])
    if folder := os.environ.get("ISOPROJ_SCREENSHOTS"):
        name = os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split(" ")[0]
        Path(folder, f"{name}.png").write_bytes(content)
    image = pytest.importorskip("matplotlib.image")
    from io import BytesIO

    return np.asarray(image.imread(BytesIO(content)))[:, :, :3].mean(axis=2)


def luminance(colour):
    values = colour[colour.index("(") + 1 : -1].replace("/", ",").split(",")
    parts = np.array([float(part) for part in values[:3]]) / 255.0
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_the_console_is_silent_and_no_request_leaves_the_page(open_page):
    driver = open_page()
    assert driver.get_log("browser") == []
    events = [
        json.loads(e["message"])["message"] for e in driver.get_log("performance")
    ]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    # The browser's own first page is none of ours.
    own = [url for url in asked if not url.startswith(("data:", "chrome", "about:"))]
    assert own == [driver.current_url]


@pytest.mark.parametrize("width", [1000, 390])
def test_every_chart_has_visible_marks(open_page, width):
    marks = open_page(width).execute_script(MARKS)
    assert len(marks) == 4
    assert min(marks) >= 4


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_is_legible(open_page, dark):
    background, colours = open_page(dark=dark).execute_script(COLOURS)
    assert (luminance(background) < 0.1) == dark
    for colour in colours:
        light, dim = sorted([luminance(background), luminance(colour)], reverse=True)
        # What accessibility guidelines ask of small text.
        assert (light + 0.05) / (dim + 0.05) >= 4.5, colour


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_does_not_scroll_sideways(open_page, width):
    driver = open_page(width)
    page = "return document.documentElement.scrollWidth"
    assert driver.execute_script(page) == width
    beyond = """return [...document.querySelectorAll('.isoproj-report *')].filter(e =>
      !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1
    ).map(e => e.outerHTML.slice(0, 80));"""
    assert driver.execute_script(beyond) == []


@pytest.mark.parametrize("dark", [False, True])
def test_without_scripts_the_page_is_the_same(open_page, dark):
    with_scripts = picture_of(open_page(dark=dark))
    without = picture_of(open_page(dark=dark, scripts=False))
    assert with_scripts.std() > 0.05
    np.testing.assert_array_equal(with_scripts, without)


def test_texts_of_users_run_nothing(open_page):
    driver = open_page()
    words = driver.execute_script("return document.body.innerText")
    assert f"{NASTY}.npy" in words
    assert driver.execute_script("return document.scripts.length") == 0


def test_a_print_has_dark_text_on_white(open_page):
    driver = open_page(dark=True)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    background, colours = driver.execute_script(COLOURS)
    assert luminance(background) == 1.0
    assert all(luminance(colour) < 0.3 for colour in colours)
    printed = driver.execute_cdp_cmd("Page.printToPDF", {})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


HOSTILE = """<style>.host.host :is(div, span, p, h1, h2, section, header, figure, table,
tr, th, td, summary, details, strong) { border: 3px solid red; color: red; float: left;
font-size: 30px; margin: 9px; text-align: center; }</style>"""


def host_of(card, folder, style, theme):
    path = folder / f"{len(style)}{theme}.html"
    body = f'<body data-jp-theme-light="{theme}"><div class="host">{card}</div></body>'
    path.write_text(f"<!doctype html><meta charset='utf-8'>{style}{body}")
    return path.as_uri()


@pytest.mark.parametrize("theme", ["true", "false"])
def test_a_notebook_decides_the_colours_of_a_card_and_nothing_else(
    open_page, tmp_path, theme
):
    model = NearIsometricProjection(3, random_state=0).fit(load_digits().data[:60])
    card = model._repr_html_()
    plain, hostile = (
        open_page(dark=theme == "true", url=host_of(card, tmp_path, style, theme))
        for style in ("", HOSTILE)
    )
    background, _ = hostile.execute_script(COLOURS)
    assert (luminance(background) < 0.1) == (theme == "false")
    np.testing.assert_array_equal(picture_of(plain), picture_of(hostile))
