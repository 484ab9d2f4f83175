"""Compares the latest containers, as the library lists them, with the collector's own list."""

import gc
import sys

from gpuwatch_probe import _native

# That of 3.14, and of builds that can do without the lock.
IS_OTHER = sys.version_info >= (3, 14) or "t" in sys.abiflags
library = _native.loaded()
gc.disable()
kept = [[at] for at in range(3000)]
for most in (1, 2, 64, 1000, 100_000):
    made = [[at] for at in range(10)]
    listed = _native.young(most)
    whole = gc.get_objects(generation=0)
    if IS_OTHER:
        assert listed is None, "another collector"
        continue
    # Both lists have what the calls themselves made at their ends.
    at = {id(it): place for place, it in enumerate(whole)}
    places = [at[id(it)] for it in listed if id(it) in at]
    assert places == sorted(places) and len(places) >= len(listed) - 4, (most, len(listed), len(places))
    # Before 3.11, a container beside the interpreter's state may end the list.
    least = min(most, 1000 if sys.version_info < (3, 11) else len(whole) - 8)
    assert most >= len(listed) >= least, (most, len(listed), len(whole))
    assert places == list(range(places[0], places[-1] + 1)), "without a gap"
    assert most < 64 or all(any(it is one for it in listed) for one in made), most
    del listed, whole, at

if not IS_OTHER:
    # What is given away is alive as long as the list is.
    made = [[at] for at in range(100)]
    listed = library.young(100)
    del made
    assert sum(len(it) for it in listed if type(it) is list) > 50
    gc.enable()
    del listed
    gc.collect()
    # As in 3.13t with its lock switched on.
    assert _native.young(1)
    sys.abiflags += "t"
    assert _native.young(1) is None
print("{}")
