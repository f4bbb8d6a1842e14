// Tables with rows on SSD for Python: graphbox/table/tier.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <algorithm>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "table/cold_rows.h"
#include "table/segment_file.h"
#include "table/table.h"
#include "table/tier_snapshot.h"

namespace graphbox::bind {
namespace {

// Refuses tables without a folder: all but attach_tier() needs one.
Table& tiered(Table& table) {
  if (!table.has_tier()) {
    throw Error(ErrorKind::kUsage, "expected a table with rows on SSD, this one has no folder", "table");
  }
  return table;
}

// Tells a running prefetch to stop.
struct StopFlag {
  std::atomic<bool> is_set{false};
};

nb::list flush(Table& table) {
  std::vector<ListedSegment> segments;
  {
    const ReleasedGil release;
    segments = tiered(table).flush();
  }
  nb::list result;
  for (const ListedSegment& segment : segments) {
    nb::object live = nb::none();
    if (segment.is_changed) {
      live = nb::bytes(segment.live.data(), segment.live.size() * sizeof(std::uint64_t));
    }
    result.append(nb::make_tuple(segment.sequence, segment.kind == SegmentKind::kErasedKeys, segment.rows, live));
  }
  return result;
}

void restore(Table& table, std::uint64_t sequence, const std::optional<nb::bytes>& live) {
  std::vector<std::uint64_t> words;
  if (live) {
    words.resize(live->size() / sizeof(std::uint64_t));
    std::memcpy(words.data(), live->c_str(), words.size() * sizeof(std::uint64_t));
  }
  const ReleasedGil release;
  tiered(table).restore_segment(sequence, live ? &words : nullptr);
}

nb::dict figures(Table& table) {
  Table::TierFigures figures{};
  {
    const ReleasedGil release;
    figures = tiered(table).tier_figures();
  }
  nb::dict result;
  result["hot_rows"] = figures.hot_rows;
  result["room_rows"] = figures.room_rows;
  result["cold_rows"] = figures.cold_rows;
  result["hits"] = figures.hits;
  result["misses"] = figures.misses;
  result["evicted_rows"] = figures.evicted_rows;
  result["compacted_rows"] = figures.compacted_rows;
  result["bytes_read"] = figures.bytes_read;
  result["bytes_written"] = figures.bytes_written;
  result["segments"] = figures.segments;
  result["segment_bytes"] = figures.segment_bytes;
  result["segment_rows"] = figures.segment_rows;
  result["live_segment_rows"] = figures.live_segment_rows;
  return result;
}

}  // namespace

void add_table_tier(nb::module_& module) {
  nb::class_<StopFlag>(module, "StopFlag", "Tells a running prefetch to stop.")
      .def(nb::init<>())
      .def("set", [](StopFlag& self) { self.is_set = true; });
  module.def("table_attach_tier", &Table::attach_tier, nb::arg("table"), nb::arg("folder"), nb::arg("settings"),
             nb::arg("folder_lock"), nb::call_guard<ReleasedGil>(), "Let rows that find no room in memory go to segments there.");
  module.def("table_detach_tier", &Table::detach_tier, nb::arg("table"), nb::call_guard<ReleasedGil>(),
             "Let go of the folder; the table is of no use then.");
  module.def("table_restore_segment", &restore, nb::arg("table"), nb::arg("sequence"), nb::arg("live").none(),
             "Take the rows of a segment in the folder whose bits are set, or with None all, over earlier ones.");
  module.def("table_opened", [](Table& table) { return tiered(table).opened(); }, nb::arg("table"), nb::call_guard<ReleasedGil>(),
             "Remove segments that were not restored; returns how many files that were.");
  module.def("table_flush", &flush, nb::arg("table"),
             "Write all changed rows; returns what the catalogue must say: sequence, whether it is of erased keys, "
             "rows, and live bits unless they are as last time.");
  module.def("table_flushed", [](Table& table) { tiered(table).flushed(); }, nb::arg("table"), nb::call_guard<ReleasedGil>(),
             "The catalogue says what table_flush() returned.");
  module.def(
      "table_prefetch",
      [](Table& table, InputArray<std::int64_t> keys, int threads, const StopFlag& stop) {
        const ReleasedGil release;
        const Table::Prefetched prefetched =
            tiered(table).prefetch_rows(keys.data(), static_cast<std::int64_t>(keys.shape(0)), threads, stop.is_set);
        return std::tuple(prefetched.in_memory, prefetched.read);
      },
      nb::arg("table"), nb::arg("keys").noconvert(), nb::arg("threads"), nb::arg("stop"),
      "Read rows on SSD into memory; returns how many are there, and how many were read.");
  module.def("table_await_compaction", [](Table& table) { tiered(table).await_compaction(); }, nb::arg("table"),
             nb::call_guard<ReleasedGil>(), "Wait until no segment is to be rewritten in the background.");
  module.def("table_purge", [](Table& table) { return tiered(table).purge(); }, nb::arg("table"), nb::call_guard<ReleasedGil>(),
             "Rewrite segments that hold rows of erased keys; returns how many.");
  module.def("table_tier_figures", &figures, nb::arg("table"), "Counts of rows in the tier and of its reads, writes and evictions.");
  nb::class_<KeyScan>(module, "KeyScan", "The keys that a table had at a moment, a part at a time.")
      .def(
          "next",
          [](KeyScan& self, std::uint64_t most) {
            PooledArray<std::int64_t> keys;
            {
              const ReleasedGil release;
              const std::vector<std::int64_t> part = self.next(most);
              keys.resize(static_cast<std::int64_t>(part.size()));
              std::copy(part.begin(), part.end(), keys.data());
            }
            return to_numpy(std::move(keys));
          },
          nb::arg("most"), "At most so many keys, int64[n]; none at the end.");
  module.def("table_key_scan", [](Table& table) { return tiered(table).begin_key_scan(); }, nb::arg("table"),
             nb::call_guard<ReleasedGil>(), "Begin to go through the keys there are now.");
  module.def(
      "segment_keys",
      [](const std::string& path) {
        PooledArray<std::int64_t> keys;
        {
          const ReleasedGil release;
          const std::vector<std::int64_t> all =
              SegmentReader(path, "remove the file, or load a checkpoint of the table").keys();
          keys.resize(static_cast<std::int64_t>(all.size()));
          std::copy(all.begin(), all.end(), keys.data());
        }
        return to_numpy(std::move(keys));
      },
      nb::arg("path"), "The keys of a segment, of rows or erased ones, int64[n].");
  module.def(
      "segment_header",
      [](const std::string& path) {
        SegmentInfo info;
        std::uint32_t content_crc32c = 0;
        {
          const ReleasedGil release;
          const SegmentReader segment(path, "remove the file, or load a checkpoint of the table");
          info = segment.info();
          content_crc32c = segment.content_crc32c();
        }
        return std::tuple(info.sequence, info.kind == SegmentKind::kErasedKeys, info.rows, info.settings,
                          content_crc32c);
      },
      nb::arg("path"), "Sequence number, whether it is of erased keys, rows, settings and CRC-32C of a segment.");
}

}  // namespace graphbox::bind
