"""Keys that save a file: the report, and pictures of screens."""

from __future__ import annotations

from functools import partial
from io import StringIO
from pathlib import Path

from metlmon.errors import InputError
from metlmon.live.feed import Feed
from screens.base.context import AppOptions, SavedFiles
from screens.base.fault_tolerant_app import FaultTolerantApp
from screens.base.screens import SnapshotScreen


class FileActions(FaultTolerantApp):
    """Writes files beside the dagdir; in a browser the user's browser saves them."""

    options: AppOptions
    feed: Feed
    report_path: Path | None = None

    @property
    def screen_name(self) -> str | None:
        """The name of the current screen."""
        raise NotImplementedError

    def refuse_on_home(self) -> bool:
        """Whether no ensemble is open, after saying so."""
        raise NotImplementedError

    def action_report(self) -> None:
        """Write the report of what is shown, in a thread."""
        if self.refuse_on_home():
            return
        if self.options.files is not None:
            self._show_message("writing the report …")
            save = partial(self._save_report, self.options.files, self.feed)
            self.run_worker(save, thread=True, exit_on_error=False)

    def _save_report(self, files: SavedFiles, feed: Feed) -> None:
        try:
            if self.is_web:
                self.call_from_thread(self._download, *files.render_report(feed))
                return
            self.report_path = files.save_report(feed)
            message = f"report written: {self.report_path}; [^o] opens it"
        except (InputError, OSError) as error:
            message = f"no report was written: {error}"
        self.call_from_thread(self._show_message, message)

    def _download(self, name: str, text: str) -> None:
        """Have the browser save a file, where the user is; none is written on this machine."""
        self.deliver_text(StringIO(text), save_filename=name, encoding="utf-8")
        self._show_message(f"sent to your browser's downloads: {name}")

    def action_browse(self) -> None:
        if self.options.files is None:
            return
        if self.is_web:
            self._show_message("reports are in your browser's downloads; [^y] sends one")
        elif self.report_path is None:
            self._show_message("no report was written yet; [^y] writes it")
        else:
            try:
                self.options.files.open_file(self.report_path)
            except InputError as error:
                self._show_message(str(error))

    def action_picture(self) -> None:
        if self.options.files is None:
            return
        screen = self.screen_name or "screen"
        try:
            svg = self.export_screenshot(title=f"metlmon {screen}")
            if self.is_web:
                self._download(f"metlmon-{screen}.svg", svg)
                return
            path = self.options.files.save_picture(self.feed, screen, svg)
        except (InputError, OSError) as error:
            self._show_message(f"no picture was saved: {error}")
        else:
            self._show_message(f"picture saved: {path}")

    def _show_message(self, message: str) -> None:
        if isinstance(self.screen, SnapshotScreen):
            self.screen.show_message(message)
