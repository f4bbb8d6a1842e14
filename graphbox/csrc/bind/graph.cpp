// Building graphs: the ids of nodes and the edges between them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "graph/edge_builder.h"
#include "graph/id_index_build.h"
#include "graph/node_ids.h"

namespace graphbox::bind {
namespace {

using Integers = InputArray<std::int64_t>;
using Text = std::optional<InputArray<std::uint8_t>>;
using Valid = std::optional<InputArray<std::uint8_t>>;
using AnyColumn = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using ColumnType = std::pair<std::string, std::vector<std::uint64_t>>;
using Codes = std::pair<std::size_t, InputArray<std::int32_t>>;

// Integers, or with `text` the offsets of strings in it.
IdBatch to_ids(const Integers& values, const Text& text) {
  IdBatch batch;
  batch.kind = text ? IdKind::kString : IdKind::kInteger;
  batch.size = static_cast<std::int64_t>(values.shape(0)) - (text ? 1 : 0);
  if (!text) {
    batch.integers = {values.data()};
    return batch;
  }
  const std::int64_t* const offsets = values.data();
  const auto bytes = static_cast<std::int64_t>(text->shape(0));
  bool ascending = batch.size >= 0 && offsets[0] >= 0 && offsets[batch.size] <= bytes;
  for (std::int64_t i = 0; i < batch.size; ++i) {
    ascending &= offsets[i] <= offsets[i + 1];
  }
  if (!ascending) {
    throw Error(ErrorKind::kUsage, "expected offsets ascending from 0 to " + std::to_string(bytes) + ", received others");
  }
  batch.strings = {offsets, reinterpret_cast<const char*>(text->data()), bytes};
  return batch;
}

IdBatch to_ids(const Integers& values, const Text& text, IdKind kind) {
  IdBatch batch = to_ids(values, text);
  if (batch.kind != kind) {
    throw Error(ErrorKind::kUsage, kind == IdKind::kString ? "expected ids that are strings, received integers"
                                                           : "expected ids that are integers, received strings");
  }
  return batch;
}

const std::uint8_t* to_valid(const Valid& valid, std::int64_t rows) {
  if (valid && static_cast<std::int64_t>(valid->shape(0)) != rows) {
    throw Error(ErrorKind::kUsage, "expected valid of " + std::to_string(rows) + " rows, received " +
                                       std::to_string(valid->shape(0)));
  }
  return valid ? valid->data() : nullptr;
}

IdKind kind_of(const std::string& kind) {
  if (kind != "int64" && kind != "string") {
    throw Error(ErrorKind::kUsage, "expected ids of kind int64 or string, received `" + kind + "`", "kind");
  }
  return kind == "int64" ? IdKind::kInteger : IdKind::kString;
}

NumpyArray<std::int64_t> to_array(const std::vector<std::int64_t>& values) {
  PooledArray<std::int64_t> array(static_cast<std::int64_t>(values.size()));
  std::copy(values.begin(), values.end(), array.data());
  return to_numpy(std::move(array));
}

nb::tuple to_tuple(const ArrayFile& file, const char* dtype) {
  return nb::make_tuple(dtype, nb::tuple(nb::cast(file.shape)), file.crc32c);
}

nb::tuple to_tuple(const DegreeHistogram& histogram) {
  std::vector<std::int64_t> degrees;
  std::vector<std::int64_t> nodes;
  for (const auto& [degree, count] : histogram.pairs()) {
    degrees.push_back(degree);
    nodes.push_back(count);
  }
  return nb::make_tuple(to_array(degrees), to_array(nodes));
}

const char* index_type(bool wide) { return wide ? "<i8" : "<i4"; }

nb::dict write(NodeIds& self, const std::vector<std::string>& paths) {
  const bool text = self.kind() == IdKind::kString;
  if (paths.size() != (text ? 3U : 2U)) {
    throw Error(ErrorKind::kUsage, "expected the paths of ids (or of offsets and text) and of the index");
  }
  WrittenIds written;
  {
    const ReleasedGil release;
    written = self.write(text ? IdFiles{{{}, paths[0], paths[1]}, paths[2]} : IdFiles{{paths[0], {}, {}}, paths[1]});
  }
  nb::dict files;
  if (text) {
    files["offsets"] = to_tuple(written.offsets, "<i8");
    files["text"] = to_tuple(written.text, "|u1");
  } else {
    files["values"] = to_tuple(written.values, "<i8");
  }
  files["index"] = to_tuple(written.index, index_type(written.wide_index));
  return files;
}

std::optional<NumpyArray<std::int64_t>> add_edges(EdgeBuilder& self, const Integers& source_values, const Text& source_text,
                     const Integers& target_values, const Text& target_text, const Valid& valid,
                     const std::vector<AnyColumn>& columns) {
  const IdBatch sources = to_ids(source_values, source_text, self.sources().kind());
  const IdBatch targets = to_ids(target_values, target_text, self.targets().kind());
  if (sources.size != targets.size || columns.size() != self.options().columns.size()) {
    throw Error(ErrorKind::kUsage, "expected as many targets as the " + std::to_string(sources.size) +
                                       " sources, and " + std::to_string(self.options().columns.size()) +
                                       " columns, received " + std::to_string(targets.size) + " and " +
                                       std::to_string(columns.size()));
  }
  std::vector<const std::byte*> data;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    const std::size_t expected = self.options().columns[column].row_bytes() * static_cast<std::size_t>(sources.size);
    if (columns[column].nbytes() != expected) {
      throw Error(ErrorKind::kUsage, "expected " + std::to_string(expected) + " bytes in column " +
                                         std::to_string(column) + ", received " +
                                         std::to_string(columns[column].nbytes()));
    }
    data.push_back(static_cast<const std::byte*>(columns[column].data()));
  }
  std::vector<std::int64_t> dangling;
  {
    const ReleasedGil release;
    if (!self.add(sources, targets, to_valid(valid, sources.size), data, dangling)) {
      return std::nullopt;
    }
  }
  return to_array(dangling);
}

nb::dict finish(EdgeBuilder& self, const std::string& indptr, const std::string& indices,
                const std::vector<std::string>& columns, const std::vector<std::string>& by_source,
                const std::vector<Codes>& recode) {
  if (columns.size() != self.options().columns.size()) {
    throw Error(ErrorKind::kUsage, "expected the path of every column");
  }
  std::vector<Recode> recodes;
  for (const auto& [column, codes] : recode) {
    if (column >= columns.size() || self.options().columns[column].row_bytes() != 4) {
      throw Error(ErrorKind::kUsage, "expected recode of a column of int32 codes, received it of another one");
    }
    recodes.push_back({column, codes.data(), static_cast<std::int64_t>(codes.shape(0))});
  }
  EdgeFiles paths{indptr, indices, columns, std::nullopt};
  if (!by_source.empty()) {
    if (by_source.size() != 3) {
      throw Error(ErrorKind::kUsage, "expected the paths of indptr, indices and edge ids by source");
    }
    paths.by_source = BySourceFiles{by_source[0], by_source[1], by_source[2]};
  }
  BuiltEdges built;
  {
    const ReleasedGil release;
    built = self.finish(paths, recodes);
  }
  nb::list files;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    files.append(to_tuple(built.columns[column], self.options().columns[column].dtype.c_str()));
  }
  nb::dict result;
  result["num_edges"] = built.counts.edges;
  result["rows"] = built.rows;
  result["duplicates"] = built.counts.duplicates;
  result["self_loops"] = built.counts.self_loops;
  result["dangling"] = built.dangling;
  result["duplicate_examples"] = nb::tuple(nb::cast(built.counts.duplicate_examples));
  result["self_loop_examples"] = nb::tuple(nb::cast(built.counts.self_loop_examples));
  result["dangling_examples"] = nb::tuple(nb::cast(built.dangling_examples));
  result["in_degrees"] = to_tuple(built.in_degrees);
  result["out_degrees"] = to_tuple(built.out_degrees);
  result["indptr"] = to_tuple(built.indptr, "<i8");
  result["indices"] = to_tuple(built.indices, index_type(built.wide_indices));
  result["columns"] = files;
  nb::list by_source_files;
  if (paths.by_source) {
    by_source_files.append(to_tuple(built.source_indptr, "<i8"));
    by_source_files.append(to_tuple(built.source_indices, index_type(built.wide_source_indices)));
    by_source_files.append(to_tuple(built.source_edge_ids, "<i8"));
  }
  result["by_source"] = by_source_files;
  return result;
}

