#include "graph/edge_sorter.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "errors/error.h"
#include "graph/edge_record.h"
#include "graph/radix_sort.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kMostBatchRows = std::int64_t{1} << 16;
constexpr std::int64_t kMostWaveEdges = std::int64_t{1} << 20;
constexpr std::int64_t kMostRows = (std::int64_t{1} << 32) - 1;
constexpr std::int64_t kSmallestWide = std::int64_t{1} << 32;
constexpr std::int64_t kWriteRows = std::int64_t{1} << 15;

}  // namespace

EdgeSorter::EdgeSorter(std::vector<std::size_t> column_bytes, std::string scratch, std::size_t memory_bytes,
                       int threads)
    : column_bytes_(std::move(column_bytes)),
      scratch_folder_(std::move(scratch)),
      memory_bytes_(memory_bytes),
      threads_(bounded_threads(threads)) {
  for (const std::size_t bytes : column_bytes_) {
    if (bytes == 0) {
      throw Error(ErrorKind::kUsage, "expected columns whose rows have at least one byte, received an empty one");
    }
  }
}

std::size_t EdgeSorter::column_bytes() const {
  return std::accumulate(column_bytes_.begin(), column_bytes_.end(), std::size_t{0});
}

// Edges that are added at a time.
std::int64_t EdgeSorter::batch_rows() const {
  const std::size_t row_bytes = 4 * record_bytes() + column_bytes();
  return std::clamp(static_cast<std::int64_t>((memory_bytes_ - fixed_bytes()) / 8 / row_bytes), kFewestRows,
                    kMostBatchRows);
}

// Edges that are sorted at a time, but for a bucket that is larger.
std::int64_t EdgeSorter::wave_edges() const {
  return std::clamp(static_cast<std::int64_t>((memory_bytes_ - fixed_bytes()) / 16 / record_bytes()), kFewestRows,
                    kMostWaveEdges);
}

// Takes the addresses for edges. The huge pages at the ends of arrays count.
void EdgeSorter::begin() {
  const std::size_t fewest =
      fixed_bytes() +
      static_cast<std::size_t>(kFewestRows) * (EdgeBuckets::kBlockBytes + column_bytes() + 2 * record_bytes());
  if (memory_bytes_ < fewest) {
    throw Error(ErrorKind::kDoesNotFit,
                "expected at least " + std::to_string(fewest) + " bytes of memory to sort edges in, received " +
                    std::to_string(memory_bytes_),
                {}, "give more memory");
  }
  begun_ = true;
  const std::size_t most_bytes = memory_bytes_ - fixed_bytes();
  edges_ = EdgeBuckets(record_bytes(), most_bytes, threads_);
  columns_.clear();
  for (const std::size_t bytes : column_bytes_) {
    columns_.emplace_back(std::min(most_bytes, static_cast<std::size_t>(kMostRows) * bytes));
  }
}

template <typename Body>
void EdgeSorter::with_record(Body&& body) const {
  if (column_bytes_.empty()) {
    wide_ ? body(EdgeAlone<WideKey>{}) : body(EdgeAlone<NarrowKey>{});
  } else {
    wide_ ? body(EdgeWithRow<WideKey>{}) : body(EdgeWithRow<NarrowKey>{});
  }
}

void EdgeSorter::add(const std::int64_t* sources, const std::int64_t* targets, std::int64_t count,
                     const std::vector<const std::byte*>& columns) {
  if (!wide_) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::max(sources[i], targets[i]) >= kSmallestWide) {
        widen();
        break;
      }
    }
  }
  if (!begun_) {
    begin();
  }
  const std::int64_t rows = batch_rows();
  for (std::int64_t first = 0; first < count; first += rows) {
    std::vector<const std::byte*> part_columns(columns);
    for (std::size_t column = 0; column < columns.size(); ++column) {
      part_columns[column] += static_cast<std::size_t>(first) * column_bytes_[column];
    }
    add_batch(sources + first, targets + first, std::min(rows, count - first), part_columns);
  }
}

