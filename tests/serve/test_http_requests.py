"""Access to ``metlmon serve``: the token, Host and Origin, on every route."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import pytest

from metlmon.errors import InputError
from metlmon.tracking.metrics_server import MetricsServer
from tests.support.served_dashboard import needed_module, open_tab, running_server

SERVER = needed_module("metlmon.serve.server")
STATICS, MAX_TABS, DashboardServer = SERVER.STATICS, SERVER.MAX_TABS, SERVER.DashboardServer

ROUTES = ("/", "/ws/x", "/download/x", "/static/", "/nothing", *(f"/static/{s}" for s in STATICS))


@pytest.fixture(name="server")
async def _server() -> AsyncIterator[DashboardServer]:
    async with running_server(["/bin/cat"], "</title><script>alert(1)</script>") as server:
        yield server


class Answer:
    """The answer to a request with exactly these header lines."""

    def __init__(self, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {
            name.lower(): text for name, text in (each.split(": ", 1) for each in lines)
        }
        self.text = body.decode("utf-8", "replace")


async def ask(
    server: DashboardServer, path: str, *lines: str, method: str = "GET", host: str | None = ""
) -> Answer:
    """Send a request; ``host``: of its Host header, None for none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    host = f"127.0.0.1:{server.port}" if host == "" else host
    all_lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host else []), *lines]
    writer.write("\r\n".join([*all_lines, "Connection: close", "", ""]).encode())
    data = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return Answer(data)


def upgrade(origin: str | None) -> list[str]:
    """Header lines that ask for a websocket."""
    lines = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    return [*lines, *([f"Origin: {origin}"] if origin is not None else [])]


async def test_page_loads_nothing_foreign_and_runs_no_name(server: DashboardServer) -> None:
    page = await ask(server, f"/?token={server.token}")
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    sources = set(re.findall(r"(?:ws|https?)://[^;\s]+|\*", policy))
    assert sources == {f"ws://127.0.0.1:{server.port}"}
    assert "unsafe-eval" not in policy
    assert not re.findall(r"(?:https?:)?//(?!127\.0\.0\.1)\w", page.text)
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in policy
    # Nor can a name become a script.
    assert "<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;</title>" in page.text
    own = f'src="/static/js/textual.js?token={server.token}"'
    scripts = re.findall(r"<script[^>]*>", page.text)
    assert all("nonce=" in each or own in each for each in scripts)
    other = await ask(server, f"/?token={server.token}")
    nonce = re.findall(r'nonce="([^"]+)"', page.text)[0]
    assert nonce not in other.text


@pytest.mark.parametrize("path", ROUTES)
async def test_requests_need_the_token(server: DashboardServer, path: str) -> None:
    right = server.token
    for token in (
        "",
        "?token=",
        "?token=%C3%A9%ff",
        f"?token={right[:-1]}",
        f"?token={right}&token=x",
    ):
        for lines in ([], [f"Cookie: token={right}"], [f"Authorization: token {right}"]):
            answer = await ask(server, path + token, *lines)
            assert (answer.status, answer.text) == (
                403,
                "the token is missing or wrong: open the URL that metlmon serve printed\n",
            )
            assert server.token not in answer.text
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")


async def test_websocket_needs_the_token(server: DashboardServer) -> None:
    own = f"http://127.0.0.1:{server.port}"
    for path in ("/ws/", "/ws/x", f"/ws/{server.token}x", f"/?token={server.token}"):
        assert (await ask(server, path, *upgrade(own))).status in (403, 404)
    # A token in the query is none for a websocket, and vice versa.
    assert (await ask(server, f"/ws/x?token={server.token}", *upgrade(own))).status == 403
    assert (await ask(server, f"/ws/{server.token}")).status == 403


@pytest.mark.parametrize("path", ["/?token={}", "/static/js/textual.js?token={}", "/ws/{}"])
async def test_other_hosts_are_refused(server: DashboardServer, path: str) -> None:
    port, path = server.port, path.format(server.token)
    other = f"127.0.0.1:{port + 1}", f"evil.example:{port}", "evil.example", "127.0.0.1", "", None
    for host in other:
        lines = upgrade(f"http://{host}") if path.startswith("/ws") else []
        answer = await ask(server, path, *lines, host=host or None)
        assert answer.status in (400, 403)
    two = await ask(server, path, f"Host: evil.example:{port}")
    assert two.status in (400, 403)


