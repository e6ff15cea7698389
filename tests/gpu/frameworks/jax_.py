# SPDX-License-Identifier: Apache-2.0
"""JAX, with the allocator that XLA_PYTHON_CLIENT_ALLOCATOR names."""

from steps import *

import jax
import jax.numpy as jnp


@step
def told():
    device = jax.devices()[0]
    assert device.platform == "gpu", device
    statistics = device.memory_stats() or {}
    most = statistics.get("bytes_limit")
    if LIMIT and most:
        assert most <= LIMIT, most
    return f"{device.device_kind}, {mib(most) if most else 'no statistics'}, JAX {jax.__version__}"


@step
def matrices():
    a = jax.random.normal(jax.random.key(0), (2048, 2048))
    b = jax.jit(lambda a: a @ a.T)(a).block_until_ready()
    return f"{float(b[0, 0]):.1f}"


@step
def gradient():
    def loss(w, x):
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    x = jax.random.normal(jax.random.key(1), (256, 512))
    w = jax.random.normal(jax.random.key(2), (512, 64)) * 0.1
    one = jax.jit(jax.value_and_grad(loss))
    values = []
    for _ in range(20):
        value, gradient = one(w, x)
        w = w - gradient
        values.append(float(value))
    assert values[-1] < values[0], values


@step
def loop():
    @jax.jit
    def run(x):
        return jax.lax.fori_loop(0, 100, lambda i, x: jnp.sin(x) + 1, x)

    run(jnp.ones(10000)).block_until_ready()


@step
def convolution():
    x = jnp.ones((8, 32, 32, 16))
    k = jnp.ones((3, 3, 16, 32))
    y = jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    assert float(y[0, 16, 16, 0]) == 144


@step
def too_much():
    if not LIMIT:
        return "bare"
    try:
        jnp.ones((LIMIT // 4 + 1,), dtype=jnp.float32).block_until_ready()
    except Exception as error:
        assert "RESOURCE_EXHAUSTED" in str(error), str(error)[:200]
        return "refused as out of memory"
    raise AssertionError("granted")


@step
def still_alive():
    assert float(jnp.ones((1000, 1000)).sum()) == 1e6


finish()
