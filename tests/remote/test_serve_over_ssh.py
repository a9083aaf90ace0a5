"""``metlmon serve HOST:DIR``: the dashboard of another machine's dagdir in a tab."""

from __future__ import annotations

import aiohttp
import pytest

from tests.support.served_dashboard import DEMO, needed_module, open_tab, served
from tests.support.ssh_server import SshServer

needed_module("metlmon.serve.server")

pytestmark = pytest.mark.xdist_group("ssh")


async def test_a_tab_shows_a_dagdir_of_another_machine(access_point: str) -> None:
    with served(f"{access_point}:{DEMO}") as program:
        async with aiohttp.ClientSession() as session, session.get(program.url) as page:
            assert f"<title>{access_point}:demo</title>" in await page.text()
        async with open_tab(program.url) as tab:
            await tab.wait_for("run5")

            assert f"{access_point}:demo" in tab.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("", "Permission denied"),
        ("HostKeyAlias unheard-of\nStrictHostKeyChecking ask", "Host key verification failed"),
    ],
    ids=["a passphrase", "an unknown host"],
)
async def test_what_ssh_would_ask_is_a_sentence_in_the_tab(
    access_point: str, ssh_server: SshServer, options: str, reason: str
) -> None:
    name = reason.split()[0].lower()
    host = ssh_server.add_host(f"asks-{name}", passphrases=["open sesame"], options=options)
    with served(f"{host}:{DEMO}") as program:
        async with open_tab(program.url) as tab:
            await tab.wait_for("ControlMaster")

            shown = " ".join(tab.text.split())
            assert f"metlmon: {host}: ssh: " in shown
            assert reason in shown
            assert "ssh has no terminal here to ask on" in shown
