# SPDX-License-Identifier: Apache-2.0
"""PyTorch, with the allocator that PYTORCH_ALLOC_CONF names."""

import os
import sys

from steps import *

import torch

if __name__ != "__main__":  # of a process that another one started
    step = lambda function: function
device = torch.device("cuda")


@step
def told():
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    if LIMIT:
        assert total == LIMIT, (total, LIMIT)
        assert properties.total_memory == LIMIT, properties.total_memory
    return f"{properties.name}, {mib(free)} of {mib(total)} free, {torch.__version__}"


def fill(size):
    pieces = []
    try:
        while len(pieces) * size < (LIMIT or 1 << 30) + (1 << 30):
            pieces.append(torch.empty(size, dtype=torch.uint8, device=device))
    except torch.OutOfMemoryError as error:
        return pieces, str(error)
    return pieces, ""


@step
def to_the_limit():
    said = []
    for size in (1 << 30, 100 << 20, 3 << 20):
        before = torch.cuda.mem_get_info()[0]
        pieces, refused = fill(size)
        held = len(pieces) * size
        del pieces
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        after = torch.cuda.mem_get_info()[0]
        said.append(f"{mib(held)} by {mib(size)}, {mib(before)} free before, {mib(after)} after")
        if LIMIT:
            assert refused, "never refused"
            assert held <= LIMIT, held
            # The caching allocator has six pieces of 3 MiB in 20.
            assert held > 0.88 * before - size, (mib(held), mib(before))
            assert abs(after - before) < 128 << 20, said[-1]
    return ", ".join(said)


@step
def matrices():
    a = torch.randn(2048, 2048, device=device)
    b = torch.randn(2048, 2048, device=device)
    error = (a @ b - (a.double() @ b.double()).float()).abs().max().item()
    assert error < 1, error
    return f"error {error:.2g}"


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(),
        torch.nn.Linear(1024, 10),
    ).to(device)


@step
def training():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 3, 64, 64, device=device), torch.randint(0, 10, (64,), device=device)
    losses = []
    for _ in range(20):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    return f"loss {losses[0]:.2f} to {losses[-1]:.2f}"


@step
def graphs():
    model = network().eval()
    x = torch.randn(16, 3, 64, 64, device=device)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        for _ in range(5):
            x.copy_(torch.randn_like(x))
            graph.replay()
            assert torch.allclose(y, model(x), atol=1e-3)
    return "replayed 5 times"


@step
def graph_training():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 3, 64, 64, device=device), torch.randint(0, 10, (64,), device=device)

    def one(x, y):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            one(x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = one(x, y)
    for _ in range(50):
        graph.replay()
    torch.cuda.synchronize()
    return f"loss {loss.item():.3f}"


@step
def streams():
    results = []
    for _ in range(8):
        with torch.cuda.stream(torch.cuda.Stream()):
            a = torch.ones(512, 512, device=device)
            for _ in range(20):
                a = a @ a / 512
            results.append(a)
    torch.cuda.synchronize()
    assert all((a == 1).all().item() for a in results)


@step
def pinned_copies():
    host = torch.randn(16 << 20).pin_memory()
    there = host.to(device, non_blocking=True)
    back = there.to("cpu")
    assert torch.equal(host, back)


@step
def libraries():
    a = torch.randn(256, 256, device=device)
    torch.linalg.svd(a)
    torch.fft.fft2(a)
    torch.linalg.solve(a + 300 * torch.eye(256, device=device), a)
    sparse = torch.eye(256, device=device).to_sparse_csr()
    assert torch.allclose(sparse @ a, a)
    q = torch.randn(2, 8, 128, 64, device=device, dtype=torch.bfloat16)
    torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.cuda.synchronize()
    return "cuSOLVER, cuFFT, cuSPARSE, attention"


@step
def compiled():
    @torch.compile
    def function(x):
        return torch.nn.functional.gelu(x) * x.sum(dim=-1, keepdim=True)

    x = torch.randn(128, 1000, device=device)
    wanted = torch.nn.functional.gelu(x) * x.sum(dim=-1, keepdim=True)
    assert torch.allclose(function(x), wanted, atol=1e-2)
    return "Triton"


@step
def profiled():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        a = torch.randn(1024, 1024, device=device)
        for _ in range(10):
            a = a @ a
        torch.cuda.synchronize()
    kernels = [e for e in profiler.events() if str(e.device_type).endswith("CUDA")]
    assert len(kernels) >= 10, len(kernels)
    return f"{len(kernels)} kernels seen"


@step
def one_rank():
    import torch.distributed as distributed

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), RANK="0", WORLD_SIZE="1")
    distributed.init_process_group("nccl")
    a = torch.ones(1 << 20, device=device)
    distributed.all_reduce(a)
    distributed.barrier()
    torch.cuda.synchronize()
    assert (a == 1).all().item()
    distributed.destroy_process_group()
    return "NCCL"


@step
def memory_statistics():
    torch.cuda.reset_peak_memory_stats()
    a = torch.empty(64 << 20, dtype=torch.uint8, device=device)
    assert torch.cuda.max_memory_allocated() >= 64 << 20
    del a
    torch.cuda.empty_cache()
    return f"device memory used by NVML: {mib(torch.cuda.device_memory_used())}"


@step
def generated():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=8, n_embd=256, vocab_size=1000, bos_token_id=0, eos_token_id=0)).to(device).eval()
    with torch.no_grad():
        tokens = model.generate(torch.ones(2, 8, dtype=torch.long, device=device), max_new_tokens=24, do_sample=False, pad_token_id=0)
    return f"{tuple(tokens.shape)} tokens"


def child(queue, done):
    try:
        tensor = queue.get(timeout=60)
        tensor += 1
        torch.cuda.synchronize()
        done.put(float(tensor.sum().item()))
        del tensor
    except BaseException as error:
        done.put(repr(error))


@step
def shared_with_a_process():
    import torch.multiprocessing as processes

    if "expandable" in os.environ.get("PYTORCH_ALLOC_CONF", "") + os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        return "not tried: handed over in another way"
    if "cudaMallocAsync" in os.environ.get("PYTORCH_ALLOC_CONF", ""):
        return "not tried: PyTorch can't"
    context = processes.get_context("spawn")
    queue, done = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, done))
    process.start()
    tensor = torch.ones(1000, device=device)
    queue.put(tensor)
    answer = done.get(timeout=60)
    process.join(30)
    assert answer == 2000 and tensor.sum().item() == 2000, answer
    return "by an IPC handle"


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.full((16,), float(index))


if __name__ == "__main__":

    @step
    def forked_workers():
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=32, num_workers=2, pin_memory=True)
        total = sum(batch.to(device, non_blocking=True).sum().item() for batch in loader)
        assert total == 16 * sum(range(256)), total

    finish()
