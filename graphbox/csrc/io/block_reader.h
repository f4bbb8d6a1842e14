// Reads stretches of blocks with many in flight, into memory of its own that is used again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "io/block_file.h"
#include "io/read_queue.h"
#include "memory/buffer.h"

namespace graphbox {

// Begins at a multiple of kBlockBytes; ends at one or at the end of the file.
struct Stretch {
  const BlockFile* file;
  std::uint64_t offset;
  std::uint32_t bytes;
  std::uint64_t tag;  // the caller's
};

// Belongs to one thread at a time.
class BlockReader {
 public:
  static constexpr std::size_t kStagingBytes = std::size_t{8} << 20;
  static constexpr std::size_t kLargestStretchBytes = std::size_t{512} << 10;

  BlockReader(ReadBackend backend, unsigned depth);

  ReadBackend backend() const { return backend_; }
  unsigned depth() const { return depth_; }
  bool idle() const { return in_flight_ == 0; }

  // Reads the stretches that `next` gives until it returns false, and hands each to `done`, in any order. What `done`
  // gets is valid until it returns. A failing read is thrown once nothing is in flight any more; only where the
  // system cannot even say what became of reads does something stay in flight.
  using Next = std::function<bool(Stretch&)>;
  using Done = std::function<void(const Stretch&, const std::byte*)>;
  void read(const Next& next, const Done& done);

 private:
  struct Flight {
    Stretch stretch;
    std::uint32_t got;  // bytes read so far, a multiple of kBlockBytes
    std::size_t begin;  // place in the staging memory
    std::size_t end;
    bool completed;
  };

  bool reserve(std::size_t bytes, std::size_t& begin) const;
  void take_off(const Stretch& stretch, std::size_t begin);
  void land(Flight& landed);
  void push(std::uint64_t number);
  void accept(const ReadResult& result, const Done& done);
  Flight& flight(std::uint64_t number) { return flights_[number % flights_.size()]; }
  const Flight& flight(std::uint64_t number) const { return flights_[number % flights_.size()]; }

  ReadBackend backend_;
  unsigned depth_;
  Buffer staging_;
  std::vector<Flight> flights_;  // a ring: those from oldest_ to newest_
  std::uint64_t oldest_ = 0;
  std::uint64_t newest_ = 0;
  std::size_t in_flight_ = 0;
  std::unique_ptr<ReadQueue> queue_;  // last: gone before the memory it reads into
};

// Lends a reader from those of this process that are idle, or a new one.
class LentReader {
 public:
  LentReader(ReadBackend backend, unsigned depth);
  LentReader(const LentReader&) = delete;
  LentReader& operator=(const LentReader&) = delete;
  ~LentReader();

  BlockReader* operator->() const { return reader_.get(); }
  BlockReader* get() const { return reader_.get(); }

  // Bytes of the idle readers, and giving them back.
  static std::size_t held_bytes();
  static void release();

 private:
  std::unique_ptr<BlockReader> reader_;
};

}  // namespace graphbox
