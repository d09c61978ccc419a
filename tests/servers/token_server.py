"""Where clouds give tokens: Google's token endpoint and metadata server, and the managed identity of an Azure service.

It is asked by google-auth and azure-identity themselves. Tokens are `token-1`, `token-2` and so on, and end after
`seconds`; in the process of its user.
"""

from __future__ import annotations

import http.server
import itertools
import json
import threading
import time
from typing import Any, Self


class TokenServer:
    """The server, on a port of its own.

    Attributes:
        seconds: after which the next tokens end.
        refusing: the status and the body that are sent in place of tokens, if set.
        given: the tokens so far.
    """

    def __init__(self) -> None:
        self.seconds = 3600.0
        self.refusing: tuple[int, dict[str, Any]] | None = None
        self.given: list[str] = []
        self.asked: list[str] = []
        self._numbers = itertools.count(1)
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked.append(self.path)
                self._send(*owner.answer(self.path))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def _send(self, status: int, body: dict[str, Any] | str) -> None:
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Metadata-Flavor", "Google")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self._server.server_port}"

    def answer(self, path: str) -> tuple[int, dict[str, Any] | str]:
        """Return status and body of a response."""
        if path == "/" or path.startswith("/computeMetadata/v1/instance/service-accounts/default/?"):
            return 200, {"email": "me@project.iam.gserviceaccount.com", "aliases": ["default"], "scopes": ["all"]}
        if path.startswith("/computeMetadata/v1/project/project-id"):
            return 200, "project"
        if "universe" in path:
            return 404, ""
        if self.refusing is not None:
            return self.refusing
        token = f"token-{next(self._numbers)}"
        self.given.append(token)
        ends = {"expires_in": self.seconds, "expires_on": str(int(time.time() + self.seconds))}
        return 200, {"access_token": token, "token_type": "Bearer", "resource": "https://storage.azure.com", **ends}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
