//! Real PyTorch on the simulated device: memory behaves as on a device, and NVML says the same as PyTorch.

use crate::torch;

#[test]
fn an_mlp_trains_and_its_memory_is_the_same_every_step() {
    let out = torch::run(
        "
import torch
from torch import nn
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
seen = []
for step in range(8):
    loss = nn.functional.cross_entropy(model(torch.randn(64, 256).cuda()), torch.randint(0, 10, (64,)).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
    seen.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
print(seen[-1] == seen[3], seen[-1][0] > 0)
",
    );
    assert_eq!(out, "True True\n");
}
