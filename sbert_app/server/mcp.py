"""MCP: the endpoints as tools for agents, by the SDK of the protocol. Imported for ``serve --mcp`` only.

The MCP server of Gradio does not suit: its tools answer with the text of a Python dictionary, make
a session of all components for each call, and call other endpoints by requests of the app to
itself, which come from 127.0.0.1 whoever the agent is. The tools here call the endpoints directly
with the agent's address, and answer with JSON, as text and as structured content.
"""

import json
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from sbert_app import __version__
from sbert_app.server.endpoint import MOST_AT_ONCE, Call, files_at
from sbert_app.server.endpoints import ENDPOINTS
from sbert_app.services.access import Quota, TooManyRequestsError, visitor_of
from sbert_app.services.container import Services
from training.errors import UserFacingError, summary_of

MCP = "/gradio_api/mcp"
# The maximum number of open connections of one address. A stream keeps its connection open.
MOST_CONNECTIONS = 32
# The tools that change something. They destroy nothing, because a stopped run can be resumed.
CHANGING = ("start_run", "stop_run")


def _mistake(sentence: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=sentence)], isError=True)


class McpServer:
    """The ASGI app of the tools. Its `manager` has to run as long as the app does."""

    def __init__(self, services: Services) -> None:
        server: Server[Any, Any] = Server("SBERT Lab", __version__)
        self.manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        self.connections = Quota(MOST_CONNECTIONS)
        # One quota for all tools, because an agent makes many calls at the same time.
        calls = Quota(MOST_AT_ONCE)

        @server.list_tools()
        async def list_tools() -> list[Tool]:
            tools = []
            for name, endpoint in ENDPOINTS.items():
                tool = Tool(
                    name=name,
                    description=endpoint.description,
                    inputSchema=endpoint.body.model_json_schema(),
                    annotations=ToolAnnotations(
                        readOnlyHint=name not in CHANGING, destructiveHint=False
                    ),
                )
                tools.append(tool)
            return tools

        # `Body.parse` validates the arguments instead, and says what is wrong in one sentence.
        @server.call_tool(validate_input=False)
        async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult:
            request: Any = server.request_context.request
            endpoint = ENDPOINTS.get(name)
            if endpoint is None:
                return _mistake(f"there is no tool {name[:80]!r}; there are {', '.join(ENDPOINTS)}")
            visitor = visitor_of(request)
            call = Call(services, visitor, files=files_at(request, services))
            try:
                with calls.held(visitor):
                    answer = await endpoint.run(call, endpoint.body.parse(arguments))
            except UserFacingError as error:
                return _mistake(summary_of(error))
            # Structured content must be an object.
            if not isinstance(answer, dict):
                answer = {"result": answer}
            text = json.dumps(answer, ensure_ascii=False)
            return CallToolResult(
                content=[TextContent(type="text", text=text)], structuredContent=answer
            )

    def routes(self) -> list[BaseRoute]:
        return [Route(path, self) for path in (MCP, f"{MCP}/")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = visitor_of(HTTPConnection(scope))
        try:
            with self.connections.held(visitor):
                await self.manager.handle_request(scope, receive, send)
        except TooManyRequestsError:
            sentence = (
                f"{MOST_CONNECTIONS} connections to the MCP server are open from your address; "
                "wait until one is closed"
            )
            refusal = JSONResponse({"error": sentence}, 429, {"Retry-After": "1"})
            await refusal(scope, receive, send)
