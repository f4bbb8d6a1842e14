#include "graph/node_ids.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
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
    : kind_(kind), scratch_(std::move(scratch)), memory_bytes_(memory_bytes), threads_(bounded_threads(threads)) {
  // The memory that spilling needs is kept free, where there is enough for it at all.
  const std::size_t kept = memory_bytes_ > 2 * SpilledIds::kFewestBytes ? SpilledIds::kStreamBytes : 0;
  table_ = std::make_unique<IdTable>(kind_, memory_bytes_ - kept, threads_);
}

void NodeIds::check_open() const {
  if (closed_) {
    throw Error(ErrorKind::kUsage, "expected ids before the node ids were closed, received them after");
  }
}

bool NodeIds::reserve(std::int64_t count, std::size_t text_bytes) {
  check_open();
  if (!spilled_ && !table_->reserve(count, text_bytes)) {
    spill();
  }
  return !spilled_;
}

void NodeIds::spill() {
  static std::atomic<std::uint64_t> serial = 0;
  const std::string prefix = scratch_ + "/ids-" + std::to_string(::getpid()) + "-" + std::to_string(serial++);
  IdArrayPaths paths;
  if (kind_ == IdKind::kInteger) {
    paths.values = prefix + ".npy";
  } else {
    paths.offsets = prefix + "-offsets.npy";
    paths.text = prefix + "-text.npy";
  }
  spilled_ = std::make_unique<SpilledIds>(*table_, std::move(paths), scratch_, memory_bytes_, threads_);
  table_.reset();
  logged_from_ = rows_;
}

void NodeIds::add(const IdBatch& ids) {
  for (std::int64_t first = 0; first < ids.size; first += kBatchRows) {
    const IdBatch part = ids.slice(first, std::min(kBatchRows, ids.size - first));
    if (reserve(part.size, part.text_bytes())) {
      add_held(part);
    } else {
      if (logs_.empty()) {
        discover_log();
      }
      logs_.back()->append(part, nullptr);
    }
    rows_ += part.size;
  }
}

void NodeIds::add_held(const IdBatch& ids) {
  std::vector<std::int64_t> found(static_cast<std::size_t>(ids.size));
  std::int64_t next = num_nodes();
  table_->insert(ids, nullptr, found.data());
  for (std::int64_t i = 0; i < ids.size; ++i) {
    const std::int64_t index = found[static_cast<std::size_t>(i)];
    if (index == next) {
      ++next;
    } else if (++num_repeated_ == 1) {
      first_repeated_ = {index, rows_ + i};  // up to here every row was a new node
    }
  }
}

bool NodeIds::discover(const IdBatch& ids, const std::uint8_t* valid, std::int64_t* found) {
  if (!reserve(ids.size, ids.text_bytes())) {
    return false;
  }
  table_->insert(ids, valid, found);
  return true;
}

bool NodeIds::discover_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid,
                             std::int64_t* found) {
  if (!reserve(2 * sources.size, sources.text_bytes() + targets.text_bytes())) {
    return false;
  }
  table_->insert_pairs(sources, targets, valid, found);
  return true;
}

std::shared_ptr<IdLog> NodeIds::discover_log() {
  check_open();
  if (!logs_.empty()) {
    logs_.back()->flush();
  }
  logs_.push_back(std::make_shared<IdLog>(kind_, scratch_));
  return logs_.back();
}

void NodeIds::close() {
  if (closed_) {
    return;
  }
  closed_ = true;
  if (!spilled_) {
    return;
  }
  for (const std::shared_ptr<IdLog>& log : logs_) {
    const SpilledIds::Repeated repeated = spilled_->number(*log);
    if (rows_ == 0) {
      continue;  // ids met at ends of edges may be met again
    }
    num_repeated_ += repeated.rows;
    if (repeated.rows > 0 && !first_repeated_) {
      first_repeated_ = {repeated.first_number, logged_from_ + repeated.first_row};
    }
  }
  logs_.clear();
  spilled_->close();
}

void NodeIds::check_found(const char* what) const {
  if (spilled_ && !closed_) {
    throw Error(ErrorKind::kUsage, std::string("expected the node ids to be closed before ids are ") + what);
  }
}

void NodeIds::find(const IdBatch& ids, const std::uint8_t* valid, std::int64_t* found) const {
  check_found("looked up");
  if (!spilled_) {
    table_->find(ids, valid, found);
    return;
  }
  IdLog log(kind_, scratch_);
  log.append(ids, valid);
  LogReplay replay = spilled_->find(log);
  for (std::int64_t i = 0; i < ids.size; ++i) {
    found[i] = replay.next();
  }
}

void NodeIds::take(const std::int64_t* index, std::int64_t count, std::vector<std::int64_t>& values,
                   std::string& text) const {
  check_found("taken");
  for (std::int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= num_nodes()) {
      throw Error(ErrorKind::kUsage, "expected numbers from 0 to " + std::to_string(num_nodes() - 1) + ", received " +
                                         std::to_string(index[i]));
    }
  }
  if (spilled_) {
    spilled_->take(index, count, values, text);
    return;
  }
  const IdBatch all = table_->ids();
  if (kind_ == IdKind::kInteger) {
    std::transform(index, index + count, std::back_inserter(values), [&](std::int64_t i) { return all.integers[i]; });
    return;
  }
  values.push_back(0);
  for (std::int64_t i = 0; i < count; ++i) {
    text += all.strings[index[i]];
    values.push_back(static_cast<std::int64_t>(text.size()));
  }
}

WrittenIds NodeIds::write(const IdFiles& files) {
  if (!closed_) {
    throw Error(ErrorKind::kUsage, "expected the node ids to be closed before they are written");
  }
  WrittenIds written;
  if (spilled_) {
    spilled_->move_to(files.ids);
    written.values = spilled_->values();
    written.offsets = spilled_->offsets();
    written.text = spilled_->text();
    written.wide_index = spilled_->has_wide_index();
    written.index = spilled_->write_index(files.index);
    return written;
  }
  const IdBatch all = table_->ids();
  if (kind_ == IdKind::kInteger) {
    written.values =
        write_array(files.ids.values, "<i8", all.integers.values, static_cast<std::size_t>(all.size) * 8, threads_);
  } else {
    written.offsets = write_array(files.ids.offsets, "<i8", all.strings.offsets,
                                  static_cast<std::size_t>(all.size + 1) * 8, threads_);
    written.text = write_array(files.ids.text, "|u1", all.strings.text,
                               static_cast<std::size_t>(all.strings.text_bytes), threads_);
  }
  const IdIndex index = table_->into_index();
  written.wide_index = index.is_wide();
  written.index =
      write_array(files.index, index.is_wide() ? "<i8" : "<i4", index.data(), index.size_bytes(), threads_);
  return written;
}

}  // namespace graphbox
