"""An image classifier: a loader, augmentation, residual blocks, mixed-up labels, an average of weights, validation."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.randn(3, self.size, self.size), index % 10


class Residual(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outer)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outer)
        self.short = nn.Sequential()
        if stride != 1 or inner != outer:
            self.short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        y = torch.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        return torch.relu(y + self.short(x))


class Network(nn.Module):
    def __init__(self, widths, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        blocks, inner = [], widths[0]
        for number, width in enumerate(widths):
            blocks.append(Residual(inner, width, 1 if number == 0 else 2))
            inner = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inner, classes)

    def forward(self, images):
        x = self.blocks(self.stem(images))
        return self.head(x.mean((2, 3)))


def mix(images, labels):
    order = torch.randperm(len(images), device=images.device)
    mixed = 0.7 * images + 0.3 * images[order]
    return mixed, labels, labels[order]


def update(average, model):
    with torch.no_grad():
        for mine, own in zip(average.parameters(), model.parameters()):
            mine.lerp_(own, 0.01)


def validate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in loader:
            scores = model(images.cuda())
            right += (scores.argmax(1) == labels.cuda()).sum()
    model.train()
    return right


def train_epoch(model, average, loader, optimizer):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for images, labels in loader:
        images, labels = images.cuda(), labels.cuda()
        mixed, first, second = mix(images, labels)
        scores = model(mixed)
        loss = 0.7 * criterion(scores, first) + 0.3 * criterion(scores, second)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update(average, model)


def main():
    loader = DataLoader(Pictures(320, 32), batch_size=32)
    testing = DataLoader(Pictures(64, 32), batch_size=32)
    model = Network([16, 32, 64], 10).cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=5e-4)
    for epoch in range(4):
        train_epoch(model, average, loader, optimizer)
        validate(average, testing)


if __name__ == "__main__":
    main()
