#include "graph/edge_sorter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "errors/error.h"
#include "graph/edge_record.h"
#include "graph/radix_sort.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kAppendChunk = std::int64_t{1} << 15;
constexpr std::int64_t kMostRows = std::int64_t{1} << 32;
constexpr std::int64_t kSmallestWide = std::int64_t{1} << 32;
constexpr std::int64_t kWriteRows = std::int64_t{1} << 15;

}  // namespace

EdgeSorter::EdgeSorter(std::vector<std::size_t> column_bytes, std::string scratch, std::size_t memory_bytes,
                       int threads)
    : column_bytes_(std::move(column_bytes)),
      scratch_folder_(std::move(scratch)),
      memory_bytes_(memory_bytes),
      threads_(std::max(threads, 1)) {
  for (const std::size_t bytes : column_bytes_) {
    if (bytes == 0) {
      throw Error(ErrorKind::kUsage, "expected columns whose rows have at least one byte, received an empty one");
    }
  }
}

std::size_t EdgeSorter::row_bytes() const {
  std::size_t bytes = 2 * record_bytes();
  for (const std::size_t column : column_bytes_) {
    bytes += column;
  }
  return bytes;
}

// Finds out how many edges fit, and takes the addresses for them. The huge pages at the ends of arrays count.
void EdgeSorter::reserve() {
  const std::size_t fixed = kWorkingBytes + (2 + column_bytes_.size()) * kHugePageBytes;
  const std::size_t fewest = fixed + static_cast<std::size_t>(kFewestRows) * row_bytes();
  if (memory_bytes_ < fewest) {
    throw Error(ErrorKind::kDoesNotFit,
                "expected at least " + std::to_string(fewest) + " bytes of memory to sort edges in, received " +
                    std::to_string(memory_bytes_),
                {}, "give more memory");
  }
  capacity_ = std::min(static_cast<std::int64_t>((memory_bytes_ - fixed) / row_bytes()), kMostRows - 1);
  const auto capacity = static_cast<std::size_t>(capacity_);
  records_ = GrowingArray<std::byte>(capacity * record_bytes());
  other_ = GrowingArray<std::byte>(capacity * record_bytes());
  columns_.clear();
  for (const std::size_t bytes : column_bytes_) {
    columns_.emplace_back(capacity * bytes);
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
  if (capacity_ == 0) {
    reserve();
  }
  for (std::int64_t done = 0; done < count;) {
    if (held_ == capacity_) {
      spill();
    }
    const std::int64_t part = std::min(count - done, capacity_ - held_);
    std::vector<const std::byte*> part_columns(columns);
    for (std::size_t column = 0; column < columns.size(); ++column) {
      part_columns[column] += static_cast<std::size_t>(done) * column_bytes_[column];
    }
    with_record([&](auto record) {
      append<decltype(record)>(sources + done, targets + done, part, part_columns);
    });
    done += part;
  }
}

// From now on keys take twice the room; runs written before are read as they are.
void EdgeSorter::widen() {
  spill();
  wide_ = true;
  capacity_ = 0;
}

template <typename Record>
void EdgeSorter::append(const std::int64_t* sources, const std::int64_t* targets, std::int64_t count,
                        const std::vector<const std::byte*>& columns) {
  const std::int64_t chunks = (count + kAppendChunk - 1) / kAppendChunk;
  const auto end_of = [&](std::int64_t chunk) { return std::min(count, (chunk + 1) * kAppendChunk); };
  std::vector<std::int64_t> places(static_cast<std::size_t>(chunks) + 1, held_);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    std::int64_t kept = 0;
    for (std::int64_t i = chunk * kAppendChunk; i < end_of(chunk); ++i) {
      kept += (sources[i] | targets[i]) >= 0 ? 1 : 0;
    }
    places[static_cast<std::size_t>(chunk) + 1] = places[static_cast<std::size_t>(chunk)] + kept;
  }
  held_ = places.back();
  total_ += held_ - places.front();
  parallel_for(threads_, chunks, [&](std::int64_t chunk) {
    std::int64_t place = places[static_cast<std::size_t>(chunk)];
    const std::int64_t first = chunk * kAppendChunk;
    const std::int64_t end = end_of(chunk);
    const bool whole = places[static_cast<std::size_t>(chunk) + 1] - place == end - first;
    for (std::size_t column = 0; whole && column < columns.size(); ++column) {
      const std::size_t bytes = column_bytes_[column];
      std::memcpy(columns_[column].data() + static_cast<std::size_t>(place) * bytes,
                  columns[column] + static_cast<std::size_t>(first) * bytes,
                  static_cast<std::size_t>(end - first) * bytes);
    }
    auto* const records = reinterpret_cast<Record*>(records_.data());
    for (std::int64_t i = first; i < end; ++i) {
      if ((sources[i] | targets[i]) < 0) {
        continue;
      }
      records[place].key = key_of<typename Record::Key>(targets[i], sources[i]);
      if constexpr (Record::kHasRow) {
        records[place].row = static_cast<std::uint32_t>(place);
        for (std::size_t column = 0; !whole && column < columns.size(); ++column) {
          const std::size_t bytes = column_bytes_[column];
          std::memcpy(columns_[column].data() + static_cast<std::size_t>(place) * bytes,
                      columns[column] + static_cast<std::size_t>(i) * bytes, bytes);
        }
      }
      ++place;
    }
  });
}

