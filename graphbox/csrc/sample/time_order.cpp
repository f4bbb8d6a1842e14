#include "sample/time_order.h"

#include <utility>
#include <vector>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "sample/rows_check.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkRows = 4096;

void check_row(std::int64_t begin, std::int64_t end, std::int64_t row, std::int64_t edges, const std::string& name) {
  if (begin < 0 || end < begin || end > edges) {
    throw Error(ErrorKind::kData,
                "indptr must rise from 0 to the number of timestamps, " + std::to_string(edges) + "; it goes from " +
                    std::to_string(begin) + " to " + std::to_string(end) + " at node " + std::to_string(row),
                name, "the graph is damaged: import it again");
  }
  if (end - begin > std::int64_t{INT32_MAX}) {
    throw Error(ErrorKind::kDoesNotFit,
                "nodes can have at most 2^31 - 1 edges with timestamps, node " + std::to_string(row) + " has " +
                    std::to_string(end - begin),
                name, "sample without time");
  }
}

}  // namespace

TimeOrder::TimeOrder(std::span<const std::int64_t> indptr, std::span<const std::int64_t> timestamps,
                     const std::string& name, int threads)
    : num_edges_(static_cast<std::int64_t>(timestamps.size())),
      times_(timestamps.size() * sizeof(std::int64_t)),
      shifts_(timestamps.size() * sizeof(std::int32_t)) {
  const auto rows = static_cast<std::int64_t>(indptr.size()) - 1;
  auto* const times = reinterpret_cast<std::int64_t*>(times_.data());
  auto* const shifts = reinterpret_cast<std::int32_t*>(shifts_.data());
  parallel_for(threads, (rows + kChunkRows - 1) / kChunkRows, [&](std::int64_t chunk) {
    std::vector<std::pair<std::int64_t, std::int64_t>> edges;  // time, position
    const std::int64_t end_row = std::min((chunk + 1) * kChunkRows, rows);
    for (std::int64_t row = chunk * kChunkRows; row < end_row; ++row) {
      const std::int64_t begin = indptr[static_cast<std::size_t>(row)];
      const std::int64_t end = indptr[static_cast<std::size_t>(row) + 1];
      check_row(begin, end, row, num_edges_, name);
      edges.clear();
      for (std::int64_t edge = begin; edge < end; ++edge) {
        edges.emplace_back(timestamps[static_cast<std::size_t>(edge)], edge);
      }
      std::sort(edges.begin(), edges.end());
      for (std::int64_t place = begin; place < end; ++place) {
        const auto& [time, position] = edges[static_cast<std::size_t>(place - begin)];
        times[place] = time;
        shifts[place] = static_cast<std::int32_t>(position - place);
      }
    }
  });
  check_rows_have_all(indptr, num_edges_, "timestamp", name);
}

}  // namespace graphbox