void EdgeSorter::add_batch(const std::int64_t* sources, const std::int64_t* targets, std::int64_t count,
                           const std::vector<const std::byte*>& columns) {
  edges_.count(sources, targets, count, falling_);
  if (!fits() && edges_.size() > 0) {
    spill();
    edges_.count(sources, targets, count, falling_);
  }
  append_columns(sources, targets, columns);
  with_record([&](auto record) { edges_.add<decltype(record)>(sources, targets, edges_.size(), falling_); });
  total_ += falling_.kept;
}

// Whether the edges that were counted last can be held with those that are, and be sorted afterwards.
bool EdgeSorter::fits() const {
  const std::int64_t edges = edges_.size() + falling_.kept;
  const std::int64_t sorted = std::max(falling_.largest, std::min(edges, wave_edges()));
  const std::size_t bytes = falling_.held_bytes + static_cast<std::size_t>(edges) * column_bytes() +
                            2 * static_cast<std::size_t>(sorted) * record_bytes();
  return edges < kMostRows && bytes <= memory_bytes_ - fixed_bytes();
}

std::size_t EdgeSorter::held_bytes() const {
  if (edges_.size() == 0) {
    return 0;
  }
  const std::int64_t sorted = std::max(edges_.largest(), std::min(edges_.size(), wave_edges()));
  return fixed_bytes() + edges_.held_bytes() + static_cast<std::size_t>(edges_.size()) * column_bytes() +
         2 * static_cast<std::size_t>(sorted) * record_bytes();
}

// From now on keys take twice the room; runs written before are read as they are.
void EdgeSorter::widen() {
  spill();
  drop();
  wide_ = true;
}

void EdgeSorter::append_columns(const std::int64_t* sources, const std::int64_t* targets,
                                const std::vector<const std::byte*>& columns) {
  const std::int64_t held = edges_.size();
  for (std::size_t column = 0; column < columns.size(); ++column) {
    columns_[column].resize(static_cast<std::size_t>(held + falling_.kept) * column_bytes_[column]);
  }
  if (columns.empty()) {
    return;
  }
  parallel_for(threads_, static_cast<std::int64_t>(falling_.used), [&](std::int64_t index) {
    const EdgeBuckets::Falling::Chunk& chunk = falling_.chunks[static_cast<std::size_t>(index)];
    for (std::size_t column = 0; column < columns.size(); ++column) {
      const std::size_t bytes = column_bytes_[column];
      std::byte* to = columns_[column].data() + static_cast<std::size_t>(held + chunk.place) * bytes;
      const std::byte* const from = columns[column];
      if (chunk.kept == chunk.end - chunk.first) {
        std::memcpy(to, from + static_cast<std::size_t>(chunk.first) * bytes,
                    static_cast<std::size_t>(chunk.kept) * bytes);
        continue;
      }
      for (std::int64_t i = chunk.first; i < chunk.end; ++i) {
        if ((sources[i] | targets[i]) >= 0) {
          std::memcpy(to, from + static_cast<std::size_t>(i) * bytes, bytes);
          to += bytes;
        }
      }
    }
  });
}

// Calls `body(records, first, count)` with all edges in order, sorted some buckets at a time.
template <typename Record, typename Body>
void EdgeSorter::each_wave(Body&& body) {
  const std::int64_t wave = wave_edges();
  const auto most = static_cast<std::size_t>(std::max(edges_.largest(), std::min(edges_.size(), wave)));
  GrowingArray<Record> sorted(most);
  GrowingArray<Record> other(most);
  std::int64_t passed = 0;
  for (std::size_t first = 0; first < edges_.end();) {
    std::int64_t count = edges_.size_of(first);
    std::size_t end = first + 1;
    for (; end < edges_.end() && count + edges_.size_of(end) <= wave; ++end) {
      count += edges_.size_of(end);
    }
    sort_wave(first, end, sorted.data(), other.data());
    body(sorted.data(), passed, count);
    passed += count;
    first = end;
  }
}

