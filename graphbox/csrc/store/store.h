// Files larger than memory, read in batches and passes: from a cache in memory what it holds, from disk the rest.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/read_queue.h"
#include "store/block_space.h"
#include "store/cache.h"

namespace graphbox {

struct StoreOptions {
  std::uint64_t budget_bytes = 0;  // of the cache
  ReadBackend backend = ReadBackend::kAuto;
  unsigned depth = 64;  // reads in flight for each thread that reads
  bool direct = true;
};

// Rows of one length that fill the file from `offset` on. A store of such a file caches by row.
struct RowUnits {
  std::uint64_t offset;
  std::uint64_t row_bytes;
  std::uint64_t rows;
};

struct StoreStats {
  std::uint64_t requests;
  std::uint64_t hits;    // pieces of requests found in memory, and not found; a piece is a row, or a part of a list
  std::uint64_t misses;  // that lies in one block of the cache
  std::uint64_t read_bytes;
  std::uint64_t read_requests;
  std::uint64_t resident_bytes;
};

// Read requests: entry i reads the item with number `index[i]`, in [0, limit).
struct Requests {
  std::span<const std::int64_t> index;
  std::int64_t limit;
  Access access = Access::kBatch;
  int threads = 1;
  bool streamed = false;  // the results are too large to stay in the processor's caches
};

// Thread safe.
class Store {
 public:
  // `rows`: of a store of one file, or null.
  Store(const std::vector<FileSize>& files, const RowUnits* rows, const StoreOptions& options);

  const BlockSpace& space() const { return space_; }
  const UnitLayout& layout() const { return layout_; }
  bool units_are_rows() const { return units_are_rows_; }
  // Backend and kind of cache: "io_uring, O_DIRECT".
  std::string backend() const;
  std::string cache_kind() const;
  std::uint64_t budget_bytes() const { return options_.budget_bytes; }
  StoreStats stats() const;

  // All of the space, once it is in memory; else null.
  const std::byte* image() const { return cache_ != nullptr ? cache_->image() : nullptr; }
  // Counts requests that were served from the image.
  void count_hits(std::size_t requests);

  // Appends the fragments of the entries in [first, last) of `positions`, or of first to last where it is null.
  using Source = std::function<void(const std::uint32_t* positions, std::int64_t first, std::int64_t last,
                                    std::vector<Fragment>& fragments)>;

  // Fills all targets. What it holds meanwhile is bounded: many requests are read in parts, in the order of the disk.
  void read(const Requests& requests, const Source& source);

  // The fragments of `bytes` bytes at `address`: one row where units are rows.
  void append(std::uint64_t address, std::uint64_t bytes, std::byte* target, std::vector<Fragment>& fragments) const;

 private:
  void choose_cache(const RowUnits* rows);
  void read_part(const Requests& requests, const std::uint32_t* positions, std::int64_t first, std::int64_t last,
                 int threads, const Source& source);
  void read_missing(std::span<const Fragment> missing, const Requests& requests);

  BlockSpace space_;
  StoreOptions options_;
  BackendChoice backend_;
  UnitLayout layout_{};
  unsigned unit_shift_ = 0;  // of units that are blocks
  bool units_are_rows_ = false;
  bool resident_ = false;
  std::unique_ptr<Cache> cache_;  // or null
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};
  std::atomic<std::uint64_t> read_bytes_{0};
  std::atomic<std::uint64_t> read_requests_{0};
};

}  // namespace graphbox
