// The embedding table for Python.
#include "bind/released_gil.h"
#include "table/table.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/arrays.h"
#include "bind/bag.h"
#include "bind/names.h"
#include "bind/nouns.h"
#include "bind/table_policy.h"

namespace graphbox::bind {
namespace {

constexpr std::array<std::pair<const char*, Optimizer>, kOptimizers> kOptimizerNames = {{
    {"sgd", Optimizer::kSgd},
    {"adagrad", Optimizer::kAdagrad},
    {"rowwise_adagrad", Optimizer::kRowwiseAdagrad},
    {"adam", Optimizer::kAdam},
    {"rowwise_adam", Optimizer::kRowwiseAdam},
    {"ftrl", Optimizer::kFtrl},
}};

constexpr std::array<std::pair<const char*, ValueType>, kValueTypes> kValueTypeNames = {{
    {"float32", ValueType::kFloat32},
    {"float16", ValueType::kFloat16},
    {"int8", ValueType::kInt8},
}};

// Rows of the batch must match its keys.
template <typename Rows>
void check_rows(const char* name, const Rows& rows, std::size_t keys, std::uint64_t dim) {
  if (rows.shape(0) != keys || rows.shape(1) != dim) {
    throw Error(ErrorKind::kUsage,
                std::string(name) + " must have shape (" + std::to_string(keys) + ", " + std::to_string(dim) +
                    "), received (" + std::to_string(rows.shape(0)) + ", " + std::to_string(rows.shape(1)) + ")",
                name);
  }
}

std::int64_t count_of(const InputArray<std::int64_t>& keys) { return static_cast<std::int64_t>(keys.shape(0)); }

NumpyArray<float, 2> pull(Table& self, InputArray<std::int64_t> keys, bool create, int threads) {
  const std::uint64_t dim = self.config().dim;
  PooledArray<float> out(count_of(keys) * static_cast<std::int64_t>(dim));
  {
    const ReleasedGil release;
    self.pull(keys.data(), count_of(keys), out.data(), create, threads);
  }
  const std::size_t shape[2] = {keys.shape(0), static_cast<std::size_t>(dim)};
  return to_numpy<float, 2>(std::move(out), shape);
}

void pull_into(Table& self, InputArray<std::int64_t> keys, OutputArray<float, 2> out, bool create, int threads) {
  check_rows("out", out, keys.shape(0), self.config().dim);
  const ReleasedGil release;
  self.pull(keys.data(), count_of(keys), out.data(), create, threads);
}

PulledRows pull_rows(Table& self, InputArray<std::int64_t> keys, OutputArray<float, 2> out, bool create, int threads) {
  check_rows("out", out, keys.shape(0), self.config().dim);
  const ReleasedGil release;
  return self.pull_rows(keys.data(), count_of(keys), out.data(), create, threads);
}

// Operands of a push; shows and clicks are as many as its keys, or null.
using CountArray = std::optional<InputArray<float>>;
Push to_push(const InputArray<float, 2>& gradients, std::size_t keys, std::uint64_t dim, const CountArray& shows,
             const CountArray& clicks) {
  check_rows("grads", gradients, keys, dim);
  for (const auto& [name, counts] : {std::pair{"shows", &shows}, std::pair{"clicks", &clicks}}) {
    if (counts->has_value() && (*counts)->shape(0) != keys) {
      throw Error(ErrorKind::kUsage,
                  std::string(name) + " must be " + std::to_string(keys) + " numbers, received " +
                      std::to_string((*counts)->shape(0)),
                  name);
    }
  }
  Push push = {gradients.data(), static_cast<std::int64_t>(keys), static_cast<std::int64_t>(keys)};
  push.shows = shows ? shows->data() : nullptr;
  push.clicks = clicks ? clicks->data() : nullptr;
  return push;
}

void push_rows(Table& self, const PulledRows& rows, InputArray<float, 2> gradients, int threads,
               const CountArray& shows, const CountArray& clicks) {
  const Push push = to_push(gradients, static_cast<std::size_t>(rows.rows.size()), self.config().dim, shows, clicks);
  const ReleasedGil release;
  self.push_rows(rows, push, threads);
}

void assign(Table& self, InputArray<std::int64_t> keys, InputArray<float, 2> values, int threads) {
  check_rows("values", values, keys.shape(0), self.config().dim);
  const ReleasedGil release;
  self.assign(keys.data(), count_of(keys), values.data(), threads);
}

void push(Table& self, InputArray<std::int64_t> keys, InputArray<float, 2> gradients, int threads,
          const CountArray& shows, const CountArray& clicks) {
  const Push push = to_push(gradients, keys.shape(0), self.config().dim, shows, clicks);
  const ReleasedGil release;
  self.push(keys.data(), push, threads);
}

NumpyArray<bool> contains(const Table& self, InputArray<std::int64_t> keys, int threads) {
  PooledArray<bool> out(count_of(keys));
  {
    const ReleasedGil release;
    self.contains(keys.data(), count_of(keys), out.data(), threads);
  }
  return to_numpy(std::move(out));
}

std::tuple<NumpyArray<std::int64_t>, NumpyArray<float, 2>, std::uint64_t> scan(const Table& self, std::uint64_t begin,
                                                                               std::int64_t count) {
  const auto dim = static_cast<std::int64_t>(self.config().dim);
  PooledArray<std::int64_t> keys;
  PooledArray<float> values;
  Table::Scanned scanned{};
  {
    const ReleasedGil release;
    count = std::min(count, static_cast<std::int64_t>(self.rows()));
    keys.resize(count);
    values.resize(count * dim);
    scanned = self.scan(begin, count, keys.data(), values.data());
    keys.resize(scanned.count);
    values.resize(scanned.count * dim);
  }
  const std::size_t shape[2] = {static_cast<std::size_t>(scanned.count), static_cast<std::size_t>(dim)};
  return {to_numpy(std::move(keys)), to_numpy<float, 2>(std::move(values), shape), scanned.next};
}

RowContents contents_of(std::uint32_t contents) {
  if (contents >= kRowContents) {
    throw Error(ErrorKind::kUsage, "expected contents from 0 to 3, received " + std::to_string(contents), "contents");
  }
  return static_cast<RowContents>(contents);
}

CheckpointPart part_of(const std::string& name, std::uint64_t rows, std::uint64_t live_rows, std::uint64_t bytes,
                       std::uint32_t crc32c, bool is_erased, const nb::bytes& live) {
  CheckpointPart part{name, rows, live_rows, bytes, crc32c, is_erased};
  part.live.resize(live.size() / sizeof(std::uint64_t));
  std::memcpy(part.live.data(), live.data(), part.live.size() * sizeof(std::uint64_t));
  return part;
}

WrittenCheckpoint write_checkpoint(Table& self, const std::string& folder, std::uint32_t contents, int chain,
                                   bool is_delta, int threads) {
  return self.write_checkpoint({folder, contents_of(contents), chain, is_delta, threads});
}

void load_checkpoint(Table& self, const std::string& folder, const std::vector<CheckpointPart>& parts, bool is_delta,
                     std::pair<std::uint64_t, std::uint64_t> shard, int threads) {
  self.load_checkpoint(folder, parts, is_delta, {shard.first, shard.second}, threads);
}

PartRecords part_records(const Table& self, std::uint32_t contents) { return self.part_records(contents_of(contents)); }

}  // namespace

void add_table(nb::module_& module) {
  nb::class_<OptimizerConfig>(module, "OptimizerConfig", "Optimizer of rows and its settings.")
      .def(
          "__init__",
          [](OptimizerConfig* self, const std::string& name, float lr, float eps, float initial_accumulator,
             std::pair<float, float> betas, float beta, float l1, float l2, float weight_decay,
             bool decoupled_weight_decay, std::pair<float, float> bounds, float clip_norm, float clip_value,
             bool mean_gradient) {
            OptimizerConfig config;
            config.kind = value_of(kOptimizerNames, name, "sgd, adagrad, rowwise_adagrad, adam, rowwise_adam or ftrl",
                                   "optimizer");
            config.lr = lr;
            config.eps = eps;
            config.initial_accumulator = initial_accumulator;
            std::tie(config.beta1, config.beta2) = betas;
            config.beta = beta;
            config.l1 = l1;
            config.l2 = l2;
            config.weight_decay = weight_decay;
            config.decoupled_weight_decay = decoupled_weight_decay;
            std::tie(config.lowest, config.highest) = bounds;
            config.clip_norm = clip_norm;
            config.clip_value = clip_value;
            config.mean_gradient = mean_gradient;
            new (self) OptimizerConfig(config);
          },
          nb::arg("name"), nb::kw_only(), nb::arg("lr"), nb::arg("eps"), nb::arg("initial_accumulator"),
          nb::arg("betas"), nb::arg("beta"), nb::arg("l1"), nb::arg("l2"), nb::arg("weight_decay"),
          nb::arg("decoupled_weight_decay"), nb::arg("bounds"), nb::arg("clip_norm"), nb::arg("clip_value"),
          nb::arg("mean_gradient"))
      .def_prop_ro("name", [](const OptimizerConfig& self) { return name_of(kOptimizerNames, self.kind); })
      .def_ro("lr", &OptimizerConfig::lr)
      .def_ro("eps", &OptimizerConfig::eps)
      .def_ro("initial_accumulator", &OptimizerConfig::initial_accumulator)
      .def_prop_ro("betas", [](const OptimizerConfig& self) { return std::pair(self.beta1, self.beta2); })
      .def_ro("beta", &OptimizerConfig::beta)
      .def_ro("l1", &OptimizerConfig::l1)
      .def_ro("l2", &OptimizerConfig::l2)
      .def_ro("weight_decay", &OptimizerConfig::weight_decay)
      .def_ro("decoupled_weight_decay", &OptimizerConfig::decoupled_weight_decay)
      .def_prop_ro("bounds", [](const OptimizerConfig& self) { return std::pair(self.lowest, self.highest); })
      .def_ro("clip_norm", &OptimizerConfig::clip_norm)
      .def_ro("clip_value", &OptimizerConfig::clip_value)
      .def_ro("mean_gradient", &OptimizerConfig::mean_gradient);
  add_policy_classes(module);
  nb::class_<CheckpointPart>(module, "CheckpointPart", "A file of a checkpoint.")
      .def(
          "__init__",
          [](CheckpointPart* self, const std::string& name, std::uint64_t rows, std::uint64_t live_rows,
             std::uint64_t bytes, std::uint32_t crc32c, bool erased, const nb::bytes& live) {
            new (self) CheckpointPart(part_of(name, rows, live_rows, bytes, crc32c, erased, live));
          },
          nb::arg("name"), nb::arg("rows"), nb::arg("live_rows"), nb::arg("bytes"), nb::arg("crc32c"),
          nb::arg("erased"), nb::arg("live"))
      .def_ro("name", &CheckpointPart::name)
      .def_ro("rows", &CheckpointPart::rows, "In the file, or erased keys.")
      .def_ro("live_rows", &CheckpointPart::live_rows, "So many of them count.")
      .def_ro("stored_bytes", &CheckpointPart::bytes, "Of the file.")
      .def_ro("crc32c", &CheckpointPart::crc32c, "Of the checksums of the records, or of erased keys.")
      .def_ro("erased", &CheckpointPart::is_erased)
      .def_prop_ro(
          "live",
          [](const CheckpointPart& self) {
            return nb::bytes(self.live.data(), self.live.size() * sizeof(std::uint64_t));
          },
          "A bit for each row, where not all count.");
  nb::class_<WrittenCheckpoint>(module, "WrittenCheckpoint", "Checkpoint of a table as it was at one moment.")
      .def_ro("parts", &WrittenCheckpoint::parts)
      .def_prop_ro("policy_state",
                   [](const WrittenCheckpoint& self) {
                     return nb::bytes(self.policy_state.data(), self.policy_state.size());
                   })
      .def_ro("lr", &WrittenCheckpoint::lr)
      .def_ro("changes", &WrittenCheckpoint::changes)
      .def_ro("copied_files", &WrittenCheckpoint::copied_files, "Segments that could not be linked there.");
  nb::class_<PartRecords>(module, "PartRecords", "Layout of the records of a checkpoint.");
  add_pulled_rows(module);
  nb::class_<Table> table(module, "Table", "Rows for any int64 keys, with optimizer state, in memory.");
  add_policy_methods(table);
  table
      .def(
          "__init__",
          [](Table* self, std::uint64_t dim, const std::string& dtype, const OptimizerConfig& optimizer,
             float init_scale, std::uint64_t seed, std::uint64_t memory_bytes, bool skip_nonfinite,
             const PolicyConfig& policies) {
            new (self) Table({dim, value_of(kValueTypeNames, dtype, "float32, float16 or int8", "dtype"), optimizer,
                              init_scale, seed, memory_bytes, skip_nonfinite, policies});
          },
          nb::arg("dim"), nb::kw_only(), nb::arg("dtype"), nb::arg("optimizer"), nb::arg("init_scale"),
          nb::arg("seed"), nb::arg("memory_bytes"), nb::arg("skip_nonfinite"), nb::arg("policies"))
      .def("pull", &pull, nb::arg("keys").noconvert(), nb::arg("create"), nb::arg("threads"),
           "Rows of the keys, float32[n, dim].")
      .def("pull_into", &pull_into, nb::arg("keys").noconvert(), nb::arg("out").noconvert(), nb::arg("create"),
           nb::arg("threads"), "The same into an array of the caller.")
      .def("pull_rows", &pull_rows, nb::arg("keys").noconvert(), nb::arg("out").noconvert(), nb::arg("create"),
           nb::arg("threads"), "Pull into an array of the caller, and return where the rows are.")
      .def("push_rows", &push_rows, nb::arg("rows"), nb::arg("grads").noconvert(), nb::arg("threads"),
           nb::arg("shows").noconvert() = nb::none(), nb::arg("clicks").noconvert() = nb::none(),
           "Push to rows that were pulled from this table.")
      .def("push", &push, nb::arg("keys").noconvert(), nb::arg("grads").noconvert(), nb::arg("threads"),
           nb::arg("shows").noconvert() = nb::none(), nb::arg("clicks").noconvert() = nb::none(),
           "Apply gradients, float32[n, dim], those of equal keys summed.")
      .def("assign", &assign, nb::arg("keys").noconvert(), nb::arg("values").noconvert(), nb::arg("threads"),
           "Give the keys these values, float32[n, dim], and a row if they have none.")
      .def("contains", &contains, nb::arg("keys").noconvert(), nb::arg("threads"),
           "Whether each key has a row, bool[n].")
      .def(
          "erase",
          [](Table& self, InputArray<std::int64_t> keys) {
            const ReleasedGil release;
            return self.erase(keys.data(), count_of(keys));
          },
          nb::arg("keys").noconvert(), "Forget keys; returns how many there were.")
      .def(
          "keys",
          [](const Table& self) {
            PooledArray<std::int64_t> keys;
            {
              const ReleasedGil release;
              keys = self.keys();
            }
            return to_numpy(std::move(keys));
          },
          "All keys, int64[len].")
      .def("scan", &scan, nb::arg("begin"), nb::arg("count"),
           "The next rows from a number on: keys, values and the number to go on from.")
      .def("__len__", &Table::rows, nb::call_guard<ReleasedGil>())
      .def_prop_ro("nbytes", &Table::bytes, nb::call_guard<ReleasedGil>(), "Memory in bytes.")
      .def_prop_ro("dim", [](const Table& self) { return self.config().dim; })
      .def_prop_ro("dtype", [](const Table& self) { return name_of(kValueTypeNames, self.config().value_type); })
      .def_prop_ro("optimizer", [](const Table& self) { return self.config().optimizer; })
      .def_prop_ro("init_scale", [](const Table& self) { return self.config().init_scale; })
      .def_prop_ro("seed", [](const Table& self) { return self.config().seed; })
      .def_prop_rw(
          "memory_bytes", [](const Table& self) { return self.config().memory_bytes; },
          [](Table& self, std::uint64_t memory_bytes) { self.set_memory_bytes(memory_bytes); })
      .def_prop_ro("skip_nonfinite", [](const Table& self) { return self.config().skip_nonfinite; })
      .def_prop_ro("skipped_gradients", &Table::skipped_gradients, "Gradients left out because they were not finite.")
      .def_prop_rw(
          "lr", [](const Table& self) { return self.config().optimizer.lr; }, [](Table& self, float lr) { self.set_lr(lr); })
      .def("track_changes", &Table::track_changes, nb::arg("chain"), nb::call_guard<ReleasedGil>(),
           "Follow what changes from now on.")
      .def("confirm_changes", &Table::confirm_changes, nb::arg("chain"), nb::call_guard<ReleasedGil>(),
           "The changes that a checkpoint took are safe.")
      .def("restore_changes", &Table::restore_changes, nb::arg("chain"), nb::call_guard<ReleasedGil>(),
           "The checkpoint did not become whole: the next one is to have its changes too.")
      .def("reserve", &Table::reserve, nb::arg("rows"), nb::call_guard<ReleasedGil>(),
           "Make room for that many more rows.")
      .def(
          "least_memory_bytes",
          [](const Table& self, std::uint64_t keys, std::uint64_t batch_rows) {
            if (!self.has_tier()) {
              throw Error(ErrorKind::kUsage, "expected a table with rows on SSD, this one has no folder", "table");
            }
            const ReleasedGil release;
            return self.least_memory_bytes(keys, batch_rows);
          },
          nb::arg("keys"), nb::arg("batch_rows"),
          "The least budget of a table with rows on SSD, of so many keys and rows of a batch.")
      .def("write_checkpoint", &write_checkpoint, nb::arg("folder"), nb::arg("contents"), nb::arg("chain"),
           nb::arg("is_delta"), nb::arg("threads"), nb::call_guard<ReleasedGil>(),
           "Write the rows, all of one moment, to segments in a folder.")
      .def("load_checkpoint", &load_checkpoint, nb::arg("folder"), nb::arg("parts"), nb::arg("is_delta"),
           nb::arg("shard"), nb::arg("threads"), nb::call_guard<ReleasedGil>(), "Put the rows of a checkpoint's parts, or of a shard, into the table.")
      .def("part_records", &part_records, nb::arg("contents"), "Return the layout of the records of this table's checkpoints.")
      .def("apply_values", &Table::apply_values, nb::arg("folder"), nb::arg("parts"), nb::arg("records"),
           nb::arg("threads"), nb::call_guard<ReleasedGil>(),
           "Verify a checkpoint's parts, then set rows to their values and forget the keys they erase.");
  add_bags(module, table);

  module.def(
      "shard_of",
      [](InputArray<std::int64_t> keys, std::uint64_t shards) {
        if (shards == 0) {
          throw Error(ErrorKind::kUsage, "expected at least one shard, received 0", "shards");
        }
        PooledArray<std::int64_t> out(count_of(keys));
        for (std::int64_t i = 0; i < out.size(); ++i) {
          out[i] = static_cast<std::int64_t>(graphbox::shard_of(keys.data()[i], shards));
        }
        return to_numpy(std::move(out));
      },
      nb::arg("keys").noconvert(), nb::arg("shards"), "The shard that each key belongs to, int64[n].");
}

}  // namespace graphbox::bind