template <typename Record>
void EdgeSorter::sort_wave(std::size_t first, std::size_t end, Record* sorted, Record* other) const {
  if (end == first + 1) {
    edges_.gather(first, sorted);
    radix_sort(sorted, other, edges_.size_of(first), threads_);
    return;
  }
  std::vector<std::int64_t> places(1, 0);
  for (std::size_t bucket = first; bucket < end; ++bucket) {
    places.push_back(places.back() + edges_.size_of(bucket));
  }
  parallel_for(threads_, static_cast<std::int64_t>(end - first), [&](std::int64_t i) {
    const std::int64_t place = places[static_cast<std::size_t>(i)];
    const std::size_t bucket = first + static_cast<std::size_t>(i);
    edges_.gather(bucket, other + place);
    radix::sort_segment(other + place, sorted + place, edges_.size_of(bucket), true);
  });
}

std::vector<const std::byte*> EdgeSorter::column_data() const {
  std::vector<const std::byte*> columns;
  for (const GrowingArray<std::byte>& column : columns_) {
    columns.push_back(column.data());
  }
  return columns;
}

void EdgeSorter::spill() {
  if (edges_.size() > 0) {
    with_record([&](auto record) { write_run<decltype(record)>(); });
  }
  if (begun_) {
    edges_.clear();
  }
  for (GrowingArray<std::byte>& column : columns_) {
    column.release();
  }
}

template <typename Record>
void EdgeSorter::write_run() {
  if (!scratch_) {
    scratch_ = std::make_unique<ScratchFile>(scratch_folder_);
  }
  const auto rows = static_cast<std::size_t>(edges_.size());
  EdgeRun run{edges_.size(), wide_, scratch_->take(rows * sizeof(typename Record::Key)), {}};
  for (const std::size_t bytes : column_bytes_) {
    run.columns.push_back(scratch_->take(rows * bytes));
  }
  each_wave<Record>([&](const Record* records, std::int64_t first, std::int64_t count) {
    parallel_for(threads_, (count + kWriteRows - 1) / kWriteRows, [&](std::int64_t chunk) {
      const std::int64_t start = chunk * kWriteRows;
      write_wave(run, records + start, first + start, std::min(kWriteRows, count - start));
    });
  });
  runs_.push_back(std::move(run));
}

// Writes records that follow the first `first` ones of a run.
template <typename Record>
void EdgeSorter::write_wave(const EdgeRun& run, const Record* records, std::int64_t first, std::int64_t count) const {
  using Key = typename Record::Key;
  std::vector<std::byte> block(static_cast<std::size_t>(count) * sizeof(Key));
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(block.data() + static_cast<std::size_t>(i) * sizeof(Key), &records[i].key, sizeof(Key));
  }
  scratch_->write(block.data(), block.size(), run.keys + static_cast<std::uint64_t>(first) * sizeof(Key));
  if constexpr (Record::kHasRow) {
    for (std::size_t column = 0; column < column_bytes_.size(); ++column) {
      const std::size_t bytes = column_bytes_[column];
      block.resize(static_cast<std::size_t>(count) * bytes);
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(block.data() + static_cast<std::size_t>(i) * bytes,
                    columns_[column].data() + std::size_t{records[i].row} * bytes, bytes);
      }
      scratch_->write(block.data(), block.size(), run.columns[column] + static_cast<std::uint64_t>(first) * bytes);
    }
  }
}

void EdgeSorter::limit(std::size_t memory_bytes) {
  spill();
  drop();
  memory_bytes_ = memory_bytes;
}

void EdgeSorter::drop() {
  edges_ = {};
  columns_.clear();
  begun_ = false;
}

void EdgeSorter::finish(EdgeEmitter& emitter) {
  if (runs_.empty()) {
    with_record([&](auto record) {
      each_wave<decltype(record)>([&, columns = column_data()](const auto* records, std::int64_t, std::int64_t count) {
        emitter.emit(records, count, columns);
      });
    });
    drop();
    return;
  }
  spill();
  drop();
  with_record([&](auto record) {
    RunMerge<decltype(record)>(*scratch_, runs_, column_bytes_, memory_bytes_, threads_).emit_all(emitter);
  });
  scratch_.reset();
}

}  // namespace graphbox
