"""Formats a report as one self-contained HTML file, with all text escaped.

It includes style and figures, for light, dark and narrow screens and for print. Its content
security policy forbids scripts and network access, in case any text is not escaped.
"""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import Final

from metlmon import __version__
from metlmon.report.document import (
    Block,
    Fact,
    Facts,
    Raw,
    Report,
    ReportColumn,
    ReportFigure,
    ReportRow,
    ReportTable,
    Section,
    ValueKind,
)
from metlmon.report.svg import render_svg
from metlmon.report.values import format_value, sanitize

SHORT: Final = 25
"""Maximum rows of a table that is not split between two pages."""

MAX_UNBROKEN_LENGTH: Final = 28
"""Maximum length of a name that is never wrapped."""

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

MARK: Final = '<meta name="generator" content="metlmon '
"""Identifies a file as a report, within its first lines."""


def render_html(report: Report) -> str:
    """Return the HTML file."""
    body = "".join(_Writer(report).sections())
    lead = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
        for name, value in report.metadata
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'{MARK}{__version__}">\n'
        f"<title>{_text(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{_text(report.title)}</h1>\n"
        f'<p class="headline">{_text(report.headline)}</p>\n<dl class="lead">{lead}</dl>\n'
        f"</header>\n{body}{_unknown(report)}{_notes(report)}"
        f"<footer>Made by metlmon {__version__} from the job event logs.</footer>\n"
        "</main>\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return escape(sanitize(text))


def _unknown(report: Report) -> str:
    if not report.limitations:
        return ""
    items = "".join(f"<li>{_text(sentence)}</li>" for sentence in report.limitations)
    return f"<section><h2>What is not known</h2>\n<ul>{items}</ul></section>\n"


def _notes(report: Report) -> str:
    items = "".join(
        f'<li id="note-{number}">{_text(note.text)}</li>'
        for number, note in enumerate(report.footnotes, start=1)
    )
    return f'<section class="notes"><h2>Definitions</h2>\n<ol>{items}</ol></section>\n'


