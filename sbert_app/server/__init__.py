"""The web server: a FastAPI app on uvicorn. Each page is a Gradio app of its own, built when it is first asked for.

- `app` puts it together: the middleware, the routers, the mounts; `serve` runs it until a signal comes.
- `pages` builds and mounts the pages.
- ``hosts``, ``login``, ``limits``, ``calls``, ``workarounds``: plain ASGI middleware, a concern each.
- ``v1``, ``api``, ``mcp`` answer what is not a page; ``endpoints`` has the functions of the HTTP API.
"""
