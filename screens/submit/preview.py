"""Preview of the files to be written, as a lazy sequence of lines.

Lines are rendered when they become visible: the DAG of a large ensemble has a hundred thousand of
them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, groupby
from typing import overload

from rich.cells import cell_len, chop_cells

from metlmon.authoring.ascii_graph import draw_graph
from metlmon.authoring.request import EnsembleShape, Plan, PlannedFile, RunPlan
from metlmon.authoring.runs import epochs_of, gpus_of
from metlmon.authoring.write_submit import redacted_text
from metlmon.stats.cost import CostHistory, cost_estimate_lines, estimate_cost
from metlmon.text import formatting
from metlmon.text.formatting import plain
from metlmon.text.spans import BAD, BOLD, DIM, GOOD, NOTE, Line, line, wrap
from screens.base.sanitize import plain_with_blanks
from screens.base.screens import heading
from screens.submit.form_model import LABELS
from screens.submit.validation import FormResult


class PreviewLines(Sequence[Line]):
    """A lazy sequence of lines."""

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> list[Line]: ...
    def __getitem__(self, at: int | slice) -> Line | list[Line]:
        if isinstance(at, slice):
            return [self.line(index) for index in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return self.line(at % len(self))

    def line(self, index: int) -> Line:
        """Return one line, counted from 0."""
        raise NotImplementedError


class FileLines(PreviewLines):
    """The exact text of one file, with line numbers; long lines are wrapped."""

    def __init__(self, file: PlannedFile, width: int) -> None:
        text = redacted_text(file)
        self._ends_open = bool(text) and not text.endswith("\n")
        self._texts = text.removesuffix("\n").split("\n") if text else []
        self._digits = max(3, len(str(len(self._texts))))
        self._text_width = max(8, width - self._digits - 2)
        self._ends = list(accumulate(self._row_count(row) for row in self._texts))
        self._split_cached = lru_cache(64)(self._split_text)

    def _row_count(self, text: str) -> int:
        if text.isascii() and text.isprintable():
            return max(1, -(-len(text) // self._text_width))
        clean = plain_with_blanks(text)
        return (
            1 if cell_len(clean) <= self._text_width else len(chop_cells(clean, self._text_width))
        )

    def _split_text(self, number: int) -> list[str]:
        clean = plain_with_blanks(self._texts[number])
        return (
            chop_cells(clean, self._text_width) if cell_len(clean) > self._text_width else [clean]
        )

    def __len__(self) -> int:
        return (self._ends[-1] if self._ends else 0) + (self._ends_open or not self._texts)

    def line(self, index: int) -> Line:
        number = bisect_right(self._ends, index)
        if number >= len(self._texts):
            note = "no line end here" if self._texts else "empty"
            return line((" " * (self._digits + 1) + note, DIM))
        row = index - (self._ends[number - 1] if number else 0)
        text = self._split_cached(number)[row]
        continuation = "↪"
        gutter = (
            f"{number + 1:>{self._digits}} "
            if row == 0
            else " " * (self._digits - 1) + continuation
        )
        comment = self._texts[number].lstrip().startswith("#")
        return line((f"{gutter:<{self._digits + 1}}", DIM), (text, DIM) if comment else text)


class RunLines(PreviewLines):
    """The runs: name, uuid, seed, and the target of each epoch."""

    def __init__(self, runs: Sequence[RunPlan], width: int) -> None:
        self._runs = runs
        self._uuid = 36 if width >= 90 else 8
        self._name = max((cell_len(plain(run.name, 24)) for run in runs), default=0)
        self._seed = max((len(str(run.seed)) for run in runs), default=0)

    def __len__(self) -> int:
        return len(self._runs)

    def line(self, index: int) -> Line:
        run = self._runs[index]
        return line(
            f"  {plain(run.name, 24):<{self._name}}  ",
            (plain(run.uuid, 36)[: self._uuid], DIM),
            ("  seed ", DIM),
            f"{run.seed:<{self._seed}}  ",
            *targets(run.targets),
            *gpu(run.gpu),
        )


def targets(names: Sequence[str]) -> Line:
    """Return the targets of the epochs in order: ``Expanse-GPU ×2, Delta-GPU``."""
    times = "×"
    parts = []
    for name, group in groupby(names):
        n = len(list(group))
        parts.append(plain(name, 30) + (f" {times}{n}" if n > 1 else ""))
    arrow = "→"
    return line((f"{arrow} ", DIM), ", ".join(parts)) if parts else ()


def gpu(model: str | None) -> Line:
    """Return the GPU model that a run is pinned to."""
    return line(("  on ", DIM), plain(model, 60)) if model is not None else ()


class Preview(PreviewLines):
    """The whole preview: counts, files, runs, the text of every file.

    ``sections`` are the numbers of the heading lines.
    """

    def __init__(self, parts: Sequence[Sequence[Line]], sections: Sequence[int]) -> None:
        self._parts = parts
        self._ends = list(accumulate(len(part) for part in parts))
        starts = [0, *self._ends]
        self.sections = tuple(starts[part] for part in sections)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def line(self, index: int) -> Line:
        part = bisect_right(self._ends, index)
        return self._parts[part][index - (self._ends[part - 1] if part else 0)]


def build_preview(result: FormResult, width: int, history: CostHistory | None = None) -> Preview:
    """Build the preview of a form, or the list of its fatal problems.

    ``past`` is the cost history of past epochs, if known.
    """
    plan = result.plan
    if plan is None:
        return Preview([_missing(result, width)], ())
    parts: list[Sequence[Line]] = [
        [*size_lines(plan, width), *cost_lines(plan, history, width), ()],
        [*graph_lines(plan, width), ()],
        [heading(_files(plan), width)],
        [*file_list(plan), ()],
    ]
    sections = [2]
    if plan.runs:
        sections.append(len(parts))
        total = formatting.count(len(plan.runs), "run")
        parts += [[heading(total, width)], RunLines(plan.runs, width)]
    for file in plan.files:
        sections.append(len(parts))
        parts += [[(), *_title(file, width)], FileLines(file, width)]
    return Preview(parts, sections)


def _title(file: PlannedFile, width: int) -> list[Line]:
    name = plain(file.name, max(12, width - 30))
    title = f"{name}  {formatting.size(len(file.data))}"
    return [heading(title + (", executable" if file.executable else ""), width)]


def size_lines(plan: Plan, width: int) -> list[Line]:
    """Return the size of the ensemble and its directory."""
    request = plan.request
    nodes = formatting.count(plan.nodes, "node")
    jobs = formatting.count(plan.jobs, "job")
    return [
        line(" ", (size_text(plan), BOLD), "   ", nodes, "   ", (jobs, BOLD)),
        *wrap(f"into {plain(str(request.directory), 1000)}", width - 1, DIM, indent=1),
    ]


def size_text(plan: Plan) -> str:
    """Return the size: ``4 runs × 3 epochs``, ``100 shards``, ``100 runs × 30 epochs``."""
    request, times = plan.request, " × "
    if request.shape is EnsembleShape.BAG:
        return formatting.count(request.shards, "shard")
    runs = formatting.count(len(plan.runs), "run")
    epochs = formatting.count(epochs_of(request), "epoch")
    machines = f"{times}{request.machines} machines" if request.machines > 1 else ""
    return f"{runs}{times}{epochs}{machines}"


def graph_lines(plan: Plan, width: int) -> list[Line]:
    """Return the graph as ASCII art."""
    return [line(" ", text) for text in draw_graph(plan.graph, width - 2)]


def cost_lines(plan: Plan, history: CostHistory | None, width: int) -> list[Line]:
    """Return the estimated cost from past epochs; empty if none are known."""
    request = plan.request
    evaluations = request.evaluation is not None
    estimate = estimate_cost(
        history, plan.graph.trainings, epochs_of(request), gpus_of(request), evaluations=evaluations
    )
    if estimate is None:
        return []
    first, *more = cost_estimate_lines(estimate, "the ensemble on the screen")
    lines = [line(" ", (first, BOLD))]
    for sentence in more:
        lines += wrap(sentence, width - 1, DIM, indent=1)
    return lines


def _files(plan: Plan) -> str:
    total = sum(len(file.data) for file in plan.files)
    count = formatting.count(len(plan.files), "file")
    return f"{count}, {formatting.size(total)}"


def file_list(plan: Plan, new: str = "new", existing: str = "in the way") -> list[Line]:
    """List the files to be written: whether new, size, purpose."""
    name_width = max((cell_len(plain(file.name, 40)) for file in plan.files), default=0)
    status_width = max((len(existing if file.exists else new) for file in plan.files), default=0)
    return [
        line(
            "  ",
            (f"! {existing:<{status_width}}", NOTE)
            if file.exists
            else (f"+ {new:<{status_width}}", GOOD),
            f"  {plain(file.name, 40):<{name_width}}",
            f"  {formatting.size(len(file.data)):>8}  ",
            (plain(file.about, 120), DIM),
        )
        for file in plan.files
    ]


def _missing(result: FormResult, width: int) -> list[Line]:
    if result.request is None:
        return [line(" ", ("what would be written appears here", DIM))]
    lines: list[Line] = [line(" ", ("Nothing can be written yet:", BOLD)), ()]
    for problem in result.fatal:
        label = LABELS.get(problem.field, problem.field.removeprefix("values."))
        has_label = not label or problem.text.startswith(f"{label} ")
        text = plain(problem.text if has_label else f"{label}: {problem.text}", 1000)
        lines += wrap(text, width - 1, BAD, indent=2)
    return lines
