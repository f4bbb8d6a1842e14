// Whole rows of a table for Python: graphbox/table/device_table.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <string>
#include <utility>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "table/table.h"

namespace graphbox::bind {
namespace {

template <typename Records>
void check_records(const Table& table, const Records& records, std::size_t keys) {
  if (records.shape(0) != keys || records.shape(1) != table.record_bytes()) {
    throw Error(ErrorKind::kUsage,
                "records must have shape (" + std::to_string(keys) + ", " + std::to_string(table.record_bytes()) +
                    "), received (" + std::to_string(records.shape(0)) + ", " + std::to_string(records.shape(1)) + ")",
                "records");
  }
}

NumpyArray<bool> read_records(const Table& table, InputArray<std::int64_t> keys, OutputArray<std::uint8_t, 2> records,
                              int threads) {
  check_records(table, records, keys.shape(0));
  const auto count = static_cast<std::int64_t>(keys.shape(0));
  PooledArray<bool> has_row(count);
  {
    const ReleasedGil release;
    table.read_records(keys.data(), count, reinterpret_cast<std::byte*>(records.data()), has_row.data(), threads);
  }
  return to_numpy(std::move(has_row));
}

std::int64_t write_records(Table& table, InputArray<std::int64_t> keys, InputArray<std::uint8_t, 2> records,
                           int threads) {
  check_records(table, records, keys.shape(0));
  const ReleasedGil release;
  return table.write_records(keys.data(), static_cast<std::int64_t>(keys.shape(0)),
                             reinterpret_cast<const std::byte*>(records.data()), threads);
}

}  // namespace

void add_table_records(nb::module_& module) {
  module.def("table_record_bytes", &Table::record_bytes, nb::arg("table"),
             "Bytes of a row's values and all of its state.");
  module.def(
      "table_admit",
      [](Table& table, InputArray<std::int64_t> keys, bool is_pull, int threads) {
        const ReleasedGil release;
        table.admit(keys.data(), static_cast<std::int64_t>(keys.shape(0)), is_pull, threads);
      },
      nb::arg("table"), nb::arg("keys").noconvert(), nb::arg("is_pull"), nb::arg("threads"),
      "Give keys rows as a pull or a push of them does.");
  module.def("table_read_records", &read_records, nb::arg("table"), nb::arg("keys").noconvert(),
             nb::arg("records").noconvert(), nb::arg("threads"),
             "Copy whole rows into an array of the caller, uint8[n, record bytes], those of keys without one as new "
             "rows would be; returns which have one, bool[n].");
  module.def("table_write_records", &write_records, nb::arg("table"), nb::arg("keys").noconvert(),
             nb::arg("records").noconvert(), nb::arg("threads"),
             "Replace whole rows of different keys by those in uint8[n, record bytes]; returns how many had one.");
}

}  // namespace graphbox::bind
