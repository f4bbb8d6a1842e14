#include "memory/buffer.h"

#include <cstring>

#include "tests/check.h"

namespace graphbox {
namespace {

TEST(buffer, large_ones_are_aligned_and_zero) {
  const Buffer buffer(3 * kHugePageBytes + 5);
  CHECK_EQUAL(reinterpret_cast<std::uintptr_t>(buffer.data()) % kHugePageBytes, std::uintptr_t{0});
  CHECK_EQUAL(buffer.bytes(), 4 * kHugePageBytes);
  for (std::size_t i = 0; i < buffer.bytes(); i += 4096) {
    CHECK(buffer.data()[i] == std::byte{0});
  }
  std::memset(buffer.data(), 1, buffer.bytes());
}

TEST(buffer, pool_hands_the_same_memory_out_again) {
  BufferPool::shared().release();
  const Buffer first = BufferPool::shared().take(100000);
  const std::byte* const address = first.data();
  BufferPool::shared().give(std::move(const_cast<Buffer&>(first)));
  CHECK_EQUAL(BufferPool::shared().held_bytes(), std::size_t{131072});
  const Buffer second = BufferPool::shared().take(120000);
  CHECK(second.data() == address);
  CHECK_EQUAL(BufferPool::shared().held_bytes(), std::size_t{0});
}

TEST(buffer, pool_keeps_to_its_limit) {
  BufferPool::shared().release();
  BufferPool::shared().set_limit_bytes(1 << 20);
  for (int i = 0; i < 8; ++i) {
    BufferPool::shared().give(Buffer(std::size_t{1} << 18));
  }
  CHECK_EQUAL(BufferPool::shared().held_bytes(), std::size_t{1} << 20);
  BufferPool::shared().set_limit_bytes(std::size_t{256} << 20);
  BufferPool::shared().release();
}

TEST(buffer, pool_prefers_sizes_in_use) {
  BufferPool& pool = BufferPool::shared();
  pool.release();
  pool.set_limit_bytes(1 << 20);
  pool.give(pool.take(std::size_t{1} << 20));  // fills the pool
  for (int i = 0; i < 3; ++i) {
    pool.give(pool.take(std::size_t{1} << 18));
  }
  CHECK_EQUAL(pool.held_bytes(), std::size_t{1} << 18);
  // A size not asked for since does not push out one that was.
  Buffer large = pool.take(std::size_t{1} << 20);
  pool.give(pool.take(std::size_t{1} << 18));
  pool.give(std::move(large));
  CHECK_EQUAL(pool.held_bytes(), std::size_t{1} << 18);
  pool.set_limit_bytes(std::size_t{256} << 20);
  pool.release();
}

TEST(buffer, arrays_keep_their_values_as_they_grow) {
  PooledArray<std::int64_t> array;
  for (std::int64_t i = 0; i < 10000; ++i) {
    array.append(i);
  }
  for (std::int64_t i = 0; i < 10000; ++i) {
    CHECK_EQUAL(array[i], i);
  }
  const PooledArray<std::int64_t> moved = std::move(array);
  CHECK_EQUAL(moved.size(), std::int64_t{10000});
}

TEST(buffer, refuses_what_cannot_be) {
  bool refused = false;
  try {
    const Buffer buffer(std::size_t{1} << 63);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  CHECK(refused);
}

}  // namespace
}  // namespace graphbox
