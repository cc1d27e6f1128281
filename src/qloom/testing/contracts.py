"""What every strategy and every world must do, as checks that anybody's test suite can run.

`StrategyContract` and `WorldContract` are classes whose methods pytest collects: subclass one and say what is tested.
The functions `check_...` behind them can be called from any other runner. This module needs no pytest.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import qloom
from qloom.errors import InputError, NeedError, PayloadError, QuantumFailed, TaskFailed
from qloom.journal.event import Event
from qloom.journal.events import CandidateChosen, QuantumEnded, TaskEnded
from qloom.journal.file import FILE_NAME, read_events
from qloom.journal.history import read_history
from qloom.model import QpuHold
from qloom.programs.load import load_program
from qloom.runs.plan import Plan
from qloom.runs.runner import Outcome
from qloom.site import Qpu, Site
from qloom.strategies import STRATEGIES, choose
from qloom.strategies.base import Strategy
from qloom.testing import programs
from qloom.testing.programs import ContractProgram
from qloom.testing.simulation import private_home, registered, simulate
from qloom.views.accounting import account
from qloom.worlds import WORLDS, WorldEntry

_expected: dict[str, Any] = {}


def run(program: ContractProgram, world: str, strategy: str, log: Path | None = None, **more: Any) -> Outcome:
    """Run a program of the contract; `log` gets a line whenever one of its tasks really runs."""
    parameters = {"log": str(log)} if log else {}
    return qloom.run(programs.source(program), world=world, strategy=strategy, parameters=parameters, **more)


def expected(program: ContractProgram) -> Any:
    """The result of a program in virtual time under the simplest strategy: everything else must agree."""
    if program.__name__ not in _expected:
        _expected[program.__name__] = run(program, "virtual", "offload", in_memory=True).result
    return _expected[program.__name__]


def check_program(program: ContractProgram, world: str, strategy: str) -> None:
    """The result is the same as everywhere, nothing is still held, and nothing was busy that was not held."""
    outcome = run(program, world, strategy, in_memory=True)
    _require(outcome.errors == [], f"it failed: {outcome.errors}")
    _require(outcome.result == expected(program), f"{outcome.result!r} is not {expected(program)!r}")
    _require_all_released(outcome.events)
    figures = account(read_history(outcome.events))
    _require(0 < figures.node_s_busy <= figures.node_s_held + 1e-6, "tasks ran on nodes that were not held")
    if not holds_qpu_throughout(strategy):
        _require(figures.qpu_s_held >= figures.qpu_s_busy - 1e-6, "tasks ran on a QPU that was not held")


def check_two_jobs(world: str, strategy: str, **options: float) -> None:
    """Two jobs at once get the results that each gets alone."""
    outcome = run(programs.loop, world, strategy, jobs=2, options=options, in_memory=True)
    _require(outcome.results == [expected(programs.loop)] * 2, f"not the same results: {outcome.results}")


def check_candidate(world: str, strategy: str) -> None:
    """A quantum candidate runs classically while the device is down, unless the strategy holds a QPU throughout."""
    outcome = run(programs.candidate, world, strategy, site=Site(qpus=(Qpu(offline=True),)), in_memory=True)
    _require(outcome.result == [36, 4], f"{outcome.result!r} is not [36, 4]")
    (choice,) = [event for event in outcome.events if isinstance(event, CandidateChosen)]
    _require(choice.choice == "classical", f"{choice.choice} was chosen")
    _require("not available" in (choice.reason or ""), f"the reason is {choice.reason!r}")


def check_failure(world: str, strategy: str) -> None:
    """A task that fails is named, everything is released, and nobody waits for the long tasks beside it."""
    outcome = run(programs.fails_late, world, strategy, in_memory=True)
    (error,) = outcome.errors
    _require(isinstance(error, TaskFailed), f"{type(error).__name__} is not TaskFailed")
    _require("fails" in error.message and "no luck" in error.message, f"the task is not named: {error.message}")
    _require(error.job == "j1", f"the job is {error.job}")
    _require_all_released(outcome.events)
    _require(len(_done(outcome.events)) <= 2, "the long tasks were waited for")


def check_quantum_failure(world: str, strategy: str) -> None:
    """A program may go on after a quantum task has failed; one that does not ends with it, and all is released."""
    outcome = run(programs.quantum_fails, world, strategy, in_memory=True)
    (error,) = outcome.errors
    _require(isinstance(error, QuantumFailed), f"{type(error).__name__} is not QuantumFailed")
    _require(error.job == "j1", f"the job is {error.job}")
    tasks = [event for event in outcome.events if isinstance(event, TaskEnded) and event.state == "done"]
    _require(len(tasks) == 4, f"the program did not go on: {len(tasks)} of 4 tasks ran")
    _require_all_released(outcome.events)


def check_refusals(world: str, strategy: str = "offload") -> None:
    """What no world can do is refused as wrong input."""
    refused: tuple[tuple[ContractProgram, type[InputError]], ...] = (
        (programs.no_qubo, PayloadError),
        (programs.too_wide, NeedError),
    )
    for program, kind in refused:
        (error,) = run(program, world, strategy, in_memory=True).errors
        _require(isinstance(error, kind), f"{program.__name__}: {type(error).__name__} is not {kind.__name__}")
        _require(error.exit_code == 2, f"{program.__name__}: the exit code is {error.exit_code}")


def check_resume(program: ContractProgram, world: str, strategy: str, *, cuts: int | None = None) -> None:
    """A journal that ends anywhere, even in the middle of a line, can be resumed, and nothing that ended runs again.

    It is cut after every line, or in about `cuts` places.
    """
    with private_home() as home:
        log = home / "log"
        whole = run(program, world, strategy, log)
        if whole.directory is None:
            raise AssertionError("there is no journal")
        journal = whole.directory / FILE_NAME
        lines = journal.read_bytes().splitlines(keepends=True)
        for cut in range(1, len(lines), 1 if cuts is None else max(1, len(lines) // cuts)):
            journal.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
            known = _done(read_events(whole.directory))
            log.unlink(missing_ok=True)
            resumed = qloom.resume(str(whole.directory))
            _require(resumed.errors == [], f"cut at {cut}: {resumed.errors}")
            _require(resumed.result == whole.result, f"cut at {cut}: another result")
            ended = Counter(_done(resumed.events))
            _require(all(ended[work] == 1 for work in known), f"cut at {cut}: a task that had ended ran again")


def check_resume_of_a_finished_run(world: str, strategy: str = "workflow") -> None:
    """To resume a finished run gives its result and runs nothing."""
    with private_home():
        whole = run(programs.loop, world, strategy)
        again = qloom.resume(str(whole.directory))
        _require(again.result == whole.result, "another result")
        _require(len(again.events) == len(whole.events), "something ran")


def check_liveness(strategy: str, seed: int) -> None:
    """Beside jobs of other strategies, drawn by the seed, every job ends with its results: nobody waits for ever."""
    drawn = random.Random(seed)
    site = Site(nodes=3, qpus=(Qpu(shares=drawn.choice((1, 2, 8))),))
    chosen = [strategy, *(drawn.choice([strategy, *STRATEGIES.built_in]) for _ in range(drawn.randint(1, 3)))]
    drawn.shuffle(chosen)
    together = [drawn.choice(programs.GOOD) for _ in chosen]
    plans = [
        Plan(load_program(programs.source(program)), strategy=name, world="virtual", site=site)
        for program, name in zip(together, chosen, strict=True)
    ]
    outcomes = simulate(plans, site).outcomes
    for program, name, outcome in zip(together, chosen, outcomes, strict=True):
        same = outcome == expected(program) or program is programs.candidate  # which one runs depends on the load
        _require(same, f"seed {seed}: {program.__name__} under {name}: {outcome!r}")


def holds_qpu_throughout(strategy: str) -> bool:
    """Whether a job holds a QPU, or a share of one, from its first phase on."""
    return choose(strategy, {}, 3).throughout.qpu is not QpuHold.TASK


class StrategyContract:
    """The contract of a strategy, in virtual time. Subclass it and set `strategy` to a name or a class."""

    strategy: ClassVar[str | type[Strategy[Any]]]
    world: ClassVar[str] = "virtual"
    seeds: ClassVar[range] = range(20)  # of check_liveness

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Let pytest run each program of the contract as a separate test."""
        _parametrise(metafunc, "program", programs.GOOD)

    def test_programs_have_the_same_results_and_leave_nothing(self, program: ContractProgram) -> None:
        """See `check_program`."""
        with registered(STRATEGIES, self.strategy) as name:
            check_program(program, self.world, name)

    def test_a_journal_cut_off_anywhere_is_resumed(self, program: ContractProgram) -> None:
        """See `check_resume`."""
        with registered(STRATEGIES, self.strategy) as name:
            check_resume(program, self.world, name, cuts=None if self.world == "virtual" else 3)

    def test_two_jobs_at_once_get_the_results_they_get_alone(self) -> None:
        """See `check_two_jobs`."""
        with registered(STRATEGIES, self.strategy) as name:
            check_two_jobs(self.world, name)

    def test_a_candidate_runs_classically_while_the_device_is_down(self) -> None:
        """See `check_candidate`."""
        with registered(STRATEGIES, self.strategy) as name:
            if not holds_qpu_throughout(name):
                check_candidate(self.world, name)

    def test_a_failing_task_is_named_and_the_rest_is_released(self) -> None:
        """See `check_failure`."""
        with registered(STRATEGIES, self.strategy) as name:
            check_failure(self.world, name)

    def test_a_program_may_go_on_after_a_failed_quantum_task(self) -> None:
        """See `check_quantum_failure`."""
        with registered(STRATEGIES, self.strategy) as name:
            check_quantum_failure(self.world, name)

    def test_nobody_waits_for_ever(self) -> None:
        """See `check_liveness`."""
        with registered(STRATEGIES, self.strategy) as name:
            for seed in self.seeds:
                check_liveness(name, seed)


