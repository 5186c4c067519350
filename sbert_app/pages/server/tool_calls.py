"""How Gradio's MCP server carries out a tool call that waits in the queue: by requests of a client to the app itself.

Behind a login that client has to show who it is, as everybody has; Gradio's own has nothing to show.
"""

from __future__ import annotations

from typing import Any

from gradio_client import Client


def show_token(server: Any, token: str) -> None:
    """Let the client of a `gradio.mcp.GradioMCPServer` send this token; the headers of an agent come before it."""

    def client() -> Client:
        if server._client_instance is None:
            server._client_instance = Client(
                server.local_url,
                download_files=False,
                verbose=False,
                analytics_enabled=False,
                ssl_verify=False,
                _skip_components=False,
                headers={"x-gradio-user": "mcp", "authorization": f"Bearer {token}"},
            )
        return server._client_instance

    server._get_or_create_client = client
