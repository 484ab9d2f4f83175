"""A convolutional network on images, with a teacher and gradients in accumulation."""

import torch
from torch import nn


class Stage(nn.Sequential):
    def __init__(self, inner, outer):
        super().__init__(
            nn.Conv2d(inner, outer, 3, padding=1),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),  # relu
            nn.MaxPool2d(2),
        )


class Net(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stages = nn.Sequential(Stage(3, width), Stage(width, 2 * width), Stage(2 * width, 4 * width))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, images):
        features = self.stages(images)
        return self.head(self.pool(features).flatten(1))


def teach(teacher, images):
    with torch.no_grad():  # teacher
        return teacher(images)


def train(net, teacher, optimizer, steps):
    for step in range(steps):
        images = torch.randn(16, 3, 64, 64, device="cuda")  # images
        answers = teach(teacher, images)
        loss = (net(images) - answers).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)  # zero


def main():
    net = Net(32, 100).to("cuda")  # net
    teacher = Net(48, 100).to("cuda").eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # optimizer
    train(net, teacher, optimizer, 40)


if __name__ == "__main__":
    main()
