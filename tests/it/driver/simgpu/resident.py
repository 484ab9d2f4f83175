"""What is copied to a device, and between places on it, is there; and the process's resident memory does not grow by
it."""

import os

import torch


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


piece = torch.arange(1 << 17)
kept = [piece.cuda()]
before = resident()
for _ in range(200):
    # In place: the host allocator's own memory does not belong to a device.
    piece += 1
    kept.append(piece.cuda())
    kept.append(kept[-1].clone())
grown = resident() - before
assert len(kept) * piece.nbytes > 400 << 20
assert grown < 40 << 20, f"{grown >> 20} MiB for what is on the device"
for at in (0, 99, 199):
    assert torch.equal(kept[1 + 2 * at].cpu(), torch.arange(at + 1, at + 1 + (1 << 17)))
    assert torch.equal(kept[2 + 2 * at][5:9].cpu(), torch.arange(at + 6, at + 10))

# Bytes that were copied in are read back one by one, as long as no kernel may have written there.
few = torch.tensor([3, 5, 7]).cuda()
assert [it.item() for it in few] == [3, 5, 7]
few *= 2
assert few[1].item() == 0, "nobody computed it"
assert torch.zeros(1000, device="cuda").cpu().sum() == 0

# Memory that was given back is empty when it is had again.
del kept, few
torch.cuda.empty_cache()
assert torch.empty(1 << 17, dtype=torch.int64, device="cuda").cpu().count_nonzero() == 0
print("ok")
