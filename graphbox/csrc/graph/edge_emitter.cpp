#include "graph/edge_emitter.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "errors/error.h"
#include "graph/edge_record.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kFewestPerSlice = std::int64_t{1} << 15;
constexpr std::int64_t kAhead = 24;

// Gathers values and writes them to their place in a file.
class PlacedBlock {
 public:
  PlacedBlock(ArrayFileWriter& file, std::size_t value_bytes, std::int64_t first)
      : file_(file),
        offset_(static_cast<std::uint64_t>(first) * value_bytes),
        capacity_(std::max<std::size_t>(1, EdgeEmitter::kBlockBytes / value_bytes) * value_bytes),
        data_(std::make_unique_for_overwrite<std::byte[]>(capacity_)) {}

  // Room for the next value.
  std::byte* next(std::size_t bytes) {
    if (used_ == capacity_) {
      flush();
    }
    return data_.get() + std::exchange(used_, used_ + bytes);
  }

  void flush() {
    file_.write_at(offset_, data_.get(), used_);
    offset_ += used_;
    used_ = 0;
  }

 private:
  ArrayFileWriter& file_;
  std::uint64_t offset_;
  std::size_t capacity_;
  std::size_t used_ = 0;
  std::unique_ptr<std::byte[]> data_;
};

std::int32_t recoded(const ColumnOutput& output, std::int32_t code) {
  if (code < -1 || code >= output.num_codes) {
    throw Error(ErrorKind::kData,
                "expected codes from -1 to " + std::to_string(output.num_codes - 1) + ", received " +
                    std::to_string(code),
                output.file->path());
  }
  return code == -1 ? -1 : output.recode[code];
}

}  // namespace

// A part of the records, worked on by one thread. `source` and `target` are the ends of the edge before it.
struct EdgeEmitter::Slice {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::int64_t source = -1;
  std::int64_t target = -1;
  std::int64_t position = 0;  // of its first edge in the arrays
  EdgeCounts counts;
};

EdgeEmitter::EdgeEmitter(EdgeOutput output, std::int64_t num_targets, bool keep_duplicates, bool one_type, int threads)
    : output_(std::move(output)),
      num_targets_(num_targets),
      keep_duplicates_(keep_duplicates),
      one_type_(one_type),
      threads_(bounded_threads(threads)) {}

namespace {

// Calls `body(record, target, source)` for each edge that is written, and `repeated(target, source)` for repetitions.
template <typename Record, typename Body, typename Repeated>
GRAPHBOX_INLINE void walk(const Record* records, std::int64_t first, std::int64_t end, std::int64_t source,
                          std::int64_t target, bool keep, Body&& body, Repeated&& repeated) {
  for (std::int64_t i = first; i < end; ++i) {
    const std::int64_t next_target = target_of(records[i].key);
    const std::int64_t next_source = source_of(records[i].key);
    if (next_target == target && next_source == source) {
      repeated(target, source);
      if (!keep) {
        continue;
      }
    }
    target = next_target;
    source = next_source;
    body(i, target, source);
  }
}

constexpr auto kIgnore = [](std::int64_t, std::int64_t) {};

template <typename Pair>
void add_example(std::vector<Pair>& examples, const Pair& example) {
  if (examples.size() < EdgeCounts::kExamples && (examples.empty() || examples.back() != example)) {
    examples.push_back(example);
  }
}

}  // namespace

template <typename Record>
void EdgeEmitter::count_slice(const Record* records, Slice& slice) const {
  EdgeCounts& counts = slice.counts;
  walk(
      records, slice.first, slice.end, slice.source, slice.target, keep_duplicates_,
      [&](std::int64_t, std::int64_t target, std::int64_t source) {
        ++counts.edges;
        if (one_type_ && target == source) {
          ++counts.self_loops;
          if (counts.self_loop_examples.size() < EdgeCounts::kExamples) {
            counts.self_loop_examples.push_back(target);
          }
        }
      },
      [&](std::int64_t target, std::int64_t source) {
        ++counts.duplicates;
        add_example(counts.duplicate_examples, {source, target});
      });
}

template <typename Record, typename Index>
void EdgeEmitter::write_indices(const Record* records, const Slice& slice) {
  PlacedBlock block(*output_.indices, sizeof(Index), slice.position);
  walk(
      records, slice.first, slice.end, slice.source, slice.target, keep_duplicates_,
      [&](std::int64_t, std::int64_t, std::int64_t source) {
        const auto index = static_cast<Index>(source);
        std::memcpy(block.next(sizeof index), &index, sizeof index);
      },
      kIgnore);
  block.flush();
}

