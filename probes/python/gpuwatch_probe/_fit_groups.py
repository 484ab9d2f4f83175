"""Process groups of which some ranks are absent under `gpuwatch fit` (`_fit_ranks.py`).

NCCL's groups are PyTorch's own: the simulated NCCL answers for absent ranks as soon as it knows which ranks of a
communicator run. The group's store tells it when a communicator's identity passes through. Groups of the host's tensors
(gloo) do not communicate; `_fit_host_collectives.py` does it for them.
"""

import ctypes
import datetime
import functools
import os
import re
import sys

from ._fit_host_collectives import HostCollectives, bind

# Bytes of NCCL's identities.
_IDENTITY = 128
# The identities of which it is known which ranks run.
_noted = set()
# What is in the keys of barriers.
_BARRIER = "store_based_barrier_key"
# The key of a communicator of two ranks that send to each other.
_PAIR = re.compile(r"(?:^|/)(\d+):(\d+)$")


def install(torch, plan):
    """Has ranks meet although some are absent."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or plan is None:
        return
    _one_machine_for_launchers()
    if plan.world is not None:
        Groups(torch, c10d, plan).install()


class Groups:
    """What is put in the place of `torch.distributed`'s functions."""

    def __init__(self, torch, c10d, plan):
        self._torch, self._c10d, self._plan = torch, c10d, plan
        # Stores that only C++ holds otherwise.
        self._stores = []
        # How many ranks run of the groups of which some do not, by name.
        self._counts = {}

    def install(self):
        # One rank gives a communicator its identity, however many there are.
        os.environ["TORCH_NCCL_RANKS_PER_ROOT"] = str(1 << 30)
        self._wrap("init_process_group", self._init_process_group)
        self._wrap("_new_process_group_helper", self._new_group_helper)
        self._wrap("_store_based_barrier", self._barrier)
        self._wrap("_get_split_source", lambda original, *arguments, **named: None)
        self._wrap("split_group", self._split_group)
        for name in ("send", "recv", "isend", "irecv", "broadcast", "scatter"):
            self._wrap(name, functools.partial(self._noted, name))
        for name in ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"):
            self._wrap(name, self._objects)
        self._wrap_store()
        HostCollectives(self._torch, self._c10d, self._plan, self._wrap).install()

    def _wrap(self, name, function):
        """Has `function(original, …)` be called in the place of one of PyTorch's functions, wherever it is known."""
        original = getattr(self._c10d, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def wrapped(*arguments, **named):
            return function(original, *arguments, **named)

        _replace(original, wrapped)

    # Meeting

    def _init_process_group(self, original, *arguments, **named):
        plan = self._plan
        given = dict(zip(("backend", "init_method", "timeout", "world_size", "rank"), arguments))
        given.update(named)
        rank, world = given.get("rank", -1), given.get("world_size", -1)
        if isinstance(rank, int) and rank >= 0 and isinstance(world, int) and world > 0:
            # A program that starts its ranks itself.
            if (rank, world) != (plan.rank, plan.world):
                plan.is_told(rank, world, os.environ)
            if rank not in plan.present(world):
                os._exit(0)
        plan.start_others()
        return original(*arguments, **named)

    def _wrap_store(self):
        """Has the first rank that runs open the store, and nobody wait for absent ranks."""
        plan, original = self._plan, self._torch.distributed.TCPStore
        names = "host_name", "port", "world_size", "is_master", "timeout", "wait_for_workers", "multi_tenant"

        class TCPStore(original):
            def __init__(self, *arguments, **named):
                named.update(zip(names, arguments))
                rest = arguments[len(names) :]
                present = plan.present(plan.world)
                by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
                if named.get("world_size") == plan.world and not by_agent:
                    named["host_name"] = "127.0.0.1"
                    named["is_master"] = plan.rank == present[0]
                named["wait_for_workers"] = False
                first = [named.pop(it) for it in names[:2]]
                if rest:
                    first += [named.pop(it) for it in names[2:]]
                super().__init__(*first, *rest, **named)

        TCPStore.__name__ = TCPStore.__qualname__ = original.__name__
        TCPStore.__module__ = original.__module__
        _replace(original, TCPStore)

    def _barrier(self, original, rank, store, group_name, rendezvous_count, *rest, **named):
        plan = self._plan
        present = plan.present(plan.world)
        count = len(present) if rendezvous_count == plan.world else self._counts.get(group_name, rendezvous_count)
        return original(rank, store, group_name, min(count, len(present)), *rest, **named)

    # Groups

    def _new_group_helper(self, original, size, rank, ranks, backend, store, *rest, **named):
        members = list(ranks) or list(range(size))
        if not self._plan.is_whole(members) and self._plan.rank in members:
            name = named.get("group_name") or next((it for it in rest if isinstance(it, str)), None)
            present = [at for at, it in enumerate(members) if self._plan.is_whole([it])]
            self._counts[name] = len(present)
            store = _store_class(self._torch)(store, members.index(self._plan.rank), present)
            self._stores.append(store)
        return original(size, rank, ranks, backend, store, *rest, **named)

    def _split_group(self, original, parent_pg=None, split_ranks=None, timeout=None, pg_options=None, *rest, **named):
        """Makes the groups anew: the ranks of a split that are absent cannot say to which part they belong."""
        c10d = self._c10d
        parent = parent_pg or c10d._get_default_group()
        members = c10d.get_process_group_ranks(parent)
        own = None
        for part in split_ranks or ():
            ranks = [members[it] for it in part]
            backend = c10d._world.pg_map[parent][0]
            more = {"group_desc": named.get("group_desc")} if named.get("group_desc") else {}
            group = c10d.new_group(ranks, timeout=timeout, backend=backend, pg_options=pg_options, **more)
            if self._plan.rank in ranks:
                own = group
                if hasattr(parent, "bound_device_id") and hasattr(group, "bound_device_id"):
                    group.bound_device_id = parent.bound_device_id
        return own

    def _noted(self, name, original, *arguments, **named):
        """Notes the ranks on whose values an operation depends."""
        try:
            group, peer = self._peer(bind(original, arguments, named), "dst" if name in ("send", "isend") else "src")
            if isinstance(peer, int) and peer != self._plan.rank:
                self._plan.note(name, peer, self._c10d.get_process_group_ranks(group))
        except Exception:
            pass
        return original(*arguments, **named)

    def _objects(self, original, *arguments, **named):
        """Notes where objects come of which absent ranks would send some."""
        try:
            group, source = self._peer(bind(original, arguments, named), "src")
            senders = self._c10d.get_process_group_ranks(group) if source is None else [source]
            if not self._plan.is_whole(senders):
                self._plan.assume()
        except Exception:
            pass
        return original(*arguments, **named)

    def _peer(self, bound, key):
        """Returns the group of a call, and the rank that its argument names, there or by its place in the group."""
        group = bound.get("group") or self._c10d._get_default_group()
        place = bound.get("group_" + key)
        return group, bound.get(key) if place is None else self._c10d.get_global_rank(group, place)


def _replace(original, replacement):
    """Puts a function or class in the place of another one wherever PyTorch knows it by its name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.") or name == "torch":
            space = getattr(module, "__dict__", None)
            for key in (original.__name__, "_" + original.__name__):
                if isinstance(space, dict) and space.get(key) is original:
                    space[key] = replacement


@functools.lru_cache(maxsize=None)
def _store_class(torch):
    class GroupStore(torch.distributed.Store):
        """The store of a group: the first rank that runs gives a communicator its identity where the one that should
        is absent, and says which ranks run."""

        def __init__(self, store, own, present):
            super().__init__()
            self._store, self._own, self._present = store, own, present
            self._simgpu = ctypes.CDLL("libsimgpu.so")

        # Identities

        def _note(self, value, present):
            # The store of a group is within that of all ranks, where the same passes.
            if value in _noted:
                return
            _noted.add(value)
            ranks = (ctypes.c_int32 * len(present))(*present)
            identity = (ctypes.c_char * _IDENTITY).from_buffer_copy(value)
            self._simgpu.simgpu_nccl_present(identity, ranks, len(present))

        def _of(self, key):
            """Returns the ranks of a key's communicator that run, and this one's: of the group, or of a pair."""
            pair = _PAIR.search(key)
            if pair is None:
                return self._present, self._own
            members = [int(it) for it in pair.groups()]
            return [at for at, it in enumerate(members) if it in self._present], members.index(self._own)

        def _identify(self, key):
            """Gives the communicator an identity, as its first rank would, where that is absent."""
            present, own = self._of(key)
            if present[0] != own or own == 0 or _BARRIER in key or self._store.check([key]):
                return
            identity = (ctypes.c_char * _IDENTITY)()
            if self._simgpu.ncclGetUniqueId(identity) == 0:
                self._note(identity.raw, present)
                self._store.set(key, identity.raw)

        def set(self, key, value):
            if len(value) == _IDENTITY and value.startswith(b"simgpu-nccl"):
                self._note(bytes(value), self._of(key)[0])
            self._store.set(key, value)

        def get(self, key):
            self._identify(key)
            return self._store.get(key)

        def multi_get(self, keys):
            return [self.get(it) for it in keys]

        def wait(self, keys, timeout=None):
            for it in keys:
                self._identify(it)
            if timeout is None:
                return self._store.wait(keys)
            return self._store.wait(keys, timeout)

        # What is as it was

        def multi_set(self, keys, values):
            for key, value in zip(keys, values):
                self.set(key, value)

        def add(self, key, value):
            return self._store.add(key, value)

        def compare_set(self, key, expected, desired):
            return self._store.compare_set(key, expected, desired)

        def check(self, keys):
            return self._store.check(keys)

        def append(self, key, value):
            return self._store.append(key, value)

        def delete_key(self, key):
            return self._store.delete_key(key)

        def num_keys(self):
            return self._store.num_keys()

        def has_extended_api(self):
            return True

        def clone(self):
            return self

        deleteKey, getNumKeys = delete_key, num_keys

        def set_timeout(self, timeout):
            self._store.set_timeout(timeout)

        @property
        def timeout(self):
            return getattr(self._store, "timeout", datetime.timedelta(minutes=30))

    return GroupStore


def _one_machine_for_launchers():
    """Has PyTorch's launcher start the workers of one machine and wait for no other one."""

    def launch(original, config, *arguments, **named):
        config.min_nodes = config.max_nodes = 1
        config.rdzv_backend, config.rdzv_endpoint, config.rdzv_configs = "c10d", "localhost:0", {}
        return original(config, *arguments, **named)

    def wrap(module):
        original = module.launch_agent
        module.launch_agent = functools.partial(launch, original)

    _after_import("torch.distributed.launcher.api", wrap)


def _after_import(name, then):
    """Calls a function with a module once that is imported."""
    if name in sys.modules:
        then(sys.modules[name])
        return

    class Finder:
        def find_spec(self, found, path=None, target=None):
            if found != name:
                return None
            sys.meta_path.remove(self)
            import importlib.util

            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                then(module)

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder())


def communicators():
    """Returns how many communicators of NCCL there are."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    # A group without a named backend has one for each kind of device, as in `cpu:gloo,cuda:nccl`.
    backends = getattr(world, "pg_backend_config", {})
    return sum("nccl" in "%s %s" % (it[0], backends.get(group)) for group, it in world.pg_map.items())
