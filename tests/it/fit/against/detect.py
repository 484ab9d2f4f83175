"""A detector of the one-stage kind: pictures of several sizes, levels of features, boxes and classes for each place."""

import torch
from torch import nn
from torch.nn import functional as F

SIZES = [(96, 128), (128, 96), (128, 128), (112, 112)]
CLASSES = 20


class Backbone(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = self.stage(3, width)
        self.third = self.stage(width, 2 * width)
        self.fourth = self.stage(2 * width, 4 * width)
        self.fifth = self.stage(4 * width, 4 * width)

    def stage(self, inner, outer):
        return nn.Sequential(nn.Conv2d(inner, outer, 3, 2, 1), nn.BatchNorm2d(outer), nn.ReLU(inplace=True))

    def forward(self, images):
        third = self.third(self.stem(images))
        fourth = self.fourth(third)
        return [third, fourth, self.fifth(fourth)]


class Pyramid(nn.Module):
    def __init__(self, inner, width):
        super().__init__()
        self.side = nn.ModuleList(nn.Conv2d(it, width, 1) for it in inner)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in inner)

    def forward(self, levels):
        levels = [side(it) for side, it in zip(self.side, levels)]
        for number in range(len(levels) - 1, 0, -1):
            upper = F.interpolate(levels[number], size=levels[number - 1].shape[-2:])
            levels[number - 1] = levels[number - 1] + upper
        return [smooth(it) for smooth, it in zip(self.smooth, levels)]


class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU())
        self.classes = nn.Conv2d(width, CLASSES, 3, padding=1)
        self.boxes = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, levels):
        scores, boxes = [], []
        for it in levels:
            features = self.tower(it)
            scores.append(self.classes(features).flatten(2))
            boxes.append(self.boxes(features).flatten(2).exp())
        return torch.cat(scores, 2), torch.cat(boxes, 2)


class Detector(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.backbone = Backbone(width)
        self.pyramid = Pyramid([2 * width, 4 * width, 4 * width], 32)
        self.head = Head(32)

    def forward(self, images):
        return self.head(self.pyramid(self.backbone(images)))


def focal(scores, targets):
    likely = torch.sigmoid(scores)
    entropy = F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    weight = (likely * (1 - targets) + (1 - likely) * targets).square()
    return (weight * entropy).sum()


def load(step):
    height, width = SIZES[step % len(SIZES)]
    images = torch.randn(8, 3, height, width).cuda()
    return images


def assign(scores, boxes):
    targets = torch.zeros_like(scores)
    targets[:, 3, ::7] = 1
    wanted = torch.full_like(boxes, 8.0)
    return targets, wanted


def detect(model, threshold=0.5):
    model.eval()
    found = []
    with torch.no_grad():
        for step in range(4):
            scores, boxes = model(load(step))
            best, kinds = scores.sigmoid().max(1)
            found.append((best > threshold).cpu())
    model.train()
    return found


def main():
    model = Detector().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [20, 30])
    for step in range(40):
        images = load(step)
        scores, boxes = model(images)
        targets, wanted = assign(scores, boxes)
        loss = focal(scores, targets) / len(images) + F.smooth_l1_loss(boxes, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    detect(model)


if __name__ == "__main__":
    main()