template <typename Record>
const Record* EdgeSorter::sort_held() {
  auto* const records = reinterpret_cast<Record*>(records_.data());
  radix_sort(records, reinterpret_cast<Record*>(other_.data()), held_, threads_);
  return records;
}

void EdgeSorter::spill() {
  if (held_ > 0) {
    with_record([&](auto record) { write_run<decltype(record)>(); });
    held_ = 0;
  }
  records_.release();
  other_.release();
  for (GrowingArray<std::byte>& column : columns_) {
    column.release();
  }
}

template <typename Record>
void EdgeSorter::write_run() {
  using Key = typename Record::Key;
  if (!scratch_) {
    scratch_ = std::make_unique<ScratchFile>(scratch_folder_);
  }
  const Record* const records = sort_held<Record>();
  const auto rows = static_cast<std::size_t>(held_);
  EdgeRun run{held_, wide_, scratch_->take(rows * sizeof(Key)), {}};
  for (const std::size_t bytes : column_bytes_) {
    run.columns.push_back(scratch_->take(rows * bytes));
  }
  parallel_for(threads_, (held_ + kWriteRows - 1) / kWriteRows, [&](std::int64_t chunk) {
    const std::int64_t first = chunk * kWriteRows;
    const std::int64_t end = std::min(held_, first + kWriteRows);
    const auto count = static_cast<std::size_t>(end - first);
    std::vector<std::byte> block(count * sizeof(Key));
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(block.data() + i * sizeof(Key), &records[first + static_cast<std::int64_t>(i)].key, sizeof(Key));
    }
    scratch_->write(block.data(), block.size(), run.keys + static_cast<std::uint64_t>(first) * sizeof(Key));
    if constexpr (Record::kHasRow) {
      for (std::size_t column = 0; column < column_bytes_.size(); ++column) {
        const std::size_t bytes = column_bytes_[column];
        block.resize(count * bytes);
        for (std::size_t i = 0; i < count; ++i) {
          const Record& record = records[first + static_cast<std::int64_t>(i)];
          std::memcpy(block.data() + i * bytes, columns_[column].data() + std::size_t{record.row} * bytes, bytes);
        }
        scratch_->write(block.data(), block.size(), run.columns[column] + static_cast<std::uint64_t>(first) * bytes);
      }
    }
  });
  runs_.push_back(std::move(run));
}

void EdgeSorter::limit(std::size_t memory_bytes) {
  spill();
  drop();
  memory_bytes_ = memory_bytes;
}

void EdgeSorter::drop() {
  records_ = {};
  other_ = {};
  columns_.clear();
  held_ = 0;
  capacity_ = 0;
}

void EdgeSorter::finish(EdgeEmitter& emitter) {
  if (runs_.empty()) {
    with_record([&](auto record) {
      std::vector<const std::byte*> columns;
      for (const GrowingArray<std::byte>& column : columns_) {
        columns.push_back(column.data());
      }
      emitter.emit(sort_held<decltype(record)>(), held_, columns);
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
