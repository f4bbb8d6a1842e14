// Tiered reading for Python.
#include "bind/released_gil.h"
#include "store/store.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "store/arrays.h"
#include "store/gather.h"
#include "store/trace_cache.h"

namespace graphbox::bind {
namespace {

ReadBackend backend_of(const std::string& name) {
  if (name == "auto") {
    return ReadBackend::kAuto;
  }
  if (name == "io_uring") {
    return ReadBackend::kUring;
  }
  if (name == "threads") {
    return ReadBackend::kThreads;
  }
  throw Error(ErrorKind::kUsage, "backend must be auto, io_uring or threads, received `" + name + "`", "backend");
}

using Files = std::vector<std::pair<std::string, std::uint64_t>>;
using Rows = std::optional<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>;
using Array = std::tuple<std::size_t, std::uint64_t, std::uint64_t, std::int64_t>;

// Whether `count` entries from `offset` on lie within `bytes` bytes.
bool lies_within(std::uint64_t offset, std::uint64_t entry_bytes, std::int64_t count, std::uint64_t bytes) {
  return count >= 0 && offset <= bytes &&
         (entry_bytes == 0 || static_cast<std::uint64_t>(count) <= (bytes - offset) / entry_bytes);
}

void construct(Store* self, const Files& files, const Rows& rows, std::uint64_t budget_bytes,
               const std::string& backend, unsigned depth, bool direct) {
  std::vector<FileSize> sizes;
  for (const auto& [path, bytes] : files) {
    sizes.push_back({path, bytes});
  }
  const StoreOptions options{budget_bytes, backend_of(backend), depth, direct};
  if (!rows) {
    new (self) Store(sizes, nullptr, options);
    return;
  }
  const auto [offset, row_bytes, count] = *rows;
  if (files.size() != 1 || row_bytes == 0 || count > INT64_MAX ||
      !lies_within(offset, row_bytes, static_cast<std::int64_t>(count), files.front().second)) {
    throw Error(ErrorKind::kUsage, "expected rows that lie within the only file", "rows");
  }
  const RowUnits units{offset, row_bytes, count};
  new (self) Store(sizes, &units, options);
}

StoredArray stored(const Store& store, const Array& array) {
  const auto [file, offset, entry_bytes, count] = array;
  if (file >= store.space().files() ||
      !lies_within(offset, entry_bytes, count, store.space().file(file).bytes())) {
    throw Error(ErrorKind::kUsage, "expected an array that lies within one of the store's files", "array");
  }
  const UnitLayout& rows = store.layout();
  if (store.units_are_rows() && (offset != rows.base || entry_bytes != rows.unit_bytes || count > rows.units)) {
    throw Error(ErrorKind::kUsage, "expected the rows that the store was made for", "array");
  }
  return {file, offset, entry_bytes, count};
}

Requests requests_of(const InputArray<std::int64_t>& index, std::int64_t limit, bool whole_pass, int threads) {
  return {view(index), limit, whole_pass ? Access::kPass : Access::kBatch, threads};
}

void check_size(std::size_t received, std::uint64_t expected) {
  if (received != expected) {
    throw Error(ErrorKind::kUsage,
                "expected " + std::to_string(expected) + " bytes, received " + std::to_string(received), "out");
  }
}

void read_rows_into(Store& self, const Array& array, InputArray<std::int64_t> index, OutputArray<std::uint8_t> out,
                    bool whole_pass, int threads, std::optional<InputArray<std::int64_t>> places) {
  const StoredArray rows = stored(self, array);
  const std::size_t room = rows.entry_bytes > 0 ? out.shape(0) / rows.entry_bytes : 0;
  if (!places) {
    check_size(out.shape(0), index.shape(0) * rows.entry_bytes);
  } else if (places->shape(0) != index.shape(0) || room * rows.entry_bytes != out.shape(0)) {
    throw Error(ErrorKind::kUsage, "expected a place for each row, and whole rows to put them into", "places");
  }
  const ReleasedGil release;
  check_index(view(index), rows.count, "index");
  if (places) {
    check_index(view(*places), static_cast<std::int64_t>(room), "places");
  }
  read_rows(self, rows, requests_of(index, rows.count, whole_pass, threads),
            reinterpret_cast<std::byte*>(out.data()), places ? places->data() : nullptr);
}

std::pair<NumpyArray<std::int64_t, 2>, NumpyArray<std::int64_t>> read_list_bounds(
    Store& self, const Array& array, std::int64_t items, InputArray<std::int64_t> index, bool whole_pass,
    int threads) {
  const StoredArray offsets = stored(self, array);
  if (offsets.entry_bytes != sizeof(std::int64_t)) {
    throw Error(ErrorKind::kUsage, "expected offsets of 8 bytes", "offsets");
  }
  const auto count = static_cast<std::int64_t>(index.shape(0));
  PooledArray<std::int64_t> bounds(2 * count);
  PooledArray<std::int64_t> starts(count + 1);
  {
    const ReleasedGil release;
    check_index(view(index), offsets.count - 1, "index");
    read_bounds(self, offsets, items, requests_of(index, offsets.count - 1, whole_pass, threads), bounds.data());
    starts[0] = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      starts[i + 1] = starts[i] + bounds[2 * i + 1] - bounds[2 * i];
    }
  }
  const std::size_t shape[2] = {index.shape(0), 2};
  return {to_numpy<std::int64_t, 2>(std::move(bounds), shape), to_numpy(std::move(starts))};
}

// Lists of `items` items, one after the other in what is read of them.
void check_lists(std::int64_t items, const InputArray<std::int64_t, 2>& bounds,
                 std::span<const std::int64_t> starts) {
  bool sound = starts.front() == 0;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const std::int64_t begin = bounds(i, 0);
    const std::int64_t end = bounds(i, 1);
    sound = sound && begin >= 0 && begin <= end && end <= items && starts[i + 1] == starts[i] + (end - begin);
  }
  if (!sound) {
    throw Error(ErrorKind::kUsage, "expected bounds and starts as read_bounds gave them for this index", "bounds");
  }
}