async def test_every_name_of_this_machine_is_accepted(server: DashboardServer) -> None:
    port = server.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        page = await ask(server, f"/?token={server.token}", host=host)
        assert page.status == 200
        assert f'data-session-websocket-url="ws://{host.lower()}/ws/' in page.text
        assert f"connect-src 'self' ws://{host.lower()};" in page.headers["content-security-policy"]


async def test_other_origins_are_refused(server: DashboardServer) -> None:
    port = server.port
    others = (
        *("null", "http://evil.example", f"http://evil.example:{port}", "file://"),
        *(f"http://127.0.0.1:{port + 1}", "http://127.0.0.1", f"https://127.0.0.1:{port}"),
        f"http://localhost:{port}",
    )
    for origin in others:
        for path in ("/", "/static/js/textual.js"):
            page = await ask(server, f"{path}?token={server.token}", f"Origin: {origin}")
            assert (page.status, page.text) == (
                403,
                "this was asked for by another page: open the URL that metlmon serve printed\n",
            )
        assert (await ask(server, f"/ws/{server.token}", *upgrade(origin))).status == 403
    # Browsers always send one for a websocket.
    assert (await ask(server, f"/ws/{server.token}", *upgrade(None))).status == 403
    own = f"Origin: http://127.0.0.1:{port}"
    assert (await ask(server, f"/?token={server.token}", own)).status == 200


async def test_only_files_of_the_page_are_served(server: DashboardServer) -> None:
    for name, kind in STATICS.items():
        answer = await ask(server, f"/static/{name}?token={server.token}")
        assert answer.status == 200
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert len(answer.text) > 1000
    for name in (
        *("", ".", "js/", "../server.py", "js/../../server.py", "%2e%2e/server.py"),
        *("..%2fserver.py", "js/..%2f..%2fserver.py", "%2fetc/passwd", "js/textual.js%00"),
        *("images/background.png", "fonts/RobotoMono-VariableFont_wght.ttf"),
    ):
        answer = await ask(server, f"/static/{name}?token={server.token}")
        assert answer.status in (400, 404), name
        assert "import" not in answer.text


async def test_other_methods_are_refused(server: DashboardServer) -> None:
    for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS"):
        assert (await ask(server, f"/?token={server.token}", method=method)).status == 405
    assert (await ask(server, f"/download/x?token={server.token}")).status == 404


async def test_number_of_tabs_is_limited(server: DashboardServer) -> None:
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/ws/{server.token}"
        own = f"http://127.0.0.1:{server.port}"
        tabs = [await session.ws_connect(url, origin=own) for _ in range(MAX_TABS)]
        async with open_tab(server.url) as one_more:
            await one_more.wait_closed()
            assert f"{MAX_TABS} dashboards are open in tabs already: close one" in one_more.text
        await tabs[0].close()
        # Its program ends soon after.
        while len(server._processes) == MAX_TABS:
            await asyncio.sleep(0.01)
        async with open_tab(server.url) as next_tab:
            with pytest.raises(TimeoutError):
                await next_tab.take(0.2)
        for tab in tabs:
            await tab.close()


async def test_occupied_port_is_named(server: DashboardServer) -> None:
    for port, reason in (
        (server.port, "Address already in use"),
        (70000, "not between 0 and 65535"),
    ):
        with pytest.raises(InputError, match=rf"--port {port}: .*{reason}.*; choose another port"):
            DashboardServer([], "", port)


def half_request(port: int) -> socket.socket:
    """A connection with half of a request's head sent."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
    return connection


async def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes a connection."""
    connection.setblocking(False)
    with connection:
        received = asyncio.get_running_loop().sock_recv(connection, 1)
        with suppress(ConnectionResetError):
            return not await asyncio.wait_for(received, 30)
        return True


async def test_partial_request_times_out(
    server: DashboardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SERVER, "HEAD_SECONDS", 0.0)
    assert await is_closed(half_request(server.port))


async def test_partial_requests_do_not_block_the_owner(
    server: DashboardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SERVER, "MAX_STRANGERS", 4)
    halves = [half_request(server.port) for _ in range(20)]

    page = await ask(server, f"/?token={server.token}")

    assert page.status == 200
    # The page took the place of one of them.
    assert all([await is_closed(each) for each in halves[:16]])


async def test_refused_connection_is_closed(server: DashboardServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 403")
    writer.close()


def test_terminal_size_is_limited() -> None:
    assert SERVER._terminal("1000000", "1000000") == SERVER.LARGEST
    assert SERVER._terminal("80", "24") == (80, 24)


def test_port_of_another_user_on_one_address_is_refused() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(InputError, match="in use"):
            MetricsServer(port)
