"""Runs out of memory at the device's capacity, gets torch's own message, and continues."""

import torch

GIB = 1 << 30
held = [torch.empty(GIB, dtype=torch.uint8, device="cuda")]
try:
    while True:
        held.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    text = str(error)
free, total = torch.cuda.mem_get_info()
assert total == 8 * GIB - (256 << 20), total
assert len(held) == 7 and free < GIB, (len(held), free)
assert "Tried to allocate 1024.00 MiB" in text or "Tried to allocate 1.00 GiB" in text, text
assert "total capacity of 7.75 GiB" in text, text
stats = torch.cuda.memory_stats()
assert stats["num_ooms"] == 1 and stats["num_alloc_retries"] >= 1
held.clear()
torch.cuda.empty_cache()
assert torch.cuda.mem_get_info()[0] == total - (512 << 20)
torch.empty(7 * GIB, dtype=torch.uint8, device="cuda")
print("ok")
