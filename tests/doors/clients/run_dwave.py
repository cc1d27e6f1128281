"""D-Wave's own client against a door: `python run_dwave.py SCENARIO URL TOKEN` prints what it found as JSON.

Runs in an environment that has dwave-system and nothing of qloom.
"""

import json
import sys
import time

from dwave.cloud.exceptions import SolverAuthenticationError
from dwave.embedding.exceptions import MissingChainError
from dwave.system import DWaveSampler, EmbeddingComposite, FixedEmbeddingComposite

scenario, url, token = sys.argv[1:]
TRIANGLE = {("a", "b"): 1.0, ("b", "c"): 1.0, ("a", "c"): 1.0}  # no graph of this family has one: it needs a chain
LONG = {"annealing_time": 2000.0, "num_reads": 10_000}  # 20 seconds


def sampler():
    return DWaveSampler(endpoint=url, token=token)


def example():
    """What a first program with this client does: an embedded problem of 100 reads, and one on the graph itself."""
    qpu = sampler()
    embedded = EmbeddingComposite(qpu).sample_ising({}, TRIANGLE, chain_strength=3.0, num_reads=100, label="triangle")
    direct = qpu.sample_qubo({(0, 0): -1.0, (4, 4): -1.0, (0, 4): 2.0}, num_reads=50, answer_mode="raw")
    slow = qpu.sample_ising({0: 1.0}, {}, num_reads=10, annealing_time=500.0)
    return {
        "topology": qpu.properties["topology"],
        "reads": int(embedded.record.num_occurrences.sum()),
        "energy": float(embedded.first.energy),
        "broken": float(embedded.first.chain_break_fraction),
        "rows": len(direct),
        "lowest": float(direct.first.energy),
        "slow_sample": int(slow.first.sample[0]),
        "slow_s": slow.info["timing"]["qpu_access_time"] * 1e-6,
        "slow_estimate_s": qpu.solver.estimate_qpu_access_time(1, num_reads=10, annealing_time=500.0) * 1e-6,
        "access_s": direct.info["timing"]["qpu_access_time"] * 1e-6,
        "estimate_s": qpu.solver.estimate_qpu_access_time(2, num_reads=50) * 1e-6,
    }


def cancel():
    """The client's own call, for a problem that waits behind another and for one that runs."""
    solver = sampler().solver
    running, waiting = (solver.sample_ising({0: 1.0}, {}, **LONG) for _ in range(2))
    while not (running.id and waiting.id):
        time.sleep(0.02)
    found = {"waiting": waiting.remote_status}
    for future in (waiting, running):
        future.cancel()
        try:
            future.result()
        except Exception as error:
            found[type(error).__name__] = found.get(type(error).__name__, 0) + 1
    return found


def token_is_wrong():
    try:
        sampler()
    except SolverAuthenticationError as error:
        return str(error)


def refused():
    """What a problem fails with that the site does not take."""
    try:
        sampler().sample_ising({0: 1.0}, {}, num_reads=1000).resolve()
    except Exception as error:
        return [type(error).__name__, str(error)]


def no_chain():
    try:
        FixedEmbeddingComposite(sampler(), {"a": [0], "b": [4], "c": []}).sample_ising({}, TRIANGLE).resolve()
    except MissingChainError as error:
        return str(error)


def fetched_later():
    """A client that submits and goes away, and another one that asks for the problem by its id."""
    first = sampler()
    future = first.solver.sample_ising({0: 1.0}, {}, num_reads=5)
    id = future.wait_id()
    first.client.close()
    return sampler().client.retrieve_answer(id).samples[0][0]


def check():
    """Which of the problems on standard input, one per line, the client's own models reject."""
    from dwave.cloud.api.models import ProblemJob
    from pydantic import ValidationError

    rejected = []
    for line in sys.stdin:
        try:
            ProblemJob.model_validate_json(line)
        except ValidationError as error:
            rejected.append([line, str(error)])
    return rejected


print(json.dumps(globals()[scenario]()))
