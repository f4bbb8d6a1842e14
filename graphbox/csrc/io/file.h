// Files: written so that a reader sees the old or the new one, read at any place. System errors become messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace graphbox {

// Writes beside `path`; commit() makes the data durable and moves it into place. Without commit() nothing remains.
class AtomicFileWriter {
 public:
  explicit AtomicFileWriter(std::string path);
  AtomicFileWriter(const AtomicFileWriter&) = delete;
  AtomicFileWriter& operator=(const AtomicFileWriter&) = delete;
  ~AtomicFileWriter();

  void write(const void* data, std::size_t bytes);
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

class FileReader {
 public:
  explicit FileReader(std::string path);
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader();

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }

  // Reads exactly `bytes` bytes at `offset`; a file that ends before that is a format error.
  void read(void* data, std::size_t bytes, std::uint64_t offset) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
};

}  // namespace graphbox
