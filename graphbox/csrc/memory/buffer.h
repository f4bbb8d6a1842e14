// Memory for large arrays: huge pages, and a pool that hands used buffers out again.
//
// Random access into memory of 4 KiB pages costs two to three times as much as into 2 MiB pages, and touching fresh
// memory costs more than filling it. So large buffers are aligned to, and advised to use, huge pages, and the arrays
// given to Python return to the pool when Python drops them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace graphbox {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Owns a block of memory. From 2 MiB on it comes zeroed from the system; below it is not initialised.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);  // throws std::bad_alloc
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Buffers between uses, one list for each power of two. When the pool is full, a buffer that comes takes the place of
// those whose size has not been asked for the longest. Thread safe.
class BufferPool {
 public:
  static BufferPool& shared();

  Buffer take(std::size_t bytes);
  void give(Buffer buffer) noexcept;

  std::size_t held_bytes() const;
  void set_limit_bytes(std::size_t limit_bytes);
  void release();

 private:
  struct Size {
    std::vector<Buffer> buffers;
    std::uint64_t last_take = 0;  // number of the last call of take() for this size
  };

  bool make_room(std::size_t bytes, std::uint64_t last_take, std::vector<Buffer>& dropped);

  mutable std::mutex mutex_;
  std::map<std::size_t, Size> free_;
  std::uint64_t takes_ = 0;
  std::size_t held_bytes_ = 0;
  std::size_t limit_bytes_ = std::size_t{256} << 20;
};

// A growing array of plain values in a pooled buffer. Values are not initialised.
template <typename T>
class PooledArray {
 public:
  PooledArray() = default;
  explicit PooledArray(std::int64_t size) { resize(size); }
  PooledArray(PooledArray&& other) noexcept : buffer_(std::move(other.buffer_)), size_(std::exchange(other.size_, 0)) {}
  PooledArray& operator=(PooledArray&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(size_, other.size_);
    return *this;
  }
  PooledArray(const PooledArray&) = delete;
  PooledArray& operator=(const PooledArray&) = delete;
  ~PooledArray() {
    if (buffer_.data() != nullptr) {
      BufferPool::shared().give(std::move(buffer_));
    }
  }

  T* data() noexcept { return reinterpret_cast<T*>(buffer_.data()); }
  const T* data() const noexcept { return reinterpret_cast<const T*>(buffer_.data()); }
  std::int64_t size() const noexcept { return size_; }
  T& operator[](std::int64_t index) noexcept { return data()[index]; }
  const T& operator[](std::int64_t index) const noexcept { return data()[index]; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }

  void reserve(std::int64_t capacity);
  void resize(std::int64_t size) {
    reserve(size);
    size_ = size;
  }
  void append(T value) {
    resize(size_ + 1);
    data()[size_ - 1] = value;
  }

 private:
  Buffer buffer_;
  std::int64_t size_ = 0;
};

template <typename T>
void PooledArray<T>::reserve(std::int64_t capacity) {
  if (capacity > std::int64_t{PTRDIFF_MAX / sizeof(T)}) {
    throw std::bad_alloc();
  }
  const std::size_t bytes = static_cast<std::size_t>(capacity) * sizeof(T);
  if (bytes <= buffer_.bytes()) {
    return;
  }
  Buffer larger = BufferPool::shared().take(bytes);
  const T* source = data();
  T* target = reinterpret_cast<T*>(larger.data());
  for (std::int64_t i = 0; i < size_; ++i) {
    target[i] = source[i];
  }
  std::swap(buffer_, larger);
  if (larger.data() != nullptr) {
    BufferPool::shared().give(std::move(larger));
  }
}

}  // namespace graphbox
