"""MCP: the endpoints as tools of agents, by the SDK of the protocol. Loaded where it is asked for (``serve --mcp``).

Gradio has an MCP server, too. Its tools answer with Python's text of a dictionary, make a session of all components for
each call, and carry out the others by requests of the app to itself, which come from 127.0.0.1 whoever the agent is.
These are called directly, for the agent's address, and answer with JSON, as text and as structured content.
"""

import json
from typing import Any

import gradio as gr
from anyio import CapacityLimiter, to_thread
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolResult, TextContent, Tool
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from sbert_app import __version__
from sbert_app.server.endpoint import MOST_AT_ONCE, endpoints
from sbert_app.services.access import Quota, TooMany, visitor_of
from training.errors import InputError

MCP = "/gradio_api/mcp"
# So many connections of one address may be open, as streams are held.
MOST_CONNECTIONS = 32
# Threads that compute for all agents.
THREADS = 16


class McpServer:
    """The ASGI app of the tools. Its `manager` runs as long as the app does."""

    def __init__(self, root_path: str = "") -> None:
        server: Server[Any, Any] = Server("SBERT Lab", __version__)
        self.manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        self.connections = Quota(MOST_CONNECTIONS)
        # Of all tools together: an agent makes many calls side by side.
        calls, threads = Quota(MOST_AT_ONCE), CapacityLimiter(THREADS)

        @server.list_tools()
        async def list_tools() -> list[Tool]:
            return [
                Tool(name=name, description=endpoint.description, inputSchema=endpoint.schema())
                for name, endpoint in endpoints.items()
            ]

        @server.call_tool(validate_input=False)
        async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult:
            request: Any = server.request_context.request
            sentence = f"there is no tool {name[:80]!r}; there are {', '.join(endpoints)}"
            try:
                if name in endpoints:
                    answer_of = endpoints[name].answer
                    with calls.held(visitor_of(request)):
                        answer = await to_thread.run_sync(answer_of, arguments, request, root_path, limiter=threads)
                    # The protocol wants an object.
                    answer = answer if isinstance(answer, dict) else {"result": answer}
                    text = json.dumps(answer, ensure_ascii=False)
                    return CallToolResult(content=[TextContent(type="text", text=text)], structuredContent=answer)
            except (InputError, gr.Error) as error:
                sentence = error.public if isinstance(error, InputError) else error.message
            return CallToolResult(content=[TextContent(type="text", text=sentence)], isError=True)

    def routes(self) -> list[BaseRoute]:
        return [Route(path, self) for path in (MCP, f"{MCP}/")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = visitor_of(HTTPConnection(scope))
        try:
            with self.connections.held(visitor):
                await self.manager.handle_request(scope, receive, send)
        except TooMany:
            sentence = f"{MOST_CONNECTIONS} connections to the MCP server are open from your address; wait until one"
            await JSONResponse({"error": f"{sentence} is closed"}, 429, {"Retry-After": "1"})(scope, receive, send)
