#include "graph/edge_builder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "errors/error.h"
#include "io/file.h"

namespace graphbox {
namespace {

constexpr std::size_t kReplayBlockBytes = std::size_t{2} << 20;

std::vector<std::size_t> bytes_of(const std::vector<EdgeColumn>& columns) {
  std::vector<std::size_t> bytes;
  for (const EdgeColumn& column : columns) {
    bytes.push_back(column.row_bytes());
  }
  return bytes;
}

std::size_t sorter_memory(const EdgeBuilderOptions& options) {
  return options.memory_bytes > EdgeBuilder::kWorkingBytes ? options.memory_bytes - EdgeBuilder::kWorkingBytes : 0;
}

}  // namespace

std::size_t EdgeColumn::row_bytes() const {
  std::size_t bytes = item_bytes_of(dtype);
  for (const std::uint64_t size : row_shape) {
    bytes *= size;
  }
  return bytes;
}

EdgeBuilder::EdgeBuilder(NodeIds& sources, NodeIds& targets, EdgeBuilderOptions options)
    : sources_{sources, options.discover_sources, {}, nullptr, 0},
      targets_{targets, options.discover_targets, {}, nullptr, 0},
      options_(std::move(options)),
      sorter_(bytes_of(options_.columns), options_.scratch, sorter_memory(options_), options_.threads) {}

bool EdgeBuilder::add(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid,
                      const std::vector<const std::byte*>& columns, std::vector<std::int64_t>& dangling) {
  if (finished_) {
    throw Error(ErrorKind::kUsage, "expected edges before finish(), received them after");
  }
  std::vector<const std::byte*> part_columns(columns);
  for (std::int64_t first = 0; first < sources.size; first += kBatchRows) {
    const std::int64_t count = std::min(kBatchRows, sources.size - first);
    for (std::size_t column = 0; column < columns.size(); ++column) {
      part_columns[column] = columns[column] + static_cast<std::size_t>(first) * options_.columns[column].row_bytes();
    }
    if (find_ends(sources.slice(first, count), targets.slice(first, count),
                  valid == nullptr ? nullptr : valid + first)) {
      const std::size_t before = dangling.size();
      add_found(rows_, count, part_columns, &dangling);
      for (std::size_t i = before; i < dangling.size(); ++i) {
        dangling[i] += first;
      }
    } else {
      defer(count, part_columns);
    }
    rows_ += count;
  }
  return !deferred_;
}

// Passes on edges both ends of which were looked up.
void EdgeBuilder::add_found(std::int64_t first_row, std::int64_t count, const std::vector<const std::byte*>& columns,
                            std::vector<std::int64_t>* dangling) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::size_t>(i);
    if ((sources_.index[row] | targets_.index[row]) < 0) {
      ++dangling_;
      if (dangling_examples_.size() < EdgeCounts::kExamples) {
        dangling_examples_.push_back(first_row + i);
      }
      if (dangling != nullptr) {
        dangling->push_back(i);
      }
    }
  }
  sorter_.add(sources_.index.data(), targets_.index.data(), count, columns);
}

// Looks both ends up, or puts those into a log that are not in memory. False when there is such an end.
bool EdgeBuilder::find_ends(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid) {
  sources_.index.resize(static_cast<std::size_t>(sources.size));
  targets_.index.resize(static_cast<std::size_t>(sources.size));
  if (has_pairs()) {
    return find_pairs(sources, targets, valid);
  }
  const bool source_found = find_end(sources_, sources, valid);
  const bool target_found = find_end(targets_, targets, valid);
  return source_found && target_found;
}

bool EdgeBuilder::find_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid) {
  const auto size = static_cast<std::size_t>(sources.size);
  pairs_.resize(2 * size);
  if (!sources_.nodes.discover_pairs(sources, targets, valid, pairs_.data())) {
    log_of(sources_);
    sources_.log->append_pairs(sources, targets, valid);
    return false;
  }
  for (std::size_t i = 0; i < size; ++i) {
    sources_.index[i] = pairs_[2 * i];
    targets_.index[i] = pairs_[2 * i + 1];
  }
  return true;
}

bool EdgeBuilder::find_end(End& end, const IdBatch& ids, const std::uint8_t* valid) {
  if (end.discover && end.nodes.discover(ids, valid, end.index.data())) {
    return true;
  }
  if (!end.discover && !end.nodes.is_spilled()) {
    end.nodes.find(ids, valid, end.index.data());
    return true;
  }
  log_of(end);
  end.log->append(ids, valid);
  return false;
}

void EdgeBuilder::log_of(End& end) {
  if (!end.log) {
    end.log = end.discover ? end.nodes.discover_log() : std::make_shared<IdLog>(end.nodes.kind(), options_.scratch);
    end.logged_from = rows_;
  }
  if (end.discover && !end.nodes.is_last(end.log)) {
    throw Error(ErrorKind::kUsage,
                "expected the edges of one builder after those of another, received them in turns: nodes without a "
                "table are numbered in the order in which they are met");
  }
}

