"""schemathesis against the OpenAPI document: whatever is sent, never a 5xx."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

schemathesis = pytest.importorskip("schemathesis", reason="NOT TESTED: schemathesis is not installed")

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from schemathesis import GenerationMode  # noqa: E402

from qloom.broker.auth.callers import Authenticator  # noqa: E402
from qloom.broker.clock import ServiceClock  # noqa: E402
from qloom.broker.config_parts import LimitsPart  # noqa: E402
from qloom.broker.server.http import make_app  # noqa: E402
from tests.broker.fakes import FakeDevice, Vendor, broker_on  # noqa: E402

EXAMPLES = max(10, int(os.environ.get("QLOOM_EXAMPLES", "300")) // 6)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """The service, whose broker lives in a loop of its own: schemathesis calls it from others."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def there(work):
        return asyncio.run_coroutine_threadsafe(work, loop)

    async def start():
        clock = ServiceClock()
        broker = broker_on([FakeDevice(Vendor(clock))], tmp_path_factory.mktemp("schema") / "s.db", clock)
        await broker.start()
        return broker, make_app(broker, Authenticator(("none",)), LimitsPart(requests_per_s=1e9, burst=1e9))

    broker, inner = there(start()).result()

    async def app(scope, receive, send):
        here = asyncio.get_running_loop()

        async def back(call, *args):
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(*args), here))

        if scope["type"] == "http":
            work = inner(scope, lambda: back(receive), lambda message: back(send, message))
            await asyncio.wrap_future(there(work))

    yield schemathesis.openapi.from_asgi("/openapi.json", app).exclude(path="/v1/events")
    there(broker.close()).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.slow
def test_nothing_that_is_sent_makes_the_service_fail(api):
    operations = [found.ok() for found in api.get_all_operations()]
    assert len(operations) == 22
    statuses = set()
    for operation in operations:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate],
            database=None,
        )
        @given(case=operation.as_strategy(GenerationMode.POSITIVE))
        def send(case):
            statuses.add(_send(case))
            if isinstance(case.body, dict) and "kind" in case.body:  # and now something that comes further
                case.body.update(kind="test", seconds=0.0)
                for name in ("device", "session", "project"):
                    case.body.pop(name, None)
                statuses.add(_send(case))
            elif isinstance(case.body, dict) and "device" in case.body:
                case.body.update(device="q")
                statuses.add(_send(case))

        @settings(send._hypothesis_internal_use_settings)
        @given(case=operation.as_strategy(GenerationMode.NEGATIVE))
        def send_nonsense(case):
            statuses.add(_send(case))

        send()
        if operation.body or operation.query or operation.path_parameters:
            send_nonsense()
    assert {200, 201, 404, 422} <= statuses, "nothing came through"


def _send(case) -> int:
    _shorten(case)
    answer = case.call()
    assert answer.status_code < 500, f"{case.method} {case.path} {case.body!r}: {answer.status_code}"
    return answer.status_code


def _shorten(case):
    """Nobody wants to wait for a minute here."""
    try:
        if float(case.query["wait"]) > 0.02:
            case.query["wait"] = 0.02
    except (TypeError, KeyError, ValueError):
        pass
