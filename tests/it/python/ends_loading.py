"""Ends while the thread that `gpuwatch attach` starts loads the probe: at the n-th module that it looks for."""

import _thread
import os
import sys

package, place, left = os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2]), int(sys.argv[3])
gate = _thread.allocate_lock()
gate.acquire()


class Count:
    def find_spec(self, name, path=None, target=None):
        global left
        if name.partition(".")[0] == "gpuwatch_probe":
            left -= 1
            if left == 0:
                gate.release()
        return None


def reply(words):
    pass


def join():
    order = {"do": "start", "pid": os.getpid(), "folder": package, "library": b"none", "place": place}
    order.update(begun=b"begun", answer=b"answer", directories=[place], run=None, remove=0, page=0)
    with open(os.path.join(package, b"gpuwatch_probe/_attach_script.py"), "rb") as file:
        text = file.read()
    exec(text, {"order": order, "reply": reply})


sys.meta_path.insert(0, Count())
_thread.start_new_thread(join, ())
gate.acquire()
print("own")
sys.exit(7)