// The sorter gives its memory to the logs until finish().
void EdgeBuilder::defer(std::int64_t count, const std::vector<const std::byte*>& columns) {
  if (!deferred_) {
    sorter_.spill();
    deferred_ = std::make_unique<StreamFile>(options_.scratch, 2 + columns.size());
    deferred_from_ = rows_;
  }
  const auto rows = static_cast<std::size_t>(count);
  if (!sources_.log) {
    deferred_->append(0, sources_.index.data(), rows * sizeof(std::int64_t));
  }
  if (!targets_.log && !has_pairs()) {
    deferred_->append(1, targets_.index.data(), rows * sizeof(std::int64_t));
  }
  for (std::size_t column = 0; column < columns.size(); ++column) {
    deferred_->append(2 + column, columns[column], rows * options_.columns[column].row_bytes());
  }
}

// Adds the rows that waited, in their order, now that all ids are known.
void EdgeBuilder::add_deferred() {
  if (!deferred_) {
    return;
  }
  deferred_->flush();
  const auto look_up = [](const End& end) -> std::optional<LogReplay> {
    return end.log ? std::optional<LogReplay>(end.nodes.find(*end.log)) : std::nullopt;
  };
  std::optional<LogReplay> sources = look_up(sources_);
  std::optional<LogReplay> targets = look_up(targets_);
  constexpr std::size_t kReplayBytes = 3 * IdLog::kWorkingBytes;
  sorter_.limit(std::max(sorter_memory(options_), kReplayBytes) - kReplayBytes);

  StreamFile::Reader source_index(*deferred_, 0);
  StreamFile::Reader target_index(*deferred_, 1);
  std::vector<StreamFile::Reader> readers;
  std::size_t row_bytes = 1;
  for (std::size_t column = 0; column < options_.columns.size(); ++column) {
    readers.emplace_back(*deferred_, 2 + column);
    row_bytes += options_.columns[column].row_bytes();
  }
  const std::int64_t batch = std::clamp<std::int64_t>(static_cast<std::int64_t>(kReplayBlockBytes / row_bytes), 1, kBatchRows);
  sources_.index.resize(static_cast<std::size_t>(batch));
  targets_.index.resize(static_cast<std::size_t>(batch));
  std::vector<std::vector<std::byte>> blocks(options_.columns.size());
  std::vector<const std::byte*> columns(options_.columns.size());
  for (std::int64_t first = deferred_from_; first < rows_; first += batch) {
    const std::int64_t count = std::min(batch, rows_ - first);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::size_t>(i);
      const bool source_logged = sources && first + i >= sources_.logged_from;
      sources_.index[row] = source_logged ? sources->next() : source_index.next<std::int64_t>();
      const bool target_logged = targets && first + i >= targets_.logged_from;
      targets_.index[row] = has_pairs()     ? sources->next()
                            : target_logged ? targets->next()
                                            : target_index.next<std::int64_t>();
    }
    for (std::size_t column = 0; column < readers.size(); ++column) {
      blocks[column].resize(static_cast<std::size_t>(count) * options_.columns[column].row_bytes());
      readers[column].read(blocks[column].data(), blocks[column].size());
      columns[column] = blocks[column].data();
    }
    add_found(first, count, columns, nullptr);
  }
  deferred_.reset();
  sources_.log.reset();
  targets_.log.reset();
}

std::size_t EdgeBuilder::keep(std::size_t most_bytes) {
  const std::size_t held = std::max(kLeastKeptBytes, kWorkingBytes + sorter_.held_bytes());
  if (deferred_ || sorter_.spilled_bytes() > 0 || held > most_bytes) {
    sorter_.spill();
    return 0;
  }
  options_.memory_bytes = std::min(options_.memory_bytes, held);
  return held;
}

BuiltEdges EdgeBuilder::finish(const EdgeFiles& files, const std::vector<Recode>& recodes) {
  if (finished_ || !sources_.nodes.is_closed() || !targets_.nodes.is_closed()) {
    throw Error(ErrorKind::kUsage, finished_ ? "expected finish() once, received it again"
                                             : "expected the node ids to be closed before the edges are finished");
  }
  finished_ = true;
  add_deferred();
  BuiltEdges built;
  built.rows = rows_;
  built.dangling = dangling_;
  built.dangling_examples = dangling_examples_;
  write_by_target(files, recodes, built);
  NodeIds& sources = sources_.nodes;
  NodeIds& targets = targets_.nodes;
  built.in_degrees = degrees_of_indptr(files.indptr, targets.num_nodes(), targets.used(), options_.threads);
  if (files.by_source) {
    write_by_source(files, built);
    built.out_degrees =
        degrees_of_indptr(files.by_source->indptr, sources.num_nodes(), sources.used(), options_.threads);
  } else {
    built.out_degrees = degrees_of_indices(files.indices, built.wide_indices, built.counts.edges, sources.num_nodes(),
                                           sources.used(), sorter_memory(options_), options_.threads);
  }
  return built;
}

