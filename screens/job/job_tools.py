"""The keys of a job's screens that copy a text and ask HTCondor's tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from typing import Final

from metlmon.model.states import State
from screens.base.screens import SnapshotScreen
from screens.job.copy_menu import CopyScreen, copy_choices
from screens.job.tool import ToolScreen, refusal_to_ask

TMUX_SECONDS: Final = 2.0


def copy_in_tmux(text: str) -> None:
    """Copy a text within tmux, which by default ignores what a program copies (set-clipboard)."""
    tmux = shutil.which("tmux") if os.environ.get("TMUX") else None
    if tmux is not None:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [tmux, "load-buffer", "-w", "-"],
                input=text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=TMUX_SECONDS,
                check=False,
            )


class JobTools(SnapshotScreen):
    """A screen of one job, ``job``."""

    job: tuple[int, int]

    def action_copy(self) -> None:
        """Choose a text of the job, and copy it to the clipboard of the terminal."""
        view = self.context.feed.job_view(*self.job)
        if view is None:
            self.show_message("nothing is known of this job yet")
            return
        choices = copy_choices(view, self.context.feed.dagdir)
        self.app.push_screen(CopyScreen(choices), self._copy)

    def _copy(self, text: str | None) -> None:
        if text is not None:
            self.app.copy_to_clipboard(text)
            copy_in_tmux(text)
            self.show_message(f"copied: {text}")

    def action_ask(self) -> None:
        """Ask why the job is idle, or for what it is writing where it runs."""
        view = self.context.feed.job_view(*self.job)
        context = self.context
        if context.time_travel.active:
            self.show_message(context.time_travel.refusal() or "")
        elif context.pool_actions is None and not context.options.read_only:
            self.show_message(context.options.no_pool_reason)
        elif view is None or (refusal := refusal_to_ask(view.job.state)) is not None:
            self.show_message("nothing is known of this job yet" if view is None else refusal or "")
        else:
            self.app.push_screen(ToolScreen(*self.job, idle=view.job.state is State.IDLE))