// The index of ids as NumPy holds them. Ids that occur twice are told by looking all of them up.
nb::tuple build_ids_index(const Integers& values, const Text& text, const Valid& valid, int threads) {
  const IdBatch ids = to_ids(values, text);
  const std::uint8_t* const is_valid = to_valid(valid, ids.size);
  IdIndex index;
  std::int64_t repeated = 0;
  std::optional<std::pair<std::int64_t, std::int64_t>> first_repeated;
  {
    const ReleasedGil release;
    std::vector<std::int64_t> found(static_cast<std::size_t>(ids.size));
    HashedBlock block(threads);
    with_ids(ids, [&](const auto& held) {
      const bool wide = ids.size > kMostNarrowNodes;
      index.build(held, ids.size, is_valid, IndexLayout::of(ids.size), wide, threads, block, [](std::size_t) {});
      find_in_index(index.data(), index.is_wide(), index.layout(), held, ids.size, held, ids.size, found.data(), threads,
                    {});
    });
    for (std::int64_t i = 0; i < ids.size; ++i) {
      const std::int64_t first = found[static_cast<std::size_t>(i)];
      if (first != i && (is_valid == nullptr || is_valid[i] != 0)) {
        first_repeated = first_repeated ? first_repeated : std::pair(first, i);
        ++repeated;
      }
    }
  }
  const auto to_entries = [&](auto entry) {
    PooledArray<decltype(entry)> array(index.layout().slots());
    std::memcpy(array.data(), index.data(), index.size_bytes());
    return nb::cast(to_numpy(std::move(array)));
  };
  return nb::make_tuple(index.is_wide() ? to_entries(std::int64_t{}) : to_entries(std::int32_t{}), repeated,
                        first_repeated);
}

