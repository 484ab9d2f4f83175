"""A diffusion model: a U-Net with times, noise by a schedule, an average of weights, sampling."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

TIMES = 20


class Times(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.project = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, times):
        rates = torch.exp(torch.arange(self.width // 2, device=times.device) * (-math.log(1e4) / (self.width // 2)))
        angles = times[:, None] * rates[None]
        return self.project(torch.cat([angles.sin(), angles.cos()], 1))


class Layer(nn.Module):
    def __init__(self, inner, outer, times):
        super().__init__()
        self.norm = nn.GroupNorm(8, inner)
        self.conv = nn.Conv2d(inner, outer, 3, padding=1)
        self.time = nn.Linear(times, outer)
        self.last = nn.Conv2d(outer, outer, 3, padding=1)
        self.short = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x, time):
        hidden = self.conv(F.silu(self.norm(x)))
        hidden = hidden + self.time(time)[:, :, None, None]
        return self.short(x) + self.last(F.silu(hidden))


class UNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.times = Times(64)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down_first = Layer(width, width, 64)
        self.down_second = Layer(width, 2 * width, 64)
        self.middle = Layer(2 * width, 2 * width, 64)
        self.up_second = Layer(4 * width, width, 64)
        self.up_first = Layer(2 * width, width, 64)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, times):
        time = self.times(times)
        first = self.down_first(self.stem(x), time)
        second = self.down_second(F.avg_pool2d(first, 2), time)
        middle = self.middle(second, time)
        up = self.up_second(torch.cat([middle, second], 1), time)
        up = F.interpolate(up, scale_factor=2)
        up = self.up_first(torch.cat([up, first], 1), time)
        return self.out(up)


class Noise:
    def __init__(self):
        betas = torch.linspace(1e-4, 0.02, TIMES)
        self.kept = torch.cumprod(1 - betas, 0).cuda()
        self.betas = betas.cuda()

    def add(self, images, times):
        noise = torch.randn_like(images)
        kept = self.kept[times][:, None, None, None]
        noisy = kept.sqrt() * images + (1 - kept).sqrt() * noise
        return noisy, noise

    @torch.no_grad()
    def sample(self, model, count):
        x = torch.randn(count, 3, 32, 32, device="cuda")
        for time in reversed(range(TIMES)):
            times = torch.full((count,), time, device="cuda")
            predicted = model(x, times)
            beta, kept = self.betas[time], self.kept[time]
            x = (x - beta / (1 - kept).sqrt() * predicted) / (1 - beta).sqrt()
        return x


@torch.no_grad()
def follow(average, model):
    for mine, own in zip(average.parameters(), model.parameters()):
        mine.lerp_(own, 0.005)


def train(model, average, noise, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    for step in range(steps):
        images = torch.randn(16, 3, 32, 32, device="cuda")
        times = torch.randint(0, TIMES, (16,), device="cuda")
        noisy, target = noise.add(images, times)
        predicted = model(noisy, times)
        loss = F.mse_loss(predicted, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        follow(average, model)


def main():
    model = UNet().cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    noise = Noise()
    train(model, average, noise, 40)
    noise.sample(average, 4)


main()
