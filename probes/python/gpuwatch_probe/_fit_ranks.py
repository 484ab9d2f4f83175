"""Which ranks of a job run under `gpuwatch fit`, where some are absent: the memory of a rank depends on the others only
through the shapes of what they send.

`GPUWATCH_FIT_RANKS` lists the ranks that run (negative ones count from the end), `GPUWATCH_FIT_NODES` says how many
machines there would be, `GPUWATCH_FIT_NODE_RANKS` how many devices each of them has. A launcher starts the ranks of one
machine; each of its workers takes the place of a rank that runs, or ends at once. A program without a launcher gets the
variables that one would have set; it starts the other ranks when it wants to meet them.

This runs at the start of every Python of the job, so it imports next to nothing.
"""

import os
import sys

# The rank and the number of ranks that a process was given here, for its children.
_TAKEN = "GPUWATCH_FIT_RANK"
# What launchers tell each process.
_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
)
# The most ranks of a small group.
_FEW = 8
# Programs that start one process for each rank, by the name of their command or module.
_LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "accelerate-launch",
    "accelerate.commands.launch",
    "deepspeed",
    "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
    "mpirun",
    "mpiexec",
)


class Plan:
    """The ranks of the job."""

    def __init__(self, environ):
        self._wanted = [int(it) for it in environ.get("GPUWATCH_FIT_RANKS", "").split(",") if it]
        self.nodes = int(environ.get("GPUWATCH_FIT_NODES") or 1)
        self.node_devices = int(environ.get("GPUWATCH_FIT_NODE_RANKS") or 1)
        # This process's rank, and how many there are.
        self.rank = self.world = None
        # Ranks with which this one exchanges tensors directly, and absent ones whose values it waits for.
        self.peers, self.sources = set(), set()
        # Notes that the job gets values that absent ranks would send.
        self.assume = lambda: None
        # The ranks that this process starts: it is started again as each of them.
        self._others, self._again = [], None

    def present(self, world):
        """Returns the ranks that run of so many."""
        return sorted({it % world for it in self._wanted if -world <= it < world} or {0})

    def is_whole(self, ranks):
        """Whether all of these ranks run."""
        present = set(self.present(self.world or 1))
        return all(it in present for it in ranks)

    def note(self, operation, peer, group):
        """Notes a rank of a group that an operation names. Where tensors go from rank to rank within a small group, as
        between the stages of a pipeline, all of its ranks matter."""
        if operation not in ("broadcast", "scatter"):
            self.peers.update([peer] if len(group) > _FEW else (it for it in group if it != self.rank))
        elif not self.is_whole([peer]):
            self.sources.add(peer)

    def report(self):
        """Returns what the report of this process says of ranks."""
        if self.world is None:
            return {}
        ran = self.present(self.world)
        peers, sources = sorted(self.peers), sorted(self.sources)
        return {"rank": self.rank, "world": self.world, "nodes": self.nodes, "ran": ran, "peers": peers, "sources": sources}

    def take(self, environ):
        """Gives this process its rank."""
        words = _command()
        if _is_launcher(words):
            return
        rank, world = environ.get("RANK"), environ.get("WORLD_SIZE")
        is_worker = rank is not None and world is not None
        if is_worker and environ.get(_TAKEN) == "%s/%s" % (rank, world):
            self.rank, self.world = int(rank), int(world)
            return
        if is_worker:
            local = int(environ.get("LOCAL_WORLD_SIZE") or world)
            places, others = self._places(local)
            own = places.get(int(environ.get("LOCAL_RANK") or rank))
            if own is None:
                os._exit(0)
            self._become(environ, own, local)
            if own == min(places.values()):
                # A launcher starts as many as a machine has.
                self._others, self._again = others, (words, os.getcwd())
            return
        present = self.present(self.nodes * self.node_devices)
        self._become(environ, present[0], self.node_devices)
        environ.setdefault("MASTER_ADDR", "127.0.0.1")
        environ.setdefault("MASTER_PORT", str(_port()))
        self._others, self._again = present[1:], (words, os.getcwd())

    def _places(self, local):
        """Returns which rank each worker of one machine stands for, one that has its place there if that is free, and
        the ranks for which there is none."""
        places, others = {}, []
        for it in self.present(self.nodes * local):
            if it % local in places:
                others.append(it)
            else:
                places[it % local] = it
        for place in range(local):
            if place not in places and others:
                places[place] = others.pop(0)
        return places, others

    def _become(self, environ, rank, local):
        """Sets the variables of a rank on a machine with so many."""
        self.rank, self.world = rank, self.nodes * local
        node = rank // local
        known = rank, self.world, rank % local, local, node, node, self.nodes, rank, self.world
        values = dict(zip(_VARIABLES, known))
        if environ.get("GPUWATCH_FIT_SLURM"):
            values.update(
                SLURM_PROCID=rank,
                SLURM_NTASKS=self.world,
                SLURM_NPROCS=self.world,
                SLURM_LOCALID=rank % local,
                SLURM_NODEID=node,
                SLURM_NNODES=self.nodes,
                SLURM_JOB_NUM_NODES=self.nodes,
                SLURM_NTASKS_PER_NODE=local,
                SLURM_JOB_ID=environ.get("SLURM_JOB_ID", "1"),
                SLURM_JOB_NODELIST="localhost",
                SLURM_NODELIST="localhost",
                SLURM_LAUNCH_NODE_IPADDR="127.0.0.1",
            )
        for name, value in values.items():
            environ[name] = str(value)
        environ[_TAKEN] = "%d/%d" % (rank, self.world)
        # The simulated machine has a device for each rank that runs: that one is in its place, others around it.
        own, place = self.present(self.world).index(rank), rank % local
        others = [it for it in range(max(self.node_devices, own + 1)) if it != own][: self.node_devices - 1]
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, others[:place] + [own] + others[place:]))

    def is_told(self, rank, world, environ):
        """The program starts its ranks itself, and has told this process which one it is."""
        self.rank, self.world, self._others = rank, world, []
        for name in _VARIABLES:
            environ.pop(name, None)

    def start_others(self):
        """Starts the ranks that run and that no launcher starts, once."""
        if not self._others:
            return
        import subprocess

        others, self._others = self._others, []
        words, folder = self._again
        for rank in others:
            environ = dict(os.environ)
            Plan(environ)._become(environ, rank, self.world // self.nodes)
            subprocess.Popen(words, cwd=folder, env=environ, stdin=subprocess.DEVNULL)


def _command():
    """Returns this process's command line, with the program's path."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = [os.fsdecode(it) for it in file.read().split(b"\0")[:-1]]
    except OSError:
        words = []
    return [sys.executable] + words[1:]


def _is_launcher(words):
    """Whether the first word that is no option of Python's names a launcher."""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, "") in _LAUNCHERS
        if word.startswith("-"):
            # Options with a value of their own.
            if word in ("-W", "-X"):
                next(rest, None)
            continue
        return os.path.basename(word) in _LAUNCHERS
    return False


def _port():
    import socket

    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


plan = None


def take():
    """Gives this process its rank at its start; it ends here where its rank is absent."""
    global plan
    plan = Plan(os.environ)
    plan.take(os.environ)