NumpyArray<std::int64_t> find_ids(const AnyInputArray& entries, const Integers& values, const Text& text,
                                  const Integers& asked_values, const Text& asked_text, const Valid& valid, int threads,
                                  const std::string& name) {
  // The ids may be a mapped file: what the index says of them is checked when it is read.
  IdBatch ids;
  ids.size = static_cast<std::int64_t>(values.shape(0)) - (text ? 1 : 0);
  ids.integers = {values.data()};
  if (text) {
    ids.strings = {values.data(), reinterpret_cast<const char*>(text->data()), static_cast<std::int64_t>(text->shape(0))};
  }
  const IdBatch asked = to_ids(asked_values, asked_text, text ? IdKind::kString : IdKind::kInteger);
  const bool wide = entries.dtype() == nb::dtype<std::int64_t>();
  if (!wide && entries.dtype() != nb::dtype<std::int32_t>()) {
    throw Error(ErrorKind::kFormat, "expected an index of int32 or int64", name);
  }
  PooledArray<std::int64_t> found(asked.size);
  {
    const ReleasedGil release;
    const auto layout = IndexLayout::of_file(ids.size, static_cast<std::int64_t>(entries.shape(0)), name);
    const auto* const slots = static_cast<const std::byte*>(entries.data());
    if (text) {
      find_in_index(slots, wide, layout, ids.strings, ids.size, asked.strings, asked.size, found.data(), threads, name);
    } else {
      find_in_index(slots, wide, layout, ids.integers, ids.size, asked.integers, asked.size, found.data(), threads,
                    name);
    }
    const std::uint8_t* const is_valid = to_valid(valid, asked.size);
    for (std::int64_t i = 0; is_valid != nullptr && i < asked.size; ++i) {
      found[i] = is_valid[i] != 0 ? found[i] : -1;
    }
  }
  return to_numpy(std::move(found));
}

// Strings at places of a file that may be damaged.
nb::tuple take_strings(const Integers& offsets, const InputArray<std::uint8_t>& text, const Integers& index,
                       const std::string& name) {
  const StringIds strings{offsets.data(), reinterpret_cast<const char*>(text.data()),
                          static_cast<std::int64_t>(text.shape(0))};
  const auto size = static_cast<std::int64_t>(offsets.shape(0)) - 1;
  const auto count = static_cast<std::int64_t>(index.shape(0));
  PooledArray<std::int64_t> taken_offsets(count + 1);
  PooledArray<std::uint8_t> taken;
  {
    const ReleasedGil release;
    taken_offsets[0] = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t place = index.data()[i];
      if (place < 0 || place >= size) {
        throw Error(ErrorKind::kUsage, "expected indices from 0 to " + std::to_string(size - 1) + ", received " +
                                           std::to_string(place));
      }
      if (!strings.holds(place)) {
        throw Error(ErrorKind::kFormat,
                    "expected offsets ascending from 0 to " + std::to_string(text.shape(0)) + ", received other ones",
                    name, "import the graph again");
      }
      taken_offsets[i + 1] = taken_offsets[i] + static_cast<std::int64_t>(strings[place].size());
    }
    taken.resize(taken_offsets[count]);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string_view string = strings[index.data()[i]];
      std::copy(string.begin(), string.end(), taken.data() + taken_offsets[i]);
    }
  }
  return nb::make_tuple(to_numpy(std::move(taken_offsets)), to_numpy(std::move(taken)));
}

