"""What an unknown address answers: a page for browsers, JSON for everything else."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from sbert_app.pages.components.templates import render


async def not_found(request: Request, error: Exception) -> Response:
    """The handler of status 404."""
    detail = error.detail if isinstance(error, HTTPException) else "Not Found"
    if "text/html" not in request.headers.get("accept", "") or request.url.path.startswith(("/gradio_api/", "/v1/")):
        return JSONResponse({"detail": detail}, status_code=404)
    root = str(request.base_url)
    return HTMLResponse(
        render("components/templates/not_found.html", path=request.url.path[:200], root=root), status_code=404
    )
