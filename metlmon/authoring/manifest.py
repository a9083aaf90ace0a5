"""What a written directory holds of what was asked for: the description, and whose files it has.

Beside the DAG lies ``<name>.toml``, from which the same files can be written again, with copies of
templates that did not come along. Its last lines are digests of all that was written: they tell
later what was changed by hand.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from metlmon.authoring.request import Plan, PlannedFile, Request
from metlmon.authoring.sweeps import kept_sweep
from metlmon.authoring.templates import load_template
from metlmon.authoring.to_toml import toml_of
from metlmon.live.safe_glob import content_of
from metlmon.live.tail import NotRead

LARGEST: Final = 16 << 20
"""Bytes of a description that is looked into: as many as one may have."""

_HEAD: Final = "# What was written, to tell later what was changed by hand:"
_DIGEST: Final = re.compile(r"# sha256 ([0-9a-f]{64})  (\S.*)")
_SETTINGS: Final = "metlmon"


def kept_name(name: str) -> str:
    """The description that lies beside the DAG of this name: never ``metlmon.toml``, which holds
    settings."""
    return f"{name}-dag.toml" if name == _SETTINGS else f"{name}.toml"


def copy_name(template: Path) -> str:
    """What the copy of a template file is called."""
    return f"{template.stem}.template"


def kept(request: Request, files: Sequence[PlannedFile]) -> tuple[PlannedFile, ...]:
    """The description and the templates that go beside ``files``."""
    copies, lasting = _templates(request)
    text = toml_of(lasting) + "\n"
    sums = {file.name: digest(file.data) for file in (*files, *copies)}
    text += _tail({**sums, kept_name(request.name): digest(text.encode())})
    about = "what was asked for; metlmon new reads it"
    return (*copies, PlannedFile(kept_name(request.name), text.encode(), False, about))


def _templates(request: Request) -> tuple[list[PlannedFile], Request]:
    """Copies of the templates that are files of the user's, and the request that names those."""
    copies: dict[str, PlannedFile] = {}

    def kept_as(name: str) -> str:
        path = load_template(name).path
        if path is None:
            return name
        copy = copy_name(path)
        copies[copy] = PlannedFile(copy, path.read_bytes(), False, "the template, as it was")
        return copy

    lasting = replace(request, template=kept_as(request.template))
    if request.evaluation is not None:
        template = kept_as(request.evaluation.template)
        lasting = replace(lasting, evaluation=replace(request.evaluation, template=template))
    if request.gather is not None:
        lasting = replace(lasting, gather=kept_as(request.gather))
    if request.source is not None:
        lasting = replace(lasting, source=Path(kept_sweep(request.source)))
    stages = tuple(
        each if each.template is None else replace(each, template=kept_as(each.template))
        for each in request.stages
    )
    return list(copies.values()), replace(lasting, stages=stages)


def digest(data: bytes) -> str:
    """What tells one content from another."""
    return hashlib.sha256(data).hexdigest()


def recorded(directory: Path, name: str) -> Mapping[str, str]:
    """Digests by the names of the files that were written with the DAG of this name; empty when
    there is no description. That of the description is of what stands before the digests."""
    return _sums(_data(directory / kept_name(name)))


def content_digest(name: str, data: bytes) -> str:
    """The digest of a file as :func:`recorded` has it; of a description, of its first part."""
    return digest(data.partition(_HEAD.encode())[0] if name.endswith(".toml") else data)


def by_hand(description: Path) -> bool:
    """Whether a description that lies beside its DAG is not, or no more, as it was written."""
    data = _data(description)
    sums = _sums(data)
    return sums.get(description.name) != content_digest(description.name, data)


def in_own_words(plan: Plan, description: Path) -> Plan:
    """The plan, with the words of ``description``, which says the same, in that beside the DAG:
    whoever wrote comments there keeps them. Only the digests behind them change, and these
    only when another file does."""
    name = kept_name(plan.request.name)
    data = _data(description)
    said, _, _ = data.partition(_HEAD.encode())
    ours = next(file.data for file in plan.files if file.name == name)
    sums = {**_sums(ours), name: digest(said)}
    if _without(name, sums) != _without(name, _sums(data)):
        said += b"" if said.endswith(b"\n") else b"\n"
        data = said + _tail({**sums, name: digest(said)}).encode()
    files = (replace(each, data=data) if each.name == name else each for each in plan.files)
    return replace(plan, files=tuple(files))


def _without(name: str, sums: Mapping[str, str]) -> dict[str, str]:
    return {each: value for each, value in sums.items() if each != name}


def _tail(sums: Mapping[str, str]) -> str:
    return "\n".join([_HEAD, *(f"# sha256 {each}  {name}" for name, each in sums.items())]) + "\n"


def _sums(data: bytes) -> dict[str, str]:
    lines = data.decode("utf-8", "replace").split("\n")
    return {m[2]: m[1] for m in map(_DIGEST.fullmatch, lines) if m is not None}


def _data(path: Path) -> bytes:
    """What a file holds; nothing, where it cannot be read."""
    try:
        return content_of(str(path), LARGEST)
    except (OSError, NotRead):
        return b""
