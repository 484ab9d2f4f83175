"""One of the measured trainings: `cnn.py MODEL OPTIMIZER BATCH POSITION`, as the measurements' README describes it."""

import sys

import torch
import torchvision

name, optimizer, batch, position = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
MODELS = {
    "VGG16": ("vgg16", 1000),
    "VGG19": ("vgg19", 1000),
    "ResNet101": ("resnet101", 1000),
    "ResNet152": ("resnet152", 1000),
    "MobileNetV2": ("mobilenet_v2", 1000),
    "ConvNeXtTiny": ("convnext_tiny", 1000),
    "ConvNeXtBase": ("convnext_base", 1000),
    "RegNetX400MF": ("regnet_x_400mf", 1000),
    "RegNetY400MF": ("regnet_y_400mf", 1000),
    "MnasNet": ("mnasnet1_0", 10),
    "MobeNetV3Small": ("mobilenet_v3_small", 10),
    "MobeNetV3Large": ("mobilenet_v3_large", 10),
}
function, classes = MODELS[name]
# Values do not matter, and drawing them takes longer than all else.
for it in ("kaiming_normal_", "normal_", "trunc_normal_", "kaiming_uniform_", "uniform_", "constant_", "zeros_", "ones_"):
    setattr(torch.nn.init, it, lambda tensor, *arguments, **named: tensor)
model = getattr(torchvision.models, function)(weights=None, num_classes=classes).cuda()
optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=0.001)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
loss_of = torch.nn.CrossEntropyLoss()
model.train()
for _ in range(4):
    if position == 0:
        optimizer.zero_grad()
    inputs, labels = torch.empty(batch, 3, 86, 86).cuda(), torch.zeros(batch, dtype=torch.int64).cuda()
    outputs = model(inputs)
    loss = loss_of(outputs, labels)
    if position == 1:
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if position == 2:
        optimizer.zero_grad()
    torch.max(outputs.data, 1)
    scheduler.step()
    del inputs, labels
