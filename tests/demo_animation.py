"""Writes ``.github/demo.svg``: the first minute of the demo as an animation.

    python -m tests.demo_animation

The story is replayed up to a moment, a screen is opened on it, and Textual's own SVG of it
becomes one frame; CSS shows the frames in turn.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from metlmon.cli.commands.demo import STORY_SECONDS, Captions, read_story
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.replay import Replay, ReplayPiece
from metlmon.live.session import Session
from metlmon.pool.client import FeedAndPool
from screens.app import AppOptions, MetlmonApp

TARGET: Final = Path(__file__).resolve().parents[1] / ".github" / "demo.svg"
FRAME_SECONDS: Final = 5
KEYS: Final = {15: "3", 20: "3", 30: "2", 35: "2", 40: "5", 50: "2", 55: "7"}
"""The key that opens the screen, by second of the demo; the overview otherwise."""


async def frame(pieces: Sequence[ReplayPiece], captions: Captions, second: int) -> str:
    """The SVG of what the demo shows at this second."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch, "demo")
        directory.mkdir()
        replay = Replay(pieces, directory, 1.0)
        moment = replay.begin + (replay.end - replay.begin) * second / STORY_SECONDS
        replay.write_until(moment)
        caption = next((text for time, text in reversed(captions) if time <= moment), "")
        reader = DagdirReader(directory, local_now=lambda: moment)
        reader.open()
        app = MetlmonApp(FeedAndPool(Session(reader)), AppOptions(caption=lambda: caption))
        async with app.run_test(size=(100, 24)) as pilot:
            await pilot.pause(1.5)
            if second in KEYS:
                await pilot.press(KEYS[second])
                await pilot.pause(1.5)
            svg = app.export_screenshot(title="metlmon demo")
            await pilot.press("Q")
    # No font is fetched: the reader's own monospaced font is used.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


async def main() -> None:
    pieces, captions = read_story()
    seconds = range(0, 60, FRAME_SECONDS)
    frames = [await frame(pieces, captions, second) for second in seconds]
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', frames[0])
    assert size is not None
    share = 100 / len(frames)
    style = (
        f".frame {{ visibility: hidden; animation: show {len(frames) * FRAME_SECONDS}s infinite }}"
        f" @keyframes show {{ 0%, {share:.3f}% {{ visibility: visible }}"
        f" {share + 0.001:.3f}%, 100% {{ visibility: hidden }} }}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[1]} {size[2]}">',
        f"<style>{style}</style>",
    ]
    for number, svg in enumerate(frames):
        delay = number * FRAME_SECONDS
        parts.append(f'<g class="frame" style="animation-delay: {delay}s">{svg}</g>')
    TARGET.write_text("\n".join([*parts, "</svg>\n"]))
    print(f"{TARGET}: {TARGET.stat().st_size // 1000} kB")


if __name__ == "__main__":
    asyncio.run(main())
