"""dimod's sampler of a job: each call of `sample` is a phase; composites and algorithms of others work over it."""

from __future__ import annotations

import re

import dimod
import pytest

import qloom
from qloom.errors import InputError, QloomError
from qloom.journal.events import QuantumEnded, QuantumQueued
from qloom.strategies import STRATEGIES

SITE = qloom.Site(nodes=2, qpus=(qloom.Qpu("annealer", "annealer"),))
CHIMERA = qloom.Site(nodes=1, qpus=(qloom.Qpu("chip", profile="chimera"),))
MODEL = dimod.BinaryQuadraticModel({"a": -1.0, ("b", 1): -2.0}, {("a", ("b", 1)): 3.0}, 0.5, "SPIN")


def virtual(program, **plan):
    return qloom.run(program, **{"world": "virtual", "in_memory": True, "site": SITE, **plan})


def refusal(program, **plan):
    with pytest.raises(QloomError) as refused:
        assert virtual(program, **plan).result is None
    assert "\n" not in str(refused.value)
    return re.sub(r" \(\w+\.py, line \d+\)", "", str(refused.value))  # the line of the program


def test_a_sample_set_is_whole_and_has_the_time_on_the_device():
    def program(job):
        sampler = job.dimod_sampler()
        dimod.testing.assert_sampler_api(sampler)
        return sampler.sample(MODEL, num_reads=60, label="mine")  # not looked at: the job waits for it

    outcome = virtual(program)
    found = outcome.result
    assert (found.vartype, set(found.variables)) == (dimod.SPIN, set(MODEL.variables))
    assert found.record.num_occurrences.sum() == 60
    dimod.testing.assert_sampleset_energies(found, MODEL)
    assert found.first.energy == dimod.ExactSolver().sample(MODEL).first.energy
    assert found.info == {
        "problem_id": "quantum-1",
        "problem_label": "mine",
        "timing": {"qpu_access_time": 31_000 + 60 * 86},
    }
    assert [event.name for event in outcome.events if isinstance(event, QuantumQueued)] == ["mine"]


def test_samples_that_are_not_looked_at_are_out_at_the_same_time():
    def program(job):
        sampler = job.dimod_sampler()
        found = [sampler.sample_qubo({(0, 0): float(bias)}) for bias in (-1, 1, -2)]
        assert [each.done() for each in found] == [False] * 3
        return [each.first.sample[0] for each in found]

    outcome = virtual(program)
    assert outcome.result == [1, 0, 1]
    kinds = [type(event) for event in outcome.events if isinstance(event, QuantumQueued | QuantumEnded)]
    assert kinds == [QuantumQueued] * 3 + [QuantumEnded] * 3


def test_a_model_without_variables_needs_no_qpu():
    outcome = virtual(
        lambda job: len(job.dimod_sampler().sample(dimod.BinaryQuadraticModel("BINARY"))), parameters={}
    )
    assert outcome.result == 0
    assert not [event for event in outcome.events if isinstance(event, QuantumQueued)]


def test_options_reach_the_device_and_are_part_of_what_a_call_is():
    def program(job):
        sampler = job.dimod_sampler()
        glass = dimod.generators.random.ran_r(1, 12, seed=3)
        few, many = sampler.sample(glass, num_sweeps=1), sampler.sample(glass, num_sweeps=500)
        return few.record.energy.mean() > many.record.energy.mean()

    outcome = virtual(program)
    assert outcome.result
    assert len({event.work for event in outcome.events if isinstance(event, QuantumQueued)}) == 2


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"num_reeds": 5}, "annealer has no option 'num_reeds' (did you mean num_reads? it takes num_reads, label,"),
        ({"annealing_time": 20}, "annealer has no option 'annealing_time' (it takes num_reads, label, device, "),
        ({"seed": 1}, "annealer has no option 'seed'"),
        ({"session": "s"}, "annealer has no option 'session'"),
        ({"num_reads": 0}, "shots must be a whole number of at least 1, not 0"),
        ({"num_sweeps": "many"}, "num_sweeps must be a whole number from 1 to 100000, not 'many'"),
        ({"beta_range": [1.0]}, "beta_range must be two numbers above 0, not [1.0]"),
        ({"device": "anneler"}, "no QPU is called 'anneler' (did you mean annealer?"),
    ],
    ids=str,
)
def test_what_the_device_does_not_know_is_refused_in_one_line(options, line):
    def program(job):
        job.dimod_sampler().sample(MODEL, **options).resolve()

    assert line in refusal(program, parameters={})


