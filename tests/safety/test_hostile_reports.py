"""Reports and exports of the hostile dagdir: no element, link, cell or formula but ours."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import metlmon as library
from tests.safety.corpus import fields_in, forbidden
from tests.safety.hostile_dagdir import Dagdir
from tests.support.command_server import Ran

# --- HTML -------------------------------------------------------------------------------------

ELEMENTS = re.compile(
    "html|head|meta|title|style|body|main|header|h1|h2|p|dl|dt|dd|div|section|table|caption|thead"
    "|tbody|tfoot|tr|th|td|span|sup|a|b|ul|ol|li|footer|figure|figcaption|svg|desc|defs|pattern"
    "|rect|line|path|text|g|circle"
)
ATTRIBUTES = re.compile(
    "lang|charset|http-equiv|content|name|class|id|href|scope|colspan|rowspan|role|viewbox|width"
    "|height|aria-labelledby|x|y|x1|x2|y1|y2|cx|cy|r|d|fill|stroke|patternunits|text-anchor"
    "|transform"
)
VALUE = re.compile(r"[-\w .:;,/'=()#%]*")
"""What the values of our attributes are made of."""


class Page(HTMLParser):
    """What a page consists of."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.strange: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not ELEMENTS.fullmatch(tag):
            self.strange.append(tag)
        for name, value in attrs:
            if not ATTRIBUTES.fullmatch(name) or value is None or not VALUE.fullmatch(value):
                self.strange.append(f"{tag} {name}={value}")
            if name == "href" and not re.fullmatch(r"#note-\d+", value or ""):
                self.strange.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.strange.append(f"<!--{data}")

    def handle_pi(self, data: str) -> None:
        self.strange.append(f"<?{data}")

    def unknown_decl(self, data: str) -> None:
        self.strange.append(f"<![{data}")


def test_no_element_of_a_page_is_somebody_elses(
    hostile: Dagdir, metlmon: Callable[..., Ran]
) -> None:
    page = Page()
    page.feed(metlmon("report", "--html", "-", hostile.path).stdout.decode("utf-8"))
    page.close()
    assert page.strange == []
    result = "".join(page.texts)
    assert "<script>alert(1)</script>" in result, "as text it is there"
    assert {"sitet", "gput", "runt", "label", "holdt"} <= fields_in(result)


# --- Markdown ---------------------------------------------------------------------------------

OURS = re.compile(
    "inline|text|softbreak|code_inline"
    "|(strong|heading|paragraph|table|thead|tbody|tr|th|td|bullet_list|list_item)_(open|close)"
)


def tokens(found: list[Token]) -> Iterator[Token]:
    for token in found:
        yield token
        yield from tokens(token.children or [])


def test_nothing_in_markdown_is_more_than_text(
    hostile: Dagdir, metlmon: Callable[..., Ran]
) -> None:
    source = metlmon("report", "--md", "-", hostile.path).stdout.decode("utf-8")
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(source)
    assert all(OURS.fullmatch(token.type) for token in tokens(parsed))
    cells = columns = 0
    for token in parsed:
        if token.type == "table_open":
            columns = 0
        elif token.type == "tr_open":
            cells = 0
        elif token.type in ("td_open", "th_open"):
            cells += 1
        elif token.type == "tr_close":
            columns = columns or cells
            assert cells == columns, "a row has as many cells as its table has columns"
    # GitHub makes links of these by themselves, unless a backslash stands in them.
    assert not re.search(r"(?:https?|ftp)://|\bwww\.", source, re.IGNORECASE)
    assert "evil.example" in source


# --- exports ----------------------------------------------------------------------------------

FRAMES = ("runs", "epochs", "jobs", "executions", "transfers", "events")

A_FORMULA = re.compile(r"(?:^|;)[\s\"]*[=+\-@＝＋－＠]|^[\t\r\n]")
A_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)")

EXPORTED = {"runt", "uuidt", "sitet", "gput", "resourcet", "label", "holdt", "slott", "evictt"}


def test_no_cell_is_a_formula(hostile: Dagdir, metlmon: Callable[..., Ran], tmp_path: Path) -> None:
    ran = metlmon("export", "--out", "out", hostile.path)
    assert ran.returncode == 0, ran.stderr
    result = ""
    for name in FRAMES:
        with open(tmp_path / "out" / f"{name}.csv", encoding="utf-8", newline="") as file:
            text = file.read()
        assert forbidden(text) == []
        result += text
        for row in csv.reader(text.splitlines()):
            for cell in row:
                assert A_NUMBER.fullmatch(cell) or not A_FORMULA.search(cell), cell
    assert fields_in(result) >= EXPORTED
    assert "'=1+1holdt00zq" in result


def test_json_and_frames_have_texts_as_they_are(
    hostile: Dagdir, metlmon: Callable[..., Ran], tmp_path: Path
) -> None:
    assert metlmon("export", "--to", "json", "--out", "out", hostile.path).returncode == 0
    result = ""
    for name in FRAMES:
        data = (tmp_path / "out" / f"{name}.json").read_bytes()
        assert data.isascii()
        output = "\n".join(
            value
            for record in json.loads(data)
            for value in record.values()
            if isinstance(value, str)
        )
        assert forbidden(output) == []
        result += output
    assert fields_in(result) >= EXPORTED
    assert "\n=1+1holdt00zq" in result
    reasons = library.load(hostile.path).executions["reason"].dropna()
    assert any(reason.startswith("=1+1holdt00zq") for reason in reasons)


def test_parquet_has_no_raw_text(
    small: Dagdir, metlmon: Callable[..., Ran], tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    assert metlmon("export", "--to", "parquet", "--out", "out", small.path).returncode == 0
    result = ""
    for name in FRAMES:
        frame = pandas.read_parquet(tmp_path / "out" / f"{name}.parquet")
        for column in frame:
            result += "\n".join(str(value) for value in frame[column].dropna())
    assert forbidden(result) == []
    assert fields_in(result) >= EXPORTED
