// Several streams of bytes in one scratch file: written a piece here and a piece there, each read from its beginning.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "io/scratch_file.h"

namespace graphbox {

class StreamFile {
  // A stream is a list of its buffers, each where it lies in the file.
  struct Extent {
    std::uint64_t place;  // in the file
    std::size_t bytes;
  };
  struct Stream {
    std::vector<Extent> extents;
    std::unique_ptr<std::byte[]> buffer;
    std::size_t used = 0;
    std::uint64_t bytes = 0;
  };

 public:
  static constexpr std::size_t kBufferBytes = std::size_t{16} << 10;  // of each stream

  StreamFile(const std::string& scratch, std::size_t streams) : file_(scratch), streams_(streams) {}

  // Memory of `streams` streams, while they are written or while they are read.
  static std::size_t bytes_of(std::size_t streams) { return streams * kBufferBytes; }

  void append(std::size_t stream, const void* data, std::size_t bytes) {
    Stream& to = streams_[stream];
    const auto* next = static_cast<const std::byte*>(data);
    to.bytes += bytes;
    while (bytes > 0) {
      if (!to.buffer) {
        to.buffer = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
      }
      const std::size_t part = std::min(bytes, kBufferBytes - to.used);
      std::memcpy(to.buffer.get() + to.used, next, part);
      to.used += part;
      next += part;
      bytes -= part;
      if (to.used == kBufferBytes) {
        flush(to);
      }
    }
  }

  // Writes what is buffered; before anything is read.
  void flush() {
    for (Stream& stream : streams_) {
      if (stream.used > 0) {
        flush(stream);
      }
      stream.buffer.reset();
    }
  }

  std::size_t num_streams() const { return streams_.size(); }
  std::uint64_t bytes(std::size_t stream) const { return streams_[stream].bytes; }
  std::uint64_t file_bytes() const { return file_.bytes(); }

  // Reads one stream from its beginning.
  class Reader {
   public:
    Reader(const StreamFile& file, std::size_t stream) : file_(file), stream_(file.streams_[stream]) {}

    bool done() const { return read_ == stream_.bytes; }

    void read(void* data, std::size_t bytes) {
      auto* next = static_cast<std::byte*>(data);
      read_ += bytes;
      while (bytes > 0) {
        if (place_ == held_) {
          fill();
        }
        const std::size_t part = std::min(bytes, held_ - place_);
        std::memcpy(next, buffer_.get() + place_, part);
        place_ += part;
        next += part;
        bytes -= part;
      }
    }

    template <typename T>
    T next() {
      T value;
      if (held_ - place_ >= sizeof value) {
        std::memcpy(&value, buffer_.get() + place_, sizeof value);
        place_ += sizeof value;
        read_ += sizeof value;
      } else {
        read(&value, sizeof value);
      }
      return value;
    }

   private:
    static constexpr std::size_t kAhead = 8;

    void fill() {
      if (!buffer_) {
        buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
      }
      held_ = stream_.extents[extent_].bytes;
      file_.file_.read(buffer_.get(), held_, stream_.extents[extent_].place);
      ++extent_;
      // Buffers of a stream lie apart in the file: some are asked for ahead, so that the disk has several to read.
      const std::size_t first = extent_ == 1 ? extent_ : extent_ + kAhead - 1;
      for (std::size_t i = first; i < std::min(extent_ + kAhead, stream_.extents.size()); ++i) {
        file_.file_.will_read(stream_.extents[i].place, stream_.extents[i].bytes);
      }
      place_ = 0;
    }

    const StreamFile& file_;
    const Stream& stream_;
    std::unique_ptr<std::byte[]> buffer_;
    std::size_t extent_ = 0;
    std::size_t held_ = 0;
    std::size_t place_ = 0;
    std::uint64_t read_ = 0;
  };

 private:
  void flush(Stream& stream) {
    const std::uint64_t place = file_.take(stream.used);
    file_.write(stream.buffer.get(), stream.used, place);
    stream.extents.push_back({place, stream.used});
    stream.used = 0;
  }

  ScratchFile file_;
  std::vector<Stream> streams_;
};

}  // namespace graphbox