void EdgeBuilder::write_by_target(const EdgeFiles& files, const std::vector<Recode>& recodes, BuiltEdges& built) {
  built.wide_indices = sources_.nodes.num_nodes() > kMostNarrowNodes;
  ArrayFileWriter indptr(files.indptr, "<i8");
  ArrayFileWriter indices(files.indices, built.wide_indices ? "<i8" : "<i4");
  EdgeOutput output{&indptr, &indices, built.wide_indices, {}};
  std::vector<std::unique_ptr<ArrayFileWriter>> columns;
  for (std::size_t column = 0; column < files.columns.size(); ++column) {
    const EdgeColumn& type = options_.columns[column];
    columns.push_back(std::make_unique<ArrayFileWriter>(files.columns[column], type.dtype, type.row_shape));
    output.columns.push_back({columns.back().get(), type.row_bytes(), nullptr, 0});
  }
  for (const Recode& recode : recodes) {
    output.columns[recode.column].recode = recode.codes;
    output.columns[recode.column].num_codes = recode.size;
  }
  EdgeEmitter emitter(output, targets_.nodes.num_nodes(), options_.keep_duplicates, &sources_.nodes == &targets_.nodes,
                      options_.threads);
  sorter_.finish(emitter);
  built.counts = emitter.finish();
  built.indptr = indptr.finish();
  built.indices = indices.finish();
  for (const auto& column : columns) {
    built.columns.push_back(column->finish());
  }
}

// Reads the edges back in their order and sorts them the other way, with their positions as a column.
void EdgeBuilder::write_by_source(const EdgeFiles& files, BuiltEdges& built) const {
  EdgeSorter sorter({sizeof(std::int64_t)}, options_.scratch, sorter_memory(options_), options_.threads);
  const std::size_t index_bytes = built.wide_indices ? 8 : 4;
  const FileReader indices(files.indices);
  const FileReader indptr(files.indptr);
  std::vector<std::int64_t> starts;  // of the targets that follow `target`
  std::size_t next_start = 0;
  std::int64_t target = -1;
  const auto start_of_next = [&] {
    if (next_start == starts.size()) {
      const std::int64_t count = std::min<std::int64_t>(kBatchRows, targets_.nodes.num_nodes() - target);
      starts.resize(static_cast<std::size_t>(count));
      indptr.read(starts.data(), starts.size() * 8, kArrayHeaderBytes + static_cast<std::uint64_t>(target + 1) * 8);
      next_start = 0;
    }
    return starts[next_start];
  };
  std::vector<std::byte> block;
  std::vector<std::int64_t> sources(static_cast<std::size_t>(kBatchRows));
  std::vector<std::int64_t> targets(static_cast<std::size_t>(kBatchRows));
  std::vector<std::int64_t> edge_ids(static_cast<std::size_t>(kBatchRows));
  for (std::int64_t first = 0; first < built.counts.edges; first += kBatchRows) {
    const std::int64_t count = std::min(kBatchRows, built.counts.edges - first);
    block.resize(static_cast<std::size_t>(count) * index_bytes);
    indices.read(block.data(), block.size(), kArrayHeaderBytes + static_cast<std::uint64_t>(first) * index_bytes);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::size_t>(i);
      while (start_of_next() <= first + i) {
        ++target;
        ++next_start;
      }
      std::int32_t narrow;
      std::memcpy(&narrow, block.data() + row * index_bytes, sizeof narrow);
      sources[row] = narrow;
      if (built.wide_indices) {
        std::memcpy(&sources[row], block.data() + row * index_bytes, sizeof sources[row]);
      }
      targets[row] = target;
      edge_ids[row] = first + i;
    }
    sorter.add(targets.data(), sources.data(), count, {reinterpret_cast<const std::byte*>(edge_ids.data())});
  }
  built.wide_source_indices = targets_.nodes.num_nodes() > kMostNarrowNodes;
  ArrayFileWriter out_indptr(files.by_source->indptr, "<i8");
  ArrayFileWriter out_indices(files.by_source->indices, built.wide_source_indices ? "<i8" : "<i4");
  ArrayFileWriter out_edge_ids(files.by_source->edge_ids, "<i8");
  const EdgeOutput output{&out_indptr, &out_indices, built.wide_source_indices,
                          {{&out_edge_ids, sizeof(std::int64_t), nullptr, 0}}};
  EdgeEmitter emitter(output, sources_.nodes.num_nodes(), true, false, options_.threads);
  sorter.finish(emitter);
  emitter.finish();
  built.source_indptr = out_indptr.finish();
  built.source_indices = out_indices.finish();
  built.source_edge_ids = out_edge_ids.finish();
}

}  // namespace graphbox