class _Writer:
    """Writes the sections, counting tables and figures."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.tables = 0
        self.figures = 0

    def sections(self) -> list[str]:
        return [self._section(section) for section in self.report.sections]

    def _section(self, section: Section) -> str:
        blocks = "".join(self._block(block) for block in section.blocks)
        return f"<section><h2>{_text(section.heading)}</h2>\n{blocks}</section>\n"

    def _block(self, block: Block) -> str:
        if isinstance(block, ReportTable):
            return self._table(block)
        return self._facts(block) if isinstance(block, Facts) else self._figure(block)

    def _ref(self, key: str | None) -> str:
        number = self.report.footnote_number(key)
        return f'<sup><a href="#note-{number}">{number}</a></sup>' if number else ""

    def _value(self, kind: ValueKind, value: Raw) -> str:
        return escape(format_value(kind, value, self.report.hours_digits))

    # --- tables -------------------------------------------------------------------------

    def _caption(self, text: str) -> str:
        self.tables += 1
        return f"<caption><b>Table {self.tables}.</b> {_text(text)}.</caption>"

    def _table(self, table: ReportTable) -> str:
        if not table.rows:
            return f'<p class="empty">{_text(table.empty_text)}</p>\n'
        rows = "".join(self._row(table.columns, row) for row in table.rows)
        total = f"<tfoot>{self._row(table.columns, table.total)}</tfoot>" if table.total else ""
        remark = f'<p class="remark">{_text(table.comment)}</p>' if table.comment else ""
        key = escape(table.key, quote=True)
        short = " short" if len(table.rows) <= SHORT else ""
        return (
            f'<div class="table{short}"><table id="{key}">{self._caption(table.caption)}'
            f"{self._head(table.columns)}<tbody>{rows}</tbody>{total}</table></div>{remark}\n"
        )

    def _head(self, columns: tuple[ReportColumn, ...]) -> str:
        upper, lower = [], []
        for group, members in groupby(columns, key=lambda column: column.group):
            group_columns = list(members)
            if group is None:
                upper += [self._heading(column, ' rowspan="2"') for column in group_columns]
            else:
                upper.append(
                    f'<th colspan="{len(group_columns)}" scope="colgroup" class="group">'
                    f"<span>{_text(group)}</span></th>"
                )
                lower += [self._heading(column) for column in group_columns]
        if not lower:
            upper = [self._heading(column) for column in columns]
            return f"<thead><tr>{''.join(upper)}</tr></thead>"
        return f"<thead><tr>{''.join(upper)}</tr><tr>{''.join(lower)}</tr></thead>"

    def _heading(self, column: ReportColumn, span: str = "") -> str:
        # Neither is wrapped if there is room for both words.
        head = (
            _text(column.heading)
            .replace("GPU-", "GPU\u2011")
            .replace("in flight", "in&nbsp;flight")
        )
        head += self._ref(column.footnote)
        if column.kind is ValueKind.TEXT:
            return f'<th scope="col"{span}>{head}</th>'
        return f'<th scope="col"{span} class="n"><span>{head}</span></th>'

    def _row(self, columns: tuple[ReportColumn, ...], row: ReportRow) -> str:
        cells = []
        for index, (column, value) in enumerate(zip(columns, row.cells, strict=True)):
            kind = "" if column.kind is ValueKind.TEXT else ' class="n"'
            tag = 'th scope="row"' if index == 0 and value != "" else "td"
            text = self._value(column.kind, value)
            if not kind and len(text) <= MAX_UNBROKEN_LENGTH:
                kind = ' class="whole"'
            cells.append(f"<{tag}{kind}>{text}</{tag.split()[0]}>")
        part = ' class="part"' if row.is_detail else ""
        return f"<tr{part}>{''.join(cells)}</tr>"

    # --- facts and figures --------------------------------------------------------------

    def _facts(self, facts: Facts) -> str:
        return f'<dl class="facts">{"".join(map(self._fact, facts.facts))}</dl>\n'

    def _fact(self, fact: Fact) -> str:
        remark = f" <span>{_text(fact.comment)}</span>" if fact.comment else ""
        part = ' class="part"' if fact.heading.startswith("– ") else ""
        return (
            f"<div{part}><dt>{_text(fact.heading)}{self._ref(fact.footnote)}</dt>"
            f"<dd>{self._value(fact.kind, fact.value)}{remark}</dd></div>"
        )

    def _figure(self, figure: ReportFigure) -> str:
        self.figures += 1
        return (
            f'<figure id="figure-{escape(figure.key, quote=True)}"><div>{render_svg(figure)}</div>'
            f"<figcaption><b>Figure {self.figures}.</b> {_text(figure.caption)}"
            f"{self._ref(figure.footnote)}</figcaption></figure>\n"
        )


STYLE: Final = """
:root{--paper:#fff;--ink:#1b1b1b;--faint:#5f5f5f;--rule:#c9c9c9;--grid:#e6e6e6;--hatch:#fff;
--c0:#0072b2;--c1:#e69f00;--c2:#009e73;--c3:#d55e00;--c4:#56b4e9;--c5:#cc79a7;--c6:#b8a800;
--c7:#8c8c8c;--link:#00527f}
@media screen and (prefers-color-scheme:dark){:root{--paper:#15171a;--ink:#e8e6e3;--faint:#a3a19d;
--rule:#484b50;--grid:#2b2e33;--hatch:#15171a;--c0:#3f9bd6;--c1:#e69f00;--c2:#1fb88b;--c3:#e8743b;
--c4:#7cc6f2;--c5:#d993ba;--c6:#f0e442;--c7:#9a9a9a;--link:#8cc8f0}}
*{box-sizing:border-box}
html{background:var(--paper);color:var(--ink);-webkit-text-size-adjust:100%}
body{margin:0;font:16px/1.5 Charter,"Bitstream Charter","Source Serif 4","Iowan Old Style",Georgia,
"Liberation Serif",serif}
main{max-width:62rem;margin:0 auto;padding:2.5rem 1.5rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .6rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.6rem 0 .4rem;line-height:1.3}
p{margin:.6rem 0;max-width:46rem}
.headline{font-size:1.15rem}
a{color:var(--link);text-decoration:none}
a:hover{text-decoration:underline}
sup{font-size:.68em;line-height:0;margin-left:.12em;font-weight:400}
dl{margin:0}dd{margin:0}
.lead{font-size:.9rem;color:var(--faint);margin-top:1rem}
.lead div{display:flex;gap:.8rem}
.lead dt{flex:0 0 5.5rem}
.lead dd{min-width:0;overflow-wrap:anywhere}
table,.facts,svg,figcaption,.remark,.empty{font-family:"Source Sans 3","Helvetica Neue",Helvetica,
Arial,"Liberation Sans",sans-serif}
.table{overflow-x:auto;margin:1.2rem 0 .3rem}
table{border-collapse:collapse;font-size:.86rem;line-height:1.35;width:100%;
font-variant-numeric:tabular-nums lining-nums;border-bottom:1.5px solid var(--ink)}
caption{text-align:left;padding:0 0 .45rem;font-size:.92rem}
thead{border-top:1.5px solid var(--ink);border-bottom:1px solid var(--ink)}
th,td{padding:.28rem .55rem;text-align:left;vertical-align:baseline;font-weight:400}
th:first-child,td:first-child{padding-left:.1rem}th:last-child,td:last-child{padding-right:.1rem}
thead th{font-weight:600;vertical-align:bottom}
thead th[rowspan]{vertical-align:bottom}
thead .group{text-align:center;padding-bottom:0}
thead .group span{display:block;border-bottom:1px solid var(--rule);padding-bottom:.12rem}
tbody tr+tr{border-top:1px solid var(--grid)}
tbody tr.part{border-top:0;color:var(--faint)}
tbody tr.part td{padding-top:.05rem}
tbody tr.part td:nth-child(2){padding-left:1.4rem}
tbody th,tbody td:not(.n){overflow-wrap:anywhere;min-width:5.5rem}
tfoot{border-top:1px solid var(--ink)}
tfoot th,tfoot td{font-weight:600}
.n{text-align:right!important;white-space:nowrap}
thead .n{white-space:normal}
thead .n span{display:inline-block;max-width:6.4em}
tbody .whole{white-space:nowrap}
.remark,.empty{font-size:.86rem;color:var(--faint)}
.facts{columns:3 16rem;column-gap:2.4rem;font-size:.9rem;font-variant-numeric:tabular-nums
lining-nums;margin-top:.8rem}
.facts div{display:flex;justify-content:space-between;gap:1rem;padding:.26rem 0;
border-bottom:1px solid var(--grid);break-inside:avoid}
.facts dt{color:var(--faint)}
.facts dd{font-weight:600;text-align:right;white-space:nowrap}
.facts dd span{font-weight:400;color:var(--faint)}
.facts .part dt{padding-left:.8rem}
figure{margin:1.6rem 0 1.8rem;max-width:46rem;break-inside:avoid}
figure>div{overflow-x:auto}
svg{display:block;width:100%;min-width:34rem;height:auto;font-size:12px}
svg text{fill:var(--ink);font-variant-numeric:tabular-nums lining-nums}
svg .faint{fill:var(--faint)}svg .head{font-weight:600}
svg .grid{stroke:var(--grid);stroke-width:1}
svg .axis{stroke:var(--faint);stroke-width:1}
svg .hatch{stroke:var(--hatch);stroke-width:1;stroke-opacity:.55;fill:none}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round}
svg .edge{fill:none;stroke-width:1.2;stroke-linejoin:round}
svg .area{fill-opacity:.85}
svg .box{fill-opacity:.45;stroke:var(--ink);stroke-width:1}
svg .whisker{stroke:var(--ink);stroke-width:1}
svg .median{stroke:var(--ink);stroke-width:2.4}
svg .beyond{fill:none;stroke:var(--ink);stroke-width:1}
figcaption{font-size:.88rem;margin-top:.5rem}
.notes ol{font-size:.86rem;padding-left:1.7rem;line-height:1.45;max-width:52rem}
.notes li{margin:.3rem 0;padding-left:.2rem}
.notes li:target{background:color-mix(in srgb,var(--c1) 18%,transparent)}
ul{padding-left:1.3rem;font-size:.92rem;max-width:52rem}
footer{margin-top:3rem;padding-top:.6rem;border-top:1px solid var(--rule);font-size:.82rem;
color:var(--faint)}
li,footer{overflow-wrap:anywhere}
@media (max-width:44rem){main{padding:1.4rem 1rem 3rem}h1{font-size:1.5rem}
.lead div{display:block;margin-bottom:.2rem}.facts{columns:1}}
@page{margin:16mm 14mm}
@media print{html{font-size:11px}body{font-size:11px}main{max-width:none;padding:0}
h2{break-after:avoid;margin-top:1.6rem}
a{color:inherit}.table,figure>div{overflow:visible}table{font-size:.8rem}
th,td{padding:.2rem .35rem}tr{break-inside:avoid}thead{display:table-header-group}
tfoot{display:table-row-group}caption{break-after:avoid}svg{min-width:0;max-width:150mm}
.short{break-inside:avoid}
.facts{columns:3;column-gap:1.6rem}.notes li{break-inside:avoid}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""
