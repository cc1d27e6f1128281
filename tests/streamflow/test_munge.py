"""The qpu connector at a broker that takes nothing but munge, with a real munged."""

from __future__ import annotations

import json

import pytest

from tests.broker.processes import Service
from tests.broker.test_munge import GIVEN, munge, needs_munge  # noqa: F401
from tests.streamflow.workflows import ASKING

pytestmark = pytest.mark.slow


@needs_munge
@pytest.mark.skipif(bool(GIVEN), reason="THE CONNECTOR'S MUNGE IS NOT TESTED: it calls munge, which is not installed")
def test_a_step_shows_a_credential_of_munge(engine, munge, open_path):  # noqa: F811
    _, socket = munge
    service = Service(open_path, auth={"methods": ["munge"], "munge_socket": str(socket)})
    service.start()
    try:
        workflow = engine.export(ASKING, quantum="broker", broker=service.address)
        (workflow / "files" / "qubo.json").write_text('{"kind": "test", "body": 3}')
        assert engine.run(workflow) != 0
        assert "the broker says: no credential" in (workflow / "log").read_text()
        engine.environment["QLOOM_BROKER_MUNGE"] = str(socket)
        assert engine.run(workflow) == 0, (workflow / "log").read_text()
        assert json.loads((workflow / "results" / "answer.json").read_text()) == {"echo": 3}
        engine.environment["QLOOM_BROKER_MUNGE"] = str(socket.with_name("none"))
        assert engine.run(workflow) != 0
        assert "(is munged running?)" in (workflow / "log").read_text()
    finally:
        service.stop()
