// Files: written so that a reader sees the old or the new one, read at any place. System errors become messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace graphbox {

// Throws what `errno` says as an error that names the file: a full disk is of the kind "does not fit".
[[noreturn]] void throw_system_error(const std::string& what, const std::string& path);

// Writes exactly `bytes` bytes at `offset` of an open file. A full disk names the bytes that found no room.
void write_fully(int descriptor, const void* data, std::size_t bytes, std::uint64_t offset, const std::string& path);

// Reads exactly `bytes` bytes at `offset` of an open file; a file that ends before that is a format error.
void read_fully(int descriptor, void* data, std::size_t bytes, std::uint64_t offset, const std::string& path);

// Asks the system to begin writing this part to the disk, so that making the file durable is quick. Only a hint.
void start_writeback(int descriptor, std::uint64_t offset, std::size_t bytes);

// Makes it durable that a file was created, renamed or removed in the folder of `path`.
void sync_folder_of(const std::string& path);

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
