"""The web server: a FastAPI app on uvicorn. Each page is a Gradio app of its own, built when it is first requested.

- ``app`` assembles the middleware, the routers and the pages; ``run`` serves it until a signal
  comes.
- ``pages`` builds and mounts the pages; ``gradio_routes`` lists the routes of Gradio that are open.
- ``hosts``, ``login``, ``metrics``, ``limits``, ``events`` and ``workarounds`` are ASGI middleware.
- ``api``, ``v1`` and ``mcp`` have the other routes; ``endpoints`` has the functions of the HTTP
  API.
"""
