#include "graph/edge_builder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "errors/error.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

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
    : sources_(sources),
      targets_(targets),
      options_(std::move(options)),
      sorter_(bytes_of(options_.columns), options_.scratch, sorter_memory(options_), options_.threads) {}

void EdgeBuilder::add(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid,
                      const std::vector<const std::byte*>& columns, std::vector<std::int64_t>& dangling) {
  if (finished_) {
    throw Error(ErrorKind::kUsage, "expected edges before finish(), received them after");
  }
  std::vector<const std::byte*> part_columns(columns);
  for (std::int64_t first = 0; first < sources.size; first += kBatchRows) {
    const std::int64_t count = std::min(kBatchRows, sources.size - first);
    find_ends(sources.slice(first, count), targets.slice(first, count), valid == nullptr ? nullptr : valid + first);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::size_t>(i);
      if ((source_index_[row] | target_index_[row]) < 0) {
        dangling.push_back(first + i);
        ++dangling_;
        if (dangling_examples_.size() < EdgeCounts::kExamples) {
          dangling_examples_.push_back(rows_ + i);
        }
      }
    }
    for (std::size_t column = 0; column < columns.size(); ++column) {
      part_columns[column] = columns[column] + static_cast<std::size_t>(first) * options_.columns[column].row_bytes();
    }
    sorter_.add(source_index_.data(), target_index_.data(), count, part_columns);
    rows_ += count;
  }
}

void EdgeBuilder::find_ends(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid) {
  const auto size = static_cast<std::size_t>(sources.size);
  source_index_.resize(size);
  target_index_.resize(size);
  if (&sources_ == &targets_ && options_.discover_sources) {
    pairs_.resize(2 * size);
    sources_.discover_pairs(sources, targets, valid, pairs_.data());
    for (std::size_t i = 0; i < size; ++i) {
      source_index_[i] = pairs_[2 * i];
      target_index_[i] = pairs_[2 * i + 1];
    }
    return;
  }
  const auto find = [&](NodeIds& nodes, bool discover, const IdBatch& ids, std::vector<std::int64_t>& index) {
    discover ? nodes.discover(ids, valid, index.data()) : nodes.find(ids, valid, index.data());
  };
  find(sources_, options_.discover_sources, sources, source_index_);
  find(targets_, options_.discover_targets, targets, target_index_);
}

BuiltEdges EdgeBuilder::finish(const EdgeFiles& files, const std::vector<Recode>& recodes) {
  if (finished_ || !sources_.is_closed() || !targets_.is_closed()) {
    throw Error(ErrorKind::kUsage, finished_ ? "expected finish() once, received it again"
                                             : "expected the node ids to be closed before the edges are finished");
  }
  finished_ = true;
  BuiltEdges built;
  built.rows = rows_;
  built.dangling = dangling_;
  built.dangling_examples = dangling_examples_;
  built.wide_indices = sources_.num_nodes() > kMostNarrowNodes;
  {
    ArrayFileWriter indptr(files.indptr, "<i8");
    ArrayFileWriter indices(files.indices, built.wide_indices ? "<i8" : "<i4");
    EdgeOutput output{&indptr, &indices, built.wide_indices, {}};
    std::vector<std::unique_ptr<ArrayFileWriter>> columns;
    for (std::size_t column = 0; column < files.columns.size(); ++column) {
      const EdgeColumn& type = options_.columns[column];
      columns.push_back(std::make_unique<ArrayFileWriter>(files.columns[column], type.dtype, type.row_shape));
      output.columns.push_back({columns.back().get(), type.row_bytes()});
    }
    for (const Recode& recode : recodes) {
      output.columns[recode.column].recode = recode.codes;
      output.columns[recode.column].num_codes = recode.size;
    }
    EdgeEmitter emitter(output, targets_.num_nodes(), options_.keep_duplicates, &sources_ == &targets_,
                        options_.threads);
    sorter_.finish(emitter);
    built.counts = emitter.finish();
    built.indptr = indptr.finish();
    built.indices = indices.finish();
    for (const auto& column : columns) {
      built.columns.push_back(column->finish());
    }
  }
  built.in_degrees = degrees_of_indptr(files.indptr, targets_.num_nodes(), targets_.used(), options_.threads);
  built.out_degrees = degrees_of_indices(files.indices, built.wide_indices, built.counts.edges, sources_.num_nodes(),
                                         sources_.used(), sorter_memory(options_), options_.threads);
  return built;
}

}  // namespace graphbox