template <typename Record>
void EdgeEmitter::write_column(const Record* records, const Slice& slice, const ColumnOutput& output,
                               const std::byte* column) {
  if constexpr (Record::kHasRow) {
    PlacedBlock block(*output.file, output.row_bytes, slice.position);
    const auto each = [&](auto&& copy) {
      walk(
          records, slice.first, slice.end, slice.source, slice.target, keep_duplicates_,
          [&](std::int64_t i, std::int64_t, std::int64_t) {
            if (i + kAhead < slice.end) {
              prefetch(column + std::size_t{records[i + kAhead].row} * output.row_bytes);
            }
            copy(block.next(output.row_bytes), column + std::size_t{records[i].row} * output.row_bytes);
          },
          kIgnore);
      block.flush();
    };
    if (output.recode != nullptr) {
      each([&](std::byte* to, const std::byte* from) {
        std::int32_t code;
        std::memcpy(&code, from, sizeof code);
        code = recoded(output, code);
        std::memcpy(to, &code, sizeof code);
      });
    } else if (output.row_bytes == 4) {
      each([](std::byte* to, const std::byte* from) { std::memcpy(to, from, 4); });
    } else if (output.row_bytes == 8) {
      each([](std::byte* to, const std::byte* from) { std::memcpy(to, from, 8); });
    } else {
      each([bytes = output.row_bytes](std::byte* to, const std::byte* from) { std::memcpy(to, from, bytes); });
    }
  } else {
    static_cast<void>(records), static_cast<void>(slice), static_cast<void>(output), static_cast<void>(column);
  }
}

// Entry t of indptr is the position of the first edge whose target is t or above. A slice writes the entries from behind
// the target before it to its own last target.
template <typename Record>
void EdgeEmitter::write_indptr(const Record* records, const Slice& slice) {
  PlacedBlock block(*output_.indptr, sizeof(std::int64_t), slice.target + 1);
  std::int64_t reached = slice.target;
  std::int64_t position = slice.position;
  walk(
      records, slice.first, slice.end, slice.source, slice.target, keep_duplicates_,
      [&](std::int64_t, std::int64_t target, std::int64_t) {
        for (; reached < target; ++reached) {
          std::memcpy(block.next(sizeof position), &position, sizeof position);
        }
        ++position;
      },
      kIgnore);
  block.flush();
}

template <typename Record>
void EdgeEmitter::emit(const Record* records, std::int64_t count, const std::vector<const std::byte*>& columns) {
  if (count == 0) {
    return;
  }
  const std::int64_t parts = std::clamp<std::int64_t>(count / kFewestPerSlice, 1, 8 * std::int64_t{threads_});
  std::vector<Slice> slices(static_cast<std::size_t>(parts));
  for (std::int64_t part = 0; part < parts; ++part) {
    Slice& slice = slices[static_cast<std::size_t>(part)];
    slice.first = count * part / parts;
    slice.end = count * (part + 1) / parts;
    slice.source = part == 0 ? last_source_ : source_of(records[slice.first - 1].key);
    slice.target = part == 0 ? last_target_ : target_of(records[slice.first - 1].key);
  }
  parallel_for(threads_, parts, [&](std::int64_t part) { count_slice(records, slices[static_cast<std::size_t>(part)]); });
  for (Slice& slice : slices) {
    slice.position = counts_.edges;
    add(slice);
  }
  parallel_for(threads_, parts, [&](std::int64_t part) {
    const Slice& slice = slices[static_cast<std::size_t>(part)];
    if (output_.wide_indices) {
      write_indices<Record, std::int64_t>(records, slice);
    } else {
      write_indices<Record, std::int32_t>(records, slice);
    }
    for (std::size_t column = 0; column < columns.size(); ++column) {
      write_column(records, slice, output_.columns[column], columns[column]);
    }
    write_indptr(records, slice);
  });
  last_source_ = source_of(records[count - 1].key);
  last_target_ = target_of(records[count - 1].key);
}

void EdgeEmitter::add(const Slice& slice) {
  counts_.edges += slice.counts.edges;
  counts_.duplicates += slice.counts.duplicates;
  counts_.self_loops += slice.counts.self_loops;
  for (const auto& example : slice.counts.duplicate_examples) {
    add_example(counts_.duplicate_examples, example);
  }
  for (const std::int64_t example : slice.counts.self_loop_examples) {
    if (counts_.self_loop_examples.size() < EdgeCounts::kExamples) {
      counts_.self_loop_examples.push_back(example);
    }
  }
}

EdgeCounts EdgeEmitter::finish() {
  PlacedBlock block(*output_.indptr, sizeof(std::int64_t), last_target_ + 1);
  for (std::int64_t target = last_target_; target < num_targets_; ++target) {
    std::memcpy(block.next(sizeof(std::int64_t)), &counts_.edges, sizeof(std::int64_t));
  }
  block.flush();
  return counts_;
}

template void EdgeEmitter::emit(const EdgeAlone<NarrowKey>*, std::int64_t, const std::vector<const std::byte*>&);
template void EdgeEmitter::emit(const EdgeAlone<WideKey>*, std::int64_t, const std::vector<const std::byte*>&);
template void EdgeEmitter::emit(const EdgeWithRow<NarrowKey>*, std::int64_t, const std::vector<const std::byte*>&);
template void EdgeEmitter::emit(const EdgeWithRow<WideKey>*, std::int64_t, const std::vector<const std::byte*>&);

}  // namespace graphbox