void add_node_ids(nb::module_& module) {
  nb::class_<NodeIds>(module, "NodeIds", "The ids of one node type while a graph is built.")
      .def(
          "__init__",
          [](NodeIds* self, const std::string& kind, const std::string& scratch, std::size_t memory_bytes,
             int threads) { new (self) NodeIds(kind_of(kind), scratch, memory_bytes, threads); },
          nb::arg("kind"), nb::arg("scratch"), nb::arg("memory_bytes"), nb::arg("threads"))
      .def(
          "add",
          [](NodeIds& self, const Integers& values, const Text& text) {
            const IdBatch ids = to_ids(values, text, self.kind());
            const ReleasedGil release;
            self.add(ids);
          },
          nb::arg("values"), nb::arg("text").none(), "Number the rows of a node table: int64[n], or offsets and text.")
      .def("close", &NodeIds::close, nb::call_guard<ReleasedGil>(), "All ids are there.")
      .def(
          "find",
          [](const NodeIds& self, const Integers& values, const Text& text, const Valid& valid) {
            const IdBatch ids = to_ids(values, text, self.kind());
            PooledArray<std::int64_t> found(ids.size);
            {
              const ReleasedGil release;
              self.find(ids, to_valid(valid, ids.size), found.data());
            }
            return to_numpy(std::move(found));
          },
          nb::arg("values"), nb::arg("text").none(), nb::arg("valid").none(), "The number of each id, -1 where it is none.")
      .def(
          "take",
          [](const NodeIds& self, const Integers& index) {
            std::vector<std::int64_t> values;
            std::string text;
            self.take(index.data(), static_cast<std::int64_t>(index.shape(0)), values, text);
            PooledArray<std::uint8_t> bytes(static_cast<std::int64_t>(text.size()));
            std::copy(text.begin(), text.end(), bytes.data());
            return nb::make_tuple(to_array(values), to_numpy(std::move(bytes)));
          },
          nb::arg("index"), "The ids at these numbers: int64[n], or the offsets of strings, and their text.")
      .def("write", &write, nb::arg("paths"),
           "Write the ids and their index; returns type, shape and CRC-32C of each array.")
      .def_prop_ro("num_nodes", &NodeIds::num_nodes)
      .def_prop_ro("is_closed", &NodeIds::is_closed)
      .def_prop_ro("num_repeated", &NodeIds::num_repeated)
      .def_prop_ro("first_repeated",
                   [](const NodeIds& self) {
                     const auto& repeated = self.first_repeated();
                     return repeated ? std::optional(std::make_tuple(repeated->first_row, repeated->row)) : std::nullopt;
                   })
      .def_prop_ro("num_isolated", &NodeIds::num_isolated)
      .def_prop_ro("held_bytes", &NodeIds::held_bytes);
}

void add_edge_builder(nb::module_& module) {
  nb::class_<EdgeBuilder>(module, "EdgeBuilder", "The edges of one edge type while a graph is built.")
      .def(
          "__init__",
          [](EdgeBuilder* self, NodeIds& sources, NodeIds& targets, bool discover_sources, bool discover_targets,
             const std::vector<ColumnType>& columns, bool keep_duplicates, const std::string& scratch,
             std::size_t memory_bytes, int threads) {
            EdgeBuilderOptions options{discover_sources, discover_targets, {},     keep_duplicates,
                                       scratch,          memory_bytes,     threads};
            for (const auto& [dtype, row_shape] : columns) {
              options.columns.push_back({dtype, row_shape});
            }
            new (self) EdgeBuilder(sources, targets, std::move(options));
          },
          nb::arg("sources"), nb::arg("targets"), nb::arg("discover_sources"), nb::arg("discover_targets"),
          nb::arg("columns"), nb::arg("keep_duplicates"), nb::arg("scratch"), nb::arg("memory_bytes"),
          nb::arg("threads"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def("add", &add_edges, nb::arg("source_values"), nb::arg("source_text").none(), nb::arg("target_values"),
           nb::arg("target_text").none(), nb::arg("valid").none(), nb::arg("columns"),
           "Add edges; returns the rows that are left out, int64, or None when that is not known yet.")
      .def("keep", &EdgeBuilder::keep, nb::arg("most_bytes"), nb::call_guard<ReleasedGil>(),
           "Keep the edges in memory until finish() if they take at most so much, else move them to the disk; returns "
           "what is kept.")
      .def("finish", &finish, nb::arg("indptr"), nb::arg("indices"), nb::arg("columns"), nb::arg("by_source"),
           nb::arg("recode"), "Write the edges to these paths; by source as well where there are three for it.");
}

}  // namespace

void add_graph(nb::module_& module) {
  module.def("take_strings", &take_strings, nb::arg("offsets"), nb::arg("text"), nb::arg("index"), nb::arg("name"),
             "The strings at these indices: their offsets and text.");
  module.def("build_ids_index", &build_ids_index, nb::arg("values"), nb::arg("text").none(),
             nb::arg("valid").none(), nb::arg("threads"),
             "The hash index of ids; how many of them occur again; and the first such, with the row it repeats.");
  module.def("find_ids", &find_ids, nb::arg("index"), nb::arg("values"), nb::arg("text").none(),
             nb::arg("asked_values"), nb::arg("asked_text").none(), nb::arg("valid").none(), nb::arg("threads"),
             nb::arg("name"), "The number of each asked id by the index of ids, -1 where it is none.");
  add_node_ids(module);
  add_edge_builder(module);
}

}  // namespace graphbox::bind
