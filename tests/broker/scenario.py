"""One device and one broker in virtual time."""

from __future__ import annotations

from qloom.broker.store.schema import integrity
from tests.broker.fakes import FakeDevice, Vendor, broker_on, run_virtual


def scenario(test):
    """A test in virtual time, with one device on a store of its own."""

    def run(tmp_path):
        async def main(clock):
            vendor = Vendor(clock)
            broker = broker_on([FakeDevice(vendor)], tmp_path / "s.db", clock)
            await broker.start()
            try:
                await test(broker, vendor, clock)
            finally:
                await broker.close()
            assert integrity(tmp_path / "s.db") == []

        run_virtual(main)

    run.__name__ = test.__name__
    return run
