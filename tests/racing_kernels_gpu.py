"""Kernels with and without races."""

import triton
from triton import language as tl


@triton.jit
def own_elements(values, BLOCK: tl.constexpr):
    at = values + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) + 1)
    tl.store(at, tl.load(at) + 1)


@triton.jit
def own_number(values, BLOCK: tl.constexpr, HAS_BARRIER: tl.constexpr):
    at = values + tl.program_id(0)
    gained = tl.load(at) + BLOCK
    if HAS_BARRIER:
        tl.debug_barrier()
    tl.store(at, gained)


@triton.jit
def of_the_program_before(values, BLOCK: tl.constexpr):
    number = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    before = tl.load(values + tl.maximum(number - 1, 0) * BLOCK + place)
    tl.store(values + number * BLOCK + place, before + number)


@triton.jit
def sum_of_all(values, BLOCK: tl.constexpr):
    ones = tl.full((BLOCK,), 1, tl.int64)
    tl.atomic_add(values + tl.arange(0, BLOCK), ones)


@triton.jit
def read_while_added(values, BLOCK: tl.constexpr):
    tl.atomic_add(values, tl.program_id(0).to(tl.int64))
    tl.store(values + 1 + tl.program_id(0), tl.load(values))


@triton.jit
def turned_round(values, BLOCK: tl.constexpr, HAS_BARRIER: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(values + place, place.to(tl.int64))
    if HAS_BARRIER:
        tl.debug_barrier()
    turned = tl.load(values + BLOCK - 1 - place)
    if HAS_BARRIER:
        tl.debug_barrier()
    tl.store(values + place, turned)


@triton.jit
def all_to_one_place(values, BLOCK: tl.constexpr, IS_SAME: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(values + place * 0, place.to(tl.int64) * (0 if IS_SAME else 1))
