#include "graph/node_ids.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "errors/error.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kBatchRows = std::int64_t{1} << 16;

ArrayFile write_array(const std::string& path, const char* dtype, const void* data, std::size_t bytes, int threads) {
  constexpr std::size_t kChunk = std::size_t{4} << 20;
  ArrayFileWriter file(path, dtype);
  parallel_for(threads, static_cast<std::int64_t>((bytes + kChunk - 1) / kChunk), [&](std::int64_t chunk) {
    const std::size_t start = static_cast<std::size_t>(chunk) * kChunk;
    file.write_at(start, static_cast<const std::byte*>(data) + start, std::min(kChunk, bytes - start));
  });
  return file.finish();
}

}  // namespace

NodeIds::NodeIds(IdKind kind, std::string scratch, std::size_t memory_bytes, int threads)
    : memory_bytes_(memory_bytes), threads_(std::max(threads, 1)), table_(kind, memory_bytes, threads) {
  static_cast<void>(scratch);
}

void NodeIds::reserve(std::int64_t count, std::size_t text_bytes) {
  if (closed_) {
    throw Error(ErrorKind::kUsage, "expected ids before the node ids were closed, received them after");
  }
  if (!table_.reserve(count, text_bytes)) {
    throw Error(ErrorKind::kDoesNotFit,
                "expected ids that fit into " + std::to_string(memory_bytes_) + " bytes of memory, received " +
                    std::to_string(num_nodes() + count),
                {}, "give more memory");
  }
}

void NodeIds::add(const IdBatch& ids) {
  std::vector<std::int64_t> found(static_cast<std::size_t>(std::min(kBatchRows, ids.size)));
  for (std::int64_t first = 0; first < ids.size; first += kBatchRows) {
    const IdBatch part = ids.slice(first, std::min(kBatchRows, ids.size - first));
    reserve(part.size, part.text_bytes());
    std::int64_t next = num_nodes();
    table_.insert(part, nullptr, found.data());
    for (std::int64_t i = 0; i < part.size; ++i) {
      const std::int64_t index = found[static_cast<std::size_t>(i)];
      if (index == next) {
        ++next;
        continue;
      }
      ++num_repeated_;
      if (!first_repeated_) {
        first_repeated_ = {index, rows_ + i};  // up to here every row was a new node
      }
    }
    rows_ += part.size;
  }
}

void NodeIds::discover(const IdBatch& ids, const std::uint8_t* valid, std::int64_t* found) {
  reserve(ids.size, ids.text_bytes());
  table_.insert(ids, valid, found);
}

void NodeIds::discover_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid,
                             std::int64_t* found) {
  reserve(2 * sources.size, sources.text_bytes() + targets.text_bytes());
  table_.insert_pairs(sources, targets, valid, found);
}

void NodeIds::close() {
  if (!closed_) {
    closed_ = true;
    table_.settle();
  }
}

void NodeIds::take(const std::int64_t* index, std::int64_t count, std::vector<std::int64_t>& values,
                   std::string& text) const {
  const IdBatch all = table_.ids();
  for (std::int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= all.size) {
      throw Error(ErrorKind::kUsage, "expected numbers from 0 to " + std::to_string(all.size - 1) + ", received " +
                                         std::to_string(index[i]));
    }
  }
  if (kind() == IdKind::kInteger) {
    std::transform(index, index + count, std::back_inserter(values), [&](std::int64_t i) { return all.integers[i]; });
    return;
  }
  values.push_back(0);
  for (std::int64_t i = 0; i < count; ++i) {
    text += all.strings[index[i]];
    values.push_back(static_cast<std::int64_t>(text.size()));
  }
}

WrittenIds NodeIds::write(const IdFiles& files) const {
  WrittenIds written;
  const IdBatch all = table_.ids();
  if (kind() == IdKind::kInteger) {
    written.values =
        write_array(files.values, "<i8", all.integers.values, static_cast<std::size_t>(all.size) * 8, threads_);
  } else {
    written.offsets =
        write_array(files.offsets, "<i8", all.strings.offsets, static_cast<std::size_t>(all.size + 1) * 8, threads_);
    written.text = write_array(files.text, "|u1", all.strings.text, static_cast<std::size_t>(all.strings.text_bytes),
                               threads_);
  }
  const IdIndex& index = table_.index();
  written.wide_index = index.is_wide();
  written.index =
      write_array(files.index, index.is_wide() ? "<i8" : "<i4", index.data(), index.size_bytes(), threads_);
  return written;
}

}  // namespace graphbox
