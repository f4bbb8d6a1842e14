// A file that is read in aligned blocks, past the page cache where the file system allows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace graphbox {

// Alignment of direct reads: a multiple of the logical sector of every usual disk, and its physical one.
inline constexpr std::size_t kBlockBytes = 4096;

class BlockFile {
 public:
  // Opens the file, which must have `expected_bytes`. `direct`: with O_DIRECT where the file system takes it.
  // `repair` is what errors say to do about a damaged file.
  BlockFile(std::string path, std::uint64_t expected_bytes, bool direct, std::string repair = "import the graph again");
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;
  ~BlockFile();

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t device() const { return device_; }
  bool direct() const { return direct_descriptor_ >= 0; }
  int descriptor() const { return direct() ? direct_descriptor_ : buffered_descriptor_; }
  int buffered_descriptor() const { return buffered_descriptor_; }

  // Why a read at `offset` gave fewer bytes than the file had when it was opened, or failed with `code` (errno).
  [[noreturn]] void throw_truncated(std::uint64_t offset) const;
  [[noreturn]] void throw_unreadable(std::uint64_t offset, int code) const;

 private:
  std::string path_;
  std::string repair_;
  std::uint64_t bytes_;
  std::uint64_t device_ = 0;
  int buffered_descriptor_ = -1;
  int direct_descriptor_ = -1;
};

}  // namespace graphbox
