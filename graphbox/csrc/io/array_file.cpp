#include "io/array_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "errors/error.h"
#include "io/crc32c.h"
#include "io/file.h"

namespace graphbox {

std::size_t item_bytes_of(const std::string& dtype) {
  if (dtype.size() != 3 || (dtype[0] != '<' && dtype[0] != '|') || std::isdigit(dtype[2]) == 0 || dtype[2] == '0') {
    throw Error(ErrorKind::kUsage, "expected a little-endian type such as <i8 or |u1, received `" + dtype + "`",
                "dtype");
  }
  return static_cast<std::size_t>(dtype[2] - '0');
}

std::string array_header(const std::string& dtype, const std::vector<std::uint64_t>& shape) {
  std::string sizes;  // as Python writes a tuple: "3," or "3, 16"
  for (const std::uint64_t size : shape) {
    sizes.append(sizes.empty() ? "" : ", ").append(std::to_string(size));
  }
  sizes.append(shape.size() == 1 ? "," : "");
  constexpr std::size_t kPrefixBytes = 10;
  std::string text = "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (" + sizes + "), }";
  if (kPrefixBytes + text.size() + 1 > kArrayHeaderBytes) {
    throw Error(ErrorKind::kUsage, "the shape has too many dimensions for the header of an array file");
  }
  text.resize(kArrayHeaderBytes - kPrefixBytes - 1, ' ');
  constexpr char kLengthLow = kArrayHeaderBytes - kPrefixBytes;
  return std::string("\x93NUMPY\x01\x00", 8) + kLengthLow + '\0' + text + '\n';
}

ArrayFileWriter::ArrayFileWriter(std::string path, std::string dtype, std::vector<std::uint64_t> row_shape)
    : path_(std::move(path)),
      dtype_(std::move(dtype)),
      row_shape_(std::move(row_shape)),
      row_bytes_(item_bytes_of(dtype_)) {
  for (const std::uint64_t size : row_shape_) {
    row_bytes_ *= size;
  }
  array_header(dtype_, row_shape_);  // refuses too many dimensions before anything is written
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw_system_error("cannot create the file", path_);
  }
}

ArrayFileWriter::~ArrayFileWriter() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void ArrayFileWriter::append(const void* data, std::size_t bytes) {
  appended_.crc32c = crc32c(appended_.crc32c, data, bytes);
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    if (buffered_ == 0 && bytes >= kBufferBytes) {  // nothing to gather
      const std::size_t whole = bytes / kBufferBytes * kBufferBytes;
      write_out(next, whole, appended_.bytes);
      appended_.bytes += whole;
      next += whole;
      bytes -= whole;
      continue;
    }
    if (buffer_.bytes() == 0) {
      buffer_ = Buffer(kBufferBytes);
    }
    const std::size_t part = std::min(bytes, kBufferBytes - buffered_);
    std::memcpy(buffer_.data() + buffered_, next, part);
    buffered_ += part;
    next += part;
    bytes -= part;
    if (buffered_ == kBufferBytes) {
      flush();
    }
  }
}

void ArrayFileWriter::flush() {
  write_out(buffer_.data(), buffered_, appended_.bytes);
  appended_.bytes += buffered_;
  buffered_ = 0;
}

void ArrayFileWriter::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  const std::uint32_t digest = crc32c(0, data, bytes);
  write_out(data, bytes, offset);
  const std::lock_guard lock(mutex_);
  pieces_.push_back({offset, bytes, digest});
}

void ArrayFileWriter::write_out(const void* data, std::size_t bytes, std::uint64_t offset) {
  if (descriptor_ < 0) {
    throw Error(ErrorKind::kUsage, "the array was finished, no more data can be added", path_);
  }
  write_fully(descriptor_, data, bytes, kArrayHeaderBytes + offset, path_);
  start_writeback(descriptor_, kArrayHeaderBytes + offset, bytes);
}

ArrayFileWriter::Piece ArrayFileWriter::join_pieces() {
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  Piece whole = appended_;
  for (const Piece& piece : pieces_) {
    if (piece.offset != whole.bytes) {
      throw Error(ErrorKind::kFailure,
                  "expected data at byte " + std::to_string(whole.bytes) + ", the next starts at byte " +
                      std::to_string(piece.offset),
                  path_);
    }
    whole.crc32c = crc32c_joined(whole.crc32c, piece.crc32c, piece.bytes);
    whole.bytes += piece.bytes;
  }
  return whole;
}

ArrayFile ArrayFileWriter::finish() {
  if (descriptor_ < 0) {
    throw Error(ErrorKind::kUsage, "the array was finished before", path_);
  }
  if (buffered_ > 0) {
    flush();
  }
  const Piece whole = join_pieces();
  if (row_bytes_ != 0 && whole.bytes % row_bytes_ != 0) {
    throw Error(ErrorKind::kUsage,
                "expected whole rows of " + std::to_string(row_bytes_) + " bytes, received " +
                    std::to_string(whole.bytes) + " bytes",
                path_);
  }
  ArrayFile file;
  file.crc32c = whole.crc32c;
  file.shape = {row_bytes_ == 0 ? 0 : whole.bytes / row_bytes_};
  file.shape.insert(file.shape.end(), row_shape_.begin(), row_shape_.end());
  const std::string header = array_header(dtype_, file.shape);
  write_fully(descriptor_, header.data(), header.size(), 0, path_);
  if (::fsync(descriptor_) != 0) {
    throw_system_error("cannot make the file durable", path_);
  }
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) {
    throw_system_error("cannot close the file", path_);
  }
  buffer_ = Buffer();
  return file;
}

}  // namespace graphbox
