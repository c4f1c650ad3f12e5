"""Answers of the API server as errors of our tree: what happened, and whether to try again."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.cluster.api import CLAIMS, NAMESPACES, PODS, STATEFULSETS, Call
from provisioner.cluster.transport import ExpiredError, NotFoundError, ThrottledError, error_from_status
from provisioner.errors import PermanentError, TransientError

LIST = Call("list", PODS, "shop")


def failed(code: int, reason: str = "", message: str = "", **details: Any) -> Any:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return error_from_status(code, status, LIST)


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_a_server_that_cannot_answer_now_is_asked_again(code: int) -> None:
    error = failed(code, message="etcdserver: request timed out")
    assert isinstance(error, TransientError)
    assert "list pods in namespace shop" in error.message


@pytest.mark.parametrize("code", [400, 404, 405, 415, 422])
def test_a_request_that_is_wrong_is_not_repeated(code: int) -> None:
    assert isinstance(failed(code, "BadRequest", "no"), PermanentError)


def test_a_missing_permission_names_verb_resource_group_and_namespace() -> None:
    said = 'statefulsets.apps is forbidden: User "x" cannot list resource "statefulsets" in API group "apps"'
    error = error_from_status(403, {"message": said}, Call("list", STATEFULSETS, "shop"))
    assert isinstance(error, PermanentError)
    assert error.reason == "Forbidden"
    assert "list statefulsets in namespace shop" in error.message
    assert error.hint == "grant verb 'list' on resource 'statefulsets' of API group 'apps' in namespace 'shop'"
    everywhere = error_from_status(403, {"message": said}, Call("watch", CLAIMS))
    assert "watch persistentvolumeclaims in all namespaces" in everywhere.message
    assert everywhere.hint.endswith("cluster-wide")
    assert (
        "get namespaces kube-system" in error_from_status(403, {}, Call("get", NAMESPACES, name="kube-system")).message
    )


def test_a_refusal_for_another_reason_than_rbac_says_so() -> None:
    gone = failed(403, "Forbidden", "unable to create", causes=[{"reason": "NamespaceTerminating"}])
    assert (type(gone), gone.reason) == (TransientError, "NamespaceTerminating")
    quota = failed(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: q, requested: pods=1')
    assert quota.reason == "QuotaExceeded"
    nobody = failed(403, "Forbidden", 'pods is forbidden: User "system:anonymous" cannot list')
    assert (type(nobody), nobody.reason) == (TransientError, "Unauthorized")


@pytest.mark.parametrize(("header", "seconds"), [("7", 7), ("0", 1), ("86400", 60), ("soon", 3), (None, 3)])
def test_a_throttled_call_waits_as_long_as_asked_within_bounds(header: str | None, seconds: float) -> None:
    status = {"message": "too many requests", "details": {"retryAfterSeconds": 3}}
    error = error_from_status(429, status, LIST, {"Retry-After": header} if header else {})
    assert isinstance(error, ThrottledError)
    assert error.seconds == seconds


def test_errors_that_callers_tell_apart() -> None:
    assert isinstance(failed(404), NotFoundError)
    assert isinstance(failed(410, "Expired"), ExpiredError)
    assert isinstance(failed(409, "AlreadyExists"), PermanentError)
    assert isinstance(failed(409, "Conflict"), TransientError)
    assert failed(401).reason == "Unauthorized"


@pytest.mark.parametrize("status", [{}, {"message": 3, "details": "x", "reason": None}, {"details": {"causes": [1]}}])
@pytest.mark.parametrize("code", [0, 200, 302, 401, 403, 404, 409, 410, 429, 500, 599, 999])
def test_any_answer_gives_an_error(code: int, status: dict[str, Any]) -> None:
    assert error_from_status(code, status, LIST).message


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (Call("list", PODS), "/api/v1/pods"),
        (Call("get", STATEFULSETS, "shop", "store"), "/apis/apps/v1/namespaces/shop/statefulsets/store"),
        (Call("get", PODS, "shop", "store-0", "log"), "/api/v1/namespaces/shop/pods/store-0/log"),
        (Call("get", NAMESPACES, "ignored", "shop"), "/api/v1/namespaces/shop"),
        (Call("get", PODS, "../../x", "a b?c"), "/api/v1/namespaces/..%2F..%2Fx/pods/a%20b%3Fc"),
    ],
)
def test_paths_are_the_api_servers_own_and_names_cannot_leave_them(call: Call, path: str) -> None:
    assert call.path == path
