#include "graph/spilled_ids.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "errors/error.h"
#include "io/file.h"

namespace graphbox {
namespace {

constexpr std::int64_t kBatchRows = std::int64_t{1} << 15;
constexpr std::size_t kBatchTextBytes = std::size_t{2} << 20;

std::size_t partition_of(std::uint64_t hash) { return static_cast<std::size_t>(hash >> (64 - kIdPartitionBits)); }

std::uint64_t hash_of(std::int64_t id) { return hash_integer(id); }
std::uint64_t hash_of(std::string_view id) { return hash_bytes(id.data(), id.size()); }

// An id in a stream: 8 bytes, or the length of a string in 4 and its text.
void write_id(StreamFile& streams, std::size_t stream, std::int64_t id) { streams.append(stream, &id, sizeof id); }
void write_id(StreamFile& streams, std::size_t stream, std::string_view id) {
  const auto size = static_cast<std::uint32_t>(id.size());
  streams.append(stream, &size, sizeof size);
  streams.append(stream, id.data(), id.size());
}

// Ids read from a stream, some at a time.
class IdBlock {
 public:
  explicit IdBlock(IdKind kind) : kind_(kind) { clear(); }

  void clear() {
    integers_.clear();
    offsets_.assign(1, 0);
    text_.clear();
  }
  bool full() const { return rows() == kBatchRows || text_.size() >= kBatchTextBytes; }
  std::int64_t rows() const {
    return static_cast<std::int64_t>(kind_ == IdKind::kInteger ? integers_.size() : offsets_.size() - 1);
  }
  std::size_t text_bytes() const { return text_.size(); }

  void read(StreamFile::Reader& reader) {
    if (kind_ == IdKind::kInteger) {
      integers_.push_back(reader.next<std::int64_t>());
      return;
    }
    const std::size_t before = text_.size();
    const auto size = reader.next<std::uint32_t>();
    text_.resize(before + size);
    reader.read(text_.data() + before, size);
    offsets_.push_back(static_cast<std::int64_t>(text_.size()));
  }

  IdBatch ids() const {
    IdBatch batch;
    batch.kind = kind_;
    batch.size = rows();
    batch.integers = {integers_.data()};
    batch.strings = {offsets_.data(), text_.data(), static_cast<std::int64_t>(text_.size())};
    return batch;
  }

 private:
  IdKind kind_;
  std::vector<std::int64_t> integers_;
  std::vector<std::int64_t> offsets_;
  std::vector<char> text_;
};

void reserve(IdTable& table, const IdBlock& block, std::size_t memory_bytes) {
  if (!table.reserve(block.rows(), block.text_bytes())) {
    throw Error(ErrorKind::kDoesNotFit,
                "expected that one of " + std::to_string(kIdPartitions) + " parts of the ids fits into " +
                    std::to_string(memory_bytes) + " bytes of memory, but " +
                    std::to_string(table.held_bytes() + block.text_bytes()) + " are needed",
                {}, "give more memory");
  }
}

}  // namespace

// Logs

template <typename Ids>
void IdLog::append_row(const Ids& ids, std::int64_t row, bool valid) {
  std::uint8_t partition = kMissing;
  if (valid) {
    const auto id = ids[row];
    partition = static_cast<std::uint8_t>(partition_of(hash_of(id)));
    write_id(streams_, partition, id);
  }
  streams_.append(kIdPartitions, &partition, 1);
  ++size_;
}

void IdLog::append(const IdBatch& ids, const std::uint8_t* valid) {
  with_ids(ids, [&](const auto& of_kind) {
    for (std::int64_t row = 0; row < ids.size; ++row) {
      append_row(of_kind, row, valid == nullptr || valid[row] != 0);
    }
  });
}

void IdLog::append_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid) {
  const auto append_all = [&](const auto& pairs) {
    for (std::int64_t end = 0; end < 2 * sources.size; ++end) {
      append_row(pairs, end, valid == nullptr || valid[end >> 1] != 0);
    }
  };
  if (kind_ == IdKind::kInteger) {
    append_all(PairedIds<IntegerIds>{sources.integers, targets.integers});
  } else {
    append_all(PairedIds<StringIds>{sources.strings, targets.strings});
  }
}

LogReplay::LogReplay(const IdLog& log, std::unique_ptr<StreamFile> numbers)
    : partitions_(log.streams_, kIdPartitions), numbers_(std::move(numbers)) {
  for (std::size_t partition = 0; partition < kIdPartitions; ++partition) {
    readers_.emplace_back(*numbers_, partition);
  }
}

