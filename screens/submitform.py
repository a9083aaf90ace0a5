"""What is typed into the submit pane, and what it asks for. Pure functions and plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from metlmon.authoring.records import Complaint, Policy, Request, Template
from metlmon.authoring.typed import megabytes, seeds_in, sites_in
from metlmon.frozen import frozen

POLICIES: Final[Mapping[str, str]] = {
    Policy.ANY.value: "every epoch at any of the sites",
    Policy.PERMUTE.value: "each site once before one repeats",
    Policy.PIN.value: "a run stays at one site",
}
"""Policies with their meaning in one line."""


@frozen
class Field:
    """One field. ``name`` is that of a :class:`Complaint`. ``options``: what it may be, or
    may also be; ``closed``: nothing else."""

    name: str
    label: str
    help: str
    unit: str = ""
    options: tuple[str, ...] = ()
    closed: bool = False


FIELDS: Final = (
    Field(
        "template",
        "Template",
        "The job that trains one epoch. Left and right go through those that come along, enter "
        "lists them; or type the path of a file of your own.",
    ),
    Field(
        "directory",
        "Directory",
        "A new directory for the DAG, its logs and what the jobs send back. Files that lie there "
        "already are never replaced without being named and asked about.",
    ),
    Field("name", "DAG name", "The DAG file gets this name.", ".dag"),
    Field("runs", "Runs", "How many models are trained, each on its own.", "runs"),
    Field(
        "epochs",
        "Epochs",
        "How many epochs each run is trained for; every epoch is a job of its own.",
        "per run",
    ),
    Field(
        "seeds",
        "Seeds",
        "One for each run: 7, 11, 13 or 1-4. Empty: 1, 2, 3 and so on.",
    ),
    Field(
        "sites",
        "Sites",
        "Where jobs may run, as GLIDEIN_ResourceName, with commas between. enter lists those that "
        "the collector knows now. Empty: anywhere.",
    ),
    Field(
        "policy",
        "Policy",
        "Which epoch may run at which site. any: every epoch at any of them; permute: each site "
        "once before one repeats, in an order of each run's own; pin: a run stays at one site.",
        options=tuple(POLICIES),
        closed=True,
    ),
    Field("gpus", "GPUs", "How many GPUs each job asks for; 0 is none.", "per job"),
    Field(
        "gpu_memory_mb",
        "GPU memory",
        "The least memory that each GPU must have: 40000, or 40 GB. Empty: any.",
        "MB",
    ),
    Field("memory_mb", "Memory", "What each job asks for: 4096, or 4 GB.", "MB"),
    Field("retries", "Retries", "How often DAGMan tries an epoch again that failed.", "times"),
)
"""What every template has, in the order of the form."""

LABELS: Final = {each.name: each.label for each in FIELDS}


def fields_of(template: Template | None, names: Sequence[str]) -> tuple[Field, ...]:
    """All fields for a template: those of every one, then its own parameters. ``names`` are
    the templates that come along."""
    first, *rest = FIELDS
    chosen = Field(first.name, first.label, first.help, options=tuple(names))
    own = [] if template is None else [
        Field(
            f"values.{each.name}",
            each.name,
            each.help or "A parameter of the template.",
            "needed" if each.required else "",
        )
        for each in template.parameters
    ]  # fmt: skip
    return (chosen, *rest, *own)


@frozen
class Draft:
    """The form as it is typed: texts by the names of their fields."""

    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, request: Request) -> Draft:
        """The form that asks for this request."""
        own = {f"values.{name}": value for name, value in request.values.items()}
        memory = request.gpu_memory_mb
        return cls(
            {
                "template": request.template,
                "directory": str(request.directory),
                "name": request.name,
                "runs": str(request.runs),
                "epochs": str(request.epochs),
                "seeds": ", ".join(map(str, request.seeds)),
                "sites": ", ".join(request.sites),
                "policy": request.policy.value,
                "gpus": str(request.gpus),
                "gpu_memory_mb": "" if memory is None else str(memory),
                "memory_mb": str(request.memory_mb),
                "retries": str(request.retries),
                **own,
            }
        )

    def text(self, name: str, template: Template | None = None) -> str:
        """What stands in a field; a template's parameter has its default at first."""
        if name in self.texts:
            return self.texts[name]
        own = template.parameters if template is not None else ()
        return next((each.default for each in own if f"values.{each.name}" == name), "")

    def with_text(self, name: str, text: str) -> Draft:
        """The same form with another text in one field."""
        return Draft({**self.texts, name: text})


def new_directory(where: Path) -> Path:
    """A name below ``where`` that nothing has yet: ``ensemble``, ``ensemble-2``…"""
    taken = (where / (f"ensemble-{n}" if n > 1 else "ensemble") for n in range(1, 1000))
    return next((each for each in taken if not each.exists()), where / "ensemble")


def asked(draft: Draft, template: Template | None) -> tuple[Request, tuple[Complaint, ...]]:
    """The request that a form asks for, and what cannot be read of it. A field that cannot
    be read has its default in the request."""
    said: list[Complaint] = []
    usual = Request("", Path())

    def whole(name: str, default: int) -> int:
        try:
            return int(draft.text(name).strip())
        except ValueError:
            said.append(Complaint(name, "a whole number is needed, such as " + str(default)))
            return default

    def memory(name: str, default: int | None) -> int | None:
        text = draft.text(name).strip()
        if not text and name == "gpu_memory_mb":
            return None
        found = megabytes(text)
        if found is None:
            said.append(Complaint(name, "a size in MB is needed, such as 4096 or 4 GB"))
        return default if found is None else found

    def seeds() -> tuple[int, ...]:
        try:
            return seeds_in(draft.text("seeds"))
        except ValueError as error:
            said.append(Complaint("seeds", str(error)))
            return ()

    def directory() -> Path:
        text = draft.text("directory").strip()
        try:
            if not text:
                raise ValueError("a directory is needed: a name that nothing has yet")
            return Path(text).expanduser().absolute()
        except (ValueError, RuntimeError, OSError) as error:
            said.append(Complaint("directory", str(error)))
            return Path()

    own = template.parameters if template is not None else ()
    values = {each.name: draft.text(f"values.{each.name}", template) for each in own}
    request = Request(
        template=draft.text("template").strip(),
        directory=directory(),
        name=draft.text("name").strip(),
        runs=whole("runs", usual.runs),
        epochs=whole("epochs", usual.epochs),
        seeds=seeds(),
        sites=sites_in(draft.text("sites")),
        policy=Policy(draft.text("policy")) if draft.text("policy") in POLICIES else usual.policy,
        gpus=whole("gpus", usual.gpus),
        gpu_memory_mb=memory("gpu_memory_mb", None),
        memory_mb=memory("memory_mb", usual.memory_mb) or 0,
        retries=whole("retries", usual.retries),
        # What is as the template has it is left to the template.
        values={each.name: values[each.name] for each in own if values[each.name] != each.default},
    )
    return request, tuple(said)
