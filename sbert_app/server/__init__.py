"""The web server: a FastAPI app on uvicorn. The pages are one multipage Gradio app, mounted at its root.

- `app` puts it together: the middleware, the routers, the mounts; `serve` runs it until a signal comes.
- ``hosts``, ``login``, ``limits``, ``calls``, ``workarounds``: plain ASGI middleware, a concern each.
- ``v1``, ``api``, ``mcp`` answer what is not a page; ``endpoints`` has the functions of the HTTP API.
"""
