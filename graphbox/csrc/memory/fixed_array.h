// Plain values in memory of just their size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/buffer.h"

namespace graphbox {

// For what is held for long: a PooledArray takes up to twice what it needs. Values are not initialised.
template <typename T>
class FixedArray {
 public:
  FixedArray() = default;
  explicit FixedArray(std::int64_t size) : buffer_(static_cast<std::size_t>(size) * sizeof(T)), size_(size) {}

  T* data() { return reinterpret_cast<T*>(buffer_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(buffer_.data()); }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return buffer_.bytes(); }
  T& operator[](std::int64_t index) { return data()[index]; }
  const T& operator[](std::int64_t index) const { return data()[index]; }

 private:
  Buffer buffer_;
  std::int64_t size_ = 0;
};

}  // namespace graphbox