std::int64_t LogReplay::next() {
  const auto partition = partitions_.next<std::uint8_t>();
  return partition == IdLog::kMissing ? -1 : readers_[partition].next<std::int64_t>();
}

// Numbering

SpilledIds::SpilledIds(const IdTable& table, IdArrayPaths paths, std::string scratch, std::size_t memory_bytes,
                       int threads)
    : kind_(table.kind()),
      paths_(std::move(paths)),
      scratch_(std::move(scratch)),
      memory_bytes_(memory_bytes),
      threads_(threads),
      known_(std::make_unique<StreamFile>(scratch_, kIdPartitions)) {
  if (memory_bytes_ < kFewestBytes) {
    throw Error(ErrorKind::kDoesNotFit,
                "expected at least " + std::to_string(kFewestBytes) + " bytes of memory for ids, received " +
                    std::to_string(memory_bytes_),
                {}, "give more memory");
  }
  if (kind_ == IdKind::kInteger) {
    values_ = std::make_unique<ArrayFileWriter>(paths_.values, "<i8");
  } else {
    offsets_ = std::make_unique<ArrayFileWriter>(paths_.offsets, "<i8");
    text_ = std::make_unique<ArrayFileWriter>(paths_.text, "|u1");
    offsets_->append(&text_bytes_, sizeof text_bytes_);
  }
  const IdBatch ids = table.ids();
  with_ids(ids, [&](const auto& of_kind) {
    for (std::int64_t i = 0; i < ids.size; ++i) {
      add(partition_of(hash_of(of_kind[i])), of_kind[i]);
    }
  });
}

template <typename Value>
void SpilledIds::add(std::size_t partition, Value id) {
  known_->append(partition, &size_, sizeof size_);
  write_id(*known_, partition, id);
  put(id);
  ++size_;
}

void SpilledIds::put(std::string_view id) {
  text_->append(id.data(), id.size());
  text_bytes_ += static_cast<std::int64_t>(id.size());
  offsets_->append(&text_bytes_, sizeof text_bytes_);
}

// The ids of a partition in a table, numbered within it in the order in which they became known.
IdTable SpilledIds::load(std::size_t partition, std::vector<std::int64_t>* numbers) const {
  IdTable table(kind_, memory_bytes_ - kStreamBytes, threads_);
  StreamFile::Reader reader(*known_, partition);
  IdBlock block(kind_);
  std::vector<std::int64_t> found(static_cast<std::size_t>(kBatchRows));
  while (!reader.done()) {
    for (block.clear(); !reader.done() && !block.full();) {
      const auto number = reader.next<std::int64_t>();
      if (numbers != nullptr) {
        numbers->push_back(number);
      }
      block.read(reader);
    }
    reserve(table, block, memory_bytes_);
    table.insert(block.ids(), nullptr, found.data());
  }
  return table;
}

SpilledIds::Repeated SpilledIds::number(IdLog& log) {
  log.flush();
  return kind_ == IdKind::kInteger ? number_as<std::int64_t>(log) : number_as<std::string>(log);
}

