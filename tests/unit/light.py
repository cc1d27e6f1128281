"""Tasks and a program that workers import: this file imports little, so that they start quickly."""

from __future__ import annotations

import os

import qloom
from qloom import task


@task
def square(x):
    return x * x


@task
def worker_pid():
    return os.getpid()


def run(program, **more):
    return qloom.run(program, world="local", in_memory=True, **more)


def run_tasks(*tasks, **more):
    async def program(job):
        return await job.classical(*tasks)

    return run(program, **more)
