// A temporary file without a name: it is gone when it is closed, however the process ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace graphbox {

// Places in the file are taken first and written then. Thread safe.
class ScratchFile {
 public:
  explicit ScratchFile(std::string folder);  // on the disk of this folder
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  std::uint64_t bytes() const { return end_.load(std::memory_order_relaxed); }

  // Takes the next `bytes` bytes and returns where they start.
  std::uint64_t take(std::size_t bytes) { return end_.fetch_add(bytes, std::memory_order_relaxed); }
  void write(const void* data, std::size_t bytes, std::uint64_t offset);
  void read(void* data, std::size_t bytes, std::uint64_t offset) const;

  // Asks the system to have this part in memory soon.
  void will_read(std::uint64_t offset, std::size_t bytes) const;

 private:
  std::string folder_;
  int descriptor_ = -1;
  std::atomic<std::uint64_t> end_{0};
};

}  // namespace graphbox