// First every partition alone finds out which of its ids are new, then the log is gone through in its order.
template <typename Value>
SpilledIds::Repeated SpilledIds::number_as(IdLog& log) {
  known_->flush();
  StreamFile locals(scratch_, kIdPartitions);
  std::vector<std::int64_t> next_local;
  std::vector<std::int64_t> found(static_cast<std::size_t>(kBatchRows));
  IdBlock block(kind_);
  for (std::size_t partition = 0; partition < kIdPartitions; ++partition) {
    IdTable table = load(partition, nullptr);
    next_local.push_back(table.size());
    StreamFile::Reader reader(log.streams_, partition);
    while (!reader.done()) {
      for (block.clear(); !reader.done() && !block.full();) {
        block.read(reader);
      }
      reserve(table, block, memory_bytes_);
      table.insert(block.ids(), nullptr, found.data());
      locals.append(partition, found.data(), static_cast<std::size_t>(block.rows()) * sizeof(std::int64_t));
    }
  }
  locals.flush();

  std::vector<StreamFile::Reader> ids;
  std::vector<StreamFile::Reader> numbers;
  for (std::size_t partition = 0; partition < kIdPartitions; ++partition) {
    ids.emplace_back(log.streams_, partition);
    numbers.emplace_back(locals, partition);
  }
  StreamFile::Reader partitions(log.streams_, kIdPartitions);
  Repeated repeated;
  std::size_t repeated_partition = 0;
  std::int64_t repeated_local = -1;
  for (std::int64_t row = 0; row < log.size(); ++row) {
    const auto partition = partitions.next<std::uint8_t>();
    if (partition == IdLog::kMissing) {
      continue;
    }
    Value id{};
    if constexpr (std::is_same_v<Value, std::int64_t>) {
      id = ids[partition].template next<std::int64_t>();
    } else {
      id.resize(ids[partition].template next<std::uint32_t>());
      ids[partition].read(id.data(), id.size());
    }
    const auto local = numbers[partition].template next<std::int64_t>();
    if (local == next_local[partition]) {
      ++next_local[partition];
      if constexpr (std::is_same_v<Value, std::int64_t>) {
        add(partition, id);
      } else {
        add(partition, std::string_view(id));
      }
    } else if (++repeated.rows == 1) {
      repeated.first_row = row;
      repeated_partition = partition;
      repeated_local = local;
    }
  }
  known_->flush();
  if (repeated.rows > 0) {  // ids became known in the order of their local numbers
    StreamFile::Reader reader(*known_, repeated_partition);
    for (std::int64_t local = 0; local <= repeated_local; ++local) {
      repeated.first_number = reader.next<std::int64_t>();
      block.clear();
      block.read(reader);
    }
  }
  return repeated;
}

void SpilledIds::close() {
  known_->flush();
  if (values_) {
    values_file_ = values_->finish();
  } else {
    offsets_file_ = offsets_->finish();
    text_file_ = text_->finish();
  }
  values_.reset();
  offsets_.reset();
  text_.reset();
}

void SpilledIds::move_to(IdArrayPaths paths) {
  const auto move = [](const std::string& from, const std::string& to) {
    if (!from.empty() && ::rename(from.c_str(), to.c_str()) != 0) {
      throw_system_error("cannot move the file into place", to);
    }
  };
  move(paths_.values, paths.values);
  move(paths_.offsets, paths.offsets);
  move(paths_.text, paths.text);
  paths_ = std::move(paths);
}

// Looking up

LogReplay SpilledIds::find(IdLog& log) const {
  log.flush();
  auto result = std::make_unique<StreamFile>(scratch_, kIdPartitions);
  std::vector<std::int64_t> numbers;
  std::vector<std::int64_t> found(static_cast<std::size_t>(kBatchRows));
  IdBlock block(kind_);
  for (std::size_t partition = 0; partition < kIdPartitions; ++partition) {
    if (log.streams_.bytes(partition) == 0) {
      continue;
    }
    numbers.clear();
    const IdTable table = load(partition, &numbers);
    StreamFile::Reader reader(log.streams_, partition);
    while (!reader.done()) {
      for (block.clear(); !reader.done() && !block.full();) {
        block.read(reader);
      }
      table.find(block.ids(), nullptr, found.data());
      for (std::int64_t i = 0; i < block.rows(); ++i) {
        std::int64_t& number = found[static_cast<std::size_t>(i)];
        number = number < 0 ? -1 : numbers[static_cast<std::size_t>(number)];
      }
      result->append(partition, found.data(), static_cast<std::size_t>(block.rows()) * sizeof(std::int64_t));
    }
  }
  result->flush();
  return LogReplay(log, std::move(result));
}

void SpilledIds::take(const std::int64_t* index, std::int64_t count, std::vector<std::int64_t>& values,
                      std::string& text) const {
  const FileReader first(kind_ == IdKind::kInteger ? paths_.values : paths_.offsets);
  const auto place = [](std::int64_t i) { return kArrayHeaderBytes + static_cast<std::uint64_t>(i) * 8; };
  if (kind_ == IdKind::kInteger) {
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(0);
      first.read(&values.back(), 8, place(index[i]));
    }
    return;
  }
  const FileReader strings(paths_.text);
  values.push_back(0);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t bounds[2];
    first.read(bounds, sizeof bounds, place(index[i]));
    const std::size_t before = text.size();
    text.resize(before + static_cast<std::size_t>(bounds[1] - bounds[0]));
    strings.read(text.data() + before, text.size() - before,
                 kArrayHeaderBytes + static_cast<std::uint64_t>(bounds[0]));
    values.push_back(static_cast<std::int64_t>(text.size()));
  }
}

