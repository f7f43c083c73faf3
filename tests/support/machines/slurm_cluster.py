"""A cluster of one node with SLURM: its daemons of this test's own on this machine, without a secret between them."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

CONFIG = """
ClusterName=burnish
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={first}
SlurmdPort={second}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=100000
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} State=UNKNOWN
PartitionName=short Nodes={host} Default=YES MaxTime=60 State=UP
"""


class SlurmCluster:
    """The daemons. `use` makes sbatch and its kin talk to them."""

    def __init__(self, folder):
        self.folder = Path(folder)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        with socket.socket() as one, socket.socket() as two:
            for probe in (one, two):
                probe.bind(("127.0.0.1", 0))
            ports = [probe.getsockname()[1] for probe in (one, two)]
        self.config = self.folder / "slurm.conf"
        host = socket.gethostname().partition(".")[0]
        self.config.write_text(
            CONFIG.format(
                host=host,
                user=getpass.getuser(),
                folder=self.folder,
                first=ports[0],
                second=ports[1],
                cores=os.cpu_count(),
                memory=min(4000, psutil.virtual_memory().total // 2**21),
            )
        )
        environment = {**os.environ, "SLURM_CONF": str(self.config)}
        self._daemons = []
        for command in ((_daemon("slurmctld"), "-D", "-c"), (_daemon("slurmd"), "-D")):
            log = (self.folder / f"{Path(command[0]).name}.log").open("wb")
            self._daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        deadline = time.monotonic() + 30
        while "idle" not in self._sinfo(environment):
            assert time.monotonic() < deadline, (self.folder / "slurmctld.log").read_text()
            time.sleep(0.1)

    @staticmethod
    def _sinfo(environment):
        asked = subprocess.run(["sinfo", "-h"], env=environment, capture_output=True, text=True, check=False)
        return asked.stdout

    def use(self, patch):
        patch.setenv("SLURM_CONF", str(self.config))

    @contextlib.contextmanager
    def occupied(self):
        """Let a job have the whole node meanwhile, so that others wait in the queue."""
        command = ["sbatch", "--parsable", "--exclusive", "--output=/dev/null", "--wrap", "exec sleep 600"]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        try:
            yield
        finally:
            subprocess.run(["scancel", "--signal=KILL", made.stdout.strip()], check=True)

    def jobs(self):
        """Numbers of the jobs that wait."""
        asked = subprocess.run(
            ["squeue", "-h", "-t", "PENDING", "-o", "%i"], capture_output=True, text=True, check=True
        )
        return asked.stdout.split()

    def close(self):
        environment = {**os.environ, "SLURM_CONF": str(self.config)}
        command = ["scancel", "--user", getpass.getuser(), "--signal", "KILL"]
        subprocess.run(command, env=environment, capture_output=True, check=False)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(10)


def require_slurm():
    """Skip where this machine has no SLURM."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "squeue", "sinfo") if not _daemon(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: slurm-wlm)")


def _daemon(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
