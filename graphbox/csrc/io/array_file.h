// Arrays on disk: `.npy` files written as a stream, with the checksum of their data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "memory/buffer.h"

namespace graphbox {

// The header of our `.npy` files always takes this many bytes, so that data can be written before its length is known.
inline constexpr std::size_t kArrayHeaderBytes = 128;

// The one header that an array of this type (as in "<i8") and shape may have (docs/formats/graph.md).
std::string array_header(const std::string& dtype, const std::vector<std::uint64_t>& shape);

// Bytes of one value of a type like "<i8" or "|u1".
std::size_t item_bytes_of(const std::string& dtype);

// Shape and checksum of a written array.
struct ArrayFile {
  std::vector<std::uint64_t> shape;
  std::uint32_t crc32c = 0;  // of the data after the header
};

// Writes a new array of rows to `path`: rows in order through append(), or at known places, by several threads, through
// write_at(). The header comes last, so a file without finish() is no array. The file is not removed on an error: it
// lies in a folder that its owner removes.
class ArrayFileWriter {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

  ArrayFileWriter(std::string path, std::string dtype, std::vector<std::uint64_t> row_shape = {});
  ArrayFileWriter(const ArrayFileWriter&) = delete;
  ArrayFileWriter& operator=(const ArrayFileWriter&) = delete;
  ~ArrayFileWriter();

  const std::string& path() const { return path_; }
  std::size_t row_bytes() const { return row_bytes_; }

  // Adds data behind what there is.
  void append(const void* data, std::size_t bytes);

  // Writes data that starts `offset` bytes after the header. Thread safe; not to be mixed with append(). In the end the
  // pieces must cover the data without a hole.
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);

  // Writes the header and makes the file durable.
  ArrayFile finish();

 private:
  struct Piece {
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint32_t crc32c;
  };

  void flush();
  void write_out(const void* data, std::size_t bytes, std::uint64_t offset);
  Piece join_pieces();

  std::string path_;
  std::string dtype_;
  std::vector<std::uint64_t> row_shape_;
  std::size_t row_bytes_ = 0;
  int descriptor_ = -1;

  Buffer buffer_;
  std::size_t buffered_ = 0;
  Piece appended_{0, 0, 0};
  std::mutex mutex_;
  std::vector<Piece> pieces_;
};

}  // namespace graphbox
