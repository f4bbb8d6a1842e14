#include "memory/buffer.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <new>

namespace graphbox {
namespace {

constexpr std::size_t kSmallestPooledBytes = std::size_t{4} << 10;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Maps `bytes` (a multiple of the huge page) at an address that is one too, by mapping more and giving back the rest.
std::byte* map_huge(std::size_t bytes) {
  const std::size_t mapped = bytes + kHugePageBytes;
  void* raw = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    throw std::bad_alloc();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = round_up(address, kHugePageBytes);
  const std::size_t before = aligned - address;
  const std::size_t after = mapped - before - bytes;
  if (before > 0) {
    ::munmap(raw, before);
  }
  if (after > 0) {
    ::munmap(reinterpret_cast<void*>(aligned + bytes), after);
  }
#ifdef MADV_HUGEPAGE
  ::madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);  // a hint: slower without, not wrong
#endif
  return reinterpret_cast<std::byte*>(aligned);
}

}  // namespace

Buffer::Buffer(std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  if (bytes > SIZE_MAX / 2) {
    throw std::bad_alloc();
  }
  if (bytes >= kHugePageBytes) {
    bytes_ = round_up(bytes, kHugePageBytes);
    data_ = map_huge(bytes_);
    return;
  }
  bytes_ = round_up(bytes, 64);
  data_ = static_cast<std::byte*>(std::aligned_alloc(64, bytes_));
  if (data_ == nullptr) {
    throw std::bad_alloc();
  }
}

Buffer::~Buffer() {
  if (data_ == nullptr) {
    return;
  }
  if (bytes_ >= kHugePageBytes) {
    ::munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
}

BufferPool& BufferPool::shared() {
  static auto* pool = new BufferPool();  // never destroyed: arrays may be dropped after static destructors ran
  return *pool;
}

Buffer BufferPool::take(std::size_t bytes) {
  if (bytes > SIZE_MAX / 4) {
    throw std::bad_alloc();
  }
  const std::size_t rounded = std::bit_ceil(bytes < kSmallestPooledBytes ? kSmallestPooledBytes : bytes);
  {
    const std::lock_guard lock(mutex_);
    Size& size = free_[rounded];
    size.last_take = ++takes_;
    if (!size.buffers.empty()) {
      Buffer buffer = std::move(size.buffers.back());
      size.buffers.pop_back();
      held_bytes_ -= buffer.bytes();
      return buffer;
    }
  }
  return Buffer(rounded);
}

void BufferPool::give(Buffer buffer) noexcept {
  std::vector<Buffer> dropped;  // freed when the lock is
  try {
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = buffer.bytes();
    if (!std::has_single_bit(bytes)) {
      return;
    }
    Size& size = free_[bytes];
    if (make_room(bytes, size.last_take, dropped)) {
      size.buffers.push_back(std::move(buffer));
      held_bytes_ += bytes;
    }
  } catch (const std::bad_alloc&) {
    // No memory to remember the buffer in: it is freed instead.
  }
}

// Drops buffers of sizes last taken before `last_take`, the oldest first, until there is room for `bytes` more.
bool BufferPool::make_room(std::size_t bytes, std::uint64_t last_take, std::vector<Buffer>& dropped) {
  while (held_bytes_ + bytes > limit_bytes_) {
    Size* oldest = nullptr;
    for (auto& [_, size] : free_) {
      if (!size.buffers.empty() && size.last_take < last_take &&
          (oldest == nullptr || size.last_take < oldest->last_take)) {
        oldest = &size;
      }
    }
    if (oldest == nullptr) {
      return false;
    }
    dropped.push_back(std::move(oldest->buffers.back()));
    oldest->buffers.pop_back();
    held_bytes_ -= dropped.back().bytes();
  }
  return true;
}

std::size_t BufferPool::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_bytes_;
}

void BufferPool::set_limit_bytes(std::size_t limit_bytes) {
  std::map<std::size_t, Size> dropped;
  const std::lock_guard lock(mutex_);
  limit_bytes_ = limit_bytes;
  if (held_bytes_ > limit_bytes_) {
    dropped.swap(free_);
    held_bytes_ = 0;
  }
}

void BufferPool::release() {
  std::map<std::size_t, Size> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(free_);
  held_bytes_ = 0;
}

}  // namespace graphbox
