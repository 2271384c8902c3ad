"""The page ``/docs``: Swagger UI with the files of the package ``fastapi-swagger``; nothing comes from elsewhere."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)
# No script but ours: the page needs none inline. Swagger UI sets styles of elements and has icons as data.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'"
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>refactorgnn: the API</title>
  <link rel="icon" href="data:,">
  <link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
  <div id="swagger-ui"></div>
  <script src="docs/swagger-ui-bundle.js"></script>
  <script src="docs/start.js"></script>
</body>
</html>
"""
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null});\n'
_HOUR = {"Cache-Control": "public, max-age=3600"}


@router.get("/docs")
async def docs() -> Response:
    """The page."""
    return Response(_PAGE, media_type="text/html", headers={"Content-Security-Policy": _POLICY})


@router.get("/docs/start.js")
async def start() -> Response:
    """What starts Swagger UI."""
    return Response(_START, media_type="text/javascript", headers=_HOUR)


@router.get("/docs/swagger-ui-bundle.js")
async def script() -> Response:
    """Swagger UI."""
    return Response(_asset("swagger-ui-bundle.js"), media_type="text/javascript", headers=_HOUR)


@router.get("/docs/swagger-ui.css")
async def style() -> Response:
    """Its style."""
    return Response(_asset("swagger-ui.css"), media_type="text/css", headers=_HOUR)


def _asset(name: str) -> bytes:
    return resources.files("fastapi_swagger.resources").joinpath(name).read_bytes()
