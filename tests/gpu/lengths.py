"""A language model on batches of different lengths; traces itself into the file SNAPSHOT, if any, and prints its peaks."""

import json
import os
import random
import sys

import torch
import torch.nn.functional as F
from torch import nn

snapshot = os.environ.get("SNAPSHOT")
if snapshot:
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=1 << 22)

WIDTH, WORDS = 768, 32000
random.seed(7)
word = nn.Embedding(WORDS, WIDTH).cuda()
layer = nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, batch_first=True)
body = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
head = nn.Linear(WIDTH, WORDS).cuda()
parameters = [it for part in (word, body, head) for it in part.parameters()]
optimizer = torch.optim.AdamW(parameters)
for step in range(int(sys.argv[1])):
    words = torch.zeros(4, random.randrange(64, 1024), dtype=torch.long, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(head(body(word(words))).flatten(0, 1), words.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
del loss
if snapshot:
    torch.cuda.memory._dump_snapshot(snapshot)
stats = torch.cuda.memory_stats()
names = {
    "peak_allocated": "allocated_bytes.all.peak",
    "peak_reserved": "reserved_bytes.all.peak",
    "cuda_mallocs": "num_device_alloc",
    "retries": "num_alloc_retries",
}
print(json.dumps({name: stats[key] for name, key in names.items()}), flush=True)