def test_options_of_a_payload_are_refused_too():
    payload = qloom.Payload("qubo", {"linear": [[0, 1.0]], "quadratic": [], "offset": 0.0}, options={"layers": 3})
    line = "annealer has no option 'layers' (it has num_sweeps, beta_range)"
    assert line in refusal(lambda job: job.quantum(payload), parameters={})


def test_an_async_program_is_shown_the_way():
    async def program(job):
        job.dimod_sampler()

    line = (
        "a dimod sampler waits, which an async program must not (write def, or (await job.quantum(bqm)).to_dimod())"
    )
    assert line in refusal(program)


def cover(job):
    """A vertex cover of a ring, in which no three neighbours in a row are chosen, over composites of dimod."""
    sampler = dimod.HigherOrderComposite(dimod.TrackingComposite(job.dimod_sampler()))
    terms = {(node,): 1.0 for node in range(6)}
    for u, v, w in ((node, (node + 1) % 6, (node + 2) % 6) for node in range(6)):
        terms[u,] -= 2
        terms[v,] -= 2
        terms |= {(u, v): 2.0, (u, v, w): 1.0}
    found = sampler.sample_poly(
        dimod.BinaryPolynomial({**terms, (): 12.0}, "BINARY"), num_reads=20, discard_unsatisfied=False
    )
    return found.first.energy, found.record.num_occurrences.sum().item()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_composites_give_one_result_under_every_strategy_in_virtual_time(strategy):
    assert virtual(cover, strategy=strategy).result == (3.0, 20)


@pytest.mark.parametrize("strategy", ["weave", "malleable"])
def test_and_on_this_machine(strategy):
    def whole(job):
        found = job.dimod_sampler().sample(dimod.generators.random.ran_r(1, 6, seed=3), num_reads=30)
        return cover(job), found.record.sample.tolist(), found.record.num_occurrences.tolist()

    assert virtual(whole, world="local", strategy=strategy).result == virtual(whole, strategy=strategy).result


def test_a_device_with_a_graph_has_a_structured_sampler():
    def program(job):
        sampler = job.dimod_sampler()
        dimod.testing.assert_structured_api(sampler)
        assert sampler.properties["topology"] == {"type": "chimera", "shape": [16, 16, 4]}
        return len(sampler.nodelist), len(sampler.edgelist), sampler.sample_ising({0: 1}, {(0, 4): 1}).first.energy

    assert virtual(program, site=CHIMERA).result == (2048, 6016, -2.0)


@pytest.mark.parametrize(
    ("couplings", "line"),
    [({(0, 1): 1}, "qubits 1 and 0 are not coupled on the device"), ({(0, 5000): 1}, "5000 is no qubit")],
)
def test_a_model_that_is_not_on_the_graph_is_refused(couplings, line):
    def program(job):
        job.dimod_sampler().sample_ising({}, couplings)

    assert line in (said := refusal(program, site=CHIMERA, parameters={}))
    assert "EmbeddingComposite" in said


def test_a_sampler_needs_no_broker_of_its_own():
    from qloom.interop.dimod import QloomStructuredSampler

    class NoGraph:
        places = ()

        def describe(self, kind):
            return None

    with pytest.raises(InputError, match="the device has no graph"):
        assert QloomStructuredSampler(transport=NoGraph()).nodelist