class WorldContract:
    """The contract of a world. Subclass it and set `world` to a name or a `WorldEntry`."""

    world: ClassVar[str | WorldEntry]
    strategies: ClassVar[tuple[str, ...]] = (*STRATEGIES.built_in, "malleable+share", "workflow+task")

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Let pytest run each program under each strategy as a separate test."""
        _parametrise(metafunc, "program", programs.GOOD)
        _parametrise(metafunc, "strategy", self.strategies)

    def test_programs_have_the_same_results_and_leave_nothing(self, program: ContractProgram, strategy: str) -> None:
        """See `check_program`."""
        with registered(WORLDS, self.world) as name:
            check_program(program, name, strategy)

    def test_two_jobs_at_once_get_the_results_they_get_alone(self, strategy: str) -> None:
        """See `check_two_jobs`."""
        with registered(WORLDS, self.world) as name:
            check_two_jobs(name, strategy, **({"patience_s": 0.3} if strategy.startswith("malleable") else {}))

    def test_a_candidate_runs_classically_while_the_device_is_down(self, strategy: str) -> None:
        """See `check_candidate`."""
        with registered(WORLDS, self.world) as name:
            if not holds_qpu_throughout(strategy):
                check_candidate(name, strategy)

    def test_a_failing_task_is_named_and_the_rest_is_released(self, strategy: str) -> None:
        """See `check_failure`."""
        with registered(WORLDS, self.world) as name:
            check_failure(name, strategy)

    def test_a_program_may_go_on_after_a_failed_quantum_task(self, strategy: str) -> None:
        """See `check_quantum_failure`."""
        with registered(WORLDS, self.world) as name:
            check_quantum_failure(name, strategy)

    def test_what_no_world_can_do_is_refused(self) -> None:
        """See `check_refusals`."""
        with registered(WORLDS, self.world) as name:
            check_refusals(name)

    def test_resuming_a_finished_run_runs_nothing(self) -> None:
        """See `check_resume_of_a_finished_run`."""
        with registered(WORLDS, self.world) as name:
            check_resume_of_a_finished_run(name)


def _parametrise(metafunc: Any, name: str, values: Any) -> None:
    if name in metafunc.fixturenames:
        metafunc.parametrize(name, values, ids=lambda value: getattr(value, "__name__", None))


def _require_all_released(events: list[Event]) -> None:
    still = [interval for interval in read_history(events).intervals if interval.state == "open"]
    _require(not still, f"still held: {still}")


def _done(events: list[Event]) -> list[str]:
    """The tasks that ended well."""
    return [event.work for event in events if isinstance(event, TaskEnded | QuantumEnded) and event.state == "done"]


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
