"""Reports and exports of the hostile dagdir: no foreign element, link or formula, no secret."""

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
from tests.generated import sweeps
from tests.hostile.corpus import A_KEY, fields_in, forbidden
from tests.hostile.dagdir import Dagdir
from tests.support.command_server import Ran
from tests.support.faulty_tracker import canned_tracker

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
    """The contents of a page."""

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


def test_page_has_no_foreign_element(hostile: Dagdir, metlmon: Callable[..., Ran]) -> None:
    page = Page()
    page.feed(metlmon("report", "--html", "-", hostile.path).stdout.decode("utf-8"))
    page.close()
    assert page.strange == []
    result = "".join(page.texts)
    assert "<script>alert(1)</script>" in result, "as text it is there"
    assert {"sitet", "gput", "runt", "label", "holdt"} <= fields_in(result)


OURS = re.compile(
    "inline|text|softbreak|code_inline"
    "|(strong|heading|paragraph|table|thead|tbody|tr|th|td|bullet_list|list_item)_(open|close)"
)


def tokens(found: list[Token]) -> Iterator[Token]:
    for token in found:
        yield token
        yield from tokens(token.children or [])


def test_markdown_has_only_text(hostile: Dagdir, metlmon: Callable[..., Ran]) -> None:
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
    # GitHub makes links of these, unless they contain a backslash.
    assert not re.search(r"(?:https?|ftp)://|\bwww\.", source, re.IGNORECASE)
    assert "evil.example" in source


FRAMES = ("runs", "epochs", "jobs", "executions", "transfers", "events")

A_FORMULA = re.compile(r"(?:^|;)[\s\"]*[=+\-@＝＋－＠]|^[\t\r\n]")
A_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)")

EXPORTED = {"runt", "uuidt", "sitet", "gput", "resourcet", "label", "holdt", "slott", "evictt"}


def exported(form: str, dagdir: Dagdir, metlmon: Callable[..., Ran], place: Path) -> Iterator[Path]:
    """The files of an export; their bytes have no secret."""
    out = place / form
    ran = metlmon("export", "--to", form, "--out", out, dagdir.path)
    assert ran.returncode == 0, ran.stderr
    for name in FRAMES:
        path = out / f"{name}.{form}"
        assert not A_KEY.search(path.read_bytes().decode("latin-1"))
        yield path


def test_no_cell_is_a_formula(hostile: Dagdir, metlmon: Callable[..., Ran], tmp_path: Path) -> None:
    result = ""
    for path in exported("csv", hostile, metlmon, tmp_path):
        text = path.read_bytes().decode()
        assert forbidden(text) == []
        result += text
        for row in csv.reader(text.splitlines()):
            for cell in row:
                assert A_NUMBER.fullmatch(cell) or not A_FORMULA.search(cell), cell
    assert fields_in(result) >= EXPORTED
    assert "password: (hidden)" in result


def test_json_is_ascii_and_its_texts_are_visible(
    hostile: Dagdir, metlmon: Callable[..., Ran], tmp_path: Path
) -> None:
    result = ""
    for path in exported("json", hostile, metlmon, tmp_path):
        data = path.read_bytes()
        assert data.isascii()
        records = json.loads(data)
        values = (value for record in records for value in record.values())
        result += (output := "\n".join(value for value in values if isinstance(value, str)))
        assert forbidden(output) == []
    assert fields_in(result) >= EXPORTED
    assert "\n=1+1holdt00zq" in result
    reasons = library.load(hostile.path).executions["reason"].dropna()
    assert any(reason.startswith("=1+1holdt00zq") for reason in reasons)


def test_tracking_server_receives_no_secret(hostile: Dagdir, metlmon: Callable[..., Ran]) -> None:
    with canned_tracker() as tracker:
        ran = metlmon("export", hostile.path, "--to", "mlflow", "--tracking-uri", tracker.url)
        sent = b"\n".join(call.path.encode() + call.body for call in tracker.calls)
    shown = (ran.stdout + ran.stderr).decode()
    assert "new runs" in shown
    assert b"metlmon.gpu_hours_badput" in sent
    assert forbidden(shown) == []
    assert not A_KEY.search(sent.decode("latin-1"))


@pytest.mark.parametrize("target", ["openmetrics", "optuna"])
def test_swept_secret_is_not_exported(
    target: str, tmp_path: Path, metlmon: Callable[..., Ran]
) -> None:
    """Each half of the runs has another one."""
    sweeps.write(tmp_path / "sweep", rates=("1e-4", "0.1"), widths=("64", "32"))
    keys = [f"ghp_{letter}q7Xz2LmP9vRk4TbN8sWd3HyJ5cFg6AeQ" for letter in "ab"]
    dag = (tmp_path / "sweep" / "sweep.dag").read_text()
    for number in range(4):
        key = keys[number % 2]
        more = f'api_token="{key}" note="password: {key}" plain="{key}"'
        dag = dag.replace(f'run="run{number:02}"', f'run="run{number:02}" {more}')
    (tmp_path / "sweep" / "sweep.dag").write_text(dag)
    shown = metlmon("export", tmp_path / "sweep", "--to", target, "--out", "-").stdout.decode()
    assert "run03" in shown
    assert not [key for key in keys if key in shown]
