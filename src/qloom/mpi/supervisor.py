"""Supervises one rank: srun or mpiexec starts it in the rank's place, and it runs the rank as its child.

A process beside each rank, on its node, is needed for three things:

- Slurm says that PMI values may have 1024 characters and reads lines of no more than that, key and all. A longer line
  is cut, and the ranks wait for each other for ever. The supervisor passes PMI on and announces a length that fits.
- Ranks that are killed leave MPICH's shared memory in /dev/shm. The supervisor removes its name when all ranks of the
  node have mapped it, when a rank ends and when the step is signalled.
- Ranks that wait for one that never starts MPI wait for ever. The supervisor ends them after `START_S`.

Run as a file, it uses nothing of qloom and of Python's library only what is quick to import.
"""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import socket
import sys
import time

SLURM_LINE = 1024  # MAX_READLINE of Slurm's mpi/pmi2 plugin
# The rest of a line is "cmd=put kvsname=" (16), at most 35 of a name, " key=" (5), 64 of a key, " value=" (7) and \n.
VALUE = 896
WORLD = "QLOOM_MPI_WORLD"  # a name for the ranks of one launch, in place of Slurm's JOB.STEP
SUPERVISED = "QLOOM_SUPERVISED"
START = "QLOOM_MPI_START_S"
START_S = 300.0  # for all ranks of a launch to reach MPI_Init, from when the first of them has
FIRST_LOOK_S, LOOK_GROWTH = 0.02, 1.5
SHARED = "/dev/shm"  # noqa: S108  where MPICH puts its shared memory
_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")


class SharedMemory:
    """The shared memory of MPICH on one node: a file whose name is a hash of the world's."""

    def __init__(self) -> None:
        self._prefix = ""
        self._path = ""

    def name_world(self, world: str) -> None:
        """MPICH calls it `mpich_shm_HASH_NODE`, with the 32-bit FNV-1a hash of the name of its PMI space."""
        value = 0x811C9DC5
        for byte in world.encode():
            value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
        self._prefix = f"mpich_shm_{value:x}_"

    def find(self, rank: int) -> bool:
        """Whether a rank has mapped it; from then on its name on this node is known."""
        found = re.search(rf"{SHARED}/{re.escape(self._prefix)}\d+$", _maps(rank), re.MULTILINE)
        self._path = found[0] if found else ""
        return found is not None

    def mappings(self) -> int:
        """How many processes have mapped it."""
        line = f"{self._path}\n"
        return sum(line in _maps(int(name)) for name in os.listdir("/proc") if name.isdigit())

    def remove(self) -> None:
        """Remove its name: those who have mapped it keep it, and it goes with the last of them."""
        if not self._prefix:
            return
        try:
            names = os.listdir(SHARED)
        except OSError:  # it is not there, or closed to us
            return
        for name in names:
            if name.startswith(self._prefix) and (not self._path or self._path == f"{SHARED}/{name}"):
                try:
                    os.unlink(f"{SHARED}/{name}")
                except OSError:  # another supervisor was quicker, or it belongs to somebody else
                    continue