void read_list_items(Store& self, const Array& array, InputArray<std::int64_t> index, std::int64_t limit,
                     InputArray<std::int64_t, 2> bounds, InputArray<std::int64_t> starts,
                     OutputArray<std::uint8_t> out, bool whole_pass, int threads) {
  const StoredArray items = stored(self, array);
  if (self.units_are_rows()) {
    throw Error(ErrorKind::kUsage, "expected a store of arrays, this one was made for the rows of one", "array");
  }
  const std::size_t count = index.shape(0);
  if (bounds.shape(0) != count || bounds.shape(1) != 2 || starts.shape(0) != count + 1) {
    throw Error(ErrorKind::kUsage, "expected bounds and starts as read_bounds gave them for this index", "bounds");
  }
  check_lists(items.count, bounds, view(starts));
  check_size(out.shape(0), static_cast<std::uint64_t>(starts.data()[count]) * items.entry_bytes);
  const ReleasedGil release;
  check_index(view(index), limit, "index");
  read_items(self, items, requests_of(index, limit, whole_pass, threads), bounds.data(), starts.data(),
             reinterpret_cast<std::byte*>(out.data()));
}

using RowArrays = std::vector<InputArray<std::int64_t>>;

std::vector<std::span<const std::int64_t>> views(const RowArrays& arrays) {
  std::vector<std::span<const std::int64_t>> all;
  for (const auto& array : arrays) {
    all.push_back(view(array));
  }
  return all;
}

std::vector<std::int64_t> begin_pass(TraceCache& self, const RowArrays& batches) {
  const ReleasedGil release;
  return self.begin_pass(views(batches));
}

std::tuple<bool, NumpyArray<std::int64_t>, NumpyArray<std::int64_t>, NumpyArray<std::int64_t>> plan_window(
    TraceCache& self, const RowArrays& batches) {
  TraceCache::Plan plan;
  {
    const ReleasedGil release;
    plan = self.plan(views(batches));
  }
  return {plan.has_slots, to_numpy(std::move(plan.rows)), to_numpy(std::move(plan.slots)),
          to_numpy(std::move(plan.wanted))};
}

