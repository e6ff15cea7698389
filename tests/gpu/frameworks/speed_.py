# SPDX-License-Identifier: Apache-2.0
"""Steps a second of two PyTorch programs: one that trains a transformer, and one of very short kernels."""

import json
import time

import torch

device = torch.device("cuda")
torch.manual_seed(1)


def rate(step, seconds=2.5):
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    begun, count = time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        count += 5
    return count / (time.monotonic() - begun)


layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0)
model = torch.nn.TransformerEncoder(layer, 6).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
x = torch.randn(8, 512, 1024, device=device)


def train():
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


a = torch.randn(1000, device=device)


def short():
    b = a
    for _ in range(50):
        b = b * 1.0001 + 0.5


print(json.dumps({"training": rate(train), "short kernels": rate(short)}))