// The index

// Calls `body(number, hash)` for all ids in the order of their numbers.
template <typename Body>
void SpilledIds::each_hash(const Body& body) const {
  const FileReader first(kind_ == IdKind::kInteger ? paths_.values : paths_.offsets);
  std::vector<std::int64_t> block(static_cast<std::size_t>(kBatchRows) + 1);
  if (kind_ == IdKind::kInteger) {
    for (std::int64_t start = 0; start < size_; start += kBatchRows) {
      const std::int64_t count = std::min(kBatchRows, size_ - start);
      first.read(block.data(), static_cast<std::size_t>(count) * 8,
                 kArrayHeaderBytes + static_cast<std::uint64_t>(start) * 8);
      for (std::int64_t i = 0; i < count; ++i) {
        body(start + i, hash_integer(block[static_cast<std::size_t>(i)]));
      }
    }
    return;
  }
  const FileReader strings(paths_.text);
  std::string text;
  for (std::int64_t start = 0; start < size_; start += kBatchRows) {
    const std::int64_t count = std::min(kBatchRows, size_ - start);
    first.read(block.data(), static_cast<std::size_t>(count + 1) * 8,
               kArrayHeaderBytes + static_cast<std::uint64_t>(start) * 8);
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t from = block[static_cast<std::size_t>(i)];
      std::int64_t end = i + 1;  // as many as fit, at least one
      while (end < count && static_cast<std::size_t>(block[static_cast<std::size_t>(end) + 1] - from) <= kBatchTextBytes) {
        ++end;
      }
      text.resize(static_cast<std::size_t>(block[static_cast<std::size_t>(end)] - from));
      strings.read(text.data(), text.size(), kArrayHeaderBytes + static_cast<std::uint64_t>(from));
      for (; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i);
        body(start + i, hash_bytes(text.data() + (block[at] - from), static_cast<std::size_t>(block[at + 1] - block[at])));
      }
    }
  }
}

ArrayFile SpilledIds::write_index(const std::string& path) const {
  IndexLayout layout = IndexLayout::of(size_);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(layout.partitions()), 0);
  each_hash([&](std::int64_t, std::uint64_t hash) { ++sizes[static_cast<std::size_t>(layout.partition_of(hash))]; });
  while (*std::max_element(sizes.begin(), sizes.end()) >= layout.slots_per_partition) {
    layout.slots_per_partition *= 2;
  }
  ArrayFileWriter file(path, has_wide_index() ? "<i8" : "<i4");
  has_wide_index() ? write_windows<std::int64_t>(file, layout) : write_windows<std::int32_t>(file, layout);
  return file.finish();
}

template <typename Entry>
void SpilledIds::write_windows(ArrayFileWriter& file, const IndexLayout& layout) const {
  const std::size_t slots = static_cast<std::size_t>(layout.slots_per_partition);
  const std::size_t fitting = (memory_bytes_ - kStreamBytes) / (slots * sizeof(Entry));
  if (fitting == 0) {
    throw Error(ErrorKind::kDoesNotFit,
                "expected memory for a part of the hash index, " + std::to_string(slots * sizeof(Entry)) +
                    " bytes, received " + std::to_string(memory_bytes_ - kStreamBytes),
                {}, "give more memory");
  }
  const std::int64_t window = std::min<std::int64_t>(static_cast<std::int64_t>(fitting), layout.partitions());
  Buffer entries(static_cast<std::size_t>(window) * slots * sizeof(Entry));
  for (std::int64_t first = 0; first < layout.partitions(); first += window) {
    const std::int64_t count = std::min(window, layout.partitions() - first);
    auto* const data = reinterpret_cast<Entry*>(entries.data());
    std::fill_n(data, static_cast<std::size_t>(count) * slots, Entry{-1});
    each_hash([&](std::int64_t number, std::uint64_t hash) {
      const std::int64_t partition = layout.partition_of(hash) - first;
      if (partition < 0 || partition >= count) {
        return;
      }
      Entry* const of_partition = data + static_cast<std::size_t>(partition) * slots;
      auto slot = static_cast<std::size_t>(layout.start_slot_of(hash));
      while (of_partition[slot] != -1) {
        slot = slot + 1 == slots ? 0 : slot + 1;
      }
      of_partition[slot] = static_cast<Entry>(number);
    });
    file.append(data, static_cast<std::size_t>(count) * slots * sizeof(Entry));
  }
}

}  // namespace graphbox