class RankSupervisor:
    """Runs one rank to its end."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._launcher = socket.socket(fileno=int(environment["PMI_FD"]))
        self._in_slurm = "SLURM_STEP_ID" in environment
        self._world = environment.get(WORLD, "")
        self._rank = environment.get("PMI_RANK", "?")
        self._start_s = float(environment.get(START) or START_S)
        self._memory = SharedMemory()
        self._code: int | None = None  # that of MPI_Abort
        self._asked_at: float | None = None  # when the rank sent what the launcher has not answered yet
        self._started = False  # all ranks have reached MPI_Init
        self._ends_rank = False
        self._killed = False
        self._signalled = False  # by a signal that the rank had, too
        self._look_s = FIRST_LOOK_S
        self._look_at = float("inf")

    def run(self, words: list[str]) -> int:
        """Run the rank; its wait status."""
        ours, its = socket.socketpair()
        wakes, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for name in _SIGNALS:
            if signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:
                signal.signal(getattr(signal, name), self._hear_signal)
        rank = os.fork()
        if rank == 0:
            _become(words, its, self._launcher.fileno())
        its.close()
        status = self._watch(rank, ours, wakes)
        self._memory.remove()
        if os.WIFSIGNALED(status) and not self._signalled and not self._ends_rank:
            by = signal.Signals(os.WTERMSIG(status)).name
            print(f"qloom: rank {self._rank} was ended by {by}", file=sys.stderr, flush=True)
        return status

    def _hear_signal(self, *_signal: object) -> None:
        """Somebody ends the step, or speaks to the rank, which hears it too."""
        self._signalled = True
        self._memory.remove()

    def _watch(self, rank: int, ours: socket.socket, wakes: socket.socket) -> int:
        ways = {ours: self._launcher, self._launcher: ours}
        while True:
            ended, status = os.waitpid(rank, os.WNOHANG)
            if ended:
                return status if self._code is None else self._code << 8
            now_s = time.monotonic()
            if self._ends_rank and not self._killed:
                os.kill(rank, signal.SIGKILL)  # once: SIGCHLD wakes us when it is gone
                self._killed = True
            if now_s >= self._look_at:
                self._look(rank)
            first = min(self._look_at, self._give_up_at())
            wait_s = None if first == float("inf") else max(0.0, first - now_s)
            for ready in select.select([*ways, wakes], [], [], wait_s)[0]:
                if ready is wakes:
                    wakes.recv(4096)
                elif not self._pass_on(ready, ways[ready], to_rank=ready is self._launcher):
                    ways.clear()  # but open: a launcher that sees its end closed may kill us before we are done
                    break
            if time.monotonic() >= self._give_up_at():
                self._end(f"the other ranks did not start MPI within {self._start_s:g} s")

    def _give_up_at(self) -> float:
        waits = self._asked_at is not None and not self._started and not self._ends_rank
        return (self._asked_at or 0.0) + self._start_s if waits else float("inf")

    def _pass_on(self, source: socket.socket, target: socket.socket, *, to_rank: bool) -> bool:
        """Pass on what one side says; False if there is nothing more to pass."""
        try:
            if said := source.recv(65536):
                target.sendall(self._hear_launcher(said) if to_rank else self._hear_rank(said))
                return True
        except OSError:
            pass
        if to_rank:
            target.close()
        return False

    def _hear_rank(self, said: bytes) -> bytes:
        """What the rank says: PMI-1 is a line and its answer."""
        self._asked_at = time.monotonic()
        if said.startswith(b"cmd=abort"):
            self._memory.remove()
            if self._in_slurm:  # which would kill all ranks and us at once; after a bad exit code it asks first
                code = re.search(rb"exitcode=(\d+)", said)
                self._code, self._ends_rank = (int(code[1]) & 0xFF if code else 0) or 1, True
                return b""
        if said.startswith(b"cmd=") and self._in_slurm and len(said) > SLURM_LINE:
            self._end(f"its MPI publishes {len(said)} characters at once, and Slurm reads {SLURM_LINE}")
            return b""
        return said

    def _hear_launcher(self, said: bytes) -> bytes:
        """What the launcher answers: with values that fit, and a name that no other launch on this node has."""
        self._asked_at = None
        if said.startswith(b"cmd=maxes"):
            return re.sub(rb"vallen_max=(\d+)", lambda found: b"vallen_max=%d" % min(VALUE, int(found[1])), said)
        if said.startswith(b"cmd=my_kvsname"):
            if self._world and self._in_slurm:  # which does not look at the name
                said = re.sub(rb"kvsname=\S+", b"kvsname=" + self._world.encode(), said)
            self._memory.name_world(re.findall(rb"kvsname=(\S+)", said)[0].decode())
            if self._environment.get("SLURM_LOCALID", self._environment.get("MPI_LOCALRANKID")) == "0":
                self._look_at = time.monotonic() + FIRST_LOOK_S
        if said.startswith(b"cmd=barrier_out"):
            self._started = True
        return said

    def _look(self, rank: int) -> None:
        """Remove the name of the shared memory once all ranks of this node have it; look less and less often."""
        if self._memory.find(rank) and self._memory.mappings() >= self._ranks_here():
            self._memory.remove()
            self._look_at = float("inf")
            return
        self._look_s *= LOOK_GROWTH
        self._look_at = time.monotonic() + self._look_s

    def _ranks_here(self) -> int:
        """How many ranks this node has; of Slurm's `2(x3),1` the part for this node."""
        given = self._environment.get("SLURM_STEP_TASKS_PER_NODE")
        if given is None:
            return int(self._environment.get("MPI_LOCALNRANKS", "1"))
        parts = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part) for part in given.split(",")]
        counts = [int(part[1]) for part in parts if part for _ in range(int(part[2] or 1))]
        return counts[int(self._environment["SLURM_NODEID"])]

    def _end(self, why: str) -> None:
        print(f"qloom: rank {self._rank}: {why}", file=sys.stderr, flush=True)
        self._ends_rank = True


def require_supervisor() -> None:
    """For a rank in Python whose launcher knows nothing of supervisors: begin again, under one."""
    if "PMI_FD" in os.environ and SUPERVISED not in os.environ:
        again = [sys.executable, *sys.orig_argv[1:]]
        os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, *again])  # noqa: S606


def _maps(process: int) -> str:
    """The memory map of a process; empty if it has ended or belongs to somebody else."""
    try:
        with open(f"/proc/{process}/maps") as file:
            return file.read()
    except OSError:
        return ""


def _become(words: list[str], its: socket.socket, number: int) -> None:
    """Become the rank, in the child, with our end of PMI where it expects the launcher's."""
    for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.dup2(its.fileno(), number)
    os.environ[SUPERVISED] = "1"
    _run(words)


def _run(words: list[str]) -> None:
    try:
        os.execvp(words[0], words)  # noqa: S606  the user's own program
    except OSError as error:
        print(f"qloom: cannot run {words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)


def _end_as(status: int) -> None:
    """End as the rank has: with its exit code, or by its signal."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if (number := os.WTERMSIG(status)) != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))  # at once: mpiexec kills who closes PMI and lives on


if __name__ == "__main__":
    if "PMI_FD" not in os.environ:  # started without MPI, or by something other than PMI
        _run(sys.argv[1:])
    _end_as(RankSupervisor(dict(os.environ)).run(sys.argv[1:]))