void gather(InputArray<std::uint8_t> table, std::uint64_t row_bytes, std::int64_t rows, InputArray<std::int64_t> index,
            OutputArray<std::uint8_t> out, int threads) {
  if (!lies_within(0, row_bytes, rows, table.shape(0))) {
    throw Error(ErrorKind::kUsage, "expected rows that lie within the table", "table");
  }
  check_size(out.shape(0), index.shape(0) * row_bytes);
  const ReleasedGil release;
  gather_rows({reinterpret_cast<const std::byte*>(table.data()), rows, row_bytes}, view(index), threads,
              reinterpret_cast<std::byte*>(out.data()));
}

nb::dict stats(const Store& self) {
  const StoreStats stats = self.stats();
  nb::dict result;
  result["requests"] = stats.requests;
  result["hits"] = stats.hits;
  result["misses"] = stats.misses;
  result["read_bytes"] = stats.read_bytes;
  result["read_requests"] = stats.read_requests;
  result["resident_bytes"] = stats.resident_bytes;
  return result;
}

}  // namespace

void add_store(nb::module_& module) {
  nb::class_<Store>(module, "Store", "Arrays in files larger than memory: what is wanted often is kept in memory.")
      .def("__init__", &construct, nb::arg("files"), nb::arg("rows").none(), nb::arg("budget_bytes"),
           nb::arg("backend"), nb::arg("depth"), nb::arg("direct"),
           "Files as (path, bytes). rows: (offset, row bytes, rows) of the only file, which is then kept by row.")
      .def("read_rows", &read_rows_into, nb::arg("array"), nb::arg("index").noconvert(), nb::arg("out").noconvert(),
           nb::arg("whole_pass"), nb::arg("threads"), nb::arg("places").noconvert() = nb::none(),
           "Entries of the array (file, offset, entry bytes, entries) into uint8[n * entry bytes], or into the "
           "places[n] among as many entries as out has room for.")
      .def("read_bounds", &read_list_bounds, nb::arg("offsets"), nb::arg("items"), nb::arg("index").noconvert(),
           nb::arg("whole_pass"), nb::arg("threads"),
           "Where lists begin and end, int64[n, 2], and where each begins in what read_items gives, int64[n + 1].")
      .def("read_items", &read_list_items, nb::arg("array"), nb::arg("index").noconvert(), nb::arg("limit"),
           nb::arg("bounds").noconvert(), nb::arg("starts").noconvert(), nb::arg("out").noconvert(),
           nb::arg("whole_pass"), nb::arg("threads"), "The items of lists, one list after the other, into uint8[...].")
      .def("stats", &stats, "Counts since it was opened, and the bytes it holds now.")
      .def_prop_ro("backend", &Store::backend, "Backend that reads the file.")
      .def_prop_ro("cache", &Store::cache_kind, "Kind of cache: resident (all), sieve (units used often), none.")
      .def_prop_ro("budget_bytes", &Store::budget_bytes);
  nb::class_<TraceCache>(module, "TraceCache", "Choice of the rows to keep in slots where the accesses to come are known.")
      .def(nb::init<std::int64_t, std::int64_t>(), nb::arg("num_rows"), nb::arg("slots"))
      .def("begin_pass", &begin_pass, nb::arg("batches").noconvert(),
           "Begin a pass over the rows that each batch wants; returns where its windows begin, and the end.")
      .def("plan", &plan_window, nb::arg("batches").noconvert(),
           "Plan the next window, with these batches: whether it has slots, the rows to read, the slots to read them\n"
           "into, and the slot of each row that the batches want.")
      .def("release", &TraceCache::release, "The oldest planned window is no longer in use.")
      .def_prop_ro("hits", &TraceCache::hits)
      .def_prop_ro("misses", &TraceCache::misses)
      .def_prop_ro("bytes", &TraceCache::bytes)
      .def_ro_static("slot_bytes", &TraceCache::kSlotBytes);
  module.def("gather_rows", &gather, nb::arg("table").noconvert(), nb::arg("row_bytes"), nb::arg("rows"),
             nb::arg("index").noconvert(), nb::arg("out").noconvert(), nb::arg("threads"),
             "Rows of the table uint8[rows * row bytes] into uint8[n * row bytes].");
  module.def(
      "pooled_bytes",
      [](std::size_t bytes) { return to_numpy(PooledArray<std::uint8_t>(static_cast<std::int64_t>(bytes))); },
      nb::arg("bytes"), "uint8[bytes], not initialised, of memory that is used again when Python drops it.");
}

}  // namespace graphbox::bind
