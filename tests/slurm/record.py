"""Records what a version of Slurm prints, for the tests of parsing: python -m tests.slurm.record [PREFIX]

Starts a testbed of that Slurm, brings jobs into as many states as it can in two minutes, and writes the output of the
commands that qloom calls to `fixtures/VERSION.json`: command, exit code, standard output and error, line by line.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from pathlib import Path

from qloom.broker.slurm import SHOWN
from qloom.lab.advisor.slurm import ENDED_FIELDS, NODE_FORMAT, STANDING_FORMAT
from qloom.slurm.commands import call_once
from qloom.slurm.facts import FACTS_FORMAT
from qloom.slurm.squeue import FORMAT
from qloom.testbed import Testbed, TestbedSettings
from tests.slurm.waiting import until

FIXTURES = Path(__file__).parent / "fixtures"
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
TIMEOUT_S = 150.0  # Slurm counts time limits in minutes


class Recorder:
    """Calls commands and keeps what they printed."""

    def __init__(self) -> None:
        self.kept: dict[str, object] = {}

    def record(self, name: str, *words: str) -> str:
        """Call a command and keep it under a name; its standard output."""
        answer = call_once(*words)
        self.kept[name] = {
            "command": list(words),
            "code": answer.code,
            "stdout": answer.stdout.splitlines(),
            "stderr": answer.stderr.splitlines(),
        }
        return answer.stdout

    def record_json_states(self) -> None:
        """Keep the states as JSON has them, and nothing else of it: it is long."""
        jobs = json.loads(call_once("squeue", "-t", "all", "--json").stdout)["jobs"]
        self.kept["squeue-json-states"] = {str(job["job_id"]): job["job_state"] for job in jobs}


def submit(name: str, *words: str, script: str = "sleep 600") -> str:
    """Submit a batch job; its id, empty if it was refused."""
    common = ("--parsable", f"--job-name={name}", "--output=/dev/null", *words)
    return call_once("sbatch", *common, "--wrap", script).stdout.strip()


def state_of(job: str) -> str:
    return call_once("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.strip()


def make_jobs(testbed: Testbed, recorder: Recorder) -> None:
    """Bring jobs into many states, and record commands that change them."""
    submit("plain", "-t60", "--comment=a|b")
    failing = submit("fail", script="exit 3")
    limited = submit("limited", "-t1")
    recorder.record("sbatch-gres-refused", "sbatch", "-pquantum", "--gres=qpu:9", "--wrap", "true")
    recorder.record("sbatch-test-only", "sbatch", "--test-only", "-N3", "--wrap=true")
    recorder.record("salloc", "salloc", "--no-shell", "-N1", "-t5", "--job-name=alloc")
    recorder.record(
        "salloc-het", *("salloc", "--no-shell", "-N2", "-t5", "--job-name=het"), *":", "-pquantum", "--gres=qpu:1"
    )
    het = re.search(r"Granted job allocation (\d+)", "\n".join(recorder.kept["salloc-het"]["stderr"]))[1]  # type: ignore[index]
    recorder.record("scancel-component", "scancel", f"{het}+1")
    resized = submit("resized", "-N2")
    until(lambda: state_of(resized) == "RUNNING")
    time.sleep(1.1)  # accounting drops phases of less than a second
    with contextlib.chdir(testbed.directory / "tmp"):  # scontrol leaves scripts behind
        recorder.record("scontrol-resize", "scontrol", "update", f"JobId={resized}", "NumNodes=1")
    suspended = submit("suspended")
    until(lambda: state_of(suspended) == "RUNNING")
    call_once("scontrol", "suspend", suspended)
    lost, requeued = submit("lost", "-wc3", "--no-requeue"), submit("requeued", "-wc3", "--requeue")
    until(lambda: state_of(lost) == state_of(requeued) == "RUNNING")
    testbed.set_node("c3", "DOWN", "recorded")
    until(lambda: state_of(lost) == "NODE_FAIL" and state_of(requeued) == "PENDING")
    testbed.set_node("c3", "DRAIN", "recorded")  # a node that is only DOWN comes back by itself
    submit("needs-c3", "-wc3")
    submit("array", "--array=0-3%1")
    held = submit("held", "--hold")
    submit("depends", f"--dependency=afterok:{held}")
    submit("too-big", "-N9")
    submit("big", "-N2", "--exclusive")
    submit("behind", "-N2", "--exclusive")
    submit("quantum", "-pquantum", "--gres=qpu:2")
    submit("licensed", "-Lrun:1", "-t1")  # short: the big ones are ahead of it
    until(lambda: state_of(failing) == "FAILED")
    until(lambda: state_of(limited) == "TIMEOUT", TIMEOUT_S)
    submit("short", "-t1", script="true")
    stubborn = submit("stubborn", "-t1", script=STUBBORN)
    until(lambda: state_of(stubborn) == "RUNNING")
    call_once("scancel", stubborn)
    until(lambda: state_of(stubborn) == "COMPLETING")


def record_outputs(recorder: Recorder) -> None:
    """Record all that qloom reads."""
    recorder.record("squeue", "squeue", "-h", "-t", "all", "-o", FORMAT)
    recorder.record_json_states()
    recorder.record("squeue-advisor", "squeue", "-h", "-pcompute", "-tR,PD", "-S", "-p,i", "-o", STANDING_FORMAT)
    recorder.record("squeue-broker", "squeue", "-h", "-t", "all", "-O", SHOWN)
    recorder.record("squeue-unknown-job", "squeue", "-h", "-j", "999999", "-o", FORMAT)
    recorder.record("scancel-unknown-job", "scancel", "999999")
    recorder.record("squeue-states", "squeue", "--helpstate")
    recorder.record("sinfo-facts", "sinfo", "-h", "-N", "-o", FACTS_FORMAT)
    recorder.record("sinfo-partitions", "sinfo", "-h", "-o", "%P")
    recorder.record("sinfo-advisor", "sinfo", "-h", "-N", "-pcompute", "-o", NODE_FORMAT)
    recorder.record("licenses", "scontrol", "show", "licenses", "-o")
    time.sleep(3.0)  # accounting lags behind
    recorder.record("sacct-states", "sacct", "-X", "-D", "-n", "-P", "-o", "JobID,State")
    recorder.record("sacct-advisor", "sacct", "-a", "-X", "-n", "-P", "-o", ENDED_FIELDS)


def main() -> None:
    """Record one version."""
    settings = TestbedSettings(cpus=8, broker=False, slurm_prefix=sys.argv[1] if len(sys.argv) > 1 else "")
    with Testbed.up(f"record-{os.getpid()}", settings, attached=True) as testbed:
        os.environ.update(testbed.environment)
        with open(testbed.directory / "etc" / "slurm.conf", "a") as config:
            config.write("Licenses=run:4\n")
        call_once("scontrol", "reconfigure")
        recorder = Recorder()
        version = recorder.record("version", "sinfo", "--version").split()[1]
        make_jobs(testbed, recorder)
        record_outputs(recorder)
        call_once("scontrol", "update", "NodeName=c3", "State=RESUME")
    path = FIXTURES / f"{'.'.join(version.split('.')[:2])}.json"
    path.write_text(json.dumps(recorder.kept, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
