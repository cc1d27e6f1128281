"""A driver reduced to its requests: asks Slurm for allocations, says which it was granted, and holds them for ever.

python -m tests.slurm.requests_forever NAME COUNT   (each is a node and a share of a QPU: a het job)
"""

from __future__ import annotations

import asyncio
import sys

from qloom.model import QpuHold
from qloom.site import Site
from qloom.slurm.arguments import components, salloc
from qloom.slurm.client import Client
from qloom.slurm.salloc import Salloc
from qloom.world import Request


async def hold(client: Client, name: str) -> None:
    """One allocation, for ever."""
    parts = components(Site(), Request(name, "j1", 1, 1, QpuHold.SHARE, "qpu"), 1)
    request = Salloc(client, salloc(parts, name, "test"), name, lambda: True)
    print(await request.granted(), flush=True)
    await asyncio.Event().wait()


async def main(name: str, count: int) -> None:
    """All of them at once."""
    client = Client()
    await asyncio.gather(*(hold(client, f"{name}.{number}") for number in range(count)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
