"""The HTML of a report: one self-contained file in which no foreign text is markup; its rendering,
where a browser is installed; and its Markdown."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from metlmon.report.document import Report, ReportTable, Totals
from metlmon.report.to_html import render_html
from metlmon.report.to_markdown import render_markdown
from metlmon.snapshot.records import HourUnit
from tests.support.sample_reports import EMPTY, hostile, report_of, report_of_log

VOID = {"meta", "br", "img", "link", "input", "hr"}

NAMES = ["metl-aws", "trainer", "holds", "rescue", "first-round"]


class Tags(HTMLParser):
    """All tags with their attributes; fails if one is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@cache
def page_of(name: str) -> str:
    return render_html(report_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_page_is_self_contained_and_references_resolve(name: str) -> None:
    html = page_of(name)
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form"}
    for _, attributes in tags.seen:
        assert not any(key.startswith("on") for key in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert re.findall(r"url\((?!#)", html) == []
    # Every reference leads somewhere.
    ids = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {a["href"] for _, a in tags.seen if a.get("href")}
    wanted |= {f"#{key}" for key in re.findall(r"url\(#([^)]+)\)", html)}
    wanted |= {f"#{key}" for _, a in tags.seen for key in (a.get("aria-labelledby") or "").split()}
    assert wanted <= {f"#{key}" for key in ids}
    # Every note is referenced, and every table and figure numbered once.
    notes = {key for key in ids if key and key.startswith("note-")}
    assert notes == {key.removeprefix("#") for key in wanted if key.startswith("#note-")}


@pytest.mark.parametrize("name", NAMES)
def test_drawings_are_well_formed_and_described(name: str) -> None:
    found = re.findall(r"<svg.*?</svg>", page_of(name), re.DOTALL)
    assert found
    for svg in found:
        root = ET.fromstring(svg)
        assert root.get("role") == "img"
        assert [child.tag for child in root][:2] == ["title", "desc"]
        assert all((child.text or "").strip() for child in list(root)[:2])
        assert "nan" not in svg.lower().replace("nanny", "")
        assert "inf" not in re.sub(r">[^<]*<", "><", svg)
        assert re.findall(r'(?:width|height)="-', svg) == []


def test_ensemble_of_one_day_has_no_bars_by_day() -> None:
    html = page_of("trainer")
    assert re.findall(r'<figure id="figure-([a-z_]+)"', html) == ["epochs", "times", "causes"]


# --- in a browser -----------------------------------------------------------------------------


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")

in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")

PROBE = """
<script>
window.bad = [];
addEventListener('securitypolicyviolation', e => window.bad.push(e.blockedURI));
addEventListener('error', e => window.bad.push(String(e.message)));
addEventListener('load', () => {
  const root = document.documentElement;
  const svgs = [...document.querySelectorAll('svg')];
  const outside = svgs.flatMap(svg => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text,rect,path,line,circle')]
      .filter(e => !e.closest('defs'))
      .filter(e => { const r = e.getBoundingClientRect();
        return r.left < box.left - 1 || r.right > box.right + 1
          || r.top < box.top - 1 || r.bottom > box.bottom + 1; })
      .map(e => e.tagName + ' ' + e.textContent);
  });
  const ink = getComputedStyle(root);
  const wide = [...document.querySelectorAll('main > section > *, header *')]
    .filter(e => !e.closest('.table') && !e.closest('figure') && !e.closest('sup'))
    .filter(e => e.getBoundingClientRect().right > root.clientWidth + 1)
    .map(e => e.tagName + '.' + e.className);
  // The lines of text in Totals, tables and drawings: none may reach into another's.
  const cells = '.facts dt, .facts dd, th, td, caption, svg text';
  const texts = [...document.querySelectorAll(cells)].map(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return [cell, [...range.getClientRects()]];
  });
  const crossing = texts.flatMap(([cell, own], n) => texts.slice(n + 1)
    .filter(([, others]) => own.some(a => others.some(b => a.left < b.right - 1
      && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)))
    .map(([other]) => cell.textContent + ' | ' + other.textContent));
  const output = document.createElement('pre');
  output.id = 'output';
  output.textContent = JSON.stringify({
    sizes: svgs.map(s => [s.getBoundingClientRect().width, s.getBoundingClientRect().height]),
    outside, wide, crossing, overflow: root.scrollWidth - root.clientWidth,
    fetched: performance.getEntriesByType('resource').map(e => e.name),
    bad: window.bad, ground: ink.backgroundColor, ink: ink.color,
  });
  document.body.append(output);
});
</script>
"""


def browse(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the browser on a page, without a window."""
    assert BROWSER is not None
    return subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu"),
            *(f"--user-data-dir={path.parent / 'profile'}", *options, path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=90,
    )


def probed(report: Report, path: Path, width: int, *options: str) -> dict[str, object]:
    """The browser's view of the page. The probe is in the page, whose policy is loosened for inline
    scripts only."""
    html = render_html(report)
    policy = "default-src 'none';"
    assert policy in html
    html = html.replace(policy, f"{policy} script-src 'unsafe-inline';")
    html = html.replace("<style>", PROBE + "<style>", 1)
    path.write_text(html, encoding="utf-8")
    output_options = ("--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom")
    window = ("--hide-scrollbars", f"--window-size={width},1000")
    done = browse(path, *output_options, *window, *options)
    assert "CONSOLE" not in done.stderr
    output = re.search(r'<pre id="output">(.*?)</pre>', done.stdout, re.DOTALL)
    assert output is not None, done.stderr[-2000:]
    found: dict[str, object] = json.loads(output[1].replace("&lt;", "<").replace("&amp;", "&"))
    return found


@in_a_browser
@pytest.mark.parametrize(
    ("name", "width"), [("first-round", 1200), ("first-round", 600), ("metl-aws", 1200)]
)
def test_rendering_in_a_browser(tmp_path: Path, name: str, width: int) -> None:
    report = report_of(name)
    result = probed(report, tmp_path / "report.html", width)
    assert result["bad"] == []
    assert result["fetched"] == []
    assert result["overflow"] == 0
    assert result["wide"] == []
    assert result["outside"] == []
    assert result["crossing"] == []
    sizes = result["sizes"]
    assert isinstance(sizes, list)
    assert len(sizes) == 6
    assert all(w > 300 and h > 60 for w, h in sizes)
    assert result["ground"] == "rgb(255, 255, 255)"


@in_a_browser
@pytest.mark.parametrize("width", [1200, 900, 600, 320])
def test_long_remarks_stay_in_their_column(tmp_path: Path, width: int) -> None:
    report = report_of("first-round")
    (totals,) = (block for block in report.blocks() if isinstance(block, Totals))
    remark = "at least: 12,345 nodes are not in the logs"
    remarks = dict.fromkeys(totals.row, remark)
    sections = {**report.sections, "Totals": (replace(totals, comments=remarks),)}
    result = probed(replace(report, sections=sections), tmp_path / "report.html", width)
    assert (result["crossing"], result["overflow"]) == ([], 0)


@in_a_browser
def test_dark_colour_scheme(tmp_path: Path) -> None:
    result = probed(
        report_of("metl-aws"),
        tmp_path / "report.html",
        1200,
        "--blink-settings=preferredColorScheme=0",
    )
    assert (result["ground"], result["ink"]) == ("rgb(21, 23, 26)", "rgb(232, 230, 227)")


@in_a_browser
def test_hostile_text_is_inert_in_a_browser(tmp_path: Path) -> None:
    result = probed(hostile(), tmp_path / "report.html", 600)
    assert (result["bad"], result["fetched"], result["overflow"]) == ([], [], 0)
    assert result["outside"] == []


@in_a_browser
def test_printing(tmp_path: Path) -> None:
    """A few pages, with searchable text."""
    path = tmp_path / "report.html"
    path.write_text(page_of("metl-aws"), encoding="utf-8")
    pdf_file = tmp_path / "report.pdf"
    browse(path, "--no-pdf-header-footer", f"--print-to-pdf={pdf_file}").check_returncode()
    pdf = pdf_file.read_bytes()
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8


# --- Markdown: tables that a wiki draws, the same numbers as in HTML --------------------------


def tables(text: str) -> list[list[list[str]]]:
    """Every pipe table as rows of cells."""
    found: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            found[-1].append([cell.strip() for cell in cells])
        inside = line.startswith("|")
    return found


@pytest.mark.parametrize("name", ["metl-aws", "trainer", "first-round"])
def test_tables_are_whole_and_have_the_numbers_of_the_html(name: str) -> None:
    report = report_of(name)
    page, html = render_markdown(report), render_html(report)
    notes = set(re.findall(r"^\[\^(\d+)\]: ", page, re.MULTILINE))
    assert set(re.findall(r"\[\^(\d+)\](?!:)", page)) == notes, "each is referred to"
    found = tables(page)
    assert len(found) >= 7
    for table in found:
        assert len({len(row) for row in table}) == 1
        assert all(re.fullmatch(r"-+:?", cell) for cell in table[1])
    for block in report.blocks():
        if isinstance(block, ReportTable):
            for row, _ in block.lines():
                for column in block.columns:
                    if column.alignment == "right" and column.name in row:
                        shown = report.text(column, row)
                        assert shown in page
                        assert f">{shown}</td>" in html.replace("&lt;", "<")


@pytest.mark.parametrize(
    ("table", "value", "shown"),
    [
        ("periods", "2025-11-03 to 2025-11-09", "3 Nov 2025 to 9 Nov 2025"),
        ("periods", "2025-11-03", "3 Nov 2025"),
        ("periods", "November 2025", "November 2025"),
        ("causes", "34/102", "34/102 JobOutOfResources"),
        ("causes", "1007/–", "1007/– StarterError"),
        ("causes", "9999/0", "9999/0"),
        ("causes", "return value 1", "return value 1"),
    ],
)
def test_periods_and_codes_are_readable(table: str, value: str, shown: str) -> None:
    report = report_of("metl-aws")
    tables = {block.key: block for block in report.blocks() if isinstance(block, ReportTable)}
    column = tables[table].columns[0]
    assert report.text(column, {column.name: value}) == shown


def test_sentences_keep_the_names_of_the_ensemble() -> None:
    report = replace(report_of("metl-aws"), item="shard", measure=HourUnit.CPU)
    report = replace(report, metadata=(("DAG", "an-epoch.dag"),))
    html = re.sub("<[^>]*>", "", render_html(report)).replace("\u2011", "-")
    for page in (render_markdown(report), html):
        for words in ("Shards completed", "shards per day", "CPU-hours of badput by", "A shard is"):
            assert words in page, words
        assert re.findall("GPU-hours|[Ee]pochs", page) == []
        assert "an-epoch.dag" in page.replace("\\", "")


def test_report_without_events() -> None:
    for render in (render_markdown, render_html):
        text = render(report_of_log(EMPTY))
        assert "Nothing ran: the logs have no execution in this window." in text
        assert "<svg" not in text
