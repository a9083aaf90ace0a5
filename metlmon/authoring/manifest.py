"""Writes and reads the description beside a DAG, with digests of all files.

``<name>.toml`` is enough to write the same files again, together with copies of the templates that
are not bundled. Its last lines are digests; later they show which files were edited by hand.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from metlmon.authoring.request import Plan, PlannedFile, Request
from metlmon.authoring.templates import load_template
from metlmon.authoring.to_toml import format_request
from metlmon.live.regular_files import UnreadableFile, read_file

LARGEST: Final = 16 << 20
"""Maximum size of a description in bytes."""

_DIGEST_HEADING: Final = "# What was written, to tell later what was changed by hand:"
_DIGEST: Final = re.compile(r"# sha256 ([0-9a-f]{64})  (\S.*)")
_SETTINGS_STEM: Final = "metlmon"


def description_name(name: str) -> str:
    """Name of the description beside this DAG; never that of the settings."""
    return f"{name}-dag.toml" if name == _SETTINGS_STEM else f"{name}.toml"


def template_copy_name(template: Path) -> str:
    """Name of the copy of a template file."""
    return f"{template.stem}.template"


def sweep_copy_name(source: Path) -> str:
    """The name of a sweep file's copy beside the DAG made from it.

    It does not end in ``.dag``, which would be taken for another DAG.
    """
    return f"{source.stem}.sweep"


def source_copy_name(name: str) -> str:
    """The name beside the DAG of a file that a sweep file refers to, maybe by a path."""
    path = Path(name)
    return sweep_copy_name(path) if path.suffix == ".dag" else path.name


def description_files(request: Request, files: Sequence[PlannedFile]) -> tuple[PlannedFile, ...]:
    """The description and copies of the templates, to be written with ``files``."""
    copies, portable_request = _template_copies(request)
    text = format_request(portable_request) + "\n"
    digests = {file.name: digest(file.data) for file in (*files, *copies)}
    text += _digest_lines({**digests, description_name(request.name): digest(text.encode())})
    about = "what was asked for; metlmon new reads it"
    return (*copies, PlannedFile(description_name(request.name), text.encode(), False, about))


def _template_copies(request: Request) -> tuple[list[PlannedFile], Request]:
    """Copies of the user's template files, and the request that refers to the copies."""
    copies: list[PlannedFile] = []

    def copied_name(name: str) -> str:
        path = load_template(name).path
        if path is None:
            return name
        copy = template_copy_name(path)
        copies.append(PlannedFile(copy, path.read_bytes(), False, "the template, as it was"))
        return copy

    evaluation, gather, source = request.evaluation, request.gather, request.source
    portable_request = replace(
        request,
        template=copied_name(request.template),
        evaluation=evaluation and replace(evaluation, template=copied_name(evaluation.template)),
        gather=gather and copied_name(gather),
        source=source and Path(sweep_copy_name(source)),
        stages=tuple(
            replace(stage, template=stage.template and copied_name(stage.template))
            for stage in request.stages
        ),
    )
    return copies, portable_request


def digest(data: bytes) -> str:
    """SHA-256 of ``data`` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def recorded_digests(directory: Path, name: str) -> Mapping[str, str]:
    """Digests of the files written with this DAG, by file name.

    Empty without a description. The description's own digest covers the text before the digests.
    """
    return _read_digests(_content(directory / description_name(name)))


def content_digest(name: str, data: bytes) -> str:
    """As in :func:`recorded_digests`; of a description, without its digests."""
    return digest(data.partition(_DIGEST_HEADING.encode())[0] if name.endswith(".toml") else data)


def is_edited(description: Path) -> bool:
    """Whether a description beside its DAG differs from what was written."""
    data = _content(description)
    digests = _read_digests(data)
    return digests.get(description.name) != content_digest(description.name, data)


def with_own_text(plan: Plan, description: Path) -> Plan:
    """The plan with the text of ``description`` as the one beside the DAG.

    Keeps the user's comments: both describe the same request. Only the digests after the text
    change, and only if another file changes.
    """
    name = description_name(plan.request.name)
    data = _content(description)
    text, _, _ = data.partition(_DIGEST_HEADING.encode())
    planned = next(file.data for file in plan.files if file.name == name)
    digests = {**_read_digests(planned), name: digest(text)}
    changed = digests.items() ^ _read_digests(data).items()
    if any(file != name for file, _ in changed):
        text += b"" if text.endswith(b"\n") else b"\n"
        data = text + _digest_lines({**digests, name: digest(text)}).encode()
    files = (replace(file, data=data) if file.name == name else file for file in plan.files)
    return replace(plan, files=tuple(files))


def _digest_lines(digests: Mapping[str, str]) -> str:
    lines = [f"# sha256 {value}  {name}" for name, value in digests.items()]
    return "\n".join([_DIGEST_HEADING, *lines]) + "\n"


def _read_digests(data: bytes) -> dict[str, str]:
    lines = data.decode("utf-8", "replace").split("\n")
    return {match[2]: match[1] for match in map(_DIGEST.fullmatch, lines) if match is not None}


def _content(path: Path) -> bytes:
    """Content of a file; empty if it cannot be read."""
    try:
        return read_file(str(path), LARGEST)
    except (OSError, UnreadableFile):
        return b""
