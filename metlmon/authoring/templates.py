"""Templates of a job that trains one epoch.

A template is a submit description with comment lines at its top that say what it is::

    # template: A small protein model
    # about: Trains on any machine that has Python.
    # parameter: learning_rate = 0.001 | step of the optimizer
    # allowed: learning_rate 0..1
    # parameter: data | a file of variants (required: it has no default)
    # ship: train.py executable
    # later: learning_rate
    # role: train

``{name}`` stands for a parameter, or for one of :data:`BUILT_IN`, and is filled in when the
DAG is written. A line that begins with ``?`` is left out when one of its placeholders is
empty or 0. ``{{name}}`` is ``{name}`` in the result; braces around anything but one word stay
as they are (ClassAd lists), and so do comments and all that begins with ``$(``, which is
HTCondor's. ``# allowed`` says what a parameter may be (:mod:`metlmon.authoring.constraints`): a
number of a range, or one of some words. ``# ship`` names files that go beside the DAG; they
lie beside the template. ``# later`` names parameters that came when runs were named already: at
their defaults they are no part of a run's uuid. ``# role`` says what its nodes do
(:class:`metlmon.authoring.graph.NodeRole`), training if it is not there. No such line is necessary:
any submit description is a template.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from metlmon.authoring.constraints import read_allowed
from metlmon.authoring.graph import NodeRole
from metlmon.authoring.request import Parameter, PlanError, Template

BUILT_IN: Final = (
    "name",
    "epochs",
    "gpus",
    "gpu_memory_mb",
    "memory_mb",
    "requirements",
    "require_gpus",
    "machines",
    "stage_first",
)
"""What every template may ask for without saying so: the DAG's name, the epochs of a run,
what a job requests, the expressions that keep it at its site and on its GPU model, how many
machines train an epoch together, and the epochs of the stages before (0 in the first one)."""

FIRST: Final = ("trainer", "metl")
"""The order in which those that come along are offered: the one that needs nothing first."""

LARGEST: Final = 16 << 20
"""Bytes of a template or of a file that goes with it: a program, not a data set; data is named
in transfer_input_files and stays where it is."""

_HOME: Final = Path(__file__).resolve().parents[1] / "trainer"
_BUNDLED: Final = _HOME / "templates"

_HEADER: Final = re.compile(r"#\s*(template|about|parameter|allowed|ship|later|role)\s*:(.*)")
_PARAMETER: Final = re.compile(r"([A-Za-z_]\w*)\s*(?:=(.*))?", re.DOTALL)
_SHIP: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,99})(\s+executable)?")
_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}")


def templates() -> tuple[Template, ...]:
    """The templates that come along. Raises PlanError when one of them is damaged."""
    return tuple(_bundled(name) for name in bundled_names())


def bundled_names() -> list[str]:
    """Names of the templates that come along, in the order in which they are offered."""
    names = [path.stem for path in _BUNDLED.glob("*.sub")]
    names.sort(key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    return names


def _bundled(name: str) -> Template:
    path = _BUNDLED / f"{name}.sub"
    return _read(path, name, None, (_BUNDLED, _HOME))


def load_template(name_or_path: str) -> Template:
    """The template that comes along under this name, or the one in this file.

    Raises PlanError with file, line and remedy.
    """
    known = sorted(path.stem for path in _BUNDLED.glob("*.sub"))
    if name_or_path in known:
        return _bundled(name_or_path)
    if not name_or_path.strip():
        raise PlanError(f"no template is chosen; there are {_listed(known)}")
    try:
        path = Path(name_or_path).expanduser()
        there = path.is_file()
    except (OSError, ValueError, RuntimeError):
        there = False
    if not there:
        raise PlanError(
            f"no template is called {name_or_path!r}, and there is no such file; choose one of "
            f"{_listed(known)}, or give the path of a submit description"
        )
    if not path.name.isprintable():
        # It stands in comments of what is written, and is the name of a copy.
        text = "a template's file name holds a line end or another character that cannot be shown"
        raise PlanError(f"{name_or_path!r}: {text}; rename the file")
    return _read(path, path.stem, path, (path.parent,))


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none that come along"


def _read(path: Path, name: str, own: Path | None, beside: tuple[Path, ...]) -> Template:
    try:
        text = _bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise PlanError(f"{path}:{line}: not UTF-8 text; save the template as UTF-8") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise PlanError(f"{path}:{line}: a NUL byte; a template is plain text")
    return parse_template(text, name, own, path, beside)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise PlanError(
            f"{path}: larger than {LARGEST >> 20} MB; name data in transfer_input_files instead"
        )
    return data


def parse_template(
    text: str, name: str, own: Path | None, source: Path, beside: tuple[Path, ...]
) -> Template:
    """The template in ``text``. ``own``: the user's file, None for one that comes along;
    ``source`` is named in sentences, ``beside`` are the folders of what it ships."""
    header = _Header(source, name, beside)
    kept = []
    at_top = True
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        bare = line.strip()
        at_top = at_top and (not bare or bare.startswith("#"))
        match = _HEADER.fullmatch(bare) if at_top else None
        if match is None:
            kept.append(line)
        else:
            header.take(number, match[1], match[2].strip())
    return Template(
        name=name,
        title=header.title,
        about=header.about,
        text="\n".join(kept).strip("\n") + "\n",
        parameters=tuple(header.parameters.values()),
        ships=tuple(header.ships),
        path=own,
        role=header.role,
    )


class _Header:
    """What the comment lines at the top of a template say."""

    def __init__(self, source: Path, name: str, beside: tuple[Path, ...]) -> None:
        self.title = name
        self.about = ""
        self.parameters: dict[str, Parameter] = {}
        self.ships: list[tuple[str, bytes, bool]] = []
        self.role = NodeRole.TRAIN
        self._source = source
        self._beside = beside

    def take(self, line: int, word: str, rest: str) -> None:
        where = f"{self._source}:{line}"
        if word == "template":
            self.title = rest or self.title
        elif word == "about":
            self.about = f"{self.about} {rest}".strip()
        elif word == "parameter":
            self._parameter(where, rest)
        elif word == "allowed":
            self._allowed(where, rest)
        elif word == "later":
            self._later(where, rest.split())
        elif word == "role":
            self._role(where, rest)
        else:
            self._ship(where, rest)

    def _parameter(self, where: str, rest: str) -> None:
        declared, _, explained = f"{rest} ".partition(" | ")
        match = _PARAMETER.fullmatch(declared.strip())
        if match is None:
            raise PlanError(f"{where}: write '# parameter: name = default | what it is'")
        name = match[1]
        if name in BUILT_IN or name in self.parameters:
            what = "every template has" if name in BUILT_IN else "is declared above"
            raise PlanError(f"{where}: {{{name}}} {what} already; choose another name")
        default = (match[2] or "").strip()
        required = match[2] is None
        self.parameters[name] = Parameter(name, default, explained.strip(), required)

    def _allowed(self, where: str, rest: str) -> None:
        name, _, said = rest.partition(" ")
        allowed = read_allowed(said)
        if name not in self.parameters:
            raise PlanError(f"{where}: declare the parameter {name!r} before what it may be")
        if allowed is None:
            raise PlanError(f"{where}: write '# allowed: {name} 0..1', or words to choose from")
        self.parameters[name] = replace(self.parameters[name], allowed=allowed)

    def _later(self, where: str, names: list[str]) -> None:
        for name in names:
            if name not in self.parameters:
                raise PlanError(
                    f"{where}: declare the parameter {name!r} before saying when it came"
                )
            self.parameters[name] = replace(self.parameters[name], later=True)

    def _role(self, where: str, said: str) -> None:
        known = {role.value: role for role in NodeRole}
        if said not in known:
            raise PlanError(f"{where}: no node has the role {said!r}; it is {' or '.join(known)}")
        self.role = known[said]

    def _ship(self, where: str, rest: str) -> None:
        match = _SHIP.fullmatch(rest)
        if match is None:
            raise PlanError(f"{where}: write '# ship: file.py' or '# ship: file.py executable'")
        name = match[1]
        if name in (ship[0] for ship in self.ships):
            raise PlanError(f"{where}: {name} is shipped twice; take one of the lines out")
        for folder in self._beside:
            if (folder / name).is_file():
                if not Path(os.path.realpath(folder / name)).is_relative_to(
                    os.path.realpath(folder)
                ):
                    raise PlanError(f"{where}: {name} is a link to a file elsewhere; copy it there")
                self.ships.append((name, _bytes(folder / name), match[2] is not None))
                return
        raise PlanError(f"{where}: {name} is not beside the template; put it there")


# --- filling in -----------------------------------------------------------------------------


def used_placeholders(template: Template) -> frozenset[str]:
    """Names of the placeholders that the text asks for."""
    lines = template.text.split("\n")
    found = (_PLACEHOLDER.finditer(line) for line in lines if not _is_comment(line))
    return frozenset(match[2] for matches in found for match in matches if match[2])


def may_be_dropped(template: Template) -> frozenset[str]:
    """Names of the placeholders without whose values a line is left out."""
    lines = [line for line in template.text.split("\n") if line.lstrip().startswith("?")]
    found = (_PLACEHOLDER.finditer(line) for line in lines)
    return frozenset(match[2] for matches in found for match in matches if match[2])


def fill(template: Template, values: Mapping[str, str]) -> str:
    """The text with ``values`` in it. Raises PlanError for a placeholder that has none."""
    out = []
    for line in template.text.split("\n"):
        if _is_comment(line):
            out.append(line)
            continue
        optional = line.lstrip().startswith("?")
        names = [match[2] for match in _PLACEHOLDER.finditer(line) if match[2]]
        for name in names:
            if name not in values:
                raise _unknown(template, name, values)
        if optional and any(values[name].strip() in ("", "0") for name in names):
            continue
        bare = line.replace("?", "", 1) if optional else line
        out.append(_PLACEHOLDER.sub(lambda m: f"{{{m[1]}}}" if m[1] else values[m[2]], bare))
    return "\n".join(out)


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _unknown(template: Template, name: str, values: Mapping[str, str]) -> PlanError:
    source = template.path or _BUNDLED / f"{template.name}.sub"
    known = ", ".join(sorted(values))
    return PlanError(
        f"{source}{_line_of(source, name)}: nothing is called {{{name}}}; there are {known}; "
        f"declare it with '# parameter: {name} = …', or write {{{{{name}}}}} to mean the braces"
    )


def _line_of(source: Path, name: str) -> str:
    """``:7``, where the file says ``{name}``: numbers in the text itself lack the header."""
    try:
        lines = source.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return ""
    for number, line in enumerate(lines, start=1):
        if not _is_comment(line) and any(m[2] == name for m in _PLACEHOLDER.finditer(line)):
            return f":{number}"
    return ""
