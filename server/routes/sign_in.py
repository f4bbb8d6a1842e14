"""The form with the token: sets the cookie that opens the page."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import Response

from graphbox.server.access import Scope
from graphbox.server.page import TOKEN_PATH, TokenMistake, token_page
from graphbox.server.services import ServicesDep

router = APIRouter(include_in_schema=False)


@router.post(TOKEN_PATH)
async def sign_in(request: Request, services: ServicesDep) -> Response:
    """Redirect to the page with the cookie, or return the form again if the token does not open the page."""
    token = _field(await request.body(), "token")
    rule = services.token_rule
    if rule is None:
        return _to_page()
    principal = rule.tokens.of_token(token)
    if principal is None:
        return token_page(TokenMistake.WRONG)
    if Scope.READ not in principal.scopes:
        return token_page(TokenMistake.NO_SCOPE)
    answer = _to_page()
    answer.headers["set-cookie"] = rule.set_cookie(token)
    return answer


@router.get(TOKEN_PATH)
def form_again() -> Response:
    """Redirect to the page, which shows the form if needed; requested when the address is entered again."""
    return _to_page()


def _field(form: bytes, name: str) -> bytes:
    """Return a field of an URL-encoded form as bytes, empty when it is missing or repeated."""
    # Latin-1 maps every byte to one character and back.
    values = parse_qs(form.decode("latin-1"), encoding="latin-1").get(name, [])
    return values[0].encode("latin-1") if len(values) == 1 else b""


def _to_page() -> Response:
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={"location": "./", "cache-control": "no-store"})
