// An array that grows in place: the addresses for its largest size are reserved at once, memory comes with use.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "errors/error.h"
#include "memory/buffer.h"

namespace graphbox {

// Values are plain. Growing never moves them, so nothing is ever held twice.
template <typename T>
class GrowingArray {
 public:
  GrowingArray() = default;
  // Throws std::bad_alloc when there are not so many addresses.
  explicit GrowingArray(std::size_t capacity) : capacity_(capacity) {
    if (capacity == 0) {
      return;
    }
    bytes_ = (capacity * sizeof(T) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped == MAP_FAILED) {
      throw std::bad_alloc();
    }
    data_ = static_cast<T*>(mapped);
#ifdef MADV_HUGEPAGE
    ::madvise(mapped, bytes_, MADV_HUGEPAGE);  // a hint: slower without, not wrong
#endif
  }
  GrowingArray(GrowingArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  GrowingArray& operator=(GrowingArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  GrowingArray(const GrowingArray&) = delete;
  GrowingArray& operator=(const GrowingArray&) = delete;
  ~GrowingArray() {
    if (data_ != nullptr) {
      ::munmap(data_, bytes_);
    }
  }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return capacity_; }
  std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  T& operator[](std::size_t index) noexcept { return data_[index]; }
  const T& operator[](std::size_t index) const noexcept { return data_[index]; }

  // The new values are zero the first time, and what they were before when the array had shrunk.
  void resize(std::size_t size) {
    if (size > capacity_) {
      throw Error(ErrorKind::kDoesNotFit, "expected at most " + std::to_string(capacity_) + " values, received " +
                                              std::to_string(size));
    }
    size_ = size;
  }
  void append(T value) {
    resize(size_ + 1);
    data_[size_ - 1] = value;
  }
  void append(const T* values, std::size_t count) {
    if (count > 0) {
      resize(size_ + count);
      std::memcpy(data_ + size_ - count, values, count * sizeof(T));
    }
  }

  // Forgets all values and gives their memory back, but keeps the addresses.
  void release() {
    if (data_ != nullptr) {
      ::madvise(data_, bytes_, MADV_DONTNEED);
    }
    size_ = 0;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace graphbox
